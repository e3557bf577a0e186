"""Type expressions of configuration fields, taken apart."""

import types
from typing import Any, Union, get_args, get_origin


def choices_of(hint: Any) -> tuple[Any, ...]:  # Any: type expressions
    """Returns the types of a union, or the one type of anything else.

    Example:
        >>> choices_of(int | None)
        (<class 'int'>, <class 'NoneType'>)
    """
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
