"""The devices that roles are planned on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roll_resources.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What one node offers."""

    gpus: int = 0
    """Number of accelerators, whatever their kind."""
    cpus: float | None = None
    """Logical CPUs; None: not known, and not checked."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources by name."""
    name: str = ""
    """What the node is called in messages and pictures; empty: ``node<index>``."""

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise PlanError(f"a node cannot have {self.gpus} devices; give 0 or more")
        if self.cpus is not None and self.cpus < 0:
            raise PlanError(
                f"a node cannot have {self.cpus} CPUs; give 0 or more, or None when it is not known"
            )


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: where it is and which number it has."""

    node: int
    """Index of its node in the pool."""
    local_id: int
    """Its number on that node, from 0."""
    global_id: int
    """Its number in the pool: the one that a device mapping names."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Nodes with their devices, numbered node after node: global id 0 is the first device of the first node.

    Example:
        >>> DevicePool.uniform(nodes=2, gpus_per_node=8).locate(11)
        Device(node=1, local_id=3, global_id=11)
    """

    nodes: tuple[NodeSpec, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise PlanError("a pool needs at least one node; it was given none")

    @classmethod
    def uniform(
        cls, *, nodes: int = 1, gpus_per_node: int | None = 0, cpus_per_node: float | None = None
    ) -> "DevicePool":
        """Return a pool of equal nodes.

        Raises:
            PlanError: if there is no node or a count is negative.
        """
        if nodes < 1:
            raise PlanError(f"num_nodes is {nodes}; a pool needs at least one node")
        return cls(tuple(NodeSpec(gpus=gpus_per_node or 0, cpus=cpus_per_node) for _ in range(nodes)))

    @property
    def num_devices(self) -> int:
        """Number of devices on all nodes."""
        return sum(node.gpus for node in self.nodes)

    def node_name(self, index: int) -> str:
        """Return what the node is called in messages."""
        return self.nodes[index].name or f"node{index}"

    def locate(self, global_id: int) -> Device:
        """Return the device with this global id.

        Raises:
            PlanError: if the pool has no such device.
        """
        first = 0
        if global_id >= 0:
            for index, node in enumerate(self.nodes):
                if global_id < first + node.gpus:
                    return Device(node=index, local_id=global_id - first, global_id=global_id)
                first += node.gpus
        raise PlanError(f"device {global_id} does not exist: {self.describe()}")

    def describe(self) -> str:
        """Return one line that says which devices there are."""
        total = self.num_devices
        if not total:
            return f"the pool has {len(self.nodes)} node(s) and no devices"
        counts = {node.gpus for node in self.nodes}
        each = f"{counts.pop()} each" if len(counts) == 1 else "+".join(str(node.gpus) for node in self.nodes)
        return f"the pool has {len(self.nodes)} node(s) with {total} device(s) ({each}), ids 0-{total - 1}"
