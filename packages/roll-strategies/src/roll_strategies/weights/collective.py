"""A broadcast group of its own for weights, apart from the groups in which engines compute."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # a compiled class, not listed
from torch.distributed.distributed_c10d import PrefixStore, Store

from roll_strategies.errors import WeightSyncError
from roll_strategies.weights.manifest import LARGE_BYTES, Bucket, CollectiveGroup, runs_of
from roll_strategies.weights.transport import Answer, Transport

PIECE_BYTES = 4 * 1024 * 1024
"""Bytes of one collective call."""


class Arriving:
    """Runs of a bucket's bytes that may still be travelling."""

    def __init__(self, runs: Sequence[tuple[int, torch.Tensor, Sequence[dist.Work]]]) -> None:
        self._runs = list(runs)
        self._now, self._arrived = 0, 0

    def part(self, start: int, stop: int) -> torch.Tensor:
        """Returns the bytes from `start` to `stop` of the bucket, which have arrived; parts are asked for in
        order."""
        while self._now < len(self._runs):
            first, memory, works = self._runs[self._now]
            if stop <= first + len(memory):
                break
            self._now, self._arrived = self._now + 1, 0
        else:
            return torch.empty(0, dtype=torch.uint8)
        while self._arrived * PIECE_BYTES < stop - first:
            works[self._arrived].wait()
            self._arrived += 1
        return memory[start - first : stop - first]


class GroupMember:
    """One end of a broadcast group: rank 0 sends, the others receive."""

    def __init__(self, backend: Any, *, device: torch.device, name: str) -> None:
        self._backend = backend
        self._device = device
        self._name = name
        self._space: torch.Tensor | None = None

    @classmethod
    def join(
        cls,
        group: CollectiveGroup,
        *,
        rank: int | None = None,
        group_rank: int | None = None,
        store: Store | None = None,
    ) -> "GroupMember":
        """Joins and waits for everyone.

        Args:
            group: where to meet.
            rank: the target's own rank.
            group_rank: the rank in the group, for the sender.
            store: the sender's own store; targets connect to it.

        Raises:
            WeightSyncError: somebody did not come in time, or the backend is not known.
        """
        if group_rank is None:
            assert rank is not None
            group_rank = group.ranks.get(rank, rank + 1)
        timeout = datetime.timedelta(seconds=group.timeout_s)
        if store is None:
            store = TCPStore(group.addr, group.port, is_master=False, timeout=timeout)
        scoped = PrefixStore(group.name, store)
        if group.backend == "gloo":
            backend = dist.ProcessGroupGloo(scoped, group_rank, group.world_size, timeout)
            return cls(backend, device=torch.device("cpu"), name=group.name)
        if group.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            nccl = dist.ProcessGroupNCCL(scoped, group_rank, group.world_size, options)
            return cls(nccl, device=torch.device("cuda", torch.cuda.current_device()), name=group.name)
        raise WeightSyncError(
            f"weights cannot be broadcast over {group.backend!r}; use gloo, nccl or the object store"
        )

    def space(self, num_bytes: int) -> torch.Tensor:
        """Returns memory where this member's backend sends from and receives into."""
        return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)

    @property
    def device(self) -> torch.device:
        """Where this member's backend sends from and receives into."""
        return self._device

    def broadcast(self, bucket: Bucket) -> list[dist.Work]:
        """Starts sending a bucket; its bytes must stay as they are until all works are done."""
        data = bucket.data
        assert isinstance(data, torch.Tensor)
        works = []
        for start, stop in runs_of(bucket.entries):
            works += self._start(bucket.in_place.get(start, data[start:stop]))
        return works

    def receive(self, bucket: Bucket, landing: Mapping[int, torch.Tensor]) -> "Arriving":
        """Returns the bucket that the sender broadcasts, on its way; it stays until the next call.

        Args:
            bucket: what it holds.
            landing: memory of runs that are received where they belong, by their start.
        """
        runs = runs_of(bucket.entries)
        needed = max((stop for start, stop in runs if start not in landing), default=0)
        if self._space is None or len(self._space) < needed:
            self._space = self.space(needed)
        places = [(start, landing.get(start, self._space[start:stop])) for start, stop in runs]
        return Arriving([(start, memory, self._start(memory)) for start, memory in places])

    def _start(self, data: torch.Tensor) -> list[dist.Work]:
        """Starts one broadcast per piece, so that the first ones can be used while the last are
        travelling."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        pieces = torch.split(data, PIECE_BYTES)
        return [self._backend.broadcast([piece], options) for piece in pieces]

    def close(self) -> None:
        """Leaves the group."""
        del self._backend


class _Broadcasting:
    """The answers to a bucket whose bytes travel beside the message."""

    def __init__(
        self, transport: "BroadcastTransport", control: Answer, works: Sequence[dist.Work], data: object
    ) -> None:
        self._transport, self._control, self._works = transport, control, works
        self._data = data  # the bytes have to live until the work is done

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns the targets' answers once the bytes have arrived."""
        try:
            answers = self._control.result(timeout_s)
            for work in self._works:
                work.wait()
        except Exception:
            self._transport.close()
            raise
        return answers


