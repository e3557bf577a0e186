"""Device mappings: the lists of global device ids that a user writes, parsed and never evaluated."""

import ast
import re
from collections import Counter
from collections.abc import Sequence

from roll_resources.errors import DeviceMappingError

GRAMMAR = '[0, 1], "0-7,16-23", "range(0, 8)" or "list(range(0, 4)) + [6, 7]"'
MAX_DEVICES = 1_000_000

_RANGES = re.compile(r"\s*\d+\s*(-\s*\d+\s*)?(,\s*\d+\s*(-\s*\d+\s*)?)*")


def parse_device_mapping(mapping: str | Sequence[int] | range | None) -> tuple[int, ...] | None:
    """Return the global device ids that a mapping names, in the order in which it names them.

    Args:
        mapping: a list of ids, a string such as ``"list(range(0, 8))"`` or ``"0-7,16-23"``, or None.

    Returns:
        The ids, or None for None, an empty list and an empty string: a role on the CPU.

    Raises:
        DeviceMappingError: if the text is outside the grammar, or an id is negative, no number or repeated.

    Example:
        >>> parse_device_mapping("0-3,6")
        (0, 1, 2, 3, 6)
    """
    if mapping is None:
        return None
    ids = _parse_text(mapping) if isinstance(mapping, str) else list(mapping)
    _check(ids, mapping)
    return tuple(ids) or None


def _check(ids: list[int], mapping: object) -> None:
    wrong = [value for value in ids if isinstance(value, bool) or not isinstance(value, int)]
    if wrong:
        raise DeviceMappingError(
            f"device_mapping {mapping!r} holds {wrong[0]!r}; device ids are whole numbers, e.g. {GRAMMAR}"
        )
    negative = sorted({value for value in ids if value < 0})
    if negative:
        raise DeviceMappingError(f"device_mapping {mapping!r} holds negative ids {negative}; ids start at 0")
    twice = sorted(value for value, count in Counter(ids).items() if count > 1)
    if twice:
        raise DeviceMappingError(
            f"device_mapping {mapping!r} names {twice} more than once; name each device once"
        )


def _parse_text(text: str) -> list[int]:
    stripped = text.strip()
    if not stripped:
        return []
    if _RANGES.fullmatch(stripped):
        return [value for part in stripped.split(",") for value in _parse_range(part, text)]
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as broken:
        raise DeviceMappingError(f"device_mapping {text!r} cannot be read; write {GRAMMAR}") from broken
    return _walk(tree, text)


def _parse_range(part: str, text: str) -> range:
    first, _, last = part.partition("-")
    start, stop = int(first), int(last or first) + 1
    if stop <= start:
        raise DeviceMappingError(
            f"device_mapping {text!r}: the range {part.strip()!r} ends before it starts; "
            "write the smaller id first"
        )
    return _bounded(range(start, stop), text)


def _walk(tree: ast.expr, text: str) -> list[int]:
    match tree:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_integer(element, text) for element in elements]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _walk(left, text) + _walk(right, text)
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner], keywords=[]):
            return _walk(inner, text)
        case ast.Call(func=ast.Name(id="range"), args=[_, *_] as arguments, keywords=[]) if (
            len(arguments) <= 3
        ):
            values = [_integer(argument, text) for argument in arguments]
            if len(values) == 3 and values[2] == 0:
                raise DeviceMappingError(f"device_mapping {text!r}: the step of a range cannot be 0")
            return list(_bounded(range(*values), text))
        case _:
            raise DeviceMappingError(
                f"device_mapping {text!r} holds {ast.unparse(tree)!r}, which is not part of the grammar; "
                f"write {GRAMMAR}"
            )


def _integer(tree: ast.expr, text: str) -> int:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(
            value, bool
        ):
            return -value
        case _:
            raise DeviceMappingError(
                f"device_mapping {text!r} holds {ast.unparse(tree)!r} where a whole number belongs; "
                f"write {GRAMMAR}"
            )


def _bounded(ids: range, text: str) -> range:
    if ids and len(ids) > MAX_DEVICES:
        raise DeviceMappingError(
            f"device_mapping {text!r} names {len(ids)} devices; at most {MAX_DEVICES} are allowed"
        )
    return ids
