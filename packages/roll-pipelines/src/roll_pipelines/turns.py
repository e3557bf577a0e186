"""Whose states are on devices that several roles share."""

from collections.abc import Sequence

from roll_executor import Cluster, ClusterClosedError
from roll_resources import parse_device_mapping


class Turns:
    """Roles that take turns on shared devices: who is not needed gives its memory back.

    Roles on the CPU share the machine's memory, so they take turns with each other as well.

    Args:
        enabled: whether roles take turns; when not, every role keeps what it has.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._waiting: set[Cluster] = set()
        self._known: list[Cluster] = []

    def join(self, cluster: Cluster) -> None:
        """Lets a role take part; its states are on its devices now."""
        if self._enabled:
            self._known.append(cluster)

    def give(self, *clusters: Cluster, include: Sequence[str] | None = None) -> None:
        """Brings the states of some roles onto their devices, after the others there gave theirs back.

        Args:
            clusters: who is needed next.
            include: the kinds of state that they need; None means all.
        """
        needed = [cluster for cluster in clusters if cluster in self._known]
        for other in list(self._known):
            if other not in needed and other not in self._waiting and _meet(other, needed):
                self._send_away(other)
        for cluster in needed:
            if cluster in self._waiting:
                cluster.load_states(include)
                if include is None:
                    self._waiting.discard(cluster)

    def _send_away(self, cluster: Cluster) -> None:
        try:
            cluster.offload_states()
        except ClusterClosedError:
            self._known.remove(cluster)  # a role that has ended, such as a warm-up, takes no more turns
        else:
            self._waiting.add(cluster)


def _meet(one: Cluster, others: Sequence[Cluster]) -> bool:
    """Returns whether a role shares a device, or the CPU, with one of others."""
    mine = _devices(one)
    return any(mine & _devices(other) for other in others)


def _devices(cluster: Cluster) -> set[int | str]:
    ids = parse_device_mapping(cluster.worker_config.device_mapping)
    return set(ids) if ids else {"cpu"}
