"""The placement groups of one manager: reserved, found again by name, and given back."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from roll_resources.errors import ReservationError, ReservationTimeoutError
from roll_resources.on_ray.connect import connect, disconnect
from roll_resources.on_ray.nodes import RayNode
from roll_resources.on_ray.shortage import explain_shortage

NOTHING: Mapping[str, float] = {"CPU": 0.001}
"""What a bundle holds whose worker asks for nothing: Ray takes no empty one."""
Info = Mapping[str, Any]  # Any: Ray's own table


class PlacementGroups:
    """Reserves groups that end with this process or, under a name, outlive it until they are released.

    Args:
        name: the manager's name; None: the groups end with this process.
        timeout_s: longest wait for a group to be granted.
    """

    def __init__(self, *, name: str | None, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._held: list[PlacementGroup] = []
        self._found: list[PlacementGroup] = []
        self._lock = threading.Lock()

    def reserve(
        self, bundles: Sequence[Mapping[str, float]], nodes: Sequence[RayNode], what: str
    ) -> PlacementGroup:
        """Return a group with one bundle on each of these nodes; a named one that stands already is taken.

        Args:
            bundles: the amounts by resource.
            nodes: the node of each.
            what: the role, for messages and for the group's name.

        Raises:
            ReservationTimeoutError: if it is not granted in time; then nothing stays behind.
            ReservationError: if another group stands under this name.
        """
        wanted = [{name: amount for name, amount in bundle.items() if amount > 0} for bundle in bundles]
        wanted = [bundle or dict(NOTHING) for bundle in wanted]
        standing = self.find(what)
        if standing is not None:
            self._check_same(standing, wanted, nodes, what)
            group = _group(standing)
            self._found.append(group)
        else:
            group = placement_group(
                wanted,
                strategy="PACK",
                name=self._full_name(what) if self._name else "",
                lifetime="detached" if self._name else None,
                bundle_label_selector=[{"ray.io/node-id": node.node_id} for node in nodes],
            )
        try:
            if not group.wait(self._timeout_s):
                short = list(zip(nodes, wanted, strict=True))
                raise ReservationTimeoutError(explain_shortage(what, short, self._timeout_s))
        except BaseException:
            if standing is None:
                remove_placement_group(group)
            raise
        with self._lock:  # clusters are created and closed in threads
            self._held.append(group)
        return group

    def find(self, what: str) -> Info | None:
        """Return what Ray tells of the group that stands under a name, or None when there is none."""
        if self._name is None:
            return None
        full = self._full_name(what)
        return next((group for group in _standing() if group["name"] == full), None)

    def give_back(self, group: PlacementGroup) -> None:
        """Remove a group that ends with this process; one under a name stays until it is released."""
        if self._name is None:
            self._remove(group)

    def undo(self, group: PlacementGroup) -> None:
        """Remove a group that cannot be used after all, unless it stood before this process came."""
        if group not in self._found:
            self._remove(group)

    def _remove(self, group: PlacementGroup) -> None:
        if ray.is_initialized():
            remove_placement_group(group)
        with self._lock:
            self._held = [held for held in self._held if held is not group]

    def close(self) -> None:
        """Remove all groups that end with this process."""
        if self._name is None:
            for group in list(self._held):
                self._remove(group)
        self._held.clear()

    def _full_name(self, what: str) -> str:
        return f"{_prefix(self._name or '')}{what}"

    def _check_same(
        self, standing: Info, bundles: Sequence[Mapping[str, float]], nodes: Sequence[RayNode], what: str
    ) -> None:
        homes = standing["bundles_to_node_id"]
        there = [dict(standing["bundles"][index]) for index in sorted(standing["bundles"])]
        placed = any(homes.values())
        moved = placed and [homes[index] for index in sorted(homes)] != [node.node_id for node in nodes]
        if there != [dict(bundle) for bundle in bundles] or moved:
            asked = f"{[dict(bundle) for bundle in bundles]} on nodes {[node.node_id[:6] for node in nodes]}"
            raise ReservationError(
                f"what stands under the name {self._name!r} for {what} is {there} on nodes "
                f"{[node[:6] for node in homes.values()]}, and {asked} is asked for; ask for the same, "
                "release() the name first, or take another name"
            )


def release_groups(name: str, *, address: str | None) -> int:
    """Remove every group that stands under a manager's name, whoever reserved it; return how many.

    Workers that still stand in them are ended by Ray.
    """
    connect(address=address, namespace=f"roll-release-{name}", outlives=True)
    try:
        standing = [group for group in _standing() if group["name"].startswith(_prefix(name))]
        for group in standing:
            remove_placement_group(_group(group))
        return len(standing)
    finally:
        disconnect()


def _prefix(name: str) -> str:
    return f"roll:{name}:"


def _standing() -> list[Info]:
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def _group(told: Info) -> PlacementGroup:
    return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(told["placement_group_id"])))
