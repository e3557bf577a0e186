"""Where one worker stands among its peers."""

from typing import Self

from roll_dispatch.errors import TopologyError
from roll_dispatch.record import Record


class RankInfo(Record):
    """The coordinates of one worker: what it says of itself. A `Topology` checks what all of them say.

    Example:
        >>> RankInfo.data_parallel(rank=1, world_size=2).dp_rank
        1
    """

    rank: int
    """Global rank, 0 to world_size - 1."""
    world_size: int
    """Number of workers."""
    dp_rank: int = 0
    """Data parallel coordinate: workers that share it work on the same rows."""
    dp_size: int = 1
    tp_rank: int = 0
    """Tensor parallel coordinate."""
    tp_size: int = 1
    pp_rank: int = 0
    """Pipeline parallel coordinate (stage)."""
    pp_size: int = 1
    cp_rank: int = 0
    """Context parallel coordinate (part of the sequence)."""
    cp_size: int = 1
    ep_rank: int = 0
    """Expert parallel coordinate. It lies over dp x cp and is not one of the four that place a rank."""
    ep_size: int = 1

    def check(self) -> None:
        """Raise when a field is no whole number; whether they fit together, a Topology checks."""
        for name, value in self.__dict__.items():
            if type(value) is not int:
                raise TopologyError(f"RankInfo.{name} is a whole number, not {value!r}; convert it by int()")

    @classmethod
    def data_parallel(cls, *, rank: int, world_size: int) -> Self:
        """Return the coordinates of a worker that is data parallel only."""
        return cls(rank=rank, world_size=world_size, dp_rank=rank, dp_size=world_size)

    @property
    def is_pipeline_last_stage(self) -> bool:
        """Whether this worker holds the last pipeline stage, the one that has the output."""
        return self.pp_rank == self.pp_size - 1

    @property
    def is_collecting(self) -> bool:
        """Whether this worker answers for its DP rank: tp 0, cp 0, last pipeline stage."""
        return self.tp_rank == 0 and self.cp_rank == 0 and self.is_pipeline_last_stage
