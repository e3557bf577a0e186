"""From an engine's name to an engine, through the entry-point group `roll.strategies`."""

import difflib
from importlib.metadata import EntryPoint, entry_points

from roll_strategies.context import StrategyContext, StrategyOwner, context_of
from roll_strategies.errors import StrategyNotInstalled, UnknownStrategy
from roll_strategies.interfaces import InferenceStrategy

GROUP = "roll.strategies"
_EXTRAS = {"hf": "hf", "fsdp2": "fsdp2", "megatron": "megatron", "vllm": "vllm", "sglang": "sglang"}


def strategy_names() -> list[str]:
    """Returns the names of all engines that are registered in this environment."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def check_strategy_name(name: str) -> None:
    """Raises UnknownStrategy when no engine of that name is registered; imports no engine."""
    _entry(name)


def load_strategy(name: str) -> type[InferenceStrategy]:
    """Returns the engine's class.

    Raises:
        UnknownStrategy: nobody registered that name.
        StrategyNotInstalled: it is registered, and a library that it needs is missing.
    """
    entry = _entry(name)
    try:
        loaded: type[InferenceStrategy] = entry.load()
    except ModuleNotFoundError as missing:
        library = missing.name or "a library"
        raise StrategyNotInstalled(
            f"strategy {name!r} is known but needs {library!r}, which is not installed; "
            f"{_remedy(entry, library)}"
        ) from missing
    return loaded


def build_strategy(context: StrategyContext) -> InferenceStrategy:
    """Returns a new strategy for a context; `initialize` has still to be called."""
    return load_strategy(context.strategy_name)(context)


def create_strategy(worker: StrategyOwner) -> InferenceStrategy:
    """Returns the strategy that a worker's configuration names; `initialize` has still to be called.

    Args:
        worker: anything with the attributes of `StrategyOwner`. The strategy does not keep it; it only sets
            `worker.rank_info` when `initialize` publishes the engine's real coordinates.

    Raises:
        UnknownStrategy: nobody registered that name.
        StrategyNotInstalled: it is registered, and a library that it needs is missing.
        StrategyConfigError: an option is unknown, or asks for what the engine cannot do.
    """
    return build_strategy(context_of(worker))


def _entry(name: str) -> EntryPoint:
    found = entry_points(group=GROUP, name=name)
    if found:
        return next(iter(found))
    names = strategy_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownStrategy(
        f"strategy_args.strategy_name: no strategy named {name!r}; {hint}registered in {GROUP!r}: "
        f"{', '.join(names)}"
    )


def _remedy(entry: EntryPoint, library: str) -> str:
    package, _, rest = entry.module.partition(".")
    if package == "roll_strategies":
        extra = _EXTRAS.get(rest.split(".")[0])
        if extra:
            return f"install it with: pip install 'roll-strategies[{extra}]'"
    return f"install {library!r}, or the package that brings {entry.value!r} with all that it needs"
