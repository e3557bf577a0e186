"""A line chart as inline SVG: no library, no network."""

import html
import json
import math
from collections.abc import Sequence

from roll_pipelines.report.series import Series

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 26
SMOOTHED_FROM = 25


def line_chart(series: Series, *, steps: tuple[float, float] | None = None) -> str:
    """Returns one metric as an SVG drawing: many values faint under their average, few values as dots.

    Args:
        series: the metric; at least one point.
        steps: first and last step of the axis, so that several charts line up; those of the metric when None.
    """
    x_low, x_high = steps or (min(series.steps), max(series.steps))
    y_ticks = nice_ticks(min(series.values), max(series.values))
    x_ticks = [tick for tick in nice_ticks(x_low, x_high, count=5) if x_low <= tick <= x_high] or [x_low]
    low, high = y_ticks[0], y_ticks[-1]
    xs = [_scale(step, x_low, x_high, LEFT, WIDTH - RIGHT) for step in series.steps]
    ys = [_scale(value, low, high, HEIGHT - BOTTOM, TOP) for value in series.values]
    parts = [_grid(y_ticks, low, high), _x_axis(x_ticks, x_low, x_high)]
    if len(xs) >= SMOOTHED_FROM:
        smooth = [_scale(v, low, high, HEIGHT - BOTTOM, TOP) for v in smoothed(series.values)]
        parts += [_path(xs, ys, "raw"), _area(xs, smooth), _path(xs, smooth, "line")]
    else:
        parts += [_area(xs, ys), _path(xs, ys, "line")]
        parts += [
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in zip(xs, ys, strict=True)
        ]
    points = json.dumps([[round(x, 1), round(y, 1), s, v] for x, y, s, v in _hover(series, xs, ys)])
    label = html.escape(f"{series.title} over {len(series.steps)} steps")
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f"data-points='{points}'>{''.join(parts)}"
        '<g class="hover"><line/><circle r="3.5"/></g></svg>'
    )


def _hover(series: Series, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float, float, str]]:
    return [(x, y, s, number(v)) for x, y, s, v in zip(xs, ys, series.steps, series.values, strict=True)]


def nice_ticks(low: float, high: float, *, count: int = 4) -> list[float]:
    """Returns round numbers that cover a range, for an axis.

    Args:
        low: the smallest value.
        high: the largest value.
        count: about how many steps.

    Example:
        >>> nice_ticks(0.0, 1.0)
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if high - low <= 1e-12 * max(1.0, abs(high)):
        margin = abs(high) * 0.1 or 1.0
        low, high = low - margin, high + margin
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def smoothed(values: Sequence[float]) -> list[float]:
    """Returns values averaged with their neighbours, the near ones most; it lags behind on neither side.

    Example:
        >>> smoothed([2.0, 2.0])
        [2.0, 2.0]
    """
    reach = max(2, min(20, len(values) // 15))
    result = []
    for index in range(len(values)):
        near = range(max(0, index - reach), min(len(values), index + reach + 1))
        weights = [reach + 1 - abs(index - other) for other in near]
        total = sum(weight * values[other] for weight, other in zip(weights, near, strict=True))
        result.append(total / sum(weights))
    return result


def number(value: float) -> str:
    """Returns a number as a reader wants it: short, with thousands separated.

    Example:
        >>> number(12345.6), number(0.123456), number(3.0)
        ('12,346', '0.1235', '3')
    """
    if value == 0 or (abs(value) < 1e6 and float(value).is_integer()):
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.4g}"


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (value - low) / ((high - low) or 1.0) * (end - start)


def _grid(ticks: Sequence[float], low: float, high: float) -> str:
    parts = []
    for tick in ticks:
        y = _scale(tick, low, high, HEIGHT - BOTTOM, TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 3.5:.1f}" text-anchor="end">{number(tick)}</text>')
    return "".join(parts)


def _x_axis(ticks: Sequence[float], low: float, high: float) -> str:
    parts = []
    for tick in ticks:
        x = _scale(tick, low, high, LEFT, WIDTH - RIGHT)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{number(tick)}</text>')
    return "".join(parts)


def _path(xs: Sequence[float], ys: Sequence[float], css_class: str) -> str:
    points = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="{css_class}" d="M{points}"/>'


def _area(xs: Sequence[float], ys: Sequence[float]) -> str:
    bottom = HEIGHT - BOTTOM
    points = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="area" d="M{xs[0]:.1f} {bottom}L{points}L{xs[-1]:.1f} {bottom}Z"/>'
