"""The sections of the report, each from records to HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ratenorm.records import Record
from ratenorm.records.papers import bibtex, reference
from ratenorm.report import energy, inside, measures, plots, summary, tables
from ratenorm.report.measures import Run
from ratenorm.report.style import NARROW, SERIES, WIDE


@dataclass(frozen=True)
class Section:
    slug: str
    title: str
    body: str


MOST_PARAGRAPHS = 4  # runs that get a paragraph each; more get a table
MOST_NETWORKS = 3  # networks whose layers are drawn
MOST_TABLES = 30  # runs whose layers are listed


def all_sections(records: Sequence[Record], runs: Sequence[Run], trainings: Sequence[Training] = ()) -> list[Section]:
    """Every section these records can fill; a section without figures is not made."""
    made: list[Section] = []
    if runs:
        made += [_summary(runs), _accuracy(runs), _energy(runs)]
    made += _training(trainings)
    made += _fronts(records) + _exits(runs)
    made += inside_sections(records)
    made += _layers(runs) + _neurobench(runs) + _diagnosis(records) + _paper(records)
    return [*made, glossary(), _origin(records)]


def figure(plot: plots.Plot, caption: str) -> str:
    """A plot in both sizes; the style sheet shows the one that fits."""
    return (
        f'<figure><div class="wide">{plot.inline(WIDE)}</div><div class="narrow">{plot.inline(NARROW)}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _summary(runs: Sequence[Run]) -> Section:
    if len(runs) > MOST_PARAGRAPHS:
        return Section("summary", "Summary", tables.summary_table(runs).html(sortable=True))
    best = measures.leader(runs)
    items = ""
    for i, run in enumerate(runs):
        dot = f'<span class="dot" style="background:var(--series-{i % len(SERIES)})"></span>'
        fastest = run is best and len(runs) > 1 and run.target_step and len(measures.comparable(runs)) == 1
        items += (
            f"<li><h3>{dot}{escape(run.label)}{' <em>fastest here</em>' if fastest else ''}</h3>"
            f"<p>{escape(summary.target(run))}</p>{_losses(run)}"
            f'<p class="note">{escape(summary.background(run))}</p></li>'
        )
    return Section("summary", "Summary", f'<ul class="runs">{items}</ul>')


def _losses(run: Run) -> str:
    steps = measures.shown_steps([run])
    cells = "".join(f"<div><dt>T = {t}</dt><dd>{100 * run.loss_at(t):.2f}</dd></div>" for t in steps)
    return f'<dl class="losses"><div><dt>points lost</dt><dd>at step T</dd></div>{cells}</dl>'


def _accuracy(runs: Sequence[Run]) -> Section:
    slider = (
        '<div class="explore" id="steps" hidden><label>Answer at step <input type="range" min="1" step="1"> '
        '<output></output></label><div class="scroll"><table></table></div></div>'
    )
    drawn, rest = measures.in_plots(runs)
    more = "".join(figure(plot, "") for plot in plots.more_accuracy_plots(rest))
    body = (
        figure(
            plots.run_plots(drawn)[0],
            "Accuracy of the answer given at each step (above; the dot marks the step from which a run "
            "stays within one point of the ANN) and what it loses against the ANN (below, logarithmic; "
            "gains lie on the lower edge).",
        )
        + (f"<details><summary>Curves of {len(rest)} more runs</summary>{more}</details>" if more else "")
        + slider
        + tables.accuracy_table(runs).html(sortable=True)
        + tables.loss_table(runs).html(sortable=True)
    )
    return Section("accuracy", "Accuracy over time", body)


def _energy(runs: Sequence[Run]) -> Section:
    _, power, bars = plots.run_plots(measures.in_plots(runs)[0])
    body = (
        figure(
            power,
            "Spikes of the whole network in each step, per image. One spike costs α, one step takes 1 ms, "
            "so that the shaded area is the energy spent until the run stays within one point of its ANN "
            "(black line).",
        )
        + figure(
            bars,
            "Energy of one image, read at the step where the target is reached (the last step where it is "
            "not): the analog input layer once, every synaptic operation, every membrane update. Solid "
            "line: the ANN in 32-bit float. Dotted line: the ANN in integers of ceil(log2(T + 1)) bits, "
            "which resolve as finely as T steps.",
        )
        + tables.cost_table(runs).html(sortable=True)
        + f'<p class="note">{escape(energy.ASSUMPTION)}</p>'
    )
    return Section("energy", "Power and energy", body)


def _fronts(records: Sequence[Record]) -> list[Section]:
    plot = plots.front_plot(records)
    if plot is None:
        return []
    caption = "Every setting tried; the blue ones are beaten by no other in both accuracy and time-steps."
    return [Section("front", "Accuracy against latency", figure(plot, caption))]


def _exits(runs: Sequence[Run]) -> list[Section]:
    body = ""
    for run, plot in plots.exit_plots(runs):
        exits = run.data["early_exit"]
        body += figure(
            plot,
            escape(
                f"{run.label}: an image answers as soon as its {exits['criterion']} reaches the threshold of the "
                f"step. Accuracy {100 * exits['accuracy']:.2f} % after {exits['mean_steps']:.2f} steps on average, "
                f"{exits['worst_steps']} at worst; allowed loss {100 * exits['allowed_loss']:.2f} points.{_fixed(run)}"
            ),
        )
    return [Section("exit", "Early exit", body)] if body else []


def _fixed(run: Run) -> str:
    """The simplest alternative to early exit: the same number of steps for every image."""
    fixed = run.data["early_exit"].get("fixed_steps")
    if fixed is None:
        return ""
    return f" A fixed T = {fixed} has {100 * run.data['accuracy'][fixed - 1]:.2f} %."


def inside_sections(records: Sequence[Record]) -> list[Section]:
    body = inside.look_inside_html(records, figure)
    return [Section("inside", "Look inside one answer", body)] if body else []


def _layers(runs: Sequence[Run]) -> list[Section]:
    body = ""
    groups = measures.by_network(runs)
    if len(groups) > MOST_NETWORKS:
        body += (
            f'<p class="note">Plots of the first {MOST_NETWORKS} of {len(groups)} networks; a report on fewer records '
            "draws the others.</p>"
        )
    for number, (network, members) in enumerate(groups[:MOST_NETWORKS]):
        k, omega, rates, dead = plots.layer_plots(network, measures.in_plots(members)[0], number)
        body += f"<h3>{escape(network)}</h3>"
        body += figure(
            k,
            "K, the squared error of the firing rates relative to the analog rates. Dotted: the bound 2Ω/t, "
            "which holds for constant input current and is a guide in deeper layers.",
        )
        body += figure(omega, "Ω = |r|₁ / |r|₂² of the analog rates, and the firing threshold.")
        body += figure(rates, "Firing rates of all neurons over all images at the last step; logarithmic.")
        body += figure(dead, "Saturated: rate at least 1 − 1/T, the threshold cut it off. Dead: not one spike.")
    detailed = runs if len(runs) <= MOST_TABLES else measures.in_plots(runs)[0]
    for i, run in enumerate(detailed):
        if run.data["layers"]:
            table = tables.layer_table(run, f"layers-{i}").html()
            body += f"<details><summary>Figures of every layer: {escape(run.label)}</summary>{table}</details>"
    return [Section("layers", "Layer by layer", body)] if body else []


NEUROBENCH = (
    "Defined as NeuroBench 2.3 defines them and measured on the first images of the set, with average pools folded "
    "into the weights after them. MACs are of layers that see other numbers than spikes: the first one, whose constant "
    "current NeuroBench counts at every step, and once in the column after. The other columns are per image."
)


def _neurobench(runs: Sequence[Run]) -> list[Section]:
    table = tables.neurobench_table(runs)
    if not table.rows:
        return []
    body = f'{table.html(sortable=True)}<p class="note">{escape(NEUROBENCH)}</p>'
    return [Section("neurobench", "NeuroBench metrics", body)]


def _diagnosis(records: Sequence[Record]) -> list[Section]:
    body = ""
    for i, record in enumerate(record for record in records if record.get("diagnosis")):
        diagnosis = record["diagnosis"]
        findings = "".join(_finding(finding) for finding in diagnosis["findings"])
        body += f"<h3>{escape(diagnosis['run'])}</h3>"
        body += f'<ol class="findings">{findings}</ol>' if findings else "<p>Nothing was found wanting.</p>"
        body += tables.diagnosis_table(record, f"diagnosis-{i}").html() if diagnosis["layers"] else ""
    return [Section("diagnosis", "Diagnosis", body)] if body else []


def _finding(finding: dict[str, Any]) -> str:
    cost, layer = finding.get("cost"), finding.get("layer")
    where = f"<strong>{escape(layer)}</strong> " if layer and layer not in finding["text"] else ""
    price = f'<span class="cost">{cost:.2f} points</span> ' if cost is not None else ""
    return f"<li>{price}{where}{escape(finding['text'])} <em>{escape(finding['remedy'])}</em></li>"


def _paper(records: Sequence[Record]) -> list[Section]:
    rows = []
    for record in records:
        for place, figures in (record.get("paper") or {}).items():
            pairs = figures.items() if isinstance(figures, dict) else [("", figures)]
            for name, value in pairs:
                shown = _in_unit(str(name), value)
                rows.append(
                    (f"{record['title']}: {place}", str(name).replace("_", " "), shown, _ours(record, str(name)))
                )
    if not rows:
        return []
    head = ("experiment", "figure", "the paper", "ours")
    table = tables.Table("paper", "The paper’s figures beside ours", head, tuple(rows))
    note = '<p class="note">Ours: the run that ends most accurate, on the images of this record.</p>'
    return [Section("paper", "Beside the paper", table.html() + note)]


def _in_unit(name: str, value: object) -> str:
    """Accuracies in percent, losses in points; what has no unit as it stands."""
    if isinstance(value, int | float) and "accuracy" in name:
        return f"{100 * value:.2f} %"
    if isinstance(value, int | float) and "loss" in name:
        return f"{100 * value:.2f} points"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ours(record: Record, name: str) -> str:
    """Our figure of the same name, where there is one."""
    if not record["runs"]:
        return ""
    best = max(record["runs"], key=lambda run: run["accuracy"][-1])
    ann = best.get("source_accuracy", record["ann"]["accuracy"])
    known = {
        "snn_accuracy": best["accuracy"][-1],
        "ann_accuracy": ann,
        "accuracy": best["accuracy"][-1],
        "conversion_loss": ann - best["accuracy"][-1],
    }
    return _in_unit(name, known[name]) if name in known else ""


GLOSSARY = (
    ("T, t", "number of time-steps; a time-step"),
    ("θ", "firing threshold of a neuron; a spike takes it off the membrane potential (soft reset)"),
    ("v(0)", "membrane potential before the first step; θ/2 rounds spike counts to the nearest"),
    ("r, r^", "firing rate, spikes per step; the analog rate it converges to"),
    ("K", "squared distance of the rates from the analog rates, relative to their squared size (Eq. 7)"),
    ("Ω", "sum of the rates over the sum of their squares; K is at most 2 Ω / t for constant input"),
    ("p, λ", "share of a layer's maximum that is its threshold; weight of the Rate Inference Loss that trains p"),
    ("spike / synaptic operation", "one output of a neuron; one addition in one neuron that hears it"),
    ("online", "every layer runs step t at step t, so the answer is there after T steps; all runs here are online"),
)


def glossary() -> Section:
    """The few symbols of the page."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in GLOSSARY)
    return Section("glossary", "Symbols", f'<dl class="facts">{items}</dl>')


