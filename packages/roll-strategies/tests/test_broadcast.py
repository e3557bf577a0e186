"""Broadcasts of large parameters, which are sent from and received into their own memory."""

import dataclasses
import datetime
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed import FileStore, HashStore  # type: ignore[attr-defined]  # compiled, not listed

from roll_strategies import Bucket, StaleWeights, UpdateTarget, WeightSender, WeightSyncError
from roll_strategies.testing import DirectTransport
from roll_strategies.weights import relay
from roll_strategies.weights.collective import BroadcastTransport
from roll_strategies.weights.relay import PIECE_BYTES, Relay


def large_and_small(seed: int) -> dict[str, Tensor]:
    """Returns parameters above and below the size from which they travel on their own, in every order."""
    draws = torch.Generator().manual_seed(seed)
    shapes = {
        "a": (3,),
        "b": (600, 500),
        "c": (0, 4),
        "d": (500, 700),
        "e": (2, 2),
        "f": (5,),
        "g": (900, 311),
    }
    state = {name: torch.randn(shape, generator=draws) for name, shape in shapes.items()}
    state["turned"] = torch.randn(500, 611, generator=draws).T
    state["halves"] = torch.randn(700, 999, generator=draws).to(torch.bfloat16)
    state["last"] = torch.randn((), generator=draws)
    return state


