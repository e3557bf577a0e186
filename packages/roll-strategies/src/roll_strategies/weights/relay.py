"""How runs of bytes reach every member of a group: over gloo they are handed on, over NCCL broadcast."""

import logging
from collections import deque
from typing import Any, Protocol

import torch
import torch.distributed as dist

from roll_strategies.errors import WeightSyncError

logger = logging.getLogger(__name__)

PIECE_BYTES = 4 * 1024 * 1024
"""Bytes that travel together: the first pieces are used while the last are on their way."""

TAGS = 2**20
"""More than there can be pieces on their way."""


class Piece(Protocol):
    """A few bytes on their way."""

    def wait(self) -> object:
        """Returns once they are there, or have left; may be called again."""
        ...


class Wire(Protocol):
    """What moves the bytes of a group."""

    @property
    def device(self) -> torch.device:
        """Where bytes are sent from and received into."""
        ...

    def start(self, memory: torch.Tensor) -> list[Piece]:
        """Starts to send a run of bytes, or to receive it, in pieces of PIECE_BYTES."""
        ...

    def begin_bucket(self) -> None:
        """Says that another bucket begins: the memory of the one before the last is free."""
        ...

    def close(self) -> None:
        """Leaves the group; whoever waits for this member is released with an error."""
        ...


class Broadcast:
    """NCCL's own broadcast, which is a pipeline already.

    Args:
        backend: an NCCL group.
    """

    def __init__(self, backend: Any) -> None:  # Any: a compiled class
        self._backend = backend

    @property
    def device(self) -> torch.device:
        """This process' GPU."""
        return torch.device("cuda", torch.cuda.current_device())

    def start(self, memory: torch.Tensor) -> list[Piece]:
        """Starts one broadcast per piece."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        return [self._backend.broadcast([piece], options) for piece in torch.split(memory, PIECE_BYTES)]

    def begin_bucket(self) -> None:
        """Does nothing: the device's stream keeps the order."""

    def close(self) -> None:
        """Leaves the group."""
        self._backend = None


class Relay:
    """Every member takes each piece from the one before it and hands it to the one after it.

    So a link carries every byte once, and all links work at the same time, however many targets there are;
    gloo's broadcast sends everything again for each doubling of the targets. And a receiver of messages
    posts what it expects ahead, which gloo's collectives, two at a time, do not.

    A mark of one byte follows each piece, and is waited for first: when the sender dies amid a message, gloo
    wakes who waits for a later one, but not who waits for that one.

    Args:
        backend: a gloo group.
        rank: 0 sends, the last one only takes.
        world_size: members of the group.
    """

    def __init__(self, backend: Any, *, rank: int, world_size: int) -> None:  # Any: a compiled class
        self._backend = backend
        self._rank = rank
        self._next = rank + 1 if rank + 1 < world_size else None
        self._moving: deque[list[_Moving]] = deque()
        self._count = 0
        self._mark = torch.zeros(1, dtype=torch.uint8)

    @property
    def device(self) -> torch.device:
        """The host."""
        return torch.device("cpu")

    def start(self, memory: torch.Tensor) -> list[Piece]:
        """Starts to send to the first target, or to receive from the member before this one."""
        return [self._started(piece) for piece in torch.split(memory, PIECE_BYTES)]

    def _started(self, memory: torch.Tensor) -> "_Moving":
        # All members count alike; a target may need pieces, and hand them on, in another order.
        self._count = (self._count + 1) % TAGS
        if self._rank == 0:
            return self._sent(memory, self._count)
        works = [
            self._backend.recv([memory], self._rank - 1, 2 * self._count),
            self._backend.recv([torch.empty_like(self._mark)], self._rank - 1, 2 * self._count + 1),
        ]
        return self._noted(_Taken(works, memory, self._count, self))

    def begin_bucket(self) -> None:
        """Waits until the bucket before the last has been handed on.

        A target does not wait for the last one: when another is silent, it still answers, and the one that
        does not is the one to look at.
        """
        self._moving.append([])
        while len(self._moving) > 2:
            try:
                for piece in self._moving[0]:
                    piece.wait()
            except RuntimeError as broken:
                self._give_up(broken)
            for piece in self._moving.popleft():
                piece.let_go()

    def close(self) -> None:
        """Leaves the group. Pieces on their way keep its connections open, so they are let go."""
        for piece in (piece for pieces in self._moving for piece in pieces):
            piece.let_go()
        self._moving.clear()
        self._backend = None

    def _sent(self, memory: torch.Tensor, tag: int) -> "_Moving":
        works = [
            self._backend.send([memory], self._next, 2 * tag),
            self._backend.send([self._mark], self._next, 2 * tag + 1),
        ]
        return self._noted(_Moving(works))

    def _noted(self, piece: "_Moving") -> "_Moving":
        self._moving[-1].append(piece)
        return piece

    def hand_on(self, memory: torch.Tensor, tag: int) -> None:
        """Starts to send an arrived piece to the next member."""
        if self._next is None:
            return
        try:
            self._sent(memory, tag)
        except RuntimeError as broken:
            self._give_up(broken)

    def _give_up(self, broken: RuntimeError) -> None:
        """Hands nothing on any more; the next member's own answer says what it lacks."""
        if self._rank == 0:
            raise broken
        logger.warning("member %d of the group takes no bytes any more; its own answer says why", self._next)
        logger.debug("what gloo says of it: %s", broken)
        self._next = None


class _Moving:
    """A piece and its mark, each waited for once, for gloo counts how often."""

    def __init__(self, works: list[dist.Work]) -> None:
        self._works: list[dist.Work] | None = works
        self._done = False

    def wait(self) -> None:
        for place in (-1, 0):  # no name for the work: the traceback of an error would keep it
            if self._done:
                return
            if self._works is None:
                raise WeightSyncError("the group that carries the bytes was closed")
            self._works[place].wait()
        self._works, self._done = None, True

    def let_go(self) -> None:
        self._works = None


class _Taken(_Moving):
    """A piece that is handed on when it has arrived."""

    def __init__(self, works: list[dist.Work], memory: torch.Tensor, tag: int, relay: Relay) -> None:
        super().__init__(works)
        self._memory, self._tag, self._relay = memory, tag, relay

    def wait(self) -> None:
        if not self._done:
            super().wait()
            self._relay.hand_on(self._memory, self._tag)
