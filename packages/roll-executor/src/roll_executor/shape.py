"""What the coordinates of its workers tell of a cluster."""

from abc import abstractmethod

from roll_dispatch import RankInfo, Topology


class Shape:
    """Sizes and coordinates, read off a topology."""

    @property
    @abstractmethod
    def topology(self) -> Topology:
        """The coordinates of all workers."""

    @property
    def worker_rank_info(self) -> list[RankInfo]:
        """Coordinates of every worker in rank order."""
        return list(self.topology)

    def get_rank_info(self, rank: int) -> RankInfo:
        """Return the coordinates of one worker.

        Raises:
            IndexError: if there is no such rank.
        """
        if not 0 <= rank < len(self.topology):
            raise IndexError(f"this cluster has ranks 0 to {len(self.topology) - 1}, not {rank}")
        return self.topology[rank]

    @property
    def dp_size(self) -> int:
        """Number of data parallel ranks."""
        return self.topology.dp_size

    @property
    def tp_size(self) -> int:
        """Size of the tensor parallel axis."""
        return self.topology.tp_size

    @property
    def pp_size(self) -> int:
        """Number of pipeline stages."""
        return self.topology.pp_size

    @property
    def cp_size(self) -> int:
        """Size of the context parallel axis."""
        return self.topology.cp_size
