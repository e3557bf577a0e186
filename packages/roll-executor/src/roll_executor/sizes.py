"""How many bytes a payload holds, as far as it can be told without serialising it."""

from collections.abc import Iterable, Mapping, Sequence

DEPTH = 4


def size_of(value: object, *, depth: int = DEPTH) -> int:
    """Return the bytes of arrays, batches, texts and numbers in a payload; what tells nothing counts as 0.

    Args:
        value: anything; what has ``nbytes`` (arrays, tensors, batches) is believed.
        depth: how deep containers are looked into.

    Example:
        >>> size_of({"text": "abc", "flags": [True, False]})
        19
    """
    if value is None:
        return 0
    told = getattr(value, "nbytes", None)
    if isinstance(told, int):
        return told
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, str):
        return len(value.encode(errors="replace"))
    if isinstance(value, bool | int | float):
        return 8
    if depth == 0:
        return 0
    if isinstance(value, Mapping):
        return sum(size_of(item, depth=depth - 1) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(size_of(item, depth=depth - 1) for item in value)
    return 0


def size_of_parts(parts: Sequence[tuple[Sequence[object], Mapping[str, object]] | None]) -> int:
    """Return the bytes of all arguments of a call; what several ranks share counts once."""
    distinct = {id(value): value for part in parts if part is not None for value in _values(part)}
    return sum(size_of(value) for value in distinct.values())


def _values(part: tuple[Sequence[object], Mapping[str, object]]) -> Iterable[object]:
    return (*part[0], *part[1].values())
