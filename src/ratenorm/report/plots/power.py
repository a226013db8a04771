"""Power over time and energy to the target."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ratenorm.report import energy, style
from ratenorm.report.measures import Run
from ratenorm.report.style import INK, MUTED, Size
from ratenorm.report.words import count, joules, percent, several

_PARTS = (("input layer", style.SERIES[4]), ("synapses", style.SERIES[0]), ("membranes", style.SERIES[5]))


def power_over_time(runs: Sequence[Run], size: Size) -> Figure:
    """Spikes per step in units of α/ms, a panel a run; shaded the energy until one point below the ANN, or
    until the run's own target.

    The axis of time is linear here, so that the shaded area is the energy.
    """
    columns = min(size.columns(2, 1), len(runs))
    rows = -(-len(runs) // columns)
    figure = style.new_figure(size, 0.4 + 1.55 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    cells = [ax for row in grid for ax in row]
    longest = max(run.steps for run in runs)
    reach = max(2 * (run.target_step or 0) for run in runs)
    shown = min(longest, max(16, reach)) if reach else longest
    for ax in cells[len(runs) :]:
        ax.set_visible(False)
    for i, (ax, run) in enumerate(zip(cells, runs)):
        _power_panel(ax, run, style.colour(i), shown)
        if i + columns >= len(runs):
            ax.tick_params(labelbottom=True)
    cells[0].set_xlim(1, max(shown, 2))
    cells[0].set_ylim(0, 1.35 * max(max(run.data["spikes"][:shown]) for run in runs) or 1)
    figure.supxlabel("time-steps", x=0.99, ha="right", fontsize=9.0, color=MUTED)
    figure.supylabel("power, spikes per step (α/ms)", fontsize=style.SMALL, color=MUTED)
    return figure


def _power_panel(ax: Axes, run: Run, hue: str, shown: int) -> None:
    steps = range(1, min(shown, run.steps) + 1)
    power = run.data["spikes"][: len(steps)]
    ax.plot(steps, power, color=hue, linewidth=1.5)
    target = run.target_step
    if target:
        ax.fill_between(steps[:target], power[:target], color=hue, alpha=0.25, linewidth=0)
        ax.axvline(target, color=INK, linewidth=0.8)
        spent = f"{count(sum(run.data['spikes'][:target]))} α in {several(target, 'step')}"
    else:
        goal = "within 1 point" if run.target is None else f"at {percent(run.target)}"
        spent = f"not {goal} in {several(run.steps, 'step')}"
    ax.set_title(style.shorten(run.label), color=hue, fontsize=9.0)
    ax.annotate(
        spent, (0.985, 0.97), xycoords="axes fraction", ha="right", va="top", fontsize=style.SMALL, color=INK,
        bbox={"facecolor": style.SURFACE, "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def energy_bars(runs: Sequence[Run], size: Size) -> Figure:
    """Energy of one inference at the target, by where it goes, against the ANN in float and in integers."""
    figure = style.new_figure(size, (0.9 if size.wide else 1.3) + 0.68 * len(runs))
    ax = figure.subplots()
    style.key_above(figure, [*_PARTS, ("┃ ANN, 32-bit float", INK), ("┇ ANN, integers", INK)])
    limit = 0.0
    for row, run in enumerate(runs):
        used = energy.spiking(run.data, run.reading_step)
        left = 0.0
        for (_, hue), part in zip(_PARTS, (used.input_layer, used.synapses, used.membranes)):
            ax.barh(row, part, left=left, height=0.34, color=hue)
            left += part
        rival = energy.analog(run.ann["macs"])
        bits = energy.equivalent_bits(run.reading_step)
        quantised = energy.analog_quantised(run.ann["macs"], bits)
        limit = max(limit, left, rival)
        ax.vlines(rival, row - 0.24, row + 0.24, color=INK, linewidth=2.2, zorder=4)
        ax.vlines(quantised, row - 0.24, row + 0.24, color=INK, linewidth=1.4, linestyle=(0, (1.2, 1)), zorder=4)
        ax.annotate(
            several(bits, "bit"), (quantised, row + 0.25), xytext=(0, -1), textcoords="offset points",
            ha="center", va="top", fontsize=style.SMALL, color=INK,
        )  # fmt: skip
        reached = "" if run.target_step else " (target not reached)"
        note = f"{style.shorten(run.label, 28)}: {joules(used.total)} at step {run.reading_step}{reached}"
        if size.wide and run.energy_ratio is not None:
            note += f", {percent(run.energy_ratio)} of the ANN"
        ax.annotate(
            note, (0.0, row), xycoords=("axes fraction", "data"), xytext=(0, 11), textcoords="offset points",
            fontsize=style.SMALL, color=INK, va="bottom",
        )  # fmt: skip
    ax.set_ylim(len(runs) - 0.45, -0.75)
    ax.set_xlim(0, limit * 1.06 or 1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(size.columns(6, 4)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: joules(value)))
    ax.set_xlabel("energy of one inference (45 nm)", loc="right")
    return figure
