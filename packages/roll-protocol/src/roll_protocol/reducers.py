"""How contributions to one metric come to one value."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import numpy as np
from torch import Tensor

from roll_protocol.errors import MetricError

COLLECT: Final = "collect"
"""How an undeclared metric without a tag is joined: a list with one entry per contribution."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One emission of one metric; however many parts carry it, it counts once."""

    id: str
    """Identity of the emission, unique across processes."""
    value: Any  # a user may collect values of any type
    """What was reported."""
    weight: float = 1.0
    """How much it counts in a mean, for example the number of tokens behind it."""


def emit(value: object, weight: float = 1.0) -> Contribution:
    return Contribution(uuid4().hex, value, weight)


def _mean(parts: Sequence[Contribution]) -> float:
    total = math.fsum(part.weight for part in parts)
    if total == 0:
        return math.nan
    return math.fsum(part.value * part.weight for part in parts) / total


def _std(parts: Sequence[Contribution]) -> float:
    return float(np.std([part.value for part in parts]))


def _percentile(q: float) -> Callable[[Sequence[Contribution]], float]:
    return lambda parts: float(np.percentile([part.value for part in parts], q))


REDUCERS: Final[dict[str, Callable[[Sequence[Contribution]], Any]]] = {  # a list reducer may return any type
    "sum": lambda parts: sum(part.value for part in parts),
    "mean": _mean,
    "max": lambda parts: max(part.value for part in parts),
    "min": lambda parts: min(part.value for part in parts),
    "std": _std,
    "p50": _percentile(50),
    "p99": _percentile(99),
    "last": lambda parts: parts[-1].value,
    "list": lambda parts: [part.value for part in parts],
    COLLECT: lambda parts: [part.value for part in parts],
}
_TAG = re.compile(r"@([A-Za-z0-9_]+)$")
ANY_VALUE = {"last", "list", COLLECT}


def plain(value: object) -> Any:  # a number stays a number, an array becomes a list of numbers
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value


def is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def reducer_of(name: str) -> str:
    match = _TAG.search(name)
    if match is None:
        return COLLECT
    tag = match.group(1)
    if tag not in REDUCERS or tag == COLLECT:
        raise MetricError(
            f"metric {name!r} asks for the reducer {tag!r}; choose from {sorted(set(REDUCERS) - {COLLECT})} "
            "or take the '@' out of its name"
        )
    return tag


def once(parts: Sequence[Contribution]) -> tuple[Contribution, ...]:
    return tuple({part.id: part for part in parts}.values())


def reduced(reducer: str, parts: Sequence[Contribution], what: str) -> Any:  # see REDUCERS
    if reducer not in ANY_VALUE:
        wrong = [part.value for part in parts if not is_number(part.value)]
        if wrong:
            raise MetricError(f"{what} is reduced by {reducer!r}, which takes numbers, not {wrong[0]!r:.60}")
        if not parts:
            return 0 if reducer == "sum" else math.nan
    elif reducer == "last" and not parts:
        return None
    return REDUCERS[reducer](parts)
