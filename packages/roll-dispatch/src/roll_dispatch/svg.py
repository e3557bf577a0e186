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
ROWS_SHOWN = 16
LEFT, TOP = PAD + CHIP + 90.0, 92.0
"""Where the panels begin."""
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

    def line(self, x: float, y: float, to_x: float, to_y: float, *, colour: str) -> None:
        """Draw a straight line."""
        self.shapes.append(
            f'<path d="M {x:.0f} {y:.0f} L {to_x:.0f} {to_y:.0f}" stroke="{colour}" stroke-width="1.8"/>'
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
    picture.text(PAD, 28, told.mode.name, size=18)
    picture.text(PAD, 48, told.mode.summary, colour=MUTED)
    picture.text(LEFT, TOP - 10, "ranks (red: this rank answers)", size=13)
    colours = _colours(told)
    grid = Grid(told)
    grid.draw_panels(picture)
    _draw_rows(picture, told, colours, grid)
    _draw_result(picture, told, colours, grid)
    grid.draw_cards(picture, told, colours)
    return str(picture)


class Grid:
    """Where the card of each rank stands: a panel per DP rank, in it pipeline stages below one another."""

    def __init__(self, told: Explanation) -> None:
        sizes = told.topology.sizes
        widest = max((min(len(rows or ()), SHOWN + 1) for rows in told.received), default=0)
        self.card_width = max(108.0, widest * (CHIP + GAP) + 2 * GAP + 8)
        self.panel_width = sizes["tp"] * sizes["cp"] * (self.card_width + GAP) + 16
        self.panel_height = sizes["pp"] * (CARD_HEIGHT + GAP) + 32
        self.num_panels = sizes["dp"]
        self.num_tp = sizes["tp"]

    @property
    def height(self) -> float:
        """Height of all panels together."""
        return self.num_panels * (self.panel_height + 12) - 12

    @property
    def right(self) -> float:
        """The right edge of the panels."""
        return LEFT + self.panel_width

    def column(self, info: RankInfo) -> int:
        """Return how many cards stand to the left of a rank's."""
        return info.cp_rank * self.num_tp + info.tp_rank

    def panel_top(self, dp: int) -> float:
        """Return the top of the panel of a DP rank."""
        return TOP + dp * (self.panel_height + 12)

    def card(self, info: RankInfo) -> tuple[float, float]:
        """Return the left top corner of the card of a rank."""
        x = LEFT + 10 + self.column(info) * (self.card_width + GAP)
        return x, self.panel_top(info.dp_rank) + 26 + info.pp_rank * (CARD_HEIGHT + GAP)

    def draw_panels(self, picture: Picture) -> None:
        """Draw the panels."""
        for dp in range(self.num_panels):
            y = self.panel_top(dp)
            picture.box(LEFT, y, self.panel_width, self.panel_height, fill="#f6f8fa", stroke="#d0d7de")
            picture.text(LEFT + 10, y + 18, f"dp {dp}", colour=MUTED)

    def draw_cards(self, picture: Picture, told: Explanation, colours: dict[int, str]) -> None:
        """Draw the card of each rank, over the arrows that pass behind."""
        axes = [axis for axis in AXES if told.topology.sizes[axis] > 1]
        for info in told.topology:
            x, y = self.card(info)
            rows, answers = told.received[info.rank], info.rank in told.answering
            fill, stroke = "#ffffff" if rows is not None else "#eceff1", ANSWER if answers else "#b0bec5"
            picture.box(x, y, self.card_width, CARD_HEIGHT, fill=fill, stroke=stroke, bold=answers)
            picture.text(x + 8, y + 16, f"rank {info.rank}")
            place = " ".join(f"{axis}{coordinate(info, axis)}" for axis in axes)
            picture.text(x + 8, y + 30, place, size=10, colour=MUTED)
            if rows:
                picture.chips(x + 8, y + CARD_HEIGHT - CHIP - 7, rows, colours)
            else:
                words = "not called" if rows is None else "no rows"
                picture.text(x + 8, y + 52, words, size=11, colour=MUTED)


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


def _draw_rows(picture: Picture, told: Explanation, colours: dict[int, str], grid: Grid) -> None:
    """Draw the caller's rows, with an arrow to each DP rank that receives any."""
    rows = sorted(colours)
    shown = {row: TOP + place * (CHIP + GAP) for place, row in enumerate(rows[:ROWS_SHOWN])}
    picture.text(PAD, TOP - 10, "rows", size=13)
    for row, y in shown.items():
        picture.chips(PAD, y, [row], colours)
    bottom = TOP + len(shown) * (CHIP + GAP)
    if len(rows) > len(shown):
        picture.text(PAD, bottom + 15, f"+{len(rows) - len(shown)}", size=11, colour=MUTED)
    for dp in range(grid.num_panels):
        held = {row for info in told.topology if info.dp_rank == dp for row in told.received[info.rank] or ()}
        heights = [shown.get(row, bottom) + CHIP / 2 for row in held]
        if heights:
            middle = grid.panel_top(dp) + grid.panel_height / 2
            picture.arrow(PAD + CHIP + 6, sum(heights) / len(heights), LEFT - 3, middle, colour=MUTED)


def _draw_result(picture: Picture, told: Explanation, colours: dict[int, str], grid: Grid) -> None:
    """Draw what the result is made of, with an arrow from each answering rank."""
    x = grid.right + 90
    step = max(52.0, grid.height / max(1, len(told.answering)))
    picture.text(x, TOP - 10, "result", size=13)
    for place, (rank, rows) in enumerate(told.answers.items()):
        y = TOP + (place + 0.5) * step - 22
        chips = min(len(rows), SHOWN + 1) * (CHIP + GAP) if told.joins else 40
        picture.box(x, y, 96.0 + chips, 44, fill="#ffffff", stroke=ANSWER)
        picture.text(x + 8, y + 27, f"{'from' if told.joins else 'output of'} rank {rank}", size=11)
        if told.joins:
            picture.chips(x + 90, y + 11, rows, colours)
        info = told.topology[rank]
        left, top = grid.card(info)
        middle = top + CARD_HEIGHT / 2 - 20 + 7 * (grid.column(info) % 7)
        picture.line(left + grid.card_width, middle, grid.right, middle, colour=ANSWER)
        picture.arrow(grid.right, middle, x - 2, y + 22, colour=ANSWER)
    if told.note:
        bottom = TOP + len(told.answering) * step
        picture.text(x, bottom + 14, told.note, size=11, colour=MUTED)
