"""One look for every plot: colours, type, axes, and labels that stand on the lines they name.

Colours are Okabe and Ito's, which people with the common colour-vision deficiencies can tell apart. The
report swaps every colour of this file for a CSS variable (see svg.py), so that plots follow light and dark
with the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

INK = "#1b1f24"
MUTED = "#5f6b76"
RULE = "#d7dde3"
SURFACE = "#fefefe"
# Okabe-Ito; yellow is left out (invisible on white), black is the ink of the page and belongs to the ANN.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.2)))  # a second and third round through the colours

SMALL = 8.0  # points; the smallest type used anywhere

RC: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "xtick.major.width": 0.7,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": SURFACE,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "none",  # text stays text: smaller, sharp, selectable, and in the page's own type
    "svg.hashsalt": "ratenorm",
    "pdf.fonttype": 42,
    "path.simplify_threshold": 0.2,
    "text.parse_math": False,  # a dollar in a name is a dollar
}


@dataclass(frozen=True)
class Size:
    """The room a plot has: `wide` for a page and a paper's full width, narrow for a phone."""

    wide: bool

    @property
    def width(self) -> float:
        return 8.4 if self.wide else 3.6

    def columns(self, wide: int, narrow: int) -> int:
        return wide if self.wide else narrow


WIDE, NARROW = Size(wide=True), Size(wide=False)


def styled() -> AbstractContextManager[None]:
    """Inside it, figures have the look of this file, whatever the user's matplotlibrc says."""
    look: Any = {**dict(mpl.rcParamsDefault), **RC, "backend": "agg"}
    return mpl.rc_context(look)


def new_figure(size: Size, height: float) -> Figure:
    return Figure(figsize=(size.width, height), layout="constrained")


def colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def dash(number: int) -> Any:
    return DASHES[(number // len(SERIES)) % len(DASHES)]


def step_axis(ax: Axes, longest: int, label: bool = True, every: int = 1) -> None:
    """Time-steps on a base-2 logarithm, because what matters happens in the first few."""
    ax.set_xscale("log", base=2)
    ticks = [2**i for i in range(0, max(longest, 2).bit_length(), every)]
    ax.xaxis.set_major_locator(FixedLocator([t for t in ticks if t <= max(longest, 2)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlim(0.92, max(longest, 2) * 1.04)
    if label:
        ax.set_xlabel("time-steps", loc="right")


def percent_axis(ax: Axes, label: str) -> None:
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g}"))
    ax.set_title(f"{label} (%)", color=MUTED, fontweight="normal", fontsize=SMALL)


def y_title(ax: Axes, text: str) -> None:
    """The name of the y axis above it and level, where it can be read without turning the head."""
    ax.set_title(text, color=MUTED, fontweight="normal", fontsize=SMALL)


def shorten(text: str, limit: int = 36) -> str:
    """A name that leaves room for the plot; the tables and the summary give it in full."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move positions apart until neighbours are `gap` away, shifting as little as the order allows."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Pool neighbours that would overlap into blocks and centre each block on the mean of what it holds.
    blocks: list[list[int]] = []
    for i in order:
        blocks.append([i])
        while len(blocks) > 1 and _top(blocks[-2], positions, gap) > _bottom(blocks[-1], positions, gap):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    moved = [0.0] * len(positions)
    for block in blocks:
        start = _centre(block, positions) - gap * (len(block) - 1) / 2
        for rank, i in enumerate(block):
            moved[i] = start + gap * rank
    return moved


def _centre(block: Sequence[int], positions: Sequence[float]) -> float:
    return sum(positions[i] for i in block) / len(block)


def _top(block: Sequence[int], positions: Sequence[float], gap: float) -> float:
    return _centre(block, positions) + gap * len(block) / 2


def _bottom(block: Sequence[int], positions: Sequence[float], gap: float) -> float:
    return _centre(block, positions) - gap * len(block) / 2


def label_ends(ax: Axes, labels: Sequence[tuple[str, str, float]], height: float) -> None:
    """Name lines at their right ends, as (text, colour, y in 0..1); `height` of the axes is in points."""
    gap = 12.5 / height
    for (text, hue, _), y in zip(labels, spread([min(1.0, max(0.0, y)) for _, _, y in labels], gap)):
        ax.annotate(
            shorten(text), (1.0, y), xycoords="axes fraction", xytext=(7, 0), textcoords="offset points",
            va="center", ha="left", color=hue, fontsize=9.0, annotation_clip=False,
        )  # fmt: skip


def key_above(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    """Names in their own colours above a figure of several panels, in place of a boxed legend."""
    height, width = figure.get_figheight() * 72, figure.get_figwidth() * 72
    lines = _wrapped([(shorten(name), hue) for name, hue in entries], width - 8)
    room = (13.0 * len(lines) + 6) / height
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - room))
    for row, line in enumerate(lines):
        x = 4.0
        for name, hue in line:
            figure.text(x / width, 1 - (11 + 13.0 * row) / height, name, color=hue, fontsize=9.0, in_layout=False)
            x += _text_width(name) + _KEY_GAP


_KEY_GAP = 16.0  # points between two names


def _wrapped(entries: Sequence[tuple[str, str]], width: float) -> list[list[tuple[str, str]]]:
    lines: list[list[tuple[str, str]]] = []
    used = width
    for entry in entries:
        needed = _text_width(entry[0]) + _KEY_GAP
        if lines and used + needed - _KEY_GAP <= width:
            lines[-1].append(entry)
            used += needed
        else:
            lines.append([entry])
            used = needed
    return lines


def _text_width(text: str) -> float:
    if not text.strip():  # matplotlib draws no path for it
        return 0.0
    return float(TextPath((0, 0), text, size=9.0).get_extents().width)
