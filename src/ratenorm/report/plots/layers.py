"""Layer by layer: K curves with their bound, Omega and threshold, firing rates, saturated and dead shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ratenorm.report import style
from ratenorm.report.measures import Run
from ratenorm.report.style import MUTED, Size

HIGHEST_K = 3.0  # where K is drawn to; before the first spikes it is 1


def k_curves(runs: Sequence[Run], size: Size) -> Figure:
    """K over time, a panel a layer, a line a run; dashed the paper's bound 2Ω/t."""
    figure, panels = _layer_panels(runs, size, "K")
    longest = max(run.steps for run in runs)
    lowest = min((k for run in runs for layer in run.data["layers"] for k in layer["k"] if k), default=0.01)
    for position, ax in panels:
        for i, run in enumerate(runs):
            layer = run.data["layers"][position]
            steps = range(1, run.steps + 1)
            values = [k if k else float("nan") for k in layer["k"]]
            if layer["omega"]:
                bound = [2 * layer["omega"] / t for t in (1, run.steps)]
                ax.plot(
                    (1, run.steps),
                    bound,
                    color=style.colour(i),
                    linewidth=0.8,
                    linestyle=(0, (2, 2)),
                    alpha=0.75,
                )
            ax.plot(steps, values, color=style.colour(i), linestyle=style.dash(i), linewidth=1.4)
        ax.set_yscale("log")
        ax.set_ylim(lowest * 0.8, HIGHEST_K)
        style.step_axis(ax, longest, label=False, every=2)
        ax.yaxis.set_major_locator(LogLocator(10))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
    figure.supxlabel("time-steps", x=0.99, ha="right", fontsize=9.0, color=MUTED)
    return figure


def rate_histograms(runs: Sequence[Run], size: Size) -> Figure:
    """Distribution of the firing rates at the last step, a panel a layer, an outline a run."""
    figure, panels = _layer_panels(runs, size, "share of neurons (%)")
    for position, ax in panels:
        for i, run in enumerate(runs):
            histogram = run.data["layers"][position]["rate_histogram"]
            total = sum(histogram["counts"]) or 1
            shares = [count / total for count in histogram["counts"]]
            ax.stairs(shares, histogram["edges"], color=style.colour(i), linestyle=style.dash(i), linewidth=1.3)
        ax.set_yscale("log")
        ax.set_ylim(1e-4, 1.3)
        ax.yaxis.set_major_locator(LogLocator(100))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g}"))
        ax.set_xlim(0, 1)
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    figure.supxlabel("firing rate, spikes per step", x=0.99, ha="right", fontsize=9.0, color=MUTED)
    return figure


def _layer_panels(runs: Sequence[Run], size: Size, unit: str) -> tuple[Figure, Iterator[tuple[int, Axes]]]:
    """A grid of panels that share both axes, one for each layer, with the names of the runs above."""
    layers = runs[0].data["layers"]
    columns = min(size.columns(4, 2), len(layers))
    rows = -(-len(layers) // columns)
    figure = style.new_figure(size, 0.6 + 1.5 * rows + (0.2 if size.wide else 0.15 * len(runs)))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    cells = [ax for row in grid for ax in row]
    for ax in cells[len(layers) :]:
        ax.set_visible(False)
    for position, ax in enumerate(cells[: len(layers)]):
        ax.set_title(style.shorten(layers[position]["name"], 18), fontsize=style.SMALL + 0.5)
        if position + columns >= len(layers):
            ax.tick_params(labelbottom=True)  # the last panel of a column, also above an empty cell
    style.key_above(figure, [(run.label, style.colour(i)) for i, run in enumerate(runs)])
    figure.supylabel(unit, fontsize=style.SMALL, color=MUTED)
    return figure, enumerate(cells[: len(layers)])


def omega_and_threshold(runs: Sequence[Run], size: Size) -> Figure:
    """Omega and the threshold of every layer; the whisker spans the channels where thresholds differ."""
    figure, (upper, lower) = _stacked(runs, size)
    _across_layers(upper, runs, size, lambda layer: layer["omega"])
    style.y_title(upper, "Ω, lower is faster")
    _across_layers(lower, runs, size, lambda layer: layer["threshold"], spread_of=_threshold_range)
    differ = any(low != high for run in runs for low, high in map(_threshold_range, run.data["layers"]))
    units = " (units of the layer's input)" if size.wide else ""
    whisker = ", whisker: smallest to largest channel" if size.wide else ", whisker: all channels"
    style.y_title(lower, f"threshold θ{units}{whisker if differ else ''}")
    for ax in (upper, lower):
        ax.set_ylim(bottom=0)
    return figure


def saturated_and_dead(runs: Sequence[Run], size: Size) -> Figure:
    """Shares of neurons that fire at every step (rates cut off) and that never fire."""
    figure, (upper, lower) = _stacked(runs, size)
    for ax, key, name in ((upper, "saturated", "saturated neurons"), (lower, "dead", "dead neurons")):
        _across_layers(ax, runs, size, itemgetter(key))
        ax.set_ylim(0, 1.15 * max(*(layer[key] for run in runs for layer in run.data["layers"]), 0.01))
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        style.percent_axis(ax, name)
    return figure


def _stacked(runs: Sequence[Run], size: Size) -> tuple[Figure, Any]:
    figure = style.new_figure(size, 4.4 + (0 if size.wide else 0.15 * len(runs)))
    style.key_above(figure, [(run.label, style.colour(i)) for i, run in enumerate(runs)])
    return figure, figure.subplots(2, 1, sharex=True)


def _threshold_range(layer: dict[str, Any]) -> tuple[float, float]:
    return layer["threshold_min"], layer["threshold_max"]


def _across_layers(
    ax: Axes,
    runs: Sequence[Run],
    size: Size,
    value_of: Callable[[dict[str, Any]], float | None],
    spread_of: Callable[[dict[str, Any]], tuple[float, float]] | None = None,
) -> None:
    names = [style.shorten(layer["name"], 18) for layer in runs[0].data["layers"]]
    for i, run in enumerate(runs):
        offset = (i - (len(runs) - 1) / 2) * min(0.14, 0.6 / len(runs))
        places = [x + offset for x in range(len(names))]
        values = [value_of(layer) for layer in run.data["layers"]]
        known = [float("nan") if value is None else value for value in values]
        ax.plot(places, known, "o", color=style.colour(i), markersize=4.5, zorder=3)
        ax.plot(places, known, color=style.colour(i), linewidth=0.7, alpha=0.5)
        if spread_of is not None:
            lows, highs = zip(*(spread_of(layer) for layer in run.data["layers"]))
            ax.vlines(places, lows, highs, color=style.colour(i), linewidth=1.1)
    crowded = len(names) > size.columns(9, 3)
    ax.set_xticks(range(len(names)), names, rotation=90 if crowded else 0)
    ax.grid(axis="x", visible=False)
    ax.set_xlim(-0.6, len(names) - 0.4)
