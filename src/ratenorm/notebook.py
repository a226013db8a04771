"""How objects show themselves in a notebook: small tables and plots as HTML without a stylesheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

CELL = "padding:2px 10px;text-align:left;vertical-align:top"
LONGEST = 40  # rows of a table


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A titled table; rows after the 40th are counted."""
    shown = "".join(_row(row, "td") for row in rows[:LONGEST])
    more = f"<p>and {len(rows) - LONGEST} more</p>" if len(rows) > LONGEST else ""
    heading = f"<b>{escape(title)}</b>"
    return f"<div>{heading}<table><thead>{_row(head, 'th')}</thead><tbody>{shown}</tbody></table>{more}</div>"


def _row(cells: Iterable[str], kind: str) -> str:
    return "<tr>" + "".join(f'<{kind} style="{CELL}">{escape(cell)}</{kind}>' for cell in cells) + "</tr>"


def line_plot(title: str, values: Sequence[float], width: int = 320, height: int = 80) -> str:
    """A curve over time-steps as inline SVG, with its first and last value."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    last = max(1, len(values) - 1)
    points = " ".join(
        f"{4 + (width - 8) * i / last:.1f},{height - 4 - (height - 8) * (v - low) / span:.1f}"
        for i, v in enumerate(values)
    )
    label = f"{title}: {values[0]:.4g} at step 1, {values[-1]:.4g} at step {len(values)}"
    return (
        f'<figure style="margin:8px 0"><figcaption>{escape(label)}</figcaption>'
        f'<svg role="img" aria-label="{escape(label, quote=True)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><polyline fill="none" stroke="currentColor" stroke-width="1.5" '
        f'points="{points}"/></svg></figure>'
    )
