"""Frozen values, keyword-only like frozen dataclasses, without the import of `dataclasses`.

That import costs several times what all of this package costs.
"""

from typing import Any, ClassVar, Self, dataclass_transform

_MISSING = object()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A frozen value: its fields are the annotations of the class; it is compared and hashed by value."""

    fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields in order."""

    def __init_subclass__(cls) -> None:
        own = (name for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind))
        cls.fields = (*cls.fields, *own)

    def __init__(self, **values: Any) -> None:  # Any: each field's own type, which the checker knows
        state = self.__dict__
        for name in self.fields:
            value = values.pop(name, _MISSING)
            state[name] = getattr(type(self), name, _MISSING) if value is _MISSING else value
        missing = [name for name in self.fields if state[name] is _MISSING]
        if missing or values:
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(self.fields)}; "
                + (f"missing: {', '.join(missing)}" if missing else f"unknown: {', '.join(values)}")
            )
        self.check()

    def check(self) -> None:
        """Raise when the fields do not fit together; called at birth."""

    def replace(self, **changes: Any) -> Self:  # Any: each field's own type
        """Return a copy in which some fields are changed."""
        return type(self)(**{**self.__dict__, **changes})

    __replace__ = replace

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make another one with .replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), tuple(self.__dict__.items()))


def _restore(cls: type[Record], values: tuple[tuple[str, object], ...]) -> Record:
    return cls(**dict(values))
