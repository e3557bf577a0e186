"""Frozen keyword-only values without `dataclasses`, whose import alone costs more than all of this package."""

from typing import Any, ClassVar, Self, dataclass_transform

_MISSING = object()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A frozen value: fields are the annotations of the class, given by keyword, compared and hashed by value."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = (n for n, kind in cls.__annotations__.items() if not str(kind).startswith("typing.ClassVar"))
        cls._fields = (*cls._fields, *own)

    def __init__(self, **values: Any) -> None:  # Any: each field's own type, which the checker knows
        state = self.__dict__
        for name in self._fields:
            value = values.pop(name, _MISSING)
            if value is _MISSING:
                value = getattr(type(self), name, _MISSING)
            if value is _MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}=")
            state[name] = value
        if values:
            raise TypeError(
                f"{type(self).__name__} has no field {', '.join(sorted(values))}; it has {', '.join(self._fields)}"
            )
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields."""

    def replace(self, **changes: Any) -> Self:  # Any: each field's own type
        """Return a copy with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self._fields}, **changes})

    __replace__ = replace

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen; use .replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    def _key(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return (
            self._key() == other._key()
            if isinstance(other, Record) and type(other) is type(self)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self._fields)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self._key())


def _restore(cls: type[Record], values: tuple[object, ...]) -> Record:
    return cls(**dict(zip(cls._fields, values, strict=True)))
