"""From an engine's name to an engine, through the entry-point group `roll.strategies`."""

import difflib
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLibrary:
    """What an engine needs and this environment lacks."""

    name: str
    """The library."""
    remedy: str
    """What to do about it, as a sentence without its full stop."""


def missing_library(name: str) -> MissingLibrary | None:
    """Returns the first library that an engine needs and that is not installed here; imports no engine.

    It goes by what the engine's package declares for it, so a library that is installed and broken is found
    by `load_strategy` only.

    Raises:
        UnknownStrategy: nobody registered that name.

    Example:
        >>> missing_library("mock_infer") is None
        True
    """
    entry = _entry(name)
    package = entry.module.partition(".")[0]
    if find_spec(package) is None:
        return MissingLibrary(name=package, remedy=_remedy(entry, package))
    extras = [*entry.extras, *([_own_extra(entry)] if _own_extra(entry) else [])]
    for line in (entry.dist.requires if entry.dist is not None else None) or ():
        wanted = re.match(r"[\w.-]+", line)
        asked_by = re.search(r"""extra\s*==\s*["']([\w.-]+)["']""", line)
        if wanted and asked_by and asked_by[1] in extras and not _is_there(wanted[0]):
            return MissingLibrary(name=wanted[0], remedy=_remedy(entry, wanted[0]))
    return None


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


def _is_there(library: str) -> bool:
    if find_spec(library.replace("-", "_").lower()) is not None:
        return True  # whatever distribution brought it, such as another build
    try:
        distribution(library)
    except PackageNotFoundError:
        return False
    return True


def _own_extra(entry: EntryPoint) -> str | None:
    package, _, rest = entry.module.partition(".")
    return _EXTRAS.get(rest.split(".")[0]) if package == "roll_strategies" else None


def _remedy(entry: EntryPoint, library: str) -> str:
    if extra := _own_extra(entry):
        return f"install it with: pip install 'roll-strategies[{extra}]'"
    return f"install {library!r}, or the package that brings {entry.value!r} with all that it needs"
