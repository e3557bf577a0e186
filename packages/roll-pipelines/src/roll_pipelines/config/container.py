"""A configuration instance as plain dicts, lists and scalars."""

import dataclasses
from enum import Enum
from pathlib import Path


def to_container(value: object) -> object:
    """Returns a value with every dataclass as a dict and every class as its dotted path.

    Args:
        value: a configuration, or a part of one.

    Example:
        >>> to_container(Path("a"))
        'a'
    """
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value):
        return {entry.name: to_container(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_container(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_container(entry) for entry in value]
    if isinstance(value, Enum):
        return to_container(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Path) else repr(value)
