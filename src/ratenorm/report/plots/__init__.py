"""Every plot of the report by name; each is a pure function of records that returns a figure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ratenorm.errors import UsageError
from ratenorm.records import Record
from ratenorm.report import measures, style, svg
from ratenorm.report.plots import accuracy, inside, layers, power
from ratenorm.report.style import WIDE, Size

FORMATS = ("png", "svg", "pdf")
EXAMPLES_SHOWN = 8
_STABLE = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}


@dataclass(frozen=True)
class Plot:
    """A plot by name: `draw` makes it at the size asked for."""

    slug: str  # file name and id
    alt: str  # what it shows, for those who cannot see it
    draw: Callable[[Size], Figure]

    def figure(self, size: Size = WIDE) -> Figure:
        with style.styled():
            return self.draw(size)

    def inline(self, size: Size) -> str:
        """The plot as an element; a sentence where it cannot be drawn. One plot never takes the page down."""
        try:
            return self._inline(size)
        except Exception as error:  # layout engines and fonts fail in ways of their own
            reason = escape(f"{type(error).__name__}: {error}"[:200])
            return f'<p class="note">This plot could not be drawn ({reason}).</p>'

    def _inline(self, size: Size) -> str:
        return svg.inline_svg(self.figure(size), f"{self.slug}-{'w' if size.wide else 'n'}", self.alt)


def run_plots(runs: Sequence[measures.Run]) -> list[Plot]:
    """The plots that compare runs."""
    if not runs:
        return []
    return [
        Plot("accuracy", "Accuracy over time-steps for all runs", partial(accuracy.accuracy_over_time, runs)),
        Plot(
            "power",
            "Spikes per step over time, energy to the target shaded",
            partial(power.power_over_time, runs),
        ),
        Plot("energy", "Energy of one inference against the ANN", partial(power.energy_bars, runs)),
    ]


def more_accuracy_plots(runs: Sequence[measures.Run]) -> list[Plot]:
    """Accuracy over time of the runs that the first plots leave out, ten at a time. At most 50: tables have all."""
    runs = runs[: 5 * measures.MOST_CURVES]
    parts = [runs[i : i + measures.MOST_CURVES] for i in range(0, len(runs), measures.MOST_CURVES)]
    return [
        Plot(f"accuracy-more-{i}", "Accuracy over time-steps, more runs", partial(accuracy.accuracy_over_time, part))
        for i, part in enumerate(parts)
    ]


def layer_plots(network: str, runs: Sequence[measures.Run], number: int) -> list[Plot]:
    """The plots of one network's layers; `number` tells networks of one name apart."""
    end = f"-{number}" if number else ""
    return [
        Plot(f"k{end}", f"K over time-steps for each layer of {network}", partial(layers.k_curves, runs)),
        Plot(
            f"omega{end}",
            f"Omega and threshold of each layer of {network}",
            partial(layers.omega_and_threshold, runs),
        ),
        Plot(f"rates{end}", f"Firing rates of each layer of {network}", partial(layers.rate_histograms, runs)),
        Plot(f"dead{end}", f"Saturated and dead neurons of {network}", partial(layers.saturated_and_dead, runs)),
    ]


def training_plot(name: str, epochs: Sequence[dict[str, Any]], number: int) -> Plot:
    """Loss and held-out accuracy over epochs."""
    return Plot(f"training-{number}", f"Loss and held-out accuracy of {name}", partial(accuracy.training, epochs))


def front_plot(records: Sequence[Record]) -> Plot | None:
    points = [point for record in records for point in record.get("front") or [] if point["steps"] > 0]
    if not points:
        return None
    return Plot("front", "Accuracy against latency", partial(accuracy.accuracy_latency_front, points))


def exit_plots(runs: Sequence[measures.Run]) -> list[tuple[measures.Run, Plot]]:
    chosen = [run for run in runs if run.data.get("early_exit")]
    return [
        (
            run,
            Plot(
                f"exit-{i}",
                f"Steps to the answer with early exit, {run.label}",
                partial(accuracy.early_exit_histogram, run),
            ),
        )
        for i, run in enumerate(chosen)
    ]


def example_plots(records: Sequence[Record]) -> list[tuple[Record, dict[str, Any], Plot]]:
    """At most `EXAMPLES_SHOWN` images looked into, each with the record it belongs to."""
    pairs = [(record, example) for record in records for example in record.get("examples") or []]
    return [
        (record, example, Plot(
            f"inside-{i}",
            f"Class scores and spikes of image {example['index']} over time",
            partial(inside.look_inside, example, record["data"]["classes"]),
        ))
        for i, (record, example) in enumerate(pairs[:EXAMPLES_SHOWN])
    ]  # fmt: skip


def all_plots(records: Sequence[Record]) -> list[Plot]:
    """Every plot these records can fill, in the order of the report."""
    runs = measures.runs_of(records)
    drawn, rest = measures.in_plots(runs)
    plots = [*run_plots(drawn), *more_accuracy_plots(rest)]
    for number, (network, members) in enumerate(measures.by_network(runs)):
        plots += layer_plots(network, measures.in_plots(members)[0], number)
    front = front_plot(records)
    plots += [front] if front else []
    plots += [plot for _, plot in exit_plots(runs)]
    plots += [plot for _, _, plot in example_plots(records)]
    return plots


def save_plots(
    records: Sequence[Record], folder: str | os.PathLike[str], formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write every plot in every format; the same records give the same bytes."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsageError(f"Saving plots: the format {unknown[0]!r} is unknown. Choose from {', '.join(FORMATS)}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in all_plots(records):
        for name in formats:
            path = folder / f"{plot.slug}.{name}"
            figure = plot.figure()
            if name == "svg":
                path.write_text(svg.raw_svg(figure), encoding="utf-8")
            else:
                with style.styled():
                    figure.savefig(path, format=name, metadata=_STABLE[name])
            written.append(path)
    return written
