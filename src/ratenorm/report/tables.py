"""Tables of the report: the same cells as HTML, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratenorm.errors import UsageError
from ratenorm.io import text
from ratenorm.records import Record
from ratenorm.report import energy, measures
from ratenorm.report.measures import Run

FORMATS = ("csv", "tex")
MISSING = ""  # of a cell; shown as a dash where people read it

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
    "Ω": r"$\Omega$", "θ": r"$\theta$", "α": r"$\alpha$", "λ": r"$\lambda$", "µ": r"$\mu$",
    "×": r"$\times$", "≤": r"$\leq$", "–": "--",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Cells as they are printed: names in the first column, then figures whose units the head gives."""

    slug: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def csv(self) -> str:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([text.cell(one) for one in row] for row in (self.columns, *self.rows))
        return buffer.getvalue()

    def latex(self) -> str:
        lines = [
            f"% {self.title}. Needs \\usepackage{{booktabs}}.",
            f"\\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            "\\toprule",
            _latex_row(self.columns),
            "\\midrule",
            *(_latex_row(row) for row in self.rows),
            "\\bottomrule",
            "\\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    def html(self, sortable: bool = False) -> str:
        """The table as an element; the page's script sorts it by a column that is clicked."""
        head = "".join(f'<th scope="col">{_nowrap(name)}</th>' for name in self.columns)
        kind = ' class="sortable"' if sortable and len(self.rows) > 1 else ""
        body = "".join(
            f'<tr><th scope="row">{html.escape(row[0])}</th>'
            + "".join(f"<td>{html.escape(cell) or '–'}</td>" for cell in row[1:])
            + "</tr>"
            for row in self.rows
        )
        title = html.escape(self.title, quote=True)
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
            f"<table{kind}><caption>{title}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _nowrap(name: str) -> str:
    """A head such as "T = 16" stays on one line; longer ones may break."""
    return html.escape(name).replace(" = ", "&nbsp;=&nbsp;")


def _latex_row(cells: Sequence[str]) -> str:
    escaped = ("".join(_LATEX.get(letter, letter) for letter in cell) or "--" for cell in cells)
    return " & ".join(escaped) + r" \\"


def summary_table(runs: Sequence[Run]) -> Table:
    """One line a run: when it arrives, where it ends, what it costs."""
    columns = (
        "run", "images", "ANN (%)", "steps to 1 point", "accuracy at the end (%)", "spikes per neuron",
        "energy of the ANN's (%)",
    )  # fmt: skip
    rows = [
        (
            run.label,
            f"{run.data_name} {run.images:,}",
            _percent(run.ann["accuracy"]),
            str(run.target_step) if run.target_step else MISSING,
            _percent(run.accuracy[-1]),
            f"{run.spikes_per_neuron(run.reading_step):.2f}",
            MISSING if run.energy_ratio is None else f"{100 * run.energy_ratio:.1f}",
        )
        for run in runs
    ]
    return Table("summary", "All runs; cost is read where a run arrives, else at its end", columns, tuple(rows))


def training_table(name: str, epochs: Sequence[dict[str, Any]], slug: str) -> Table:
    """The last epoch of each stage."""
    last = {str(epoch["stage"]): epoch for epoch in epochs}
    rows = [
        (
            stage,
            str(epoch["epoch"]),
            f"{epoch['loss']:.4g}" if isinstance(epoch.get("loss"), int | float) else MISSING,
            _percent(epoch["accuracy"]) if isinstance(epoch.get("accuracy"), int | float) else MISSING,
            f"{epoch.get('seconds', 0.0):,.0f}",
        )
        for stage, epoch in last.items()
    ]
    head = ("stage", "epochs", "loss", "held-out accuracy (%)", "seconds")
    return Table(slug, f"{name}: the end of each stage", head, tuple(rows))


def accuracy_table(runs: Sequence[Run]) -> Table:
    steps = measures.shown_steps(runs)
    rows = [
        (
            run.label,
            _percent(run.ann["accuracy"]),
            *(_at(run, t, lambda r, t: _percent(r.accuracy[t - 1])) for t in steps),
        )
        for run in runs
    ]
    return Table("accuracy", "Accuracy (%) when answering at step T", _step_columns("ANN", steps), tuple(rows))


def loss_table(runs: Sequence[Run]) -> Table:
    steps = measures.shown_steps(runs)
    rows = [(run.label, *(_at(run, t, lambda r, t: f"{100 * r.loss_at(t):.2f}") for t in steps)) for run in runs]
    return Table("loss", "Loss against the ANN (points) at step T", _step_columns(None, steps), tuple(rows))


def cost_table(runs: Sequence[Run]) -> Table:
    """Steps, spikes and energy to the target, and the speed of the simulation."""
    columns = (
        "run", "steps to 1 point", "read at step", "spikes per neuron", "SNN float (µJ)", "ANN float (µJ)",
        "SNN / ANN (%)", "bits", "SNN integer (µJ)", "ANN integer (µJ)", "images/s", "ANN images/s",
    )  # fmt: skip
    return Table("cost", "Cost of one inference", columns, tuple(_cost_row(run) for run in runs))


def neurobench_table(runs: Sequence[Run]) -> Table:
    """The metrics of NeuroBench, of the runs that have them."""
    columns = (
        "run", "images × T", "footprint (kB)", "connection sparsity (%)", "activation sparsity (%)",
        "effective ACs (M)", "effective MACs (M)", "MACs, input once (M)", "dense (M)", "updates (M)",
    )  # fmt: skip
    rows = []
    for run in runs:
        if (found := run.data.get("neurobench")) is None:
            continue
        operations = found["SynapticOperations"]
        counts = (
            operations["Effective_ACs"], operations["Effective_MACs"], found["Effective_MACs_once"],
            operations["Dense"], found["MembraneUpdates"],
        )  # fmt: skip
        rows.append(
            (
                run.label,
                f"{found['images']} × {found['steps']}",
                f"{found['Footprint'] / 1000:,.1f}",
                f"{100 * found['ConnectionSparsity']:.2f}",
                f"{100 * found['ActivationSparsity']:.2f}",
                *(f"{count / 1e6:,.3f}" for count in counts),
            )
        )
    return Table("neurobench", "NeuroBench metrics of one inference", columns, tuple(rows))


def _cost_row(run: Run) -> tuple[str, ...]:
    step, macs = run.reading_step, run.ann["macs"]
    bits = energy.equivalent_bits(step)
    return (
        run.label,
        str(run.target_step) if run.target_step else MISSING,
        str(step),
        f"{run.spikes_per_neuron(step):.3f}",
        _microjoules(energy.spiking(run.data, step).total),
        _microjoules(energy.analog(macs)),
        f"{100 * run.energy_ratio:.1f}" if run.energy_ratio is not None else MISSING,
        str(bits),
        _microjoules(energy.spiking_integer(run.data, step)),
        _microjoules(energy.analog_quantised(macs, bits)),
        _rate(run.data["images_per_second"]),
        _rate(run.ann["images_per_second"]),
    )


def layer_table(run: Run, slug: str) -> Table:
    columns = ("layer", "neurons", "θ", "θ min", "θ max", "Ω", f"K at {run.steps}", "spikes per neuron",
               "saturated (%)", "dead (%)", "v < 0 (%)")  # fmt: skip
    rows = [
        (
            layer["name"],
            str(layer["neurons"]),
            *(f"{layer[key]:.4g}" for key in ("threshold", "threshold_min", "threshold_max")),
            _figure(layer["omega"]),
            _figure(layer["k"][-1]),
            f"{sum(layer['spikes']) / layer['neurons']:.3f}",
            *(f"{100 * layer[key]:.2f}" for key in ("saturated", "dead", "negative")),
        )
        for layer in run.data["layers"]
    ]
    return Table(slug, f"Layers of {run.label}, after {run.steps} steps", columns, tuple(rows))


def diagnosis_table(record: Record, slug: str) -> Table:
    keys = ("slope", "correlation", "k", "omega", "saturated", "dead", "negative", "first_spike", "rest")
    columns = (
        "layer",
        "slope",
        "correlation",
        "K",
        "Ω",
        "saturated (%)",
        "dead (%)",
        "v < 0 (%)",
        "first spike",
        "at rest (θ)",
    )
    rows = []
    for layer in record["diagnosis"]["layers"]:
        cells = [layer.get(key) for key in keys]
        shares = [None if cell is None else 100 * cell for cell in cells[4:7]]
        rows.append((layer["name"], *(_figure(cell) for cell in [*cells[:4], *shares, *cells[7:]])))
    return Table(slug, f"Diagnosis of {record['diagnosis']['run']}", columns, tuple(rows))


def all_tables(records: Sequence[Record]) -> list[Table]:
    """Every table these records can fill, in the order of the report."""
    runs = measures.runs_of(records)
    tables = [accuracy_table(runs), loss_table(runs), cost_table(runs)] if runs else []
    tables += [layer_table(run, f"layers-{i}") for i, run in enumerate(runs) if run.data["layers"]]
    diagnosed = [record for record in records if record.get("diagnosis")]
    return tables + [diagnosis_table(record, f"diagnosis-{i}") for i, record in enumerate(diagnosed)]


def save_tables(
    records: Sequence[Record], folder: str | os.PathLike[str], formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every table in every format."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsageError(f"Saving tables: the format {unknown[0]!r} is unknown. Choose from {', '.join(FORMATS)}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in all_tables(records):
        for name in formats:
            path = folder / f"{table.slug}.{name}"
            path.write_text(table.csv() if name == "csv" else table.latex(), encoding="utf-8")
            written.append(path)
    return written


def _step_columns(first: str | None, steps: Sequence[int]) -> tuple[str, ...]:
    return ("run", *([first] if first else []), *(f"T = {t}" for t in steps))


def _at(run: Run, step: int, cell: Callable[[Run, int], str]) -> str:
    return cell(run, step) if step <= run.steps else MISSING


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _microjoules(picojoules: float) -> str:
    return f"{picojoules / 1e6:.4g}"


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2f}"


def _figure(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"
