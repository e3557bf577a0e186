"""The Ray backend of a resource manager: placement groups pinned to nodes."""

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from roll_resources.errors import ManagerClosedError, ReservationError, ReservationTimeoutError
from roll_resources.on_ray.connect import connect, disconnect
from roll_resources.on_ray.daemons import Daemons
from roll_resources.on_ray.groups import PlacementGroups
from roll_resources.on_ray.nodes import RayNode, choose_nodes, live_nodes
from roll_resources.on_ray.shipping import shipped
from roll_resources.plan import Placement
from roll_resources.pool import DevicePool

logger = logging.getLogger(__name__)

DEVICE_SHARE = 0.001
"""Part of a device that a worker takes from Ray: roles share devices, and the plan says who uses which."""


RuntimeEnv = Mapping[str, object]
"""Code and packages of a worker's process, in Ray's own words."""
DEVICES = "devices"
"""What the group of a manager's devices is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySlot:
    """One worker's place on Ray."""

    placement: Placement
    node_ip: str
    node_id: str
    group: PlacementGroup
    bundle: int
    visible_ids: tuple[int, ...]
    """Ids of its devices on its own node as Ray numbers them, in mapping order."""
    accelerator: str | None
    """The Ray resource that counts its devices; None on the CPU."""
    runtime_env: Mapping[str, object] | None = None
    """Code and packages that the worker's process is given."""

    def actor_options(self) -> dict[str, object]:
        """Return the options with which the worker's actor is created."""
        options: dict[str, object] = {
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self.group, placement_group_bundle_index=self.bundle
            ),
            "num_cpus": self.placement.num_cpus,
        }
        # Beside devices, custom resources are held by a group of the role's own, in which no worker stands.
        resources = dict(self.placement.resources) if self.accelerator is None else {}
        if self.accelerator == "GPU":
            options["num_gpus"] = DEVICE_SHARE
        elif self.accelerator is not None:
            resources[self.accelerator] = DEVICE_SHARE
        if resources:
            options["resources"] = resources
        if self.runtime_env:
            options["runtime_env"] = dict(self.runtime_env)
        return options


