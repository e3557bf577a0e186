"""Sample answers of a run, what it said before beside what it said after."""

import html
from collections.abc import Mapping, Sequence

MARKS = ("score", "correct", "reward")
"""Keys of a sample that say how good its answer is."""

Rows = Sequence[Mapping[str, object]]


def samples_section(samples: Mapping[str, Rows]) -> str:
    """Returns a section with the sample answers; rows with the same prompt stand in one line.

    Args:
        samples: rows by when they were taken; each row has `prompt` and `response`.
    """
    if not samples:
        return ""
    by_prompt: dict[str, dict[str, Mapping[str, object]]] = {}
    for when, rows in samples.items():
        for row in rows:
            by_prompt.setdefault(str(row.get("prompt", "")), {})[when] = row
    expected = any("expected" in row for rows in samples.values() for row in rows)
    columns = ["Prompt", *(["Expected"] if expected else []), *(when.capitalize() for when in samples)]
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        _line(prompt, found, list(samples), expected=expected) for prompt, found in by_prompt.items()
    )
    table = f"<table class=samples><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<section><h2>Sample answers</h2><div class=scroll>{table}</div></section>"


def _line(
    prompt: str, found: Mapping[str, Mapping[str, object]], whens: Sequence[str], *, expected: bool
) -> str:
    cells = [f"<td class=text>{_text(prompt)}</td>"]
    if expected:
        wanted = next((str(row["expected"]) for row in found.values() if "expected" in row), "")
        cells.append(f"<td class=text>{_text(wanted)}</td>")
    for when in whens:
        row = found.get(when)
        cells.append(
            f"<td class=text>{_text(str(row['response'])) + _mark(row)}</td>" if row else "<td></td>"
        )
    return f"<tr>{''.join(cells)}</tr>"


def _mark(row: Mapping[str, object]) -> str:
    for key in MARKS:
        value = row.get(key)
        if isinstance(value, bool | int | float):
            kind = "good" if float(value) >= 0.5 else "bad"
            shown = ("right" if value else "wrong") if isinstance(value, bool) else f"{key} {value:.3g}"
            return f'<span class="mark {kind}">{shown}</span>'
    return ""


def _text(text: str) -> str:
    shown = text if len(text) <= 600 else text[:600] + " …"
    return html.escape(shown) if shown.strip() else "<i>(empty)</i>"