@dataclass(frozen=True)
class Training:
    """The finished epochs of a run folder: one entry of figures for each."""

    name: str
    epochs: tuple[dict[str, Any], ...]


def _training(trainings: Sequence[Training]) -> list[Section]:
    body = ""
    for number, training in enumerate(trainings):
        body += figure(plots.training_plot(training.name, training.epochs, number), escape(training.name))
        body += tables.training_table(training.name, training.epochs, f"training-{number}").html()
    return [Section("training", "Training", body)] if body else []


def _origin(records: Sequence[Record]) -> Section:
    """Configuration, versions, hardware and papers: what is needed to repeat every figure."""
    body = ""
    for record in records:
        facts: dict[str, str] = {
            "data": f"{record['data']['name']}, {record['data']['split']}, {record['data']['images']:,} images",
            "scale": record["scale"],
            "network": f"{record['ann']['name']}, {record['ann']['parameters']:,} parameters, "
            f"{record['ann']['macs']:,} MACs an image",
            "seed": "unknown" if record["seed"] is None else str(record["seed"]),
            "wall time": summary.wall_time(record["seconds"]),
            "versions": ", ".join(f"{name} {value}" for name, value in sorted(record["versions"].items())),
            "hardware": _hardware(record["hardware"]),
        }
        rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
        config = escape(json.dumps(record["config"], indent=2, sort_keys=True, ensure_ascii=False))
        methods = "".join(
            f"<li>{escape(run['name'])}: <code>{escape(json.dumps(run['method'], sort_keys=True))}</code>, "
            f"v(0) = {run['v0']:g} θ, {escape(run['coding'])} coding, engine {escape(run['engine'])}</li>"
            for run in record["runs"]
        )
        body += f'<h3>{escape(record["title"])}</h3><dl class="facts">{rows}</dl><ul>{methods}</ul>'
        body += f"<details><summary>Configuration</summary><pre>{config}</pre></details>"
    keys = sorted({key for record in records for run in record["runs"] for key in run["papers"]} | {"horowitz2014"})
    if any("neurobench" in run for record in records for run in record["runs"]):
        keys.append("yik2025")
    papers = "".join(f"<li>{escape(reference(key))}</li>" for key in keys)
    cited = f"<details><summary>BibTeX</summary><pre>{escape(bibtex(keys))}</pre></details>"
    return Section("origin", "How to repeat it", f'{body}<h3>Papers</h3><ul class="papers">{papers}</ul>{cited}')


