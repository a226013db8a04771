"""Look inside one answer: the class scores as they rise, and the spikes of every layer below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from ratenorm.report import style
from ratenorm.report.measures import layer_settled
from ratenorm.report.style import INK, MUTED, Size

NEURONS_SHOWN = 10
LONGEST_WINDOW = 64


def window(example: Mapping[str, Any]) -> int:
    """Steps shown: past the moment the answer settled, and never more than a reader can bear."""
    steps = len(example["scores"])
    return min(steps, LONGEST_WINDOW, max(32, 2 * (example["settled"] or steps)))


def look_inside(example: Mapping[str, Any], classes: Sequence[str], size: Size) -> Figure:
    """Scores on top, then a raster a layer, on one axis of time; a line marks where the answer settled."""
    layers = example["layers"]
    shown = window(example)
    figure = style.new_figure(size, 2.0 + 0.62 * len(layers) + 0.4)
    axes = figure.subplots(
        1 + len(layers),
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3.4] + [1.0] * len(layers)},
    )[:, 0]
    _scores(axes[0], example, classes, shown)
    for ax, layer in zip(axes[1:], layers):
        _raster(ax, layer, shown, size)
    for ax in axes:
        if example["settled"] and example["settled"] <= shown:
            ax.axvline(example["settled"], color=INK, linewidth=0.9, zorder=5)
    axes[-1].set_xlim(0.4, shown + 0.6)
    axes[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes[-1].set_xlabel("time-steps", loc="right")
    return figure


def _scores(ax: Axes, example: Mapping[str, Any], classes: Sequence[str], shown: int) -> None:
    scores = example["scores"][:shown]
    last = scores[-1]
    ranked = sorted(range(len(last)), key=lambda c: -last[c])
    named = list(dict.fromkeys([ranked[0], example["label"], *ranked[1:3]]))[:4]
    labels = []
    for c in reversed(ranked):
        curve = [row[c] for row in scores]
        if c in named:
            hue = style.colour(named.index(c))
            ax.plot(range(1, shown + 1), curve, color=hue, zorder=4)
            labels.append((style.shorten(classes[c], 14), hue, last[c]))
        else:
            ax.plot(range(1, shown + 1), curve, color=MUTED, linewidth=0.7, alpha=0.5)
    bottom, top = ax.get_ylim()
    heights = [(value - bottom) / (top - bottom) for _, _, value in labels]
    for (text, hue, _), y in zip(labels, style.spread(heights, 0.13)):
        ax.annotate(
            text, (1, y), xycoords="axes fraction", xytext=(5, 0), textcoords="offset points", va="center",
            color=hue, fontsize=9.0, fontweight="bold",
        )  # fmt: skip
    settled = example["settled"]
    style.y_title(ax, "class scores, mean of the output so far")
    if settled and settled <= shown:
        right = settled > shown * 0.6
        ax.annotate(
            f"settled at step {settled}", (settled, 0.03), xycoords=("data", "axes fraction"),
            xytext=(-5 if right else 5, 0), textcoords="offset points", ha="right" if right else "left",
            fontsize=style.SMALL, color=INK,
        )  # fmt: skip
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _raster(ax: Axes, layer: Mapping[str, Any], shown: int, size: Size) -> None:
    """Spikes as ticks in one compound path: hundreds of separate marks would make the file large."""
    neurons = sorted({neuron for _, neuron in layer["raster"]})[:NEURONS_SHOWN]
    row_of = {neuron: row for row, neuron in enumerate(neurons)}
    spikes = sorted((step, row_of[neuron]) for step, neuron in layer["raster"] if neuron in row_of and step <= shown)
    if spikes:
        points = [(step, row + end) for step, row in spikes for end in (0.1, 0.9)]
        path = Path(points, [Path.MOVETO, Path.LINETO] * len(spikes))
        # Narrower than a step, so that single spikes can be told apart at every window.
        points_per_step = (size.width - 1.2) * 72 / shown
        ax.add_patch(
            PathPatch(path, edgecolor=style.SERIES[0], linewidth=min(2.0, 0.6 * points_per_step), capstyle="butt")
        )
    name = style.shorten(layer["name"], 18)
    settled = layer_settled(layer["k"])
    if settled and settled <= shown:
        ax.plot(settled, -1.6, marker="^", color=style.SERIES[1], markersize=5, clip_on=False, zorder=6)
    ax.set_ylim(-0.5, NEURONS_SHOWN)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(bottom=False)
    if size.wide:
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=style.SMALL, color=INK)
    else:
        ax.set_title(name, fontsize=style.SMALL, fontweight="normal", pad=2)
