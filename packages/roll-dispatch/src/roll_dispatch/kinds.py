"""Which values have rows, and how rows of each kind are measured, cut, picked and joined."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roll_dispatch.errors import RegisterError, SplitError
from roll_dispatch.record import Record

T = TypeVar("T")
Rows = Any  # Any: a value of a kind that this package need not know; only its kind looks inside
Bounds = Sequence[tuple[int, int]]
"""Where each part starts and stops."""


class Kind(Record):
    """How values of one kind are measured, cut, picked from and joined."""

    name: str
    length: Callable[[Rows], int]
    cut: Callable[[Rows, Bounds], list[Rows]]
    take: Callable[[Rows, Sequence[int]], Rows]
    concat: Callable[[Sequence[Rows]], Rows]
    header: Callable[[Rows], Rows]
    trusted: bool = False
    """Whether the rule is ours, so that the sizes of its parts need no second look."""


def even_bounds(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return where each part starts and stops: sizes differ by at most one, the larger parts come first.

    Example:
        >>> even_bounds(5, 3)
        [(0, 2), (2, 4), (4, 5)]
    """
    size, larger = divmod(rows, parts)
    turn = larger * (size + 1)
    bounds = [(start, start + size + 1) for start in range(0, turn, size + 1)]
    if size:
        return bounds + [(start, start + size) for start in range(turn, rows, size)]
    return bounds + [(rows, rows)] * (parts - larger)


def _slices(value: Rows, bounds: Bounds) -> list[Rows]:
    return [value[start:stop] for start, stop in bounds]


def _indexed(value: Rows, indices: Sequence[int]) -> Rows:
    return value[list(indices)]


def _header(value: Rows) -> Rows:
    return value.header() if hasattr(value, "header") else value[0:0]


def _stack(parts: Sequence[Rows]) -> list[Any]:  # Any: rows of the user
    rows: list[Any] = []  # Any: as above
    for part in parts:
        rows += part  # faster than item by item, which is what chain does
    return rows


def _chunks(value: Rows, bounds: Bounds) -> list[Rows]:
    even = even_bounds(len(value), len(bounds))
    return list(value.chunk(len(bounds))) if list(bounds) == even else _slices(value, bounds)


def _concat_own(parts: Sequence[Rows]) -> Rows:
    own = getattr(type(parts[0]), "concat", None)
    if own is None:
        name = type(parts[0]).__name__
        raise SplitError(f"a {name} can be cut but not joined: give it concat, or use register_splittable")
    return own(list(parts))


def _concat_arrays(parts: Sequence[Rows]) -> Rows:
    first = parts[0]
    if hasattr(first, "__torch_function__"):
        return sys.modules["torch"].cat(list(parts))
    if hasattr(first, "__array_namespace__"):
        return first.__array_namespace__().concat(list(parts))
    return sys.modules["numpy"].concatenate(list(parts))


LIST = Kind(
    name="list",
    trusted=True,
    length=len,
    cut=_slices,
    take=lambda value, indices: [value[i] for i in indices],
    concat=_stack,
    header=lambda value: [],
)
TUPLE = Kind(
    name="tuple",
    trusted=True,
    length=len,
    cut=_slices,
    take=lambda value, indices: tuple(value[i] for i in indices),
    concat=lambda parts: tuple(_stack(parts)),
    header=lambda value: (),
)
TEXT = Kind(
    name="text",
    trusted=True,
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
    take=_indexed,
    concat=_concat_arrays,
    header=lambda value: value[0:0],
)
SPLITTABLE = Kind(
    name="splittable", length=len, cut=_chunks, take=_indexed, concat=_concat_own, header=_header
)
_ARRAY_PROTOCOLS = ("__torch_function__", "__array_namespace__", "__array_function__")
_FIXED = (list, tuple, str, bytes, bytearray, dict, int, float, complex, type(None), object)
_registered: dict[type, Kind] = {}


def kind_of(value: object, *, forced: bool = False) -> Kind | None:
    """Return how a value is cut into rows, or None when it has no rows and every rank receives it whole.

    Args:
        value: an argument, an item of a dict, or an output.
        forced: whether the caller asks for rows, so that text is rows of characters.

    Raises:
        SplitError: when the value has a length but no rule.
    """
    if _registered:
        for base in type(value).__mro__:
            if base in _registered:
                return _registered[base]
    if isinstance(value, list):
        return LIST
    if isinstance(value, tuple):
        return None if hasattr(value, "_fields") else TUPLE
    if isinstance(value, (str, bytes, bytearray)):
        return TEXT if forced else None
    if value is None or isinstance(value, (int, float, complex, type, dict, memoryview)):
        return None
    return _structural_kind(value)


def _structural_kind(value: object) -> Kind | None:
    if hasattr(value, "shape") and any(hasattr(value, protocol) for protocol in _ARRAY_PROTOCOLS):
        return ARRAY if len(value.shape) else None
    if not hasattr(value, "__len__"):
        return None
    if hasattr(value, "chunk"):
        return SPLITTABLE
    name = type(value).__name__
    raise SplitError(
        f"a {name} has a length but no rule that cuts it into rows: give it chunk(n) and concat, teach it "
        f"with register_splittable({name}, ...), or wrap it in Broadcast(...) to send it whole"
    )


def register_splittable(
    cls: type[T],
    *,
    concat: Callable[[Sequence[T]], T],
    length: Callable[[T], int] = len,  # type: ignore[assignment]  # a type without __len__ gives its own
    cut: Callable[[T, int, int], T] | None = None,
    take: Callable[[T, Sequence[int]], T] | None = None,
    header: Callable[[T], T] | None = None,
) -> None:
    """Teach how a type, with its subclasses, is cut into rows and joined.

    What is taught wins over what the type itself offers. Teach at import of the module that owns the type, so
    that it holds wherever calls are made.

    Args:
        cls: the type.
        concat: `concat(parts)` joins parts in order.
        length: number of rows.
        cut: `cut(value, start, stop)` returns rows start to stop; by default `value[start:stop]`.
        take: `take(value, indices)` returns the rows at these places; by default `value[indices]`.
        header: what a rank without rows receives; by default no rows, `cut(value, 0, 0)`.

    Raises:
        RegisterError: when `cls` is no type, or one whose rule is fixed.

    Example:
        >>> register_splittable(range, concat=lambda parts: range(parts[0].start, parts[-1].stop))
    """
    if not isinstance(cls, type) or cls in _FIXED:
        raise RegisterError(
            f"register_splittable takes a type of your own, not {cls!r}, whose rule is fixed; wrap the "
            "rows in a class"
        )

    def one(value: Rows, start: int, stop: int) -> Rows:
        return value[start:stop] if cut is None else cut(value, start, stop)

    _registered[cls] = Kind(
        name=cls.__name__,
        length=length,
        cut=lambda value, bounds: [one(value, start, stop) for start, stop in bounds],
        take=take or _indexed,
        concat=concat,
        header=header or (lambda value: one(value, 0, 0)),
    )
