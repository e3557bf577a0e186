"""Words for a reservation that was not granted: what is short, where, and who holds it."""

from collections.abc import Mapping, Sequence

import ray
from ray.util.placement_group import placement_group_table

from roll_resources.on_ray.nodes import RayNode

Wanted = Sequence[tuple[RayNode, Mapping[str, float]]]


def explain_shortage(what: str, wanted: Wanted, timeout_s: float) -> str:
    """Return the message of a reservation that timed out."""
    lines = [f"Ray did not grant the places of {what} within {timeout_s:g} s"]
    by_node: dict[str, dict[str, float]] = {}
    names = {node.node_id: node for node, _ in wanted}
    for node, bundle in wanted:
        sums = by_node.setdefault(node.node_id, {})
        for resource, amount in bundle.items():
            sums[resource] = sums.get(resource, 0.0) + amount
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]  # Ray's own
    free = available_per_node()
    for node_id, sums in by_node.items():
        name = names[node_id].spec.name
        if node_id not in alive:
            lines.append(f"node {name} has left the cluster")
            continue
        for resource, amount in sums.items():
            has = free.get(node_id, {}).get(resource, 0.0)
            if has + 1e-6 < amount:
                lines.append(
                    f"node {name} lacks {resource}: {amount:g} wanted, {has:g} free; "
                    f"held by {_holders(node_id, resource)}"
                )
    lines.append("lower what the role asks for, end what holds it, or raise timeout_s")
    return "; ".join(lines)


def available_per_node() -> dict[str, dict[str, float]]:
    """Return the free amounts by node id and resource."""
    # Ray has no public call that tells free amounts per node without its dashboard.
    from ray._private.state import available_resources_per_node

    found: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]  # Ray's own
    return found


def _holders(node_id: str, resource: str) -> str:
    held = []
    for group in placement_group_table().values():
        if group["state"] != "CREATED":
            continue
        amount = sum(
            group["bundles"][index].get(resource, 0.0)
            for index, home in group["bundles_to_node_id"].items()
            if home == node_id
        )
        if amount:
            held.append(f"placement group {group['name'] or group['placement_group_id'][:12]} ({amount:g})")
    return ", ".join(held) or "actors and tasks outside placement groups"