class Home(torch.nn.Module):
    """A model that has those parameters, one of them in another dtype."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        for name, value in state.items():
            dtype = torch.float64 if name == "d" else value.dtype
            self.register_buffer(name, torch.zeros(value.shape, dtype=dtype))
        if "tied" in state:
            self.register_buffer("tied", self.get_buffer("p0"))


@pytest.mark.parametrize("bucket_bytes", [1, 2_000_000, 10**9])
def test_large_parameters_travel_between_their_own_places_and_small_ones_together(bucket_bytes: int) -> None:
    homes = [Home(large_and_small(0)) for _ in range(2)]
    targets = [UpdateTarget(home, rank=rank, digest="full") for rank, home in enumerate(homes)]
    transport = BroadcastTransport(DirectTransport(targets), name="large", addr="127.0.0.1", timeout_s=60)
    for version in (1, 2):
        sent = large_and_small(version)
        WeightSender(transport=transport, bucket_bytes=bucket_bytes, digest="full").send(
            sent, version=version
        )
        for home in homes:
            for name, value in sent.items():
                assert torch.equal(getattr(home, name), value.to(getattr(home, name).dtype)), name
    transport.close()


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_parameter_that_was_damaged_in_place_is_named_and_the_others_are_released(culprit: int) -> None:
    def spoil(index: int, method: str, payload: object) -> object:
        if index != culprit or not isinstance(payload, Bucket) or payload.version != 1:
            return payload
        entries = [dataclasses.replace(e, digest=e.digest ^ (e.name == "b")) for e in payload.entries]
        return dataclasses.replace(payload, entries=tuple(entries))

    targets = [UpdateTarget(Home(large_and_small(0)), rank=rank, digest="full") for rank in range(3)]
    control = DirectTransport(targets, spoil=spoil)
    transport = BroadcastTransport(control, name="damaged", addr="127.0.0.1", timeout_s=600)
    sender = WeightSender(transport=transport, bucket_bytes=2_000_000, digest="full")
    with pytest.raises(
        WeightSyncError, match=rf"put of bucket .*target rank {culprit}: parameter 'b' arrived damaged"
    ):
        sender.send(large_and_small(1), version=1)
    with pytest.raises(StaleWeights, match=f"rank {culprit} holds mixed weights: update 1 was given up"):
        targets[culprit].require_whole()
    sent = large_and_small(2)
    sender.send(sent, version=2)  # would wait ten minutes for a target that still waits for its bytes
    for target in targets:
        target.require_whole()
    transport.close()


MIB = 2**20
NUM_BYTES = st.one_of(
    st.integers(0, 300),
    st.integers(MIB - 40, MIB + 40),
    st.sampled_from([4 * MIB - 16, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1]),
)
DTYPES = st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.int64])


@given(
    specs=st.lists(st.tuples(NUM_BYTES, DTYPES), min_size=1, max_size=8),
    bucket_bytes=st.sampled_from([1, 1000, MIB, 2 * MIB + 7, 9 * MIB]),
    num_targets=st.integers(1, 4),
    culprit=st.integers(0, 3),
)
@settings(max_examples=5, deadline=None, database=None)
def test_every_target_holds_the_source_bit_for_bit_before_and_after_an_update_that_was_given_up(
    specs: list[tuple[int, torch.dtype]], bucket_bytes: int, num_targets: int, culprit: int
) -> None:
    def state(version: int) -> dict[str, Tensor]:
        draws = torch.Generator().manual_seed(version)
        runs = [torch.randint(100, (size // dtype.itemsize,), generator=draws) for size, dtype in specs]
        named = {f"p{i}": run.to(dtype) for i, (run, (_, dtype)) in enumerate(zip(runs, specs, strict=True))}
        return {**named, "tied": named["p0"]}

    def spoil(index: int, method: str, payload: object) -> object:
        if index != culprit % num_targets or not isinstance(payload, Bucket) or payload.version != 3:
            return payload
        damaged = f"p{len(specs) // 2}"
        entries = [dataclasses.replace(e, digest=e.digest ^ (e.name == damaged)) for e in payload.entries]
        return dataclasses.replace(payload, entries=tuple(entries))

    homes = [Home(state(0)) for _ in range(num_targets)]
    targets = [UpdateTarget(home, rank=rank, digest="full") for rank, home in enumerate(homes)]
    control = DirectTransport(targets, spoil=spoil)
    transport = BroadcastTransport(control, name="any", addr="127.0.0.1", timeout_s=600)
    sender = WeightSender(transport=transport, bucket_bytes=bucket_bytes, digest="full")
    for version in (1, 2, 3, 4):
        sent = state(version)
        if version == 3:
            with pytest.raises(WeightSyncError, match="update 3 failed in put"):
                sender.send(sent, version=version)
            continue
        sender.send(sent, version=version)
        for value in {id(value): value for value in sent.values()}.values():
            value.zero_()  # the source may go on at once
        for home in homes:
            assert all(torch.equal(getattr(home, name), value) for name, value in state(version).items())
    transport.close()


class Refusing(UpdateTarget):
    """A target that fails before it takes the last bucket of the first update."""

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        if (bucket.version, bucket.index) == (1, 9):
            raise ValueError("told to fail")
        return super().update_parameter_in_bucket(bucket)


@pytest.mark.parametrize("culprit", [0, 1])
def test_targets_behind_one_that_fails_before_it_takes_a_bucket_are_released(culprit: int) -> None:
    kinds = [Refusing if rank == culprit else UpdateTarget for rank in range(3)]
    targets = [kind(Home(large_and_small(0)), rank=rank) for rank, kind in enumerate(kinds)]
    transport = BroadcastTransport(DirectTransport(targets), name="refused", addr="127.0.0.1", timeout_s=600)
    sender = WeightSender(transport=transport, bucket_bytes=1)
    with pytest.raises(WeightSyncError, match=r"put of bucket 9 .*told to fail"):
        sender.send(large_and_small(1), version=1)
    sender.send(large_and_small(2), version=2)  # would wait ten minutes for a target that still waits
    for target in targets:
        target.require_whole()
    transport.close()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_target_that_was_built_anew_is_taken_into_the_group_again(place: int) -> None:
    targets = [UpdateTarget(Home(large_and_small(0)), rank=rank, digest="full") for rank in range(3)]
    transport = BroadcastTransport(DirectTransport(targets), name="anew", addr="127.0.0.1", timeout_s=600)
    sender = WeightSender(transport=transport, bucket_bytes=2_000_000, digest="full")
    sender.send(large_and_small(1), version=1)
    fresh = Home(large_and_small(0))
    targets[place] = UpdateTarget(fresh, rank=place, digest="full")
    sent = large_and_small(2)
    sender.send(sent, version=2)
    for name, value in sent.items():
        assert torch.equal(getattr(fresh, name), value.to(getattr(fresh, name).dtype)), name
    transport.close()


class Counting:
    """A gloo group that counts what it sends."""

    def __init__(self, backend: Any) -> None:  # Any: a compiled class
        self._backend = backend
        self.num_bytes = 0

    def send(self, tensors: list[Tensor], to: int, tag: int) -> dist.Work:
        """Counts and sends."""
        self.num_bytes += sum(tensor.numel() for tensor in tensors)
        work: dist.Work = self._backend.send(tensors, to, tag)
        return work

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> dist.Work:
        """Receives."""
        work: dist.Work = self._backend.recv(tensors, source, tag)
        return work


def test_a_link_carries_every_byte_once_and_pieces_may_be_taken_in_any_order() -> None:
    store = HashStore()
    sizes = [3, PIECE_BYTES, 2 * PIECE_BYTES + 5, 70]
    draws = torch.Generator().manual_seed(0)
    runs = [torch.randint(256, (size,), dtype=torch.uint8, generator=draws) for size in sizes]

    def member(rank: int) -> tuple[int, list[Tensor]]:
        gloo = dist.ProcessGroupGloo(store, rank, 4, datetime.timedelta(seconds=60))
        counting = Counting(gloo)
        relay = Relay(counting, rank=rank, world_size=4)
        kept = []
        for bucket in range(3):
            relay.begin_bucket()
            memory = [run + bucket if rank == 0 else torch.empty_like(run) for run in runs]
            pieces = [piece for run in memory for piece in relay.start(run)]
            random.Random(rank).shuffle(pieces)
            for piece in pieces:
                piece.wait()
                piece.wait()
            kept.append(memory)
        for _ in range(2):
            relay.begin_bucket()  # all has left
        relay.close()
        return counting.num_bytes, [run - bucket for bucket, memory in enumerate(kept) for run in memory]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(member, range(4)))
    marks = sum(-(-size // PIECE_BYTES) for size in sizes)
    total = 3 * (sum(sizes) + marks)
    assert [num_bytes for num_bytes, _ in found] == [total, total, total, 0]
    for _, arrived in found:
        assert all(torch.equal(got, sent) for got, sent in zip(arrived, runs * 3, strict=True))


def test_who_waits_for_a_member_that_left_is_told_and_a_piece_that_was_let_go_never_counts_as_arrived() -> (
    None
):
    store = HashStore()

    def member(rank: int) -> Relay:
        gloo = dist.ProcessGroupGloo(store, rank, 2, datetime.timedelta(seconds=600))
        relay = Relay(gloo, rank=rank, world_size=2)
        relay.begin_bucket()
        return relay

    with ThreadPoolExecutor(2) as threads:
        sender, target = threads.map(member, range(2))
        [waiting] = target.start(torch.empty(8, dtype=torch.uint8))
        told = threads.submit(waiting.wait)
        sender.close()
        with pytest.raises(RuntimeError, match="closed by peer"):
            told.result()
        target.close()
        with pytest.raises(WeightSyncError, match="the group that carries the bytes was closed"):
            waiting.wait()


DYING = """
import datetime, os, sys
import torch
import torch.distributed as dist
from torch.distributed import FileStore

