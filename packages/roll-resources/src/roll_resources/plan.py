"""Which worker of which role gets which node and devices: a pure function and its result."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roll_resources.device_mapping import parse_device_mapping
from roll_resources.errors import DeviceMappingError, PlanError
from roll_resources.pool import Device, DevicePool, NodeSpec
from roll_resources.request import RoleRequest

TOKEN_CPUS = 0.01
"""CPUs that a worker reserves when its role names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one worker stands."""

    role: str
    rank: int
    node: int
    """Index of the node on which the worker's process runs: that of its first device."""
    local_rank: int
    """Number of the role's workers on this node that have a smaller rank."""
    devices: tuple[Device, ...]
    """Its devices in mapping order; empty on the CPU."""
    num_cpus: float
    resources: Mapping[str, float]

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that the worker's devices stand on, each once, its own first."""
        return tuple(dict.fromkeys([self.node, *(device.node for device in self.devices)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Devices that two or more roles use."""

    roles: tuple[str, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The placement of every worker of every role; printing it gives a table."""

    pool: DevicePool
    roles: Mapping[str, tuple[Placement, ...]]

    def __getitem__(self, role: str) -> tuple[Placement, ...]:
        return self.roles[role]

    @property
    def sharing(self) -> tuple[Sharing, ...]:
        """Groups of devices that the same two or more roles use, in order of their first device."""
        users: dict[int, list[str]] = {}
        for name, placements in self.roles.items():
            for device in (device for placement in placements for device in placement.devices):
                users.setdefault(device.global_id, []).append(name)
        groups: dict[tuple[str, ...], list[int]] = {}
        for device_id in sorted(users):
            if len(users[device_id]) > 1:
                groups.setdefault(tuple(users[device_id]), []).append(device_id)
        return tuple(Sharing(roles=roles, devices=tuple(ids)) for roles, ids in groups.items())

    def __str__(self) -> str:
        from roll_resources.render import table

        return table(self)


def plan(requests: Iterable[RoleRequest], pool: DevicePool) -> Plan:
    """Return the placement of every worker, or every reason why there is none.

    Args:
        requests: one per role; roles may share devices.
        pool: the nodes and devices that there are.

    Returns:
        A plan that depends on nothing but the arguments.

    Raises:
        PlanError: if any role does not fit; ``problems`` lists all reasons, each with its path.

    Example:
        >>> pool = DevicePool.uniform(nodes=1, gpus_per_node=4)
        >>> [p.node for p in plan([RoleRequest(name="train", device_mapping="0-3")], pool)["train"]]
        [0, 0, 0, 0]
    """
    asked = list(requests)
    problems = [
        f"{name}: two roles have this name; give each its own"
        for name, count in Counter(request.name for request in asked).items()
        if count > 1
    ]
    roles: dict[str, tuple[Placement, ...]] = {}
    for request in asked:
        found: list[str] = []
        roles[request.name] = _place(request, pool, found)
        problems += [f"{request.path or request.name}: {problem}" for problem in found]
    if not problems:
        problems = [*_overcommitted(roles, pool), *_forbidden_sharing(asked, roles)]
    if problems:
        count = f"{len(problems)} problem(s) in the placement:\n- " if len(problems) > 1 else ""
        raise PlanError(count + "\n- ".join(problems), tuple(problems))
    return Plan(pool=pool, roles=roles)


def _place(request: RoleRequest, pool: DevicePool, problems: list[str]) -> tuple[Placement, ...]:
    _check_amounts(request, problems)
    try:
        ids = parse_device_mapping(request.device_mapping)
    except DeviceMappingError as broken:
        problems.append(str(broken))
        return ()
    place = _spread if ids is None else _on_devices
    homes = place(request, ids or (), pool, problems)
    if problems:
        return ()
    cpus = _cpus_of(request)
    before: Counter[int] = Counter()
    placements = []
    for rank, (node, devices) in enumerate(homes):
        placements.append(
            Placement(
                role=request.name,
                rank=rank,
                node=node,
                local_rank=before[node],
                devices=devices,
                num_cpus=cpus,
                resources=dict(request.resources),
            )
        )
        before[node] += 1
    return tuple(placements)


def _check_amounts(request: RoleRequest, problems: list[str]) -> None:
    if request.world_size is not None and request.world_size < 1:
        problems.append(f"world_size is {request.world_size}; a role has at least one worker")
    if request.num_gpus_per_worker is not None and request.num_gpus_per_worker < 0:
        problems.append(f"num_gpus_per_worker is {request.num_gpus_per_worker}; give 0 or more")
    if request.num_cpus_per_worker is not None and request.num_cpus_per_worker < 0:
        problems.append(f"num_cpus_per_worker is {request.num_cpus_per_worker}; give 0 or more")
    problems += [
        f"resources.{name} is {amount}; give more than 0, or leave it out"
        for name, amount in request.resources.items()
        if amount <= 0
    ]


Home = tuple[int, tuple[Device, ...]]


def _spread(
    request: RoleRequest, _no_devices: Sequence[int], pool: DevicePool, problems: list[str]
) -> list[Home]:
    if request.num_gpus_per_worker:
        problems.append(
            f"num_gpus_per_worker is {request.num_gpus_per_worker} and device_mapping is empty; "
            "name the devices in device_mapping, or leave num_gpus_per_worker out for workers on the CPU"
        )
    here = [0] * len(pool.nodes)
    for rank in range(request.world_size or 1):
        fitting = [node for node, spec in enumerate(pool.nodes) if _fits(request, spec, here[node] + 1)]
        if not fitting:
            problems.append(_no_room(request, pool, rank))
            return []
        here[min(fitting, key=lambda node: (here[node], node))] += 1
    homes = [(turn, node) for node, count in enumerate(here) for turn in range(count)]
    return [(node, ()) for _, node in sorted(homes)]


def _fits(request: RoleRequest, node: NodeSpec, workers: int) -> bool:
    """Return whether a node can hold this many workers of a role; one of unknown size can."""
    if node.cpus is None:
        return True
    return workers * _cpus_of(request) <= node.cpus + 1e-6 and all(
        workers * amount <= node.resources.get(name, 0.0) + 1e-6 for name, amount in request.resources.items()
    )


def _cpus_of(request: RoleRequest) -> float:
    return TOKEN_CPUS if request.num_cpus_per_worker is None else request.num_cpus_per_worker


def _no_room(request: RoleRequest, pool: DevicePool, room: int) -> str:
    asked = [f"{_cpus_of(request):g} CPUs", *(f"{n:g} of {name!r}" for name, n in request.resources.items())]
    offers = "; ".join(
        f"{pool.node_name(index)}: {node.cpus:g} CPUs"
        + "".join(f", {node.resources.get(name, 0.0):g} of {name!r}" for name in request.resources)
        for index, node in enumerate(pool.nodes)
        if node.cpus is not None
    )
    return (
        f"{request.world_size or 1} worker(s) ask for {' and '.join(asked)} each, and there is room for "
        f"{room} ({offers}); ask for less or fewer, or add a node"
    )


def _on_devices(
    request: RoleRequest, ids: Sequence[int], pool: DevicePool, problems: list[str]
) -> list[Home]:
    outside = [device for device in ids if device >= pool.num_devices]
    if outside:
        problems.append(
            f"device_mapping names {_short(outside)} and {pool.describe()}; "
            "name other devices, or raise num_nodes or num_gpus_per_node"
        )
        return []
    each = _devices_per_worker(request, len(ids), problems)
    if each is None:
        return []
    devices = [pool.locate(device) for device in ids]
    groups = [tuple(devices[start : start + each]) for start in range(0, len(devices), each)]
    return [(group[0].node, group) for group in groups]


def _devices_per_worker(request: RoleRequest, count: int, problems: list[str]) -> int | None:
    each, workers = request.num_gpus_per_worker, request.world_size
    if each == 0:
        problems.append(
            f"num_gpus_per_worker is 0 and device_mapping names {count} device(s); leave one of them out"
        )
        return None
    if (workers is not None and workers < 1) or (each is not None and each < 0):
        return None  # already said by _check_amounts
    if each is None:
        each = 1 if workers is None else count // workers
    if workers is None:
        workers = count // each
    if workers < 1 or each < 1 or workers * each != count:
        problems.append(
            f"{count} device(s) cannot be divided over {request.world_size or 'any number of'} worker(s) "
            f"with {request.num_gpus_per_worker or 'equally many'} device(s) each; "
            "world_size x num_gpus_per_worker must be the number of devices in device_mapping"
        )
        return None
    return each


def _overcommitted(roles: Mapping[str, tuple[Placement, ...]], pool: DevicePool) -> list[str]:
    problems = []
    for index, node in enumerate(pool.nodes):
        here = [p for placements in roles.values() for p in placements if p.node == index]
        cpus = sum(placement.num_cpus for placement in here)
        if node.cpus is not None and cpus > node.cpus + 1e-6:
            problems.append(
                f"{pool.node_name(index)}: workers ask for {cpus:g} CPUs ({_by_role(here)}) "
                f"and it has {node.cpus:g}; lower num_cpus_per_worker or world_size, or add a node"
            )
        for name in sorted({name for placement in here for name in placement.resources}):
            wanted = sum(placement.resources.get(name, 0.0) for placement in here)
            if node.cpus is not None and wanted > node.resources.get(name, 0.0) + 1e-6:
                problems.append(
                    f"{pool.node_name(index)}: workers ask for {wanted:g} of resource {name!r} "
                    f"and it has {node.resources.get(name, 0.0):g}"
                )
    return problems


def _by_role(placements: Sequence[Placement]) -> str:
    counts = Counter(placement.role for placement in placements)
    return ", ".join(f"{count} of {role}" for role, count in counts.items())


def _forbidden_sharing(asked: Sequence[RoleRequest], roles: Mapping[str, tuple[Placement, ...]]) -> list[str]:
    problems = []
    used = {
        name: {device.global_id for placement in placements for device in placement.devices}
        for name, placements in roles.items()
    }
    for request in asked:
        if request.colocate is False:
            for other, devices in used.items():
                shared = sorted(devices & used[request.name])
                if other != request.name and shared:
                    problems.append(
                        f"{request.path or request.name}: colocate is false and role {other!r} also uses "
                        f"device(s) {_short(shared)}; give one of them other devices"
                    )
    return problems


def _short(ids: Sequence[int]) -> str:
    shown = ", ".join(str(device) for device in ids[:8])
    return f"[{shown}]" if len(ids) <= 8 else f"[{shown}, ... {len(ids)} in all]"
