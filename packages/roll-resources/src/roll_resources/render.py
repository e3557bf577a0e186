"""Plans as text: one table for reading, one grid for seeing."""

from collections.abc import Sequence

from roll_resources.plan import Placement, Plan


def table(plan: Plan) -> str:
    """Return a plan as a table with one line per worker, and below it the devices that roles share."""
    head = ("role", "rank", "node", "local rank", "devices (global)", "devices (local)", "cpus", "resources")
    lines = [head, *(_line(plan, placement) for role in plan.roles.values() for placement in role)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    rows.insert(1, "  ".join("-" * width for width in widths))
    rows += [
        f"shared by {', '.join(group.roles)}: devices {spell_ids(group.devices)}" for group in plan.sharing
    ]
    return "\n".join(rows)


def _line(plan: Plan, placement: Placement) -> tuple[str, ...]:
    local = [
        (f"{plan.pool.node_name(device.node)}:" if len(placement.nodes) > 1 else "") + str(device.local_id)
        for device in placement.devices
    ]
    return (
        placement.role,
        str(placement.rank),
        plan.pool.node_name(placement.node),
        str(placement.local_rank),
        spell_ids([device.global_id for device in placement.devices]) or "-",
        ",".join(local) or "-",
        f"{placement.num_cpus:g}",
        ", ".join(f"{name}={amount:g}" for name, amount in placement.resources.items()) or "-",
    )


def spell_ids(ids: Sequence[int]) -> str:
    """Return ids in the short form that a device mapping takes, in their order.

    Example:
        >>> spell_ids([0, 1, 2, 6])
        '0-2,6'
    """
    runs: list[list[int]] = []
    for device in ids:
        if runs and runs[-1][1] + 1 == device:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