class RayAllocation:
    """Places of one role on Ray."""

    def __init__(self, slots: tuple[RaySlot, ...], *, namespace: str, give_back: Callable[[], None]) -> None:
        self.slots = slots
        self.namespace = namespace
        self._give_back: Callable[[], None] | None = give_back

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One place per worker, in rank order."""
        return tuple(slot.placement for slot in self.slots)

    def release(self) -> None:
        """Give back what is the role's own; the devices belong to the manager and stay with it."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class RayBackend:
    """Reserves for one manager: its devices in one group, and for each role what is the role's own.

    Args:
        nodes: the nodes of the run.
        gpus_per_node: devices to use on each.
        cpus_per_node: CPUs beside them; None: half of the node's, at least one.
        namespace: of the actors.
        timeout_s: longest wait for anything that Ray is asked for.
        groups: reserves the placement groups.
        runtime_env: code and packages that the workers' processes are given.
    """

    def __init__(
        self,
        *,
        nodes: list[RayNode],
        gpus_per_node: int,
        cpus_per_node: float | None,
        namespace: str,
        timeout_s: float,
        groups: PlacementGroups,
        runtime_env: Mapping[str, object] | None = None,
    ) -> None:
        self.nodes = nodes
        self.namespace = namespace
        self.timeout_s = timeout_s
        self.pool = DevicePool(tuple(replace(node.spec, gpus=gpus_per_node) for node in nodes))
        self._gpus_per_node = gpus_per_node
        self._cpus_per_node = cpus_per_node
        self._lock = threading.Lock()
        self._groups = groups
        self._device_group: PlacementGroup | None = None
        self._device_ids: list[tuple[int, ...]] = []
        self._cpus_left: list[float] = []
        self.runtime_env = runtime_env
        self._daemons = Daemons()
        self._closed = False

    @classmethod
    def start(
        cls,
        *,
        num_nodes: int | None,
        gpus_per_node: int,
        cpus_per_node: float | None,
        address: str | None,
        namespace: str | None,
        timeout_s: float,
        runtime_env: Mapping[str, object] | None = None,
        name: str | None = None,
    ) -> "RayBackend":
        """Connect to Ray and find the nodes; reserve nothing yet."""
        namespace = namespace or f"roll-{uuid.uuid4().hex[:12]}"
        connect(address=address, namespace=namespace, outlives=name is not None)
        groups = PlacementGroups(name=name, timeout_s=timeout_s)
        try:
            nodes = _standing_nodes(groups, name, num_nodes) or choose_nodes(
                num_nodes=num_nodes, gpus_per_node=gpus_per_node, timeout_s=timeout_s, own_first=name is None
            )
        except BaseException:
            disconnect()
            raise
        return cls(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            cpus_per_node=cpus_per_node,
            namespace=namespace,
            timeout_s=timeout_s,
            groups=groups,
            runtime_env=runtime_env,
        )

    def allocate(self, placements: tuple[Placement, ...]) -> RayAllocation:
        """Reserve the places of one role."""
        if self._closed:
            raise ManagerClosedError("this ResourceManager is closed; make a new one")
        runtime_env = shipped(self.runtime_env)
        if placements[0].devices:
            return self._allocate_devices(placements, runtime_env)
        bundles = [{"CPU": place.num_cpus, **place.resources} for place in placements]
        group = self._reserve(bundles, placements)
        slots = tuple(
            self._slot(place, group=group, bundle=index, visible_ids=(), runtime_env=runtime_env)
            for index, place in enumerate(placements)
        )
        return RayAllocation(slots, namespace=self.namespace, give_back=lambda: self._groups.give_back(group))

    def _allocate_devices(
        self, placements: tuple[Placement, ...], runtime_env: RuntimeEnv | None
    ) -> RayAllocation:
        group = self._ensure_device_group()
        self._take_cpus(placements)
        held = None
        if placements[0].resources:
            try:
                held = self._reserve([place.resources for place in placements], placements)
            except BaseException:
                self._return_cpus(placements)
                raise
        slots = []
        for place in placements:
            ids = self._device_ids[place.node]
            own = tuple(ids[device.local_id] for device in place.devices if device.node == place.node)
            slots.append(
                self._slot(place, group=group, bundle=place.node, visible_ids=own, runtime_env=runtime_env)
            )

        def give_back() -> None:
            self._return_cpus(placements)
            if held is not None:
                self._groups.give_back(held)

        return RayAllocation(tuple(slots), namespace=self.namespace, give_back=give_back)

    def _take_cpus(self, placements: tuple[Placement, ...]) -> None:
        """Book the workers' CPUs in the share that stands beside the devices of their nodes."""
        role = placements[0].role
        with self._lock:
            wanted = [
                sum(p.num_cpus for p in placements if p.node == node) for node in range(len(self.nodes))
            ]
            short = [node for node, cpus in enumerate(wanted) if cpus > self._cpus_left[node] + 1e-6]
            if short:
                told = ", ".join(
                    f"{self.nodes[node].spec.name}: {wanted[node]:g} wanted, {self._cpus_left[node]:g} left"
                    for node in short
                )
                raise ReservationError(
                    f"{role} asks for more CPUs than are left beside the devices ({told}); lower "
                    "num_cpus_per_worker, or give the ResourceManager a larger num_cpus_per_node"
                )
            self._cpus_left = [left - cpus for left, cpus in zip(self._cpus_left, wanted, strict=True)]

    def _return_cpus(self, placements: tuple[Placement, ...]) -> None:
        with self._lock:
            for place in placements:
                self._cpus_left[place.node] += place.num_cpus

    def _slot(
        self,
        place: Placement,
        *,
        group: PlacementGroup,
        bundle: int,
        visible_ids: tuple[int, ...],
        runtime_env: RuntimeEnv | None,
    ) -> RaySlot:
        node = self.nodes[place.node]
        return RaySlot(
            placement=place,
            node_ip=node.ip,
            node_id=node.node_id,
            group=group,
            bundle=bundle,
            visible_ids=visible_ids,
            accelerator=node.accelerator if place.devices else None,
            runtime_env=runtime_env,
        )

    def _ensure_device_group(self) -> PlacementGroup:
        with self._lock:
            if self._device_group is None:
                cpus = [
                    max(1.0, (node.spec.cpus or 0.0) // 2)
                    if self._cpus_per_node is None
                    else self._cpus_per_node
                    for node in self.nodes
                ]
                bundles = [
                    {node.accelerator or "GPU": float(self._gpus_per_node), "CPU": share}
                    for node, share in zip(self.nodes, cpus, strict=True)
                ]
                group = self._groups.reserve(bundles, self.nodes, DEVICES)
                try:
                    ids = assigned_devices(group, self.nodes, self._gpus_per_node, self.timeout_s)
                except BaseException:
                    self._groups.undo(group)
                    raise
                self._device_ids, self._cpus_left, self._device_group = ids, cpus, group
            return self._device_group

    def _reserve(
        self, bundles: Sequence[Mapping[str, float]], placements: tuple[Placement, ...]
    ) -> PlacementGroup:
        homes = [self.nodes[place.node] for place in placements]
        return self._groups.reserve(bundles, homes, placements[0].role)

    def run_on_nodes(self, function: Callable[..., object], *args: object) -> list[object]:
        """Run a function once on each node of the run, at the same time; return the results in node order."""
        calls = []
        runtime_env = shipped(self.runtime_env)
        for node in self.nodes:
            affinity = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
            options: dict[str, object] = {"num_cpus": 0, "scheduling_strategy": affinity, "max_retries": 0}
            if runtime_env:
                options["runtime_env"] = dict(runtime_env)
            calls.append(ray.remote(function).options(**options).remote(*args))
        found: list[object] = ray.get(calls)
        return found

    def ended_daemons(self) -> list[str]:
        """Return those processes of Ray that it needs and that have ended."""
        return self._daemons.ended()

    def close(self) -> None:
        """Remove every placement group and leave Ray; doing it twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._daemons.close()
        self._groups.close()
        disconnect()


def _standing_nodes(groups: PlacementGroups, name: str | None, num_nodes: int | None) -> list[RayNode]:
    """Return the nodes on which the named devices stand already; none when they do not stand."""
    standing = groups.find(DEVICES)
    if standing is None:
        return []
    alive = {node.node_id: node for node in live_nodes()}
    homes = [standing["bundles_to_node_id"][index] for index in sorted(standing["bundles_to_node_id"])]
    if num_nodes not in (None, len(homes)) or any(home not in alive for home in homes):
        lost = [home[:6] for home in homes if home not in alive]
        raise ReservationError(
            f"devices of {len(homes)} node(s) stand under the name {name!r}, num_nodes is {num_nodes}, and "
            f"nodes {lost or 'none'} of them have left; ask for the same, release() the name first, or take "
            "another name"
        )
    return [alive[home] for home in homes]


def assigned_devices(
    group: PlacementGroup, nodes: Sequence[RayNode], gpus_per_node: int, timeout_s: float
) -> list[tuple[int, ...]]:
    """Return, per node, the ids of the devices that Ray gave to the group's bundle there, ascending."""
    probes = []
    for index, node in enumerate(nodes):
        name = node.accelerator or "GPU"
        amounts = {"num_gpus": gpus_per_node} if name == "GPU" else {"resources": {name: gpus_per_node}}
        probe = ray.remote(num_cpus=0, **amounts)(_own_accelerators)
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
        probes.append(probe.options(scheduling_strategy=strategy).remote(name))
    try:
        found: list[list[str]] = ray.get(probes, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as late:
        raise ReservationTimeoutError(
            f"the devices of {', '.join(node.spec.name for node in nodes)} are reserved, and Ray did not say "
            f"within {timeout_s:g} s which they are: workers of an earlier driver may still hold them, or no "
            "process can be started there; raise timeout_s"
        ) from late
    return [tuple(sorted(int(device) for device in ids)) for ids in found]


def _own_accelerators(name: str) -> list[str]:
    return list(ray.get_runtime_context().get_accelerator_ids().get(name, []))
