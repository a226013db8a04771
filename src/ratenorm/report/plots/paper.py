"""The figures of the paper, drawn from the JSON that `python -m paper` leaves under results/figures/."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ratenorm.errors import FileFormatError
from ratenorm.io.files import write_atomic
from ratenorm.report import style, svg
from ratenorm.report.measures import Run
from ratenorm.report.plots import accuracy, layers, power
from ratenorm.report.style import INK, MUTED, WIDE, Size

FORMAT, VERSION = "ratenorm-figure", 1


def save_figure(path: str | os.PathLike[str]) -> list[Path]:
    """Draw the pictures of a figure's JSON beside it, as SVG; the same JSON gives the same bytes."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        with style.styled():
            pictures = DRAWN[content["figure"]](content)
        return [
            write_atomic(path.with_name(Path(name).name), svg.raw_svg(picture).encode())
            for name, picture in zip(content["pictures"], pictures, strict=True)
        ]
    except OSError as error:
        raise FileFormatError(f"Drawing {path}: it cannot be read ({error.strerror or error}).") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise FileFormatError(
            f"Drawing {path}: it is damaged or not a figure of ratenorm ({type(error).__name__}: {error}). Make it "
            "anew with `python -m paper`."
        ) from error


def _runs(found: Sequence[Mapping[str, Any]], images: int = 0) -> list[Run]:
    return [Run(run["name"], run, run["ann"], images, run.get("target")) for run in found]


def response(content: Mapping[str, Any], size: Size = WIDE) -> list[Figure]:
    """Figure 2: r^ over x, a line a threshold; dots are spiking neurons."""
    data = content["data"]
    figure = style.new_figure(size, 3.4)
    ax = figure.subplots()
    for i, curve in enumerate(data["curves"]):
        hue = style.colour(i)
        ax.plot(data["x"], curve["rate"], color=hue)
        ax.plot(data["spiking_x"], curve["spiking_rate"], "o", color=hue, markersize=3.5)
        ax.annotate(
            f"p = {curve['p']:g}", (curve["threshold"], 1.0), xytext=(0, 6), textcoords="offset points", ha="center",
            color=hue, fontsize=9.0,
        )  # fmt: skip
        ax.vlines(curve["threshold"], 0, 1, color=hue, linewidth=0.7, linestyle=(0, (2, 2)))
    ax.set_xlabel("activation x, in units of its running maximum (dashed: thresholds θ = p · maximum)", loc="right")
    style.y_title(ax, f"simulated firing rate r, dots: spiking neurons after {content['config']['steps']} steps")
    ax.set_ylim(-0.03, 1.13)
    return [figure]


def toy_rates(content: Mapping[str, Any], size: Size = WIDE) -> list[Figure]:
    """Figure 3: rates so far of the output neurons, a panel a coding, a thin line a sampling."""
    data = content["data"]
    figure = style.new_figure(size, 3.4)
    panels = figure.subplots(1, size.columns(2, 1), sharey=True, squeeze=False)[0]
    for ax, coding in zip(panels, ("constant", "poisson")):
        for sampling in data[coding]:
            for neuron, rates in enumerate(sampling):
                ax.plot(range(1, len(rates) + 1), rates, color=style.colour(neuron), linewidth=0.8, alpha=0.75)
        for neuron, rate in enumerate(data["analog"]):
            ax.axhline(rate, color=style.colour(neuron), linewidth=1.6, linestyle=(0, (4, 1.6)))
        ax.set_xlim(1, len(data[coding][0][0]))
        style.y_title(ax, f"{coding.capitalize() if coding == 'poisson' else coding} coding: spikes per step so far")
        ax.set_xlabel("time-steps", loc="right")
    panels[0].set_ylim(-0.03, 1.03)
    names = [(f"output neuron {i + 1}", style.colour(i)) for i in range(len(data["analog"]))]
    style.key_above(figure, [*names, ("dashed: the rate they converge to", INK)])
    return [figure]


