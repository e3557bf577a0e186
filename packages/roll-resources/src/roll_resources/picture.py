"""Plans as pictures: a grid of nodes by devices, in text and in SVG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from roll_resources.plan import Plan
from roll_resources.render import spell_ids

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


def grid(plan: Plan, *, colour: bool = False) -> str:
    """Return one line per node with one cell per device: a letter says which role uses it, a number the rank.

    Args:
        plan: the plan.
        colour: whether letters take their role's colour, for a terminal.

    Example:
        >>> pool = DevicePool.uniform(nodes=1, gpus_per_node=3)
        >>> print(grid(plan([RoleRequest(name="train", device_mapping="0-1")], pool)))
        A train
        node0  0:A0  1:A1  2:-
    """
    paint = _painter(plan) if colour else _plainly
    letters = _letters(plan)
    cells = [_node_cells(plan, letters, node) for node in range(len(plan.pool.nodes))]
    columns = max((len(row) for row in cells), default=0)
    widths = [
        max((row[column].width for row in cells if column < len(row)), default=0) for column in range(columns)
    ]
    names = [plan.pool.node_name(node) for node in range(len(cells))]
    left = max(len(name) for name in names)
    lines = ["  ".join(paint(role, f"{letter} {role}") for role, letter in letters.items())]
    for name, row in zip(names, cells, strict=True):
        padded = [cell.text(paint, width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([name.ljust(left), *padded]).rstrip())
    return "\n".join(lines)


Paint = Callable[[str, str], str]
"""Returns a text in the colour of a role."""


def _plainly(_role: str, text: str) -> str:
    return text


def _painter(plan: Plan) -> Paint:
    colours = _colours(plan)

    def paint(role: str, text: str) -> str:
        red, green, blue = _red_green_blue(colours[role])
        return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"

    return paint


def _colours(plan: Plan) -> dict[str, str]:
    return {role: COLOURS[index % len(COLOURS)] for index, role in enumerate(plan.roles)}


@dataclass(frozen=True, slots=True)
class _Cell:
    """A device, or the CPUs of a node, and the ranks that use it."""

    label: str
    users: Sequence[tuple[str, str]]
    """Pairs of a role and what stands for it, e.g. ``A0``."""

    @property
    def width(self) -> int:
        return len(self.text(_plainly, 0))

    def text(self, paint: Paint, width: int) -> str:
        plain = "+".join(text for _, text in self.users) or "-"
        shown = "+".join(paint(role, text) for role, text in self.users) or "-"
        return f"{self.label}:{shown}" + " " * (width - len(self.label) - 1 - len(plain))


def _letters(plan: Plan) -> dict[str, str]:
    return {
        role: LETTERS[index] if index < len(LETTERS) else f"{LETTERS[index % 26]}{index // 26}"
        for index, role in enumerate(plan.roles)
    }


def _node_cells(plan: Plan, letters: dict[str, str], node: int) -> list[_Cell]:
    users: dict[int, list[tuple[str, str]]] = {}
    on_cpu: list[tuple[str, str]] = []
    for role, placements in plan.roles.items():
        ranks = [place.rank for place in placements if not place.devices and place.node == node]
        if ranks:
            on_cpu.append((role, f"{letters[role]}{spell_ids(ranks)}"))
        for place in placements:
            for device in place.devices:
                if device.node == node:
                    users.setdefault(device.local_id, []).append((role, f"{letters[role]}{place.rank}"))
    cells = [_Cell(str(local), users.get(local, [])) for local in range(plan.pool.nodes[node].gpus)]
    return [*cells, _Cell("cpu", on_cpu)] if on_cpu else cells


CELL, STRIP, GAP, LEFT, MARGIN = 46, 14, 6, 150, 20
"""Pixels: a cell's side, the strip in it that holds the device's number, gaps, and where cells begin."""
LEGEND_LINE, LETTER = 24, 8
"""Pixels: the height of a line of the legend, and the width of a letter."""


def svg(plan: Plan) -> str:
    """Return a picture of the plan: a row per node, a square per device, a colour per role that uses it.

    The workers of a role on a node's CPUs are one band that tells how many they are.
    """
    colours = _colours(plan)
    columns = max((node.gpus for node in plan.pool.nodes), default=0)
    rows = len(plan.pool.nodes)
    has_cpu = any(not place.devices for places in plan.roles.values() for place in places)
    width = max(LEFT + (columns + (2 if has_cpu else 0)) * (CELL + GAP) + MARGIN, 420)
    legend, top = _legend(colours, width)
    height = top + rows * (CELL + GAP) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect x="0" y="0" width="{width}" height="{height}" fill="#fff"/>',
        *legend,
    ]
    for node in range(rows):
        parts += _node_row(plan, colours, node, columns, top=top)
    return "\n".join([*parts, "</svg>", ""])


def _legend(colours: dict[str, str], width: int) -> tuple[list[str], int]:
    """Return the legend, in as many lines as it needs, and where the picture may begin below it."""
    parts, x, y = [], 10, 10
    for role, colour in colours.items():
        needed = 32 + LETTER * len(role)
        if x > 10 and x + needed > width:
            x, y = 10, y + LEGEND_LINE
        parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" rx="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 19}" y="{y + 11}">{escape(role)}</text>')
        x += needed
    return parts, y + LEGEND_LINE + 6


@dataclass(frozen=True, slots=True)
class _Band:
    """One use of a cell."""

    colour: str
    text: str
    title: str


def _node_row(plan: Plan, colours: dict[str, str], node: int, columns: int, *, top: int) -> list[str]:
    y = top + node * (CELL + GAP)
    parts = [f'<text x="10" y="{y + CELL // 2 + 4}">{escape(plan.pool.node_name(node))}</text>']
    for local in range(plan.pool.nodes[node].gpus):
        users = [
            _Band(colours[role], str(place.rank), f"{role} rank {place.rank}")
            for role, places in plan.roles.items()
            for place in places
            if any(device.node == node and device.local_id == local for device in place.devices)
        ]
        parts += _cell(LEFT + local * (CELL + GAP), y, CELL, str(local), users)
    on_cpu = []
    for role, places in plan.roles.items():
        ranks = [place.rank for place in places if not place.devices and place.node == node]
        if ranks:
            text = f"{len(ranks)}\N{MULTIPLICATION SIGN}"
            noun = "rank" if len(ranks) == 1 else "ranks"
            on_cpu.append(_Band(colours[role], text, f"{role} {noun} {spell_ids(ranks)}"))
    if on_cpu:
        parts += _cell(LEFT + columns * (CELL + GAP), y, 2 * CELL + GAP, "cpu", on_cpu)
    return parts


def _cell(x: int, y: int, width: int, label: str, bands: Sequence[_Band]) -> list[str]:
    told = ", ".join(band.title for band in bands) or "free"
    parts = [f"<g><title>{escape(f'{label}: {told}')}</title>"]
    each = width / max(1, len(bands))
    for index, band in enumerate(bands):
        left = x + index * each
        parts.append(
            f'<rect x="{left:.1f}" y="{y + STRIP}" width="{each:.1f}" height="{CELL - STRIP}" '
            f'fill="{band.colour}"/>'
        )
        if each >= LETTER * len(band.text):
            parts.append(
                f'<text x="{left + each / 2:.1f}" y="{y + STRIP + 20}" text-anchor="middle" '
                f'fill="{_readable_on(band.colour)}">{band.text}</text>'
            )
    parts.append(
        f'<rect x="{x}" y="{y}" width="{width}" height="{CELL}" fill="none" stroke="#999" rx="3"/>'
        f'<text x="{x + 4}" y="{y + 11}" font-size="10" fill="#222">{label}</text></g>'
    )
    return parts


def _readable_on(colour: str) -> str:
    red, green, blue = _red_green_blue(colour)
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


def _red_green_blue(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
