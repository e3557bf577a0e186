"""Drawing an explanation as a picture."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from roll_dispatch.axes import AXES, coordinate
from roll_dispatch.explain import Explanation
from roll_dispatch.rank_info import RankInfo

CHIP, GAP, PAD = 22, 4, 14
CARD_HEIGHT = 66
SHOWN = 8
"""Row chips that a card shows before it says how many more there are."""
COLOURS = ("#8ecae6", "#ffb703", "#a7c957", "#e5989b", "#b8b8ff", "#f4a261", "#80cbc4", "#d4a373")
INK, MUTED, ANSWER = "#1d2733", "#6b7785", "#d62828"


class Picture:
    """Shapes of one SVG, in drawing order."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        self.width = self.height = 0.0

    def grow(self, x: float, y: float) -> None:
        """Make room up to a point."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str, bold: bool = False
    ) -> None:
        """Draw a rounded rectangle."""
        self.shapes.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{2.5 if bold else 1}"/>'
        )
        self.grow(x + width, y + height)

    def text(
        self, x: float, y: float, words: str, *, size: int = 12, colour: str = INK, middle: bool = False
    ) -> None:
        """Write words at a baseline."""
        anchor = ' text-anchor="middle"' if middle else ""
        self.shapes.append(
            f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{anchor}>{escape(words)}</text>'
        )
        self.grow(x if middle else x + 0.58 * size * len(words), y)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, colour: str) -> None:
        """Draw a curve from one point to another, with a head."""
        bend = (x + to_x) / 2
        self.shapes.append(
            f'<path d="M {x:.0f} {y:.0f} C {bend:.0f} {y:.0f}, {bend:.0f} {to_y:.0f}, {to_x:.0f} {to_y:.0f}" '
            f'fill="none" stroke="{colour}" stroke-width="1.8" marker-end="url(#head)"/>'
        )

    def chips(self, x: float, y: float, rows: Sequence[int], colours: dict[int, str]) -> None:
        """Draw rows as coloured squares with their numbers."""
        for place, row in enumerate(rows[:SHOWN]):
            left = x + place * (CHIP + GAP)
            self.box(left, y, CHIP, CHIP, fill=colours.get(row, "#eceff1"), stroke="#ffffff")
            self.text(left + CHIP / 2, y + 15, str(row), size=11, middle=True)
        if len(rows) > SHOWN:
            self.text(x + SHOWN * (CHIP + GAP), y + 15, f"+{len(rows) - SHOWN}", size=11, colour=MUTED)

    def __str__(self) -> str:
        width, height = self.width + PAD, self.height + PAD
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="{MUTED}"/></marker></defs>'
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        )
        return "\n".join([head, *self.shapes, "</svg>\n"])


def draw(told: Explanation) -> str:
    """Return an explanation as SVG: rows on the left, ranks by DP rank, the result on the right."""
    picture = Picture()
    picture.text(PAD, 28, f"{told.mode.name}", size=18)
    picture.text(PAD, 48, told.mode.summary, colour=MUTED)
    rows = sorted({row for received in told.received for row in received or ()})
    colours = _colours(told)
    top, left = 92.0, PAD + CHIP + 78.0
    cards = _draw_ranks(picture, told, colours, left=left, top=top)
    picture.text(PAD, top - 10, "rows", size=13)
    for place, row in enumerate(rows[:40]):
        y = top + place * (CHIP + GAP)
        picture.box(PAD, y, CHIP, CHIP, fill=colours.get(row, "#eceff1"), stroke="#ffffff")
        picture.text(PAD + CHIP / 2, y + 15, str(row), size=11, middle=True)
    _draw_inputs(picture, told, left=left, top=top, cards=cards)
    _draw_result(picture, told, colours, cards, top=top)
    return str(picture)


def _colours(told: Explanation) -> dict[int, str]:
    """Return a colour per row: one for each part, in the order in which parts first appear."""
    parts: dict[tuple[int, ...], int] = {}
    colours: dict[int, str] = {}
    for received in told.received:
        if received and received not in parts:
            parts[received] = len(parts)
            for row in received:
                colours.setdefault(row, COLOURS[parts[received] % len(COLOURS)])
    return colours


Cards = dict[int, tuple[float, float, float]]
"""Left, middle height and right of the card of each rank."""


def _draw_ranks(
    picture: Picture, told: Explanation, colours: dict[int, str], *, left: float, top: float
) -> Cards:
    widest = max((min(len(rows or ()), SHOWN + 1) for rows in told.received), default=0)
    width = max(108.0, widest * (CHIP + GAP) + 2 * GAP + 8)
    sizes = told.topology.sizes
    across, down = sizes["tp"] * sizes["cp"], sizes["pp"]
    cards: Cards = {}
    panel_height = down * (CARD_HEIGHT + GAP) + 32
    for dp in range(sizes["dp"]):
        y = top + dp * (panel_height + 12)
        picture.box(left, y, across * (width + GAP) + 16, panel_height, fill="#f6f8fa", stroke="#d0d7de")
        picture.text(left + 10, y + 18, f"dp {dp}", colour=MUTED)
        for info in told.topology:
            if info.dp_rank == dp:
                column = info.cp_rank * sizes["tp"] + info.tp_rank
                x, card_y = left + 10 + column * (width + GAP), y + 26 + info.pp_rank * (CARD_HEIGHT + GAP)
                _draw_card(picture, told, info, colours, x=x, y=card_y, width=width)
                cards[info.rank] = (x, card_y + CARD_HEIGHT / 2, x + width)
    return cards


def _draw_card(
    picture: Picture,
    told: Explanation,
    info: RankInfo,
    colours: dict[int, str],
    *,
    x: float,
    y: float,
    width: float,
) -> None:
    rows, answers = told.received[info.rank], info.rank in told.answering
    fill = "#ffffff" if rows is not None else "#eceff1"
    picture.box(x, y, width, CARD_HEIGHT, fill=fill, stroke=ANSWER if answers else "#b0bec5", bold=answers)
    place = " ".join(f"{axis}{coordinate(info, axis)}" for axis in AXES if told.topology.sizes[axis] > 1)
    picture.text(x + 8, y + 16, f"rank {info.rank}", size=12)
    picture.text(x + 8, y + 30, place, size=10, colour=MUTED)
    if rows:
        picture.chips(x + 8, y + CARD_HEIGHT - CHIP - 7, rows, colours)
    else:
        picture.text(x + 8, y + 52, "not called" if rows is None else "no rows", size=11, colour=MUTED)


def _draw_inputs(picture: Picture, told: Explanation, *, left: float, top: float, cards: Cards) -> None:
    """Draw an arrow from the rows to each DP rank that receives any."""
    panels: dict[int, list[float]] = {}
    for rank, (_, middle, _) in cards.items():
        if told.received[rank]:
            panels.setdefault(told.topology[rank].dp_rank, []).append(middle)
    for middles in panels.values():
        middle = (min(middles) + max(middles)) / 2
        picture.arrow(PAD + CHIP + 8, middle, left - 4, middle, colour=MUTED)
    picture.grow(left, top)


def _draw_result(
    picture: Picture, told: Explanation, colours: dict[int, str], cards: Cards, *, top: float
) -> None:
    x = max(right for _, _, right in cards.values()) + 84
    picture.text(x, top - 10, "result", size=13)
    for place, (rank, rows) in enumerate(told.answers.items()):
        y = top + place * (CARD_HEIGHT - 8)
        picture.box(
            x,
            y,
            90.0 + (min(len(rows), SHOWN + 1) * (CHIP + GAP) if told.joins else 40),
            44,
            fill="#ffffff",
            stroke=ANSWER,
        )
        picture.text(x + 8, y + 27, f"from rank {rank}" if told.joins else f"output of rank {rank}", size=11)
        if told.joins:
            picture.chips(x + 86, y + 11, rows, colours)
        _, middle, right = cards[rank]
        picture.arrow(right + 2, middle, x - 3, y + 22, colour=ANSWER)
    if told.note:
        picture.text(x, top + len(told.answering) * (CARD_HEIGHT - 8) + 12, told.note, size=11, colour=MUTED)
