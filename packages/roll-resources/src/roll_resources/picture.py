"""Plans as pictures: a grid of nodes by devices, in text and in SVG."""

from collections.abc import Sequence
from html import escape

from roll_resources.plan import Plan

COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
    "#dd8452",
    "#937860",
    "#8c8cd9",
)
"""Role colours, told apart by people with any kind of colour vision; more roles start again."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def grid(plan: Plan) -> str:
    """Return one line per node with one cell per device: a letter says which role uses it, a number the rank.

    Example:
        >>> pool = DevicePool.uniform(nodes=1, gpus_per_node=3)
        >>> print(grid(plan([RoleRequest(name="train", device_mapping="0-1")], pool)))
        A train
        node0  0:A0  1:A1  2:-
    """
    letters = _letters(plan)
    cells = [_node_cells(plan, letters, node) for node in range(len(plan.pool.nodes))]
    columns = max((len(row) for row in cells), default=0)
    widths = [
        max((len(row[column]) for row in cells if column < len(row)), default=0) for column in range(columns)
    ]
    names = [plan.pool.node_name(node) for node in range(len(cells))]
    left = max(len(name) for name in names)
    lines = ["  ".join(f"{letter} {role}" for role, letter in letters.items())]
    for name, row in zip(names, cells, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([name.ljust(left), *padded]).rstrip())
    return "\n".join(lines)


def _letters(plan: Plan) -> dict[str, str]:
    return {
        role: LETTERS[index] if index < len(LETTERS) else f"{LETTERS[index % 26]}{index // 26}"
        for index, role in enumerate(plan.roles)
    }


def _node_cells(plan: Plan, letters: dict[str, str], node: int) -> list[str]:
    users: dict[int, list[str]] = {}
    on_cpu: list[str] = []
    for role, placements in plan.roles.items():
        for place in placements:
            if not place.devices and place.node == node:
                on_cpu.append(f"{letters[role]}{place.rank}")
            for device in place.devices:
                if device.node == node:
                    users.setdefault(device.local_id, []).append(f"{letters[role]}{place.rank}")
    cells = [f"{local}:{'+'.join(users.get(local, ['-']))}" for local in range(plan.pool.nodes[node].gpus)]
    return [*cells, f"cpu:{'+'.join(on_cpu)}"] if on_cpu else cells


CELL, GAP, LEFT, TOP = 46, 6, 150, 46


def svg(plan: Plan) -> str:
    """Return a picture of the plan: a row per node, a square per device, a colour per role that uses it."""
    colours = {role: COLOURS[index % len(COLOURS)] for index, role in enumerate(plan.roles)}
    columns = max((node.gpus for node in plan.pool.nodes), default=0)
    rows = len(plan.pool.nodes)
    has_cpu = any(not place.devices for places in plan.roles.values() for place in places)
    width = LEFT + (columns + (2 if has_cpu else 0)) * (CELL + GAP) + 20
    height = TOP + rows * (CELL + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 420)}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        *_legend(colours),
    ]
    for node in range(rows):
        parts += _node_row(plan, colours, node, columns)
    return "\n".join([*parts, "</svg>", ""])


def _legend(colours: dict[str, str]) -> list[str]:
    parts, x = [], 10
    for role, colour in colours.items():
        parts.append(f'<rect x="{x}" y="10" width="14" height="14" rx="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 19}" y="21">{escape(role)}</text>')
        x += 32 + 8 * len(role)
    return parts


def _node_row(plan: Plan, colours: dict[str, str], node: int, columns: int) -> list[str]:
    y = TOP + node * (CELL + GAP)
    parts = [f'<text x="10" y="{y + CELL // 2 + 4}">{escape(plan.pool.node_name(node))}</text>']
    for local in range(plan.pool.nodes[node].gpus):
        users = [
            (role, place.rank)
            for role, places in plan.roles.items()
            for place in places
            if any(device.node == node and device.local_id == local for device in place.devices)
        ]
        parts += _cell(LEFT + local * (CELL + GAP), y, CELL, str(local), users, colours)
    cpu = [
        (role, p.rank)
        for role, places in plan.roles.items()
        for p in places
        if not p.devices and p.node == node
    ]
    if cpu:
        parts += _cell(LEFT + columns * (CELL + GAP), y, 2 * CELL, "cpu", cpu, colours)
    return parts


def _cell(
    x: int, y: int, width: int, label: str, users: Sequence[tuple[str, int]], colours: dict[str, str]
) -> list[str]:
    told = ", ".join(f"{role} rank {rank}" for role, rank in users) or "free"
    parts = [f"<g><title>{escape(f'{label}: {told}')}</title>"]
    band = width / max(1, len(users))
    for index, (role, rank) in enumerate(users):
        left = x + index * band
        parts.append(
            f'<rect x="{left:.1f}" y="{y}" width="{band:.1f}" height="{CELL}" fill="{colours[role]}"/>'
        )
        if band >= 14:
            centre = left + band / 2
            parts.append(
                f'<text x="{centre:.1f}" y="{y + 32}" text-anchor="middle" fill="#fff">{rank}</text>'
            )
    parts.append(
        f'<rect x="{x}" y="{y}" width="{width}" height="{CELL}" fill="none" stroke="#999" rx="3"/>'
        f'<text x="{x + 3}" y="{y + 12}" font-size="10" fill="#222">{label}</text></g>'
    )
    return parts
