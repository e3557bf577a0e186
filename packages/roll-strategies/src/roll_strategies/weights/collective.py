"""A broadcast group of its own for weights, apart from the groups in which engines compute."""

import datetime
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # a compiled class, not listed
from torch.distributed.distributed_c10d import PrefixStore, Store

from roll_strategies.errors import WeightSyncError
from roll_strategies.weights.manifest import (
    ALIGNMENT,
    LARGE_BYTES,
    NOT_IN_GROUP,
    Bucket,
    BucketEntry,
    CollectiveGroup,
    Manifest,
    places_in,
    runs_of,
)
from roll_strategies.weights.relay import PIECE_BYTES, Broadcast, Piece, Relay, Wire
from roll_strategies.weights.transport import Answer, Transport


class Arriving:
    """A bucket whose bytes may still be travelling."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[torch.Tensor, int, list[Piece]]] = {}

    def add(self, start: int, memory: torch.Tensor, place: int, pieces: list[Piece]) -> None:
        """Notes that the bytes at `start` of the bucket arrive at a place of some memory."""
        self._places[start] = memory, place, pieces

    def part(self, start: int, stop: int) -> torch.Tensor:
        """Returns the bytes of the parameter that stands from `start` to `stop` of the bucket, arrived."""
        if start == stop:
            return torch.empty(0, dtype=torch.uint8)
        memory, place, pieces = self._places[start]
        end = place + stop - start
        for piece in pieces[place // PIECE_BYTES : -(-end // PIECE_BYTES)]:
            piece.wait()
        return memory[place:end]


class GroupMember:
    """One end of a broadcast group: rank 0 sends, the others receive."""

    def __init__(self, group: CollectiveGroup, wire: Wire) -> None:
        self.group = group
        self._wire = wire
        self._spaces: deque[torch.Tensor | None] = deque([None, None])

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
            gloo = dist.ProcessGroupGloo(scoped, group_rank, group.world_size, timeout)
            return cls(group, Relay(gloo, rank=group_rank, world_size=group.world_size))
        if group.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            nccl = dist.ProcessGroupNCCL(scoped, group_rank, group.world_size, options)
            return cls(group, Broadcast(nccl))
        raise WeightSyncError(
            f"weights cannot be broadcast over {group.backend!r}; use gloo, nccl or the object store"
        )

    def space(self, num_bytes: int) -> torch.Tensor:
        """Returns memory where this member's backend sends from and receives into."""
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where this member's backend sends from and receives into."""
        return self._wire.device

    def broadcast(self, bucket: Bucket) -> list[Piece]:
        """Starts sending a bucket; its bytes must stay as they are until all pieces have left."""
        self._wire.begin_bucket()
        pieces = []
        for run in runs_of(bucket.entries):
            pieces += self._wire.start(self._joined(bucket, run))
        return pieces

    def _joined(self, bucket: Bucket, run: Sequence[BucketEntry]) -> torch.Tensor:
        data = bucket.data
        assert isinstance(data, torch.Tensor)
        if len(run) == 1:
            [entry] = run
            return bucket.in_place.get(entry.start, data[entry.start : entry.start + entry.num_bytes])
        places, size = places_in(run)
        joined = self.space(size)
        for entry, place in zip(run, places, strict=True):
            joined[place : place + entry.num_bytes] = data[entry.start : entry.start + entry.num_bytes]
        return joined

    def receive(self, bucket: Bucket, landing: Mapping[int, torch.Tensor]) -> "Arriving":
        """Returns the bucket that the sender broadcasts, on its way; it stays until the call after the next.

        Args:
            bucket: what it holds.
            landing: memory of runs that are received where they belong, by their start.
        """
        self._wire.begin_bucket()
        arriving = Arriving()
        runs = [(run, *places_in(run)) for run in runs_of(bucket.entries)]
        sizes = [size for run, _, size in runs if run[0].start not in landing]
        space = self._space(sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
        free = 0
        for run, places, size in runs:
            memory = landing.get(run[0].start) if len(run) == 1 else None
            if memory is None:
                memory = space[free : free + size]
                free += -(-size // ALIGNMENT) * ALIGNMENT
            pieces = self._wire.start(memory)
            for entry, place in zip(run, places, strict=True):
                arriving.add(entry.start, memory, place, pieces)
        return arriving

    def _space(self, num_bytes: int) -> torch.Tensor:
        """Returns the older of two spaces: the other's bytes may still be handed on."""
        space = self._spaces.popleft()
        if space is None or len(space) < num_bytes:
            space = self.space(num_bytes)
        self._spaces.append(space)
        return space

    def close(self) -> None:
        """Leaves the group; whoever waits for this member is released."""
        self._wire.close()


class _Unsent:
    """Stands for pieces that could not be sent: what the targets say of it comes first."""

    def __init__(self, broken: RuntimeError) -> None:
        self._broken = broken

    def wait(self) -> None:
        raise self._broken


class _Broadcasting:
    """The answers to a bucket whose bytes travel beside the message."""

    def __init__(
        self, transport: "BroadcastTransport", control: Answer, pieces: Sequence[Piece], data: object
    ) -> None:
        self._transport, self._control, self._pieces = transport, control, pieces
        self._data = data  # the bytes have to live until all pieces have left

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns the targets' answers once the bytes have arrived."""
        try:
            answers = self._control.result(timeout_s)
            for piece in self._pieces:
                piece.wait()
        except Exception:
            self._transport.close()
            raise
        return answers


class _Opening:
    """The answers to `begin_update`; their number is the size of the group. It is opened after the first of
    them, and again when a target is new, as one is that was started again."""

    def __init__(self, transport: "BroadcastTransport", control: Answer) -> None:
        self._transport, self._control = transport, control

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns the targets' answers once all have joined the group."""
        answers = self._control.result(timeout_s)
        if NOT_IN_GROUP in answers:
            self._transport.close()
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

    def send(self, method: str, payload: object) -> Answer:
        """Calls `method(payload)` on every target; the bytes of a bucket go by broadcast."""
        if method == "begin_update":
            assert isinstance(payload, Manifest)
            group = None if self._member is None else self._member.group
            return _Opening(self, self._control.send(method, replace(payload, group=group)))
        if isinstance(payload, Bucket):
            message = replace(payload, data=None, in_place={}, group=self._name)
            answer = self._control.send(method, message)
            try:
                pieces: list[Piece] = self._opened().broadcast(payload)
            except RuntimeError as broken:
                self.close()  # whoever waits for the rest is released
                pieces = [_Unsent(broken)]
            return _Broadcasting(self, answer, pieces, payload)
        if method == "abort_update":
            self.close()  # nobody knows how far each target has come
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
        if self._member is not None and self._member.group.world_size == num_targets + 1:
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

    def close(self) -> None:
        """Leaves the group; the next update opens it again."""
        if self._member is not None:
            self._member.close()
        self._member, self._store = None, None
