"""Accuracy against time: over all runs, as a front, and with early exit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ratenorm.report import style
from ratenorm.report.measures import Run, pareto
from ratenorm.report.style import INK, MUTED, Size


def accuracy_over_time(runs: Sequence[Run], size: Size) -> Figure:
    """Accuracy when answering at each step, one line a run, and below it what is lost against the ANN."""
    height = 5.2 if size.wide else 4.6
    figure = style.new_figure(size, height)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1.35, 1])
    longest = max(run.steps for run in runs)
    bottom = max(0.0, min(min(run.accuracy) for run in runs) - 0.05)
    top = 1.0 + 0.03 * (1 - bottom)
    upper.set_ylim(bottom, top)
    labels = []
    for i, run in enumerate(runs):
        look = {"color": style.colour(i), "linestyle": style.dash(i), "zorder": 3 + i}
        steps = range(1, run.steps + 1)
        upper.plot(steps, run.accuracy, **look)
        # On a logarithm nothing lies at or below zero: a gain is drawn at the floor.
        lower.plot(steps, [max(100 * run.loss_at(t), _LEAST_LOSS) for t in steps], **look)
        if run.target_step:
            dot = {"marker": "o", "markersize": 5.5, "markeredgecolor": style.SURFACE, "markeredgewidth": 1.2}
            upper.plot(run.target_step, run.accuracy[run.target_step - 1], **dot, color=style.colour(i), zorder=20)
        labels.append((run.label, style.colour(i), (run.accuracy[-1] - bottom) / (top - bottom)))
    _draw_anns(upper, _anns(runs), near=0.06 * (top - bottom))
    style.percent_axis(upper, "accuracy")
    _loss_axis(lower)
    style.step_axis(upper, longest, label=False)
    style.step_axis(lower, longest)
    if size.wide:
        style.label_ends(upper, labels, height=height * 72 * 0.48)
    else:
        style.key_above(figure, [(text, hue) for text, hue, _ in labels])
    return figure


_LEAST_LOSS = 0.05  # points


def _loss_axis(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.set_ylim(_LEAST_LOSS, 100)
    ax.yaxis.set_major_locator(FixedLocator([0.1, 1, 10, 100]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.axhline(1, color=INK, linewidth=0.9)
    ax.annotate(
        "1 point", (0.0, 1), xycoords=("axes fraction", "data"), xytext=(4, -10.5),
        textcoords="offset points", fontsize=style.SMALL, color=INK,
    )  # fmt: skip
    style.y_title(ax, "loss against the ANN (points)")


def _anns(runs: Sequence[Run]) -> list[tuple[str, float]]:
    """Each ANN once: its name is printed only where there is more than one."""
    seen = {(run.ann["name"], run.ann["accuracy"]): None for run in runs}
    return [(name if len(seen) > 1 else "ANN", accuracy) for name, accuracy in seen]


def _draw_anns(ax: Axes, anns: Sequence[tuple[str, float]], near: float) -> None:
    """A line for each ANN; those whose names would cover each other share one place for them."""
    together: list[list[tuple[str, float]]] = []
    for name, value in sorted(anns, key=lambda ann: -ann[1]):
        ax.axhline(value, color=INK, linewidth=0.9, zorder=2)
        if together and together[-1][-1][1] - value < near:
            together[-1].append((name, value))
        else:
            together.append([(name, value)])
    for group in together:
        text = ", ".join(f"{style.shorten(name)} {value * 100:.2f} %" for name, value in group)
        ax.annotate(
            text, (0.0, group[-1][1]), xycoords=("axes fraction", "data"), xytext=(4, -10.5),
            textcoords="offset points", fontsize=style.SMALL, color=INK,
        )  # fmt: skip


def accuracy_latency_front(points: Sequence[Mapping[str, Any]], size: Size) -> Figure:
    """Every setting as a point; those no other beats in both accuracy and latency joined and named."""
    figure = style.new_figure(size, 3.6)
    ax = figure.subplots()
    places = [(float(point["steps"]), float(point["accuracy"])) for point in points]
    best = pareto(places)
    rest = [i for i in range(len(places)) if i not in best]
    ax.plot(*_columns(places, rest), "o", color=MUTED, alpha=0.45, markersize=4.5, linestyle="none")
    ax.step(*_columns(places, best), where="post", color=style.SERIES[0], linewidth=1.4)
    ax.plot(*_columns(places, best), "o", color=style.SERIES[0], markersize=6, markeredgecolor=style.SURFACE)
    style.step_axis(ax, int(max(x for x, _ in places)))
    left, right = ax.get_xlim()
    ax.set_xlim(left * 0.9, right)
    style.percent_axis(ax, "accuracy")
    ax.margins(y=0.12)
    named = best if len(best) <= 4 else [best[0], best[len(best) // 2], best[-1]]
    for i in named if size.wide else named[-1:]:
        ends = places[i][0] > (left * right) ** 0.5
        spot = places[i] if size.wide else (right, ax.get_ylim()[0])
        ax.annotate(
            f"{style.shorten(points[i]['name'], 28)}: {places[i][1] * 100:.2f} % at {places[i][0]:g}", spot,
            xytext=((-4, -14) if ends else (8, -12)) if size.wide else (-2, 5), textcoords="offset points",
            ha="right" if ends else "left", fontsize=style.SMALL, color=style.SERIES[0],
        )  # fmt: skip
    return figure


def _columns(places: Sequence[tuple[float, float]], chosen: Sequence[int]) -> tuple[list[float], list[float]]:
    return [places[i][0] for i in chosen], [places[i][1] for i in chosen]


def training(epochs: Sequence[Mapping[str, Any]], size: Size) -> Figure:
    """Loss and held-out accuracy of every epoch, one line a stage."""
    figure = style.new_figure(size, 3.6 if size.wide else 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    stages = list(dict.fromkeys(str(epoch["stage"]) for epoch in epochs))
    for i, stage in enumerate(stages):
        own = [(place, epoch) for place, epoch in enumerate(epochs, 1) if epoch["stage"] == stage]
        for ax, key in ((upper, "loss"), (lower, "accuracy")):
            known = [(place, epoch[key]) for place, epoch in own if isinstance(epoch.get(key), int | float)]
            ax.plot([x for x, _ in known], [y for _, y in known], "o-", markersize=3, color=style.colour(i))
    style.y_title(upper, "loss")
    style.percent_axis(lower, "held-out accuracy")
    lower.set_xlabel("epochs", loc="right")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.key_above(figure, [(stage, style.colour(i)) for i, stage in enumerate(stages)])
    return figure


def early_exit_histogram(run: Run, size: Size) -> Figure:
    """How many images answered at each step, with the mean and the worst case marked."""
    exits = run.data["early_exit"]
    counts = exits["histogram"]
    figure = style.new_figure(size, 2.7)
    ax = figure.subplots()
    shown = max(exits["worst_steps"], 4)
    drawn = counts[:shown]
    ax.bar(range(1, len(drawn) + 1), drawn, width=0.86, color=style.SERIES[0])
    ax.set_xlim(0.3, shown + 0.9)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("time-step of the answer", loc="right")
    style.y_title(ax, "images")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.axvline(exits["mean_steps"], color=INK, linewidth=0.9)
    near_left = exits["mean_steps"] < shown * 0.6
    ax.annotate(
        f"mean {exits['mean_steps']:.2f}", (exits["mean_steps"], 0.94), xycoords=("data", "axes fraction"),
        xytext=(5 if near_left else -5, 0), textcoords="offset points", ha="left" if near_left else "right",
        fontsize=9.0,
    )  # fmt: skip
    ax.annotate(
        f"worst {exits['worst_steps']}", (exits["worst_steps"], drawn[exits["worst_steps"] - 1]),
        xytext=(0, 4), textcoords="offset points", ha="center", fontsize=style.SMALL, color=MUTED,
    )  # fmt: skip
    return figure
