"""Metrics: numbers that several parts of a batch report and that are counted once each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from roll_protocol.equality import same
from roll_protocol.errors import MetricError
from roll_protocol.reducers import (
    ANY_VALUE,
    COLLECT,
    REDUCERS,
    Contribution,
    emit,
    is_number,
    once,
    plain,
    reduced,
    reducer_of,
)


class Metric:
    """A metric whose way of being joined is declared where it is reported.

    Example:
        >>> Metric.mean(0.5, weight=10).merge(Metric.mean(1.0, weight=30)).value
        0.875
    """

    __slots__ = ("contributions", "reducer")
    __hash__ = None  # type: ignore[assignment]  # equality is by value, so metrics are not dictionary keys

    def __init__(self, reducer: str, contributions: Iterable[Contribution]) -> None:
        self.reducer = reducer
        self.contributions = tuple(contributions)
        if reducer not in REDUCERS:
            raise MetricError(f"no reducer named {reducer!r}; choose from {sorted(REDUCERS)}")

    @classmethod
    def of(cls, reducer: str, value: object, *, weight: float = 1.0) -> Self:
        """Return one contribution of ``value`` that is joined by ``reducer``.

        Raises:
            MetricError: The reducer is unknown, the value is not a number, or the weight is negative.
        """
        number = plain(value)
        if reducer not in ANY_VALUE and not is_number(number):
            raise MetricError(f"Metric.{reducer} takes one number, not {type(value).__name__} {value!r:.60}")
        if not weight >= 0:
            raise MetricError(f"the weight of a metric is a number >= 0, not {weight!r}")
        return cls(reducer, (emit(number, float(weight)),))

    @classmethod
    def sum(cls, value: object) -> Self:
        """Return a metric whose contributions are added up."""
        return cls.of("sum", value)

    @classmethod
    def mean(cls, value: object, *, weight: float = 1.0) -> Self:
        """Return a metric whose contributions are averaged, each counting ``weight`` times."""
        return cls.of("mean", value, weight=weight)

    @classmethod
    def max(cls, value: object) -> Self:
        """Return a metric of which the largest contribution is kept."""
        return cls.of("max", value)

    @classmethod
    def min(cls, value: object) -> Self:
        """Return a metric of which the smallest contribution is kept."""
        return cls.of("min", value)

    @classmethod
    def last(cls, value: object) -> Self:
        """Return a metric of which the contribution that was joined last is kept."""
        return cls.of("last", value)

    @classmethod
    def list(cls, value: object) -> Self:
        """Return a metric whose contributions are kept side by side; a list contributes each of its
        entries."""
        values = plain(value)
        return cls("list", map(emit, values) if isinstance(values, _LIST) else (emit(values),))

    @property
    def value(self) -> Any:  # a list metric holds whatever was reported
        """What all contributions come to."""
        return reduced(self.reducer, self.contributions, "this metric")

    def merge(self, other: "Metric") -> "Metric":
        """Return the metric with the contributions of both, each counted once.

        Raises:
            MetricError: The two declare different reducers.
        """
        if other.reducer != self.reducer:
            raise MetricError(
                f"one side declares {self.reducer!r} and the other {other.reducer!r}; declare one"
            )
        return Metric(self.reducer, once([*self.contributions, *other.contributions]))

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Metric)
            and self.reducer == other.reducer
            and _same_contributions(self.contributions, other.contributions)
        )

    def __repr__(self) -> str:
        return f"Metric.{self.reducer}({self.value!r}, contributions={len(self.contributions)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_metric, (self.reducer, tuple((c.id, c.value, c.weight) for c in self.contributions))


def _restore_metric(
    reducer: str, parts: Iterable[tuple[str, Any, float]]
) -> Metric:  # see Contribution.value
    return Metric(reducer, (Contribution(*part) for part in parts))


_LIST = list  # Metric.list hides the built-in inside the class


class Metrics(dict[str, Any]):  # values are whatever users report
    """A dictionary of metrics that remembers which emissions its plain values stand for.

    Parts of a batch carry their metrics in one of these. It reads and writes as a plain dictionary; a value
    that is written anew is a new emission.
    """

    __slots__ = ("stamps",)

    def __init__(
        self, values: Mapping[str, Any] = {}, stamps: "Mapping[str, Stamp] | None" = None
    ) -> None:  # read only
        super().__init__(values)
        self.stamps: dict[str, Stamp] = dict(stamps or {})

    def __setitem__(self, name: str, value: object) -> None:
        self.stamps.pop(name, None)
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:  # the signature of dict.update
        """Write every given value; values from another Metrics keep their identity."""
        for source in (*args, kwargs):
            for name, value in dict(source).items():
                self[name] = value
                if isinstance(source, Metrics) and name in source.stamps:
                    self.stamps[name] = source.stamps[name]

    def __delitem__(self, name: str) -> None:
        self.stamps.pop(name, None)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:  # the signature of dict.pop
        """Take a metric out and return it."""
        self.stamps.pop(name, None)
        return super().pop(name, *default)

    def clear(self) -> None:
        """Take every metric out."""
        self.stamps.clear()
        super().clear()

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # the signature of dict.__ior__
        self.update(other)
        return self

    def copy(self) -> "Metrics":
        """Return a dictionary of its own with the same values and identities."""
        return Metrics(self, self.stamps)

    def __reduce__(self) -> tuple[object, ...]:
        stamps = {
            name: (stamp.reducer, tuple((c.id, c.value, c.weight) for c in stamp.contributions))
            for name, stamp in self.stamps.items()
            if stamp.describes(self.get(name))
        }
        return _restore_metrics, (type(self), dict(self), stamps)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The emissions behind one plain value."""

    seen: Any  # the value as it was when it was stamped, of any type
    reducer: str
    contributions: tuple[Contribution, ...]

    def describes(self, value: object) -> bool:
        """Tell whether ``value`` is still the value that was stamped."""
        return type(value) is type(self.seen) and same(value, self.seen)


