"""The options of an engine: a frozen dataclass filled from `strategy_config`, unknown keys refused."""

import difflib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from roll_strategies.errors import StrategyConfigError

OptionsT = TypeVar("OptionsT")


def read_options(
    options_type: type[OptionsT], strategy_config: Mapping[str, object], *, engine: str
) -> OptionsT:
    """Returns the options that a user's `strategy_config` asks for.

    Args:
        options_type: a dataclass whose fields are the options.
        strategy_config: what the user wrote.
        engine: the engine's name, for messages.

    Returns:
        An instance of `options_type`.

    Raises:
        StrategyConfigError: an unknown key (the nearest valid one is named), or a value of the wrong type.
    """
    assert is_dataclass(options_type)
    valid = {item.name for item in fields(options_type)}
    hints = get_type_hints(options_type)
    for key, value in strategy_config.items():
        if key not in valid:
            near = difflib.get_close_matches(str(key), sorted(valid), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {sorted(valid) or 'no options'}"
            raise StrategyConfigError(
                f"strategy_args.strategy_config.{key} is not an option of strategy {engine!r}; {hint}"
            )
        if not _fits(value, hints[key]):
            raise StrategyConfigError(
                f"strategy_args.strategy_config.{key} of strategy {engine!r} must be {_name(hints[key])}, "
                f"got {value!r}"
            )
    return options_type(**dict(strategy_config))


def _fits(value: object, hint: Any) -> bool:  # Any: a type annotation has no better type
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (types.UnionType, Union):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is type(None):
        return value is None
    origin = get_origin(hint) or hint
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, list | tuple)
    return isinstance(value, origin)


def _name(hint: Any) -> str:  # Any: a type annotation has no better type
    if get_origin(hint) is Literal:
        return f"one of {list(get_args(hint))}"
    return hint.__name__ if isinstance(hint, type) else str(hint)
