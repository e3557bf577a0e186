"""Metrics: each emission counts once, however the rows are cut and joined."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, Metric, MetricError, merge_metrics, reduce_metrics
from roll_protocol.testing import data_protos, metrics


def carrier(**values: Any) -> DataProto:  # a metric may be anything
    return DataProto(meta_info={"metrics": values}).to("cpu")


def joined(*parts: DataProto) -> dict[str, Any]:  # see carrier
    found: dict[str, Any] = DataProto.concat(list(parts)).meta_info["metrics"]
    return found


@given(metrics(), st.integers(1, 5), st.integers(1, 5))
def test_parts_of_one_batch_do_not_multiply_its_metrics(values: dict[str, Any], one: int, two: int) -> None:
    batch = DataProto.from_single_dict({"x": torch.arange(6)}, {"metrics": values})
    once = DataProto.concat([batch]).meta_info["metrics"]
    again = DataProto.concat([part for chunk in batch.chunk(one) for part in chunk.chunk(two)]).meta_info[
        "metrics"
    ]
    assert again == once
    assert {name: type(value) for name, value in again.items()} == {
        name: type(value) for name, value in once.items()
    }


def test_sums_of_four_ranks_add_up() -> None:
    assert joined(*[carrier(n=Metric.sum(5)) for _ in range(4)])["n"].value == 20
    assert joined(*[carrier(**{"n@sum": 5}) for _ in range(4)]) == {"n@sum": 20}


def test_padding_grouping_and_joining_count_a_metric_once() -> None:
    batch = DataProto.from_single_dict(
        {"x": torch.arange(5), "g": torch.tensor([0, 1, 0, 1, 2])},
        {"metrics": {"a": 1.0, "n": Metric.sum(3)}},
    )
    parts = list(batch.pad_to_divisor(4).group_by("g").values())
    everything = joined(
        *parts, DataProto(meta_info=batch[0].meta_info), *[part.select(["x", "g"]) for part in parts]
    )
    assert everything == {"a": [1.0], "n": Metric.sum(3)}
    assert reduce_metrics(joined(*parts)) == {"a": 1.0, "n": 3}


def test_a_weighted_mean_over_parts_is_the_mean_over_the_whole() -> None:
    values = torch.arange(12.0)
    cuts = [values[:2], values[2:3], values[3:]]
    parts = [carrier(loss=Metric.mean(part.mean(), weight=len(part))) for part in cuts]
    assert joined(*parts)["loss"].value == values.mean().item()
    assert joined(DataProto.concat(parts[:2]), parts[2])["loss"].value == values.mean().item()


@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 4)), min_size=1, max_size=6), st.data())
def test_every_reducer_is_independent_of_how_parts_are_grouped(
    emissions: list[tuple[int, int]], data: st.DataObject
) -> None:
    parts = [
        carrier(
            mean=Metric.mean(value, weight=weight),
            most=Metric.max(value),
            least=Metric.min(value),
            total=Metric.sum(value),
            last=Metric.last(value),
            all=Metric.list(value),
            **{"plain": value, "spread@std": value, "half@p50": value, "tail@p99": value, "mid@mean": value},
        )
        for value, weight in emissions
    ]
    cut = data.draw(st.integers(0, len(parts)))
    nested = joined(DataProto.concat(parts[:cut]), *parts[cut:])
    values = [value for value, _ in emissions]
    assert nested == joined(*parts)
    assert nested.pop("all").value == values
    assert reduce_metrics(nested) == pytest.approx(
        {
            "mean": np.average(values, weights=[weight for _, weight in emissions]),
            "most": max(values),
            "least": min(values),
            "total": sum(values),
            "last": values[-1],
            "plain": np.mean(values),
            "spread@std": np.std(values),
            "half@p50": np.percentile(values, 50),
            "tail@p99": np.percentile(values, 99),
            "mid@mean": np.mean(values),
        }
    )


def test_an_undeclared_number_becomes_a_list_also_when_there_is_one_part() -> None:
    assert joined(carrier(a=1.0)) == {"a": [1.0]}
    assert joined(carrier(a=1.0), carrier(a=1.0)) == {"a": [1.0, 1.0]}
    assert joined(carrier(a=True), carrier(a="s")) == {"a": [True, "s"]}


def test_lists_arrays_and_tensors_contribute_their_entries() -> None:
    parts = [carrier(a=[1.0, 2.0]), carrier(a=np.array([3.0])), carrier(a=torch.tensor(4.0)), carrier(a=[])]
    assert joined(*parts) == {"a": [1.0, 2.0, 3.0, 4.0]}


def test_a_name_that_only_some_parts_report_is_kept() -> None:
    assert joined(carrier(a=1), carrier(a=2, b=3)) == {"a": [1, 2], "b": [3]}


def test_a_new_value_in_one_part_is_a_new_emission_and_reaches_no_sister() -> None:
    one, two = DataProto.from_single_dict({"x": torch.arange(2)}, {"metrics": {"a": 1.0}}).chunk(2)
    one.meta_info["metrics"]["a"] = 5.0
    one.meta_info["metrics"]["b"] = 2.0
    assert two.meta_info["metrics"] == {"a": 1.0}
    assert joined(one, two) == {"a": [5.0, 1.0], "b": [2.0]}


@pytest.mark.parametrize("writer", [0, 1])
def test_a_new_value_in_one_part_leaves_the_identity_of_the_old_one_with_the_batch(writer: int) -> None:
    batch = DataProto.from_single_dict({"x": torch.arange(2)}, {"metrics": {"a": 1.0}})
    parts = batch.chunk(2)
    parts[writer].meta_info["metrics"]["a"] = 5.0
    del parts[writer].meta_info["metrics"]["a"]
    assert joined(*parts, *batch.chunk(2)) == {"a": [1.0]}


def test_the_same_value_written_again_is_a_new_emission() -> None:
    one, two = DataProto.from_single_dict({"x": torch.arange(2)}, {"metrics": {"a": 1.0}}).chunk(2)
    one.meta_info["metrics"]["a"] = 1.0
    two.meta_info["metrics"].update(a=1.0)
    assert joined(one, two) == {"a": [1.0, 1.0]}


def test_metrics_that_a_worker_passes_on_keep_their_identity_through_pickling() -> None:
    parts = DataProto.from_single_dict({"x": torch.arange(4)}, {"metrics": {"a": 1.0, "n@sum": 2}}).chunk(2)
    answers = []
    for part in parts:
        received = pickle.loads(pickle.dumps(part))
        passed_on = received.meta_info["metrics"]
        passed_on["mine@sum"] = 1
        answers.append(pickle.loads(pickle.dumps(DataProto(meta_info={"metrics": passed_on}))))
    assert joined(*answers) == {"a": [1.0], "n@sum": 2, "mine@sum": 2}


def test_union_counts_each_emission_once() -> None:
    batch = DataProto.from_single_dict({"x": torch.arange(2)}, {"metrics": {"a": Metric.sum(1)}})
    other = batch.select(["x"]).rename("x", "y")
    other.meta_info["metrics"]["b@sum"] = 4
    assert reduce_metrics(batch.union(other).meta_info["metrics"]) == {"a": 1, "b@sum": 4}


def test_reports_of_one_name_in_different_ways_are_an_error() -> None:
    for one, two in ((Metric.sum(1), Metric.max(1)), (Metric.sum(1), 1.0)):
        with pytest.raises(MetricError, match="metric 'a' is reported as"):
            joined(carrier(a=one), carrier(a=two))
    with pytest.raises(MetricError, match="one side declares 'sum' and the other 'max'"):
        Metric.sum(1).merge(Metric.max(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: merge_metrics([{"a@mode": 1}]), "asks for the reducer 'mode'; choose from"),
        (lambda: merge_metrics([{"a@mean": "text"}]), "takes numbers, not 'text'"),
        (lambda: Metric.sum("text"), "Metric.sum takes one number, not str 'text'"),
        (lambda: Metric.mean(1.0, weight=-1), "a number >= 0, not -1"),
        (lambda: Metric.of("mode", 1), "no reducer named 'mode'"),
    ],
)
def test_what_cannot_be_reduced_is_an_error_that_says_why(make: Any, message: str) -> None:  # a function
    with pytest.raises(MetricError, match=message):
        make()


def test_reducing_gives_one_loggable_value_for_each_name() -> None:
    values = {
        "a": [1.0, 3.0],
        "b@max": [1, 5],
        "c": torch.tensor(2.0),
        "d": Metric.last(7),
        "e": "text",
        "f": ["x", "y"],
    }
    assert reduce_metrics(values) == {"a": 2.0, "b@max": 5, "c": 2.0, "d": 7, "e": "text", "f": ["x", "y"]}
    assert reduce_metrics({"a": [1.0, 3.0]}, default="max") == {"a": 3.0}
    assert math.isnan(reduce_metrics({"a": []})["a"])
    assert reduce_metrics({"a@sum": []}) == {"a@sum": 0}


def test_a_metric_is_equal_by_value_and_survives_pickling_with_its_identity() -> None:
    metric = Metric.mean(torch.tensor(0.5), weight=10)
    copy = pickle.loads(pickle.dumps(metric))
    assert copy == metric
    assert metric.merge(copy).value == 0.5
    assert len(metric.merge(copy).contributions) == 1
    assert float(metric.merge(Metric.mean(1.0, weight=30))) == 0.875
    assert Metric.sum(1) != Metric.max(1)
    assert repr(Metric.sum(2)) == "Metric.sum(2, contributions=1)"
    assert math.isnan(Metric.mean(1.0, weight=0).value)


@given(data_protos())
def test_metrics_survive_the_way_through_a_part_unchanged_in_value(batch: DataProto) -> None:
    before = batch.meta_info.get("metrics")
    assert batch[:].meta_info.get("metrics") == before
    assert batch.meta_info.get("metrics") == before
