"""The nodes of a Ray cluster that a run may use."""

import time
from dataclasses import dataclass

import ray

from roll_resources.errors import ReservationTimeoutError
from roll_resources.pool import NodeSpec

ACCELERATORS = ("GPU", "NPU")
"""Ray resources that count devices, in order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """One live node of a Ray cluster."""

    node_id: str
    ip: str
    spec: NodeSpec
    accelerator: str | None
    """The Ray resource that counts its devices."""


def live_nodes(*, own_first: bool = True) -> list[RayNode]:
    """Return the live nodes by address and id, this process's own before the others if so asked."""
    own = ray.get_runtime_context().get_node_id() if own_first else ""
    found = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        if not node["Alive"]:
            continue
        amounts: dict[str, float] = node["Resources"]
        accelerator = next((name for name in ACCELERATORS if amounts.get(name, 0) > 0), None)
        custom = {
            name: amount
            for name, amount in amounts.items()
            if name not in ("CPU", "memory", "object_store_memory", *ACCELERATORS)
            and not name.startswith("node:")
        }
        ip = node["NodeManagerAddress"]
        found.append(
            RayNode(
                node_id=node["NodeID"],
                ip=ip,
                accelerator=accelerator,
                spec=NodeSpec(
                    gpus=int(amounts.get(accelerator, 0)) if accelerator else 0,
                    cpus=amounts.get("CPU", 0.0),
                    resources=custom,
                    name=f"{ip} ({node['NodeID'][:6]})",
                ),
            )
        )
    return sorted(found, key=lambda node: (node.node_id != own, node.ip, node.node_id))


def choose_nodes(
    *, num_nodes: int | None, gpus_per_node: int, timeout_s: float, own_first: bool = True
) -> list[RayNode]:
    """Return the nodes of a run, waiting for them to join.

    Raises:
        ReservationTimeoutError: if they have not joined within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        nodes = live_nodes(own_first=own_first)
        fit = [node for node in nodes if node.spec.gpus >= gpus_per_node]
        if len(fit) >= (num_nodes or 1):
            return fit[:num_nodes]
        if time.monotonic() >= deadline:
            raise ReservationTimeoutError(
                f"the run asks for {num_nodes or 1} node(s) with at least {gpus_per_node} device(s) each; "
                f"after {timeout_s:g} s Ray has {len(fit)} of them ({_counted(nodes) or 'no live node'}); "
                "lower num_nodes or num_gpus_per_node, or let more nodes join"
            )
        time.sleep(min(1.0, timeout_s / 10))


def _counted(nodes: list[RayNode]) -> str:
    return ", ".join(f"{node.spec.name}: {node.spec.gpus} device(s)" for node in nodes)