def _restore_metrics(
    cls: type[Metrics],
    values: dict[str, Any],
    stamps: Mapping[str, tuple[str, tuple[tuple[str, Any, float], ...]]],  # see Contribution.value
) -> Metrics:
    return cls(
        values,
        {
            name: Stamp(_frozen(values[name]), reducer, tuple(Contribution(*part) for part in parts))
            for name, (reducer, parts) in stamps.items()
        },
    )


def _frozen(value: object) -> object:
    return list(value) if isinstance(value, list) else value


def stamp(name: str, value: object) -> Stamp:
    """Return the emissions of one value: a declared metric's own, else new ones."""
    if isinstance(value, Metric):
        return Stamp(value, value.reducer, value.contributions)
    flat = plain(value)
    parts = tuple(map(emit, flat)) if isinstance(flat, list) else (emit(flat),)
    return Stamp(_frozen(value), reducer_of(name), parts)


def stamped(metrics: Mapping[str, Any], stamps: Mapping[str, Stamp]) -> Metrics:
    """Return the metrics with an identity for each value: a known one where the value has not changed."""
    if isinstance(metrics, Metrics):
        stamps = metrics.stamps
    fresh: dict[str, Stamp] = {}
    for name, value in metrics.items():
        known = stamps.get(name)
        fresh[name] = known if known is not None and known.describes(value) else stamp(name, value)
    if isinstance(metrics, Metrics):
        metrics.stamps = fresh  # the next part that is made of it carries the same identities
    return Metrics(metrics, fresh)


def merge_metrics(parts: Iterable[Mapping[str, Any]]) -> Metrics:
    """Join the metrics of several parts; each emission counts once.

    Args:
        parts: One dictionary per part. A name may be missing in some.

    Returns:
        Declared metrics stay Metric; a number with a tag (``loss@mean``) is the reduced number; other values
        become a list with one entry per contribution, also when there is one part.

    Raises:
        MetricError: Two parts declare different reducers for one name, or a tag is unknown.
    """
    found: dict[str, list[Stamp]] = {}
    for part in parts:
        for name, entry in stamped(part, {}).stamps.items():
            found.setdefault(name, []).append(entry)
    joined = Metrics()
    for name, entries in found.items():
        value, entry = _join(name, entries)
        joined[name] = value
        joined.stamps[name] = entry
    return joined


def _join(name: str, entries: Sequence[Stamp]) -> tuple[object, Stamp]:
    declared = {isinstance(entry.seen, Metric) for entry in entries}
    reducers = {entry.reducer for entry in entries}
    if len(declared) > 1 or len(reducers) > 1:
        raise MetricError(
            f"metric {name!r} is reported as {sorted(reducers)} "
            f"{'and without a declaration ' if len(declared) > 1 else ''}by different parts; report "
            "it in one way"
        )
    (reducer,) = reducers
    parts = once([part for entry in entries for part in entry.contributions])
    if True in declared:
        metric = Metric(reducer, parts)
        return metric, Stamp(metric, reducer, parts)
    value = reduced(reducer, parts, f"metric {name!r}")
    return value, Stamp(_frozen(value), reducer, parts)


def reduce_metrics(metrics: Mapping[str, Any], *, default: str = "mean") -> dict[str, Any]:
    """Return one value per metric, ready to be logged.

    Args:
        metrics: What ``meta_info["metrics"]`` holds: numbers, lists, arrays and Metric, in any mixture.
        default: How a list of numbers is reduced whose name has no ``@tag``.

    Returns:
        A plain dictionary with the same names. Numbers and values that are not numbers come back as they are.

    Example:
        >>> reduce_metrics({"loss": [1.0, 3.0], "tokens@sum": [10, 20], "lr": Metric.last(0.1)})
        {'loss': 2.0, 'tokens@sum': 30, 'lr': 0.1}
    """
    if default not in REDUCERS:
        raise MetricError(f"no reducer named {default!r}; choose from {sorted(REDUCERS)}")
    return {name: _reduce_one(name, value, default) for name, value in metrics.items()}


def _reduce_one(name: str, value: object, default: str) -> Any:  # a metric may be of any type
    if isinstance(value, Metric):
        return value.value
    flat = plain(value)
    if not isinstance(flat, list):
        return flat
    tag = reducer_of(name)
    if tag == COLLECT and not all(map(is_number, flat)):
        return flat
    return reduced(default if tag == COLLECT else tag, tuple(map(emit, flat)), f"metric {name!r}")


def same_metrics(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Tell whether two dictionaries of metrics report the same contributions under the same names."""
    if left.keys() != right.keys():
        return False
    lefts, rights = stamped(left, {}).stamps, stamped(right, {}).stamps
    return all(
        lefts[name].reducer == rights[name].reducer
        and _same_contributions(lefts[name].contributions, rights[name].contributions)
        for name in lefts
    )


def _same_contributions(left: Sequence[Contribution], right: Sequence[Contribution]) -> bool:
    return len(left) == len(right) and all(
        one.weight == two.weight and same(one.value, two.value) for one, two in zip(left, right, strict=True)
    )