def _hardware(hardware: dict[str, Any]) -> str:
    if not hardware:
        return "unknown"
    words = {
        "cpu": "{}",
        "cores": "{} cores",
        "threads": "{} threads",
        "memory_gb": "{:.3g} GB",
        "device": "on {}",
    }
    known = [words[key].format(hardware[key]) for key in words if hardware.get(key) is not None]
    others = [f"{key} {value}" for key, value in sorted(hardware.items()) if key not in words]
    return ", ".join(known + others)


def slider_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Accuracy, loss, spikes and energy of each run at every step, for the slider under the accuracy plot."""
    return [
        {
            "name": run.label,
            "ann": run.ann["accuracy"],
            "colour": i % len(SERIES),
            "accuracy": [round(100 * value, 2) for value in run.accuracy],
            "spikes": _significant(_running([value / run.data["neurons"] for value in run.data["spikes"]])),
            "energy": _significant(_energies(run)),
        }
        for i, run in enumerate(runs)
    ]


def _running(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums


def _energies(run: Run) -> list[float]:
    """Microjoules after each step: one pass, because `energy.spiking` sums anew for every step."""
    data = run.data
    accumulates = _running([ops + data["membrane_updates"] for ops in data["synaptic_ops"]])
    return [(data["input_macs"] * energy.FLOAT_MAC + value * energy.FLOAT_ADD) / 1e6 for value in accumulates]


def _significant(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def slider_examples(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Class scores at every step, for the slider of each image looked into."""
    return [
        {
            "classes": record["data"]["classes"],
            "label": example["label"],
            "scores": [_significant(row) for row in example["scores"]],
        }
        for record, example, _ in plots.example_plots(records)
    ]
