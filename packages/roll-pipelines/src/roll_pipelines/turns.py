"""Whose states are on devices that several roles share."""

from collections.abc import Sequence

from roll_executor import Cluster
from roll_resources import parse_device_mapping


class Turns:
    """Roles that take turns on shared devices: who is not needed gives its memory back.

    Roles on the CPU share the machine's memory, so they take turns with each other as well.

    Args:
        enabled: whether roles take turns; when not, every role keeps what it has.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._known: list[Cluster] = []
        self._away: set[Cluster] = set()
        """Roles that have nothing on their devices."""
        self._short: set[Cluster] = set()
        """Roles that lack some or all of their states there."""

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
        self._known = [cluster for cluster in self._known if not cluster.closed]  # a warm-up, say, has ended
        needed = [cluster for cluster in clusters if cluster in self._known]
        for other in self._known:
            if other not in needed and other not in self._away and _meet(other, needed):
                other.offload_states()
                self._away.add(other)
                self._short.add(other)
        for cluster in needed:
            if cluster in self._short:
                cluster.load_states(include)
                self._away.discard(cluster)
                if include is None:
                    self._short.discard(cluster)


def _meet(one: Cluster, others: Sequence[Cluster]) -> bool:
    """Returns whether a role shares a device, or the CPU, with one of others."""
    mine = _devices(one)
    return any(mine & _devices(other) for other in others)


def _devices(cluster: Cluster) -> set[int | str]:
    ids = parse_device_mapping(cluster.worker_config.device_mapping)
    return set(ids) if ids else {"cpu"}