gloo = dist.ProcessGroupGloo(FileStore(sys.argv[1], 2), 0, 2, datetime.timedelta(seconds=60))
work = gloo.send([torch.zeros(300_000_000, dtype=torch.uint8)], 1, 2)
print("sent", flush=True)
sys.stdin.readline()
os._exit(1)
"""


def test_a_sender_that_dies_amid_a_piece_is_noticed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PIECE_BYTES", 300_000_000)
    meeting = str(tmp_path / "meeting")
    with subprocess.Popen(
        [sys.executable, "-c", DYING, meeting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdin is not None
        assert dying.stdout is not None
        gloo = dist.ProcessGroupGloo(FileStore(meeting, 2), 1, 2, datetime.timedelta(seconds=60))
        target = Relay(gloo, rank=1, world_size=2)
        target.begin_bucket()
        assert dying.stdout.readline() == "sent\n"
        memory = torch.ones(300_000_000, dtype=torch.uint8)
        [piece] = target.start(memory)
        while memory[0]:
            pass  # the first bytes are on their way
        dying.stdin.write("die\n")
        dying.stdin.flush()
        with pytest.raises(RuntimeError, match=r"closed by peer|reset by peer"):
            piece.wait()
        assert memory[-1], "it came whole: the piece is too small for this machine"
        target.close()
