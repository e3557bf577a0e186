"""What is sent arrives whole, or the sender hears of it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto
from roll_strategies import (
    Bucket,
    ModelSettings,
    ParameterSpec,
    StaleWeights,
    StrategyContext,
    WeightSyncError,
    build_strategy,
)
from roll_strategies.hf import HfInferStrategy
from roll_strategies.testing import DirectTransport
from roll_strategies.weights.digest import digest_of
from roll_strategies.weights.plan import manifest_of, named_state, plan_update
from roll_strategies.weights.receiver import WeightReceiver
from roll_strategies.weights.sender import WeightSender


def target_for(directory: Path, rank: int = 0) -> HfInferStrategy:
    context = StrategyContext(
        strategy_name="hf_infer",
        strategy_config={"digest": "full"},
        model_args=ModelSettings(model_name_or_path=str(directory)),
        rank=rank,
        world_size=2,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, HfInferStrategy)
    strategy.initialize()
    return strategy


def changed_model(directory: Path) -> torch.nn.Module:
    model: torch.nn.Module = transformers.AutoModelForCausalLM.from_pretrained(directory)
    draws = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws))
    return model


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    dtypes=st.lists(
        st.sampled_from(["float32", "bfloat16", "int8", "bool", "int64"]), min_size=12, max_size=12
    ),
    bucket_bytes=st.integers(1, 300),
)
def test_a_plan_holds_every_parameter_once_aligned_and_within_the_bucket(
    sizes: list[int], dtypes: list[str], bucket_bytes: int
) -> None:
    specs = [ParameterSpec(name=f"p{n}", shape=(size,), dtype=dtypes[n]) for n, size in enumerate(sizes)]
    plan = plan_update(specs, bucket_bytes=bucket_bytes)
    assert [spec for bucket in plan.buckets for spec in bucket.specs] == specs
    for bucket in plan.buckets:
        ends = 0
        for spec, start in zip(bucket.specs, bucket.starts, strict=True):
            assert start % 16 == 0
            assert start >= ends
            ends = start + spec.num_bytes
        assert bucket.num_bytes == ends
        assert len(bucket.specs) == 1 or ends <= bucket_bytes


def test_a_plan_prints_bytes_and_buckets() -> None:
    specs = [ParameterSpec(name=name, shape=(4,), dtype="float32") for name in "ab"]
    text = str(plan_update(specs, bucket_bytes=16, num_targets=3))
    assert text == "2 parameters, 32 bytes in 2 buckets of at most 16 bytes; 32 bytes on each of 3 links"


@pytest.mark.parametrize("bucket_bytes", [1, 4096, 10**9])
@pytest.mark.parametrize("kind", ["tiny", "tiny_tied"])
def test_targets_hold_exactly_what_was_sent(
    request: pytest.FixtureRequest, kind: str, bucket_bytes: int
) -> None:
    directory: Path = request.getfixturevalue(kind)
    source = changed_model(directory)
    targets = [target_for(directory, rank) for rank in range(2)]
    sender = WeightSender(transport=DirectTransport(targets), bucket_bytes=bucket_bytes, digest="full")
    report = sender.send(named_state(source), version=4)
    for target in targets:
        assert target.weights_version == 4
        theirs = target.unwrap_model().state_dict()
        for name, value in source.state_dict().items():
            assert torch.equal(theirs[name], value), name
    assert report["targets"] == 2
    total = sum(spec.num_bytes for spec in manifest_of(named_state(source), version=4).parameters)
    assert report["bytes"] >= total


def test_tied_weights_travel_once_and_reach_an_untied_target_twice(tiny: Path, tiny_tied: Path) -> None:
    source = changed_model(tiny_tied)
    manifest = manifest_of(named_state(source), version=1)
    assert "lm_head.weight" in {alias for spec in manifest.parameters for alias in spec.aliases}
    target = target_for(tiny)
    WeightSender(transport=DirectTransport([target]), bucket_bytes=4096).send(named_state(source), version=1)
    state = target.unwrap_model().state_dict()
    assert torch.equal(state["lm_head.weight"], source.state_dict()["lm_head.weight"])
    assert torch.equal(state["model.embed_tokens.weight"], state["lm_head.weight"])


def test_an_untied_source_is_refused_by_a_tied_target(tiny: Path, tiny_tied: Path) -> None:
    sender = WeightSender(transport=DirectTransport([target_for(tiny_tied)]), bucket_bytes=4096)
    with pytest.raises(WeightSyncError, match=r"failed in begin.*two parameters at the source and one, tied"):
        sender.send(named_state(changed_model(tiny)), version=1)


def test_mixed_dtypes_and_strides_arrive_bit_for_bit() -> None:
    source = {
        "odd": torch.tensor([True, False, True]),
        "half": torch.arange(5, dtype=torch.bfloat16),
        "turned": torch.arange(12.0).reshape(3, 4).T,
        "none": torch.empty(0, 3),
        "number": torch.tensor(7),
        "double": torch.arange(3, dtype=torch.float64) / 3,
    }
    home = {name: torch.zeros_like(value) for name, value in source.items()}
    receiver = WeightReceiver(home, rank=0, digest="full")

    class Door:
        begin_update = staticmethod(receiver.begin)
        commit_update = staticmethod(receiver.commit)
        abort_update = staticmethod(receiver.abort)

        @staticmethod
        def update_parameter_in_bucket(bucket: Bucket) -> int:
            assert isinstance(bucket.data, np.ndarray)
            frozen = bucket.data.copy()
            frozen.flags.writeable = False
            return receiver.put(bucket, lambda start, stop: frozen[start:stop])

    WeightSender(transport=DirectTransport([Door()]), bucket_bytes=20, digest="full").send(source, version=1)
    for name, value in source.items():
        assert torch.equal(home[name], value), name


def test_weights_can_travel_in_another_dtype_than_either_end() -> None:
    source = {"w": torch.randn(50, generator=torch.Generator().manual_seed(0))}
    home = {"w": torch.zeros(50)}
    receiver = WeightReceiver(home, rank=0)

    class Door:
        begin_update = staticmethod(receiver.begin)
        commit_update = staticmethod(receiver.commit)
        abort_update = staticmethod(receiver.abort)

        @staticmethod
        def update_parameter_in_bucket(bucket: Bucket) -> int:
            data = bucket.data
            assert isinstance(data, np.ndarray)
            return receiver.put(bucket, lambda start, stop: data[start:stop])

    sender = WeightSender(transport=DirectTransport([Door()]), bucket_bytes=64, dtype=torch.bfloat16)
    assert sender.send(source, version=1)["bytes"] == 100
    assert torch.equal(home["w"], source["w"].bfloat16().float())


def spoil_second_bucket(index: int, method: str, payload: object) -> object:
    if index == 1 and isinstance(payload, Bucket) and payload.index == 2:
        assert isinstance(payload.data, np.ndarray)
        data = payload.data.copy()
        data[payload.entries[0].start] ^= 1
        return dataclasses.replace(payload, data=data)
    return payload


def test_a_damaged_parameter_is_named_and_the_target_refuses_to_compute(tiny: Path) -> None:
    targets = [target_for(tiny, rank) for rank in range(2)]
    transport = DirectTransport(targets, spoil=spoil_second_bucket)
    sender = WeightSender(transport=transport, bucket_bytes=2000, digest="full")
    source = changed_model(tiny)
    with pytest.raises(
        WeightSyncError, match=r"update 3 failed in put of bucket 2.*target rank 1.*arrived damaged"
    ):
        sender.send(named_state(source), version=3)
    assert transport.sent[-1] == "abort_update"
    batch = DataProto.from_single_dict(
        {"input_ids": torch.ones(1, 2, dtype=torch.int64), "attention_mask": torch.ones(1, 2)}
    )
    for target in targets:
        with pytest.raises(StaleWeights, match="update 3 was given up halfway"):
            target.generate(batch, {"max_new_tokens": 1})
    WeightSender(transport=DirectTransport(targets), bucket_bytes=2000).send(named_state(source), version=4)
    assert len(targets[1].generate(batch, {"max_new_tokens": 1})) == 1


def test_a_lost_bucket_is_found_at_commit(tiny: Path) -> None:
    target = target_for(tiny)

    class Lossy:
        begin_update = staticmethod(target.begin_update)
        commit_update = staticmethod(target.commit_update)
        abort_update = staticmethod(target.abort_update)

        @staticmethod
        def update_parameter_in_bucket(bucket: Bucket) -> int:
            return 0 if bucket.index == 1 else target.update_parameter_in_bucket(bucket)

    sender = WeightSender(transport=DirectTransport([Lossy()]), bucket_bytes=2000)
    with pytest.raises(WeightSyncError, match=r"failed in commit.*parameters never came, first '"):
        sender.send(named_state(changed_model(tiny)), version=1)


def test_a_silent_target_is_reported_within_the_timeout(tiny: Path) -> None:
    import threading

    wake = threading.Event()

    class Silent:
        begin_update = staticmethod(lambda manifest: manifest.version)
        abort_update = staticmethod(lambda version: version)

        @staticmethod
        def update_parameter_in_bucket(bucket: Bucket) -> int:
            wake.wait(20)
            return 0

    sender = WeightSender(transport=DirectTransport([Silent()]), bucket_bytes=10**9, timeout_s=0.2)
    with pytest.raises(
        WeightSyncError,
        match=r"of bucket 0 \('model.embed_tokens.weight' and on\): ranks \[0\] did not answer within 0.2 s",
    ):
        sender.send(named_state(changed_model(tiny)), version=1)
    wake.set()


def test_a_full_digest_sees_every_byte_and_a_sampled_one_the_ends_of_large_parameters() -> None:
    data = np.zeros(1_000_000, dtype=np.uint8)
    plain = {mode: digest_of(data, mode=mode) for mode in ("sampled", "full")}
    seen: dict[str, list[bool]] = {mode: [] for mode in plain}
    for place in (0, 10_000, 999_999):
        data[place] ^= 1
        for mode, digest in plain.items():
            seen[mode].append(digest_of(data, mode=mode) != digest)
            assert digest_of(torch.from_numpy(data), mode=mode) == digest_of(data, mode=mode)
        data[place] ^= 1
    assert seen == {"sampled": [True, False, True], "full": [True, True, True]}
    short = np.zeros(200_000, dtype=np.uint8)
    short[10_000] = 1
    assert digest_of(short) != digest_of(np.zeros(200_000, dtype=np.uint8))
    assert digest_of(short[:0]) != digest_of(short[:1] * 0)


def test_another_architecture_is_refused_before_anything_changes(tiny: Path) -> None:
    target = target_for(tiny)
    before = {name: value.clone() for name, value in target.unwrap_model().state_dict().items()}
    source = dict(named_state(changed_model(tiny)))
    source["extra"] = torch.zeros(2)
    sender = WeightSender(transport=DirectTransport([target]), bucket_bytes=4096)
    with pytest.raises(WeightSyncError, match="sends 'extra', which this model does not have"):
        sender.send(source, version=1)
    del source["extra"]
    short = {name: value for name, value in source.items() if name != "model.norm.weight"}
    with pytest.raises(WeightSyncError, match=r"does not send 'model\.norm\.weight'"):
        sender.send(short, version=2)
    with pytest.raises(WeightSyncError, match=r"'model.norm.weight' has shape \(3,\) at the source"):
        sender.send({**source, "model.norm.weight": torch.zeros(3)}, version=3)
    target.require_states()
    for name, value in target.unwrap_model().state_dict().items():
        assert torch.equal(value, before[name])
