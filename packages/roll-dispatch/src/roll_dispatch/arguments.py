"""What one argument of a call is: rows that can be cut and joined, or one value for everybody."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from roll_dispatch.errors import RegisterError, SplitError
from roll_dispatch.record import Record

T = TypeVar("T")
Bounds = Sequence[tuple[int, int]]
Rows = Any  # Any: a value of a kind that this package need not know; only its kind looks inside


class Broadcast(Generic[T]):
    """An argument that every rank receives whole, whatever its type.

    Example:
        >>> split(Dispatch.DP_MP_COMPUTE, topology, batch, Broadcast(["stop", "words"]))  # doctest: +SKIP
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Broadcast({self.value!r})"


class Split(Generic[T]):
    """An argument that is split by rows although its type is one that everybody receives whole, such as a string."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Split({self.value!r})"


class Kind(Record):
    """How values of one kind are measured, cut, picked from and joined."""

    name: str
    length: Callable[[Rows], int]
    cut: Callable[[Rows, Bounds], list[Rows]]
    take: Callable[[Rows, Sequence[int]], Rows]
    concat: Callable[[Sequence[Rows]], Rows]
    header: Callable[[Rows], Rows]


_REGISTERED: dict[type, Kind] = {}


def register_splittable(
    cls: type[T],
    *,
    concat: Callable[[Sequence[T]], T],
    length: Callable[[T], int] = len,  # type: ignore[assignment]  # a type without __len__ gives its own
    cut: Callable[[T, int, int], T] | None = None,
    take: Callable[[T, Sequence[int]], T] | None = None,
    header: Callable[[T], T] | None = None,
) -> None:
    """Teach the splitting and joining of a type, and of its subclasses, that does not say it itself.

    Args:
        cls: the type. What is registered wins over what the type itself offers.
        concat: joins parts in order.
        length: number of rows.
        cut: `cut(value, start, stop)` returns rows start to stop; by default `value[start:stop]`.
        take: `take(value, indices)` returns the rows at these places; by default `value[indices]`.
        header: what ranks without rows receive; by default no rows, `cut(value, 0, 0)`.

    Raises:
        RegisterError: when `cls` is no type, or is None, list, tuple, str, bytes or dict, whose rule is fixed.
    """
    if not isinstance(cls, type) or cls in (list, tuple, str, bytes, dict, type(None)):
        raise RegisterError(
            f"{cls!r} cannot be registered: its rule is fixed; wrap the rows in a type of your own"
        )
    one = cut or (lambda value, start, stop: value[start:stop])  # type: ignore[index]  # checked when it is used
    _REGISTERED[cls] = Kind(
        name=cls.__name__,
        length=length,
        cut=lambda value, bounds: [one(value, start, stop) for start, stop in bounds],
        take=take or (lambda value, indices: value[list(indices)]),
        concat=concat,
        header=header or (lambda value: one(value, 0, 0)),
    )


def kind_of(value: object, *, forced: bool = False) -> Kind | None:
    """Return how a value is cut into rows, or None when it has no rows and everybody receives it whole.

    Args:
        value: an argument or an output.
        forced: it was wrapped in `Split`, so strings and bytes are rows.

    Raises:
        SplitError: when the value has a length but no way to be cut.
    """
    for base in type(value).__mro__ if _REGISTERED else ():
        if base in _REGISTERED:
            return _REGISTERED[base]
    if value is None or isinstance(value, (bool, int, float, complex, type)):
        return None
    if isinstance(value, (str, bytes)):
        return TEXT if forced else None
    if isinstance(value, list):
        return LIST
    if isinstance(value, tuple):
        return None if hasattr(value, "_fields") else TUPLE
    if hasattr(value, "shape") and hasattr(value, "__getitem__"):
        return ARRAY if len(value.shape) else None
    if hasattr(value, "chunk") and hasattr(value, "__len__"):
        return CHUNKED
    if not hasattr(value, "__len__") or isinstance(value, dict):
        return None
    raise SplitError(
        f"a {type(value).__name__} has a length but no rule to cut it: give it chunk(n) and concat, teach it with "
        f"register_splittable({type(value).__name__}, ...), or wrap it in Broadcast(...) to send it whole"
    )


def _slices(value: Rows, bounds: Bounds) -> list[Rows]:
    return [value[start:stop] for start, stop in bounds]


def _chunks(value: Rows, bounds: Bounds) -> list[Rows]:
    parts = list(value.chunk(len(bounds)))
    sizes, wanted = [len(part) for part in parts], [stop - start for start, stop in bounds]
    if sizes != wanted:
        raise SplitError(
            f"{type(value).__name__}.chunk({len(bounds)}) gives parts of {sizes} rows where all arguments are cut "
            f"into {wanted}; make the first parts one larger, or use register_splittable to cut by bounds"
        )
    return parts


def _own_header(value: Rows) -> Rows:
    return value.header() if hasattr(value, "header") else value[0:0]


def _concat_own(parts: Sequence[Rows]) -> Rows:
    return type(parts[0]).concat(list(parts))


def _concat_arrays(parts: Sequence[Rows]) -> Rows:
    first = parts[0]
    if hasattr(type(first), "concat"):
        return _concat_own(parts)
    if hasattr(first, "__torch_function__"):
        return sys.modules["torch"].cat(list(parts))
    if hasattr(first, "__array_namespace__"):
        return first.__array_namespace__().concat(list(parts))
    if hasattr(first, "__array_function__"):
        return sys.modules["numpy"].concatenate(list(parts))
    raise SplitError(
        f"a {type(first).__name__} can be cut but not joined: give it concat or teach it with "
        f"register_splittable({type(first).__name__}, ...)"
    )


LIST = Kind(
    name="list",
    length=len,
    cut=_slices,
    take=lambda value, indices: [value[i] for i in indices],
    concat=lambda parts: [row for part in parts for row in part],
    header=lambda value: [],
)
TUPLE = Kind(
    name="tuple",
    length=len,
    cut=_slices,
    take=lambda value, indices: tuple(value[i] for i in indices),
    concat=lambda parts: tuple(row for part in parts for row in part),
    header=lambda value: (),
)
TEXT = Kind(
    name="text",
    length=len,
    cut=_slices,
    take=lambda value, indices: value[:0].join(value[i : i + 1] for i in indices),
    concat=lambda parts: parts[0][:0].join(parts),
    header=lambda value: value[:0],
)
ARRAY = Kind(
    name="array",
    length=lambda value: int(value.shape[0]),
    cut=_slices,
    take=lambda value, indices: value[list(indices)],
    concat=_concat_arrays,
    header=_own_header,
)
CHUNKED = Kind(
    name="splittable",
    length=len,
    cut=_chunks,
    take=lambda value, indices: value[list(indices)],
    concat=_concat_own,
    header=_own_header,
)
