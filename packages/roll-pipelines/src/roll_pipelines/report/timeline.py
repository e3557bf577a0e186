"""Who worked and who waited: the calls of one step as bars, one lane a role."""

import html
from collections.abc import Mapping, Sequence

LANE, LABEL, WIDTH = 30, 120, 900


def timeline_section(calls: Sequence[Mapping[str, object]]) -> str:
    """Returns a section that shows the calls of the middle step.

    Args:
        calls: each with `step`, `role`, `method`, `start` and `end` in seconds since the step began.
    """
    steps = sorted({_number(call["step"]) for call in calls})
    if not steps:
        return ""
    step = steps[len(steps) // 2]
    chosen = [call for call in calls if _number(call["step"]) == step]
    end = max(_number(call["end"]) for call in chosen) or 1.0
    roles = list(dict.fromkeys(str(call["role"]) for call in chosen))
    bars = [_bar(call, roles.index(str(call["role"])), end) for call in chosen]
    lanes = [
        f'<text x="{LABEL - 10}" y="{i * LANE + 20}" text-anchor="end">{html.escape(role)}</text>'
        f'<line class="grid" x1="{LABEL}" x2="{WIDTH}" y1="{(i + 1) * LANE}" y2="{(i + 1) * LANE}"/>'
        for i, role in enumerate(roles)
    ]
    height = LANE * len(roles)
    ticks = [
        f'<text x="{LABEL + part * (WIDTH - LABEL):.0f}" y="{height + 18}" '
        f'text-anchor="{"end" if part == 1 else "middle"}">{part * end:.2f} s</text>'
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    drawing = (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height + 26}" role="img" '
        f'aria-label="Timeline of roles">{"".join([*lanes, *bars, *ticks])}</svg>'
    )
    title = f"<h2>Who worked when <small>step {step:.0f}</small></h2>"
    return f"<section>{title}{drawing}{_shares(chosen, roles, end)}</section>"


def _bar(call: Mapping[str, object], lane: int, end: float) -> str:
    start, stop = _number(call["start"]), _number(call["end"])
    x = LABEL + start / end * (WIDTH - LABEL)
    width = max(1.5, (stop - start) / end * (WIDTH - LABEL))
    name = html.escape(str(call["method"]))
    tip = f"<title>{name}: {stop - start:.3f} s</title>"
    label = (
        f'<text class="on" x="{x + 6:.1f}" y="{lane * LANE + 20}">{name}</text>'
        if width > 8 * len(name)
        else ""
    )
    box = f'x="{x:.1f}" y="{lane * LANE + 5}" width="{width:.1f}" height="{LANE - 10}"'
    return f'<rect class="c{lane % 6}" {box} rx="3">{tip}</rect>{label}'


def _shares(calls: Sequence[Mapping[str, object]], roles: Sequence[str], end: float) -> str:
    busy = {role: _covered([c for c in calls if c["role"] == role]) / end for role in roles}
    words = ", ".join(f"{html.escape(role)} {100 * share:.0f} %" for role, share in busy.items())
    return f'<p class="note">Busy share of the step: {words}.</p>'


def _covered(calls: Sequence[Mapping[str, object]]) -> float:
    total, reached = 0.0, 0.0
    for start, stop in sorted((_number(call["start"]), _number(call["end"])) for call in calls):
        total += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