class _Opening:
    """The answers to `begin_update`; their number is the size of the group that is opened after the first of
    them."""

    def __init__(self, transport: "BroadcastTransport", control: Answer) -> None:
        self._transport, self._control = transport, control

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns the targets' answers once all have joined the group."""
        answers = self._control.result(timeout_s)
        self._transport.open(len(answers), timeout_s)
        return answers


class BroadcastTransport:
    """Sends messages over another transport and the bytes of buckets by a collective broadcast.

    Args:
        control: reaches every target.
        name: of the group; unique among the groups of the targets.
        addr: address of this process for the targets.
        backend: `gloo`, or `nccl` when source and targets have GPUs of their own.
        timeout_s: how long joining and sending may take.
    """

    def __init__(
        self, control: Transport, *, name: str, addr: str, backend: str = "gloo", timeout_s: float = 600.0
    ) -> None:
        self._control, self._name, self._addr = control, name, addr
        self._backend, self._timeout_s = backend, timeout_s
        self._member: GroupMember | None = None
        self._store: TCPStore | None = None
        self._size = 0

    def send(self, method: str, payload: object) -> Answer:
        """Calls `method(payload)` on every target; the bytes of a bucket go by broadcast."""
        if method == "begin_update":
            return _Opening(self, self._control.send(method, payload))
        if isinstance(payload, Bucket):
            message = replace(payload, data=None, in_place={}, group=self._name)
            answer = self._control.send(method, message)
            return _Broadcasting(self, answer, self._opened().broadcast(payload), payload)
        return self._control.send(method, payload)

    def takes(self, whole: torch.Tensor, dtype: torch.dtype) -> bool:
        """Returns whether a parameter is sent from where it lies: a large one that is as on the wire."""
        large = whole.numel() * whole.element_size() >= LARGE_BYTES
        here = whole.device == self._opened().device
        return large and here and whole.dtype == dtype and whole.is_contiguous()

    def space(self, num_bytes: int) -> torch.Tensor:
        """Returns memory for a bucket, where the group sends from."""
        return self._opened().space(num_bytes)

    def _opened(self) -> GroupMember:
        if self._member is None:
            raise WeightSyncError(f"group {self._name!r} is not open; begin_update opens it")
        return self._member

    def open(self, num_targets: int, timeout_s: float | None) -> None:
        """Meets the targets, unless the group is open for as many already."""
        if self._member is not None and self._size == num_targets:
            return
        self.close()
        limit = datetime.timedelta(seconds=timeout_s or self._timeout_s)
        self._store = TCPStore(self._addr, 0, is_master=True, wait_for_workers=False, timeout=limit)
        group = CollectiveGroup(
            name=self._name,
            addr=self._addr,
            port=self._store.port,
            world_size=num_targets + 1,
            backend=self._backend,
            timeout_s=limit.total_seconds(),
        )
        answer = self._control.send("setup_collective_group", group)
        try:
            self._member = GroupMember.join(group, group_rank=0, store=self._store)
        except RuntimeError as silent:
            # A target's own words say more than that it did not come.
            answer.result(timeout_s)
            raise WeightSyncError(f"targets did not join the group {self._name!r}: {silent}") from silent
        answer.result(timeout_s)
        self._size = num_targets

    def close(self) -> None:
        """Leaves the group; the next update opens it again."""
        if self._member is not None:
            self._member.close()
        self._member, self._store, self._size = None, None, 0