def k_by_depth(content: Mapping[str, Any], size: Size = WIDE) -> list[Figure]:
    """Figure 4: a panel a method, a line a layer from light to dark; and again a panel a layer."""
    runs = _runs(content["data"]["runs"])
    figure = style.new_figure(size, 4.4)
    panels = figure.subplots(1, len(runs), sharex=True, sharey=True, squeeze=False)[0]
    names = [layer["name"] for layer in runs[0].data["layers"]]
    hues = depth_colours(len(names))
    for ax, run in zip(panels, runs):
        for hue, layer in zip(hues, run.data["layers"]):
            values = [k if k else float("nan") for k in layer["k"]]
            ax.plot(range(1, run.steps + 1), values, color=hue, linewidth=1.3)
            if layer["omega"]:
                ends = (1, run.steps)
                ax.plot(ends, [2 * layer["omega"] / t for t in ends], color=hue, linewidth=0.6, linestyle=(0, (3, 3)))
        _k_axes(ax, runs)
        style.y_title(ax, f"{run.label}: K")
    shown = sorted({0, len(names) // 2, len(names) - 1})
    key = [(f"layer {i + 1}, {names[i]}", hues[i]) for i in shown]
    style.key_above(figure, [*key, ("dashed: 2Ω/t", MUTED)])
    return [figure, layers.k_curves(runs, size)]


def depth_colours(count: int) -> list[str]:
    """Light to dark with the depth of a layer; the lightest end of the map cannot be seen on white."""
    ramp = colormaps["viridis_r"]
    return [to_hex(ramp(0.12 + 0.88 * i / max(1, count - 1))) for i in range(count)]


def _k_axes(ax: Axes, runs: Sequence[Run]) -> None:
    lowest = min((k for run in runs for layer in run.data["layers"] for k in layer["k"] if k), default=0.01)
    ax.set_yscale("log")
    ax.set_ylim(lowest * 0.8, layers.HIGHEST_K)
    style.step_axis(ax, max(run.steps for run in runs), every=2)
    ax.yaxis.set_major_locator(LogLocator(10))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def fast_inference(content: Mapping[str, Any], size: Size = WIDE) -> list[Figure]:
    """Figure 6: (a) K of some layers, (b) accuracy, (c) Omega and threshold of all layers."""
    runs, config = _runs(content["data"]["runs"]), content["config"]
    main = [run for run in runs if run.label in config["in_a_and_c"]]
    in_c = [run for run in runs if run in main or run.label in config.get("only_in_c", ())]
    some = [
        {**run.data, "layers": [layer for layer in run.data["layers"] if layer["name"] in config["layers"]]}
        for run in main
    ]
    return [
        layers.k_curves(_runs(some), size),
        accuracy.accuracy_over_time(runs, size),
        layers.omega_and_threshold(in_c, size),
    ]


def energy_to_target(content: Mapping[str, Any], size: Size = WIDE) -> list[Figure]:
    """Figure 7: (a) power with the energy to the target shaded, (b) logarithms of speed-up and energy ratio."""
    return [power.power_over_time(_runs(content["data"]["runs"]), size), _log_ratios(content, size)]


def _log_ratios(content: Mapping[str, Any], size: Size) -> Figure:
    ratio = content["data"]["ratio"]
    figure = style.new_figure(size, 3.2)
    ax = figure.subplots()
    entries = (
        ("log10_speed_up", "speed-up, log10(T_b / T_p)", style.SERIES[0]),
        ("log10_energy", "energy, log10(E_p / E_b)", style.SERIES[1]),
    )
    for key, _, hue in entries:
        ax.plot([100 * a for a in ratio["accuracy"]], ratio[key], color=hue)
    ax.axhline(0, color=INK, linewidth=0.9)
    target = content["config"]["target"]
    if isinstance(target, float):
        ax.axvline(100 * target, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        ax.annotate(
            f"{100 * target:g} %", (100 * target, 0.98), xycoords=("data", "axes fraction"), xytext=(-4, 0),
            textcoords="offset points", ha="right", va="top", fontsize=style.SMALL, color=MUTED,
        )  # fmt: skip
    ax.set_xlabel("accuracy to reach and keep (%)", loc="right")
    style.y_title(ax, "logarithm of the ratio (p: RNL + RIL, b: Max Norm): above 0 faster, below 0 cheaper")
    style.key_above(figure, [(text, hue) for _, text, hue in entries])
    return figure


DRAWN: dict[str, Callable[[Mapping[str, Any]], list[Figure]]] = {
    "fig2": response,
    "fig3": toy_rates,
    "fig4": k_by_depth,
    "fig6": fast_inference,
    "fig7": energy_to_target,
}
