"""The tables of the results page: records of one network with several seeds become one row."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from paper.presets import BASELINES, IN_TABLE_2, OUR_WEIGHTS
from paper.published import TABLE_1, TABLE_2, TABLE_2_STEPS
from paper.results_groups import Group
from ratenorm.core.energy import steps_to

STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
JUDGED_AT = 256  # the T at which a conversion loss is read off
OURS = ("RNL", "RNL + RIL")
HALF = ", v(0) = θ/2"  # behind the name of a run that starts there
DEPARTURES = "Not as in the paper"
NEAR = 0.01 + 1e-6  # one point; accuracies in a record are rounded to seven digits


def percent(values: Sequence[float], sign: str = "", digits: int = 2) -> str:
    """A figure in per cent or points: mean and, over several seeds, standard deviation."""
    shown = f"{100 * statistics.fmean(values):{sign}z.{digits}f}"
    return shown if len(values) == 1 else f"{shown} ± {100 * statistics.stdev(values):.{digits}f}"


def _paper(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{100 * value:{sign}.2f}"


def anchor(heading: str) -> str:
    """Where a link to a heading leads, as GitHub names it."""
    return heading.lower().replace(" ", "-")


def head_of(*names: str) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def table_1(groups: Sequence[Group]) -> list[str]:
    names = ("network", "data", "seeds", "ANN", "SNN (RNL), best over T", "loss", f"loss at T = {JUDGED_AT}")
    lines = ["## Table 1: best accuracy and conversion loss", ""]
    lines += head_of(*names, "the same from v(0) = θ/2", "*paper: SNN*", "*paper: loss*", "ours - paper", "scale")
    for group in groups:
        done = group.having("RNL")
        best = [max(run["accuracy"]) for run in done.runs("RNL")]
        theirs = TABLE_1.get((group.data, group.network), {})
        paper = theirs.get("snn_accuracy")
        comparable = best and not done.cut("RNL") and not group.short
        cells = [
            group.who,
            percent([float(r["ann"]["accuracy"]) for r in group.records]),
            percent(best) + group.only(done) + done.cut("RNL") if best else "-",
            percent([ann - b for ann, b in zip(done.anns("RNL"), best, strict=True)], "+") + done.cut("RNL")
            if best
            else "-",
            _loss_at_end(group, "RNL"),
            _loss_at_end(group, f"RNL{HALF}"),
            f"*{_paper(paper)}*",
            f"*{_paper(theirs.get('conversion_loss'), '+')}*",
            f"{100 * (statistics.fmean(best) - paper):+z.2f}" if paper is not None and comparable else "-",
            group.scale,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def departures(groups: Sequence[Group]) -> list[str]:
    """How networks and trainings differ from the paper's."""
    notes = [f"- {group.title}: {' '.join(group.notes)}" for group in groups if group.notes]
    return [f"## {DEPARTURES}", "", *notes, ""] if notes else []


def _loss_at_end(group: Group, name: str) -> str:
    """What runs of that name have lost at the T where losses are read off, or at their last where that comes sooner."""
    done = group.having(name)
    if not (runs := done.runs(name)):
        return "-"
    last = min(JUDGED_AT, *(run["steps"] for run in runs))
    lost = percent([ann - run["accuracy"][last - 1] for ann, run in zip(done.anns(name), runs, strict=True)], "+")
    return (lost if last == JUDGED_AT else f"{lost} (T = {last})") + group.only(done) + done.cut(name)


def other_methods(groups: Sequence[Group]) -> list[str]:
    """Table 1 compares with other people's networks; here their methods run on the same one."""
    lines = [
        "## Table 1, the other methods run by us on the same networks",
        "",
        "Best accuracy over T from the ReLU network of the same recipe, and in brackets the loss against it. SpikeNorm "
        "and RMP take the largest current of a single step, which here, where layers have biases and images are "
        "constant currents, is up to many times the largest activation that Max Norm takes (`threshold` in the "
        "records). Sengupta et al. ran networks without biases on Poisson input.",
        "",
        *head_of("network", "data", "seeds", *BASELINES.values(), "scale"),
    ]
    for group in groups:
        cells = [group.who]
        for name in BASELINES.values():
            done = group.having(name)
            best = [max(run["accuracy"]) for run in done.runs(name)]
            losses = [ann - b for ann, b in zip(done.anns(name), best, strict=True)]
            shown = f"{percent(best)} ({percent(losses, '+')}){group.only(done)}{done.cut(name)}" if best else "-"
            cells.append(shown)
        lines.append("| " + " | ".join([*cells, group.scale]) + " |")
    return [*lines, ""]


def in_table_2(group: Group) -> bool:
    return any(network == group.network for network, _ in TABLE_2) and group.data == "cifar10"


def accuracy_at_t(group: Group) -> list[str]:
    """Table 2 for one network: as in the paper, then its methods from our weights, then what RNL + RIL loses."""
    in_paper = in_table_2(group)
    first = [*(f"{name}{start}" for start in ("", HALF) for name in OURS), *BASELINES.values()]
    second = [*OURS, *(f"{name}{OUR_WEIGHTS}" for name in IN_TABLE_2)]
    lines = [
        f"## {'Table 2' if in_paper else 'Accuracy at T'}: {group.title}",
        "",
        f"Scale: {group.scale}. Seeds: {group.seeds}. ANN with Rate Norm "
        f"{percent([r['ann']['accuracy'] for r in group.records])}, with ReLU "
        f"{percent([r['config']['relu_ann'] for r in group.records])}."
        + (f" [{DEPARTURES}](#{anchor(DEPARTURES)}): its layers and its training." if group.notes else ""),
        "",
        "As in the paper: the baselines start from the ReLU network of the same recipe.",
        "",
        *_rows(group, first, in_paper),
        "",
        *_alike(group, first),
        "All from our weights: the baselines start from the Rate-Norm network at p = 1. What they see has passed its "
        "ceilings: where the calibration images reach these, Max Norm comes to the same thresholds as RNL.",
        "",
        *_rows(group, second, False),
        "",
        *_alike(group, second),
    ]
    return [*lines, *(_losses(group) if in_paper else [])]


def _columns(group: Group) -> list[int]:
    return [t for t in STEPS if t <= group.steps]


def _rows(group: Group, names: Sequence[str], with_paper: bool) -> list[str]:
    steps = _columns(group)
    lines = head_of("method", *map(str, steps), "best", "steps to within 1 point of its ANN")
    for name in names:
        done = group.having(name)
        if not (runs := done.runs(name)):
            continue
        last = min(run["steps"] for run in runs)
        cells = [percent([run["accuracy"][t - 1] for run in runs]) if t <= last else "-" for t in steps]
        best = percent([max(run["accuracy"]) for run in runs])
        pairs = zip(done.anns(name), runs, strict=True)
        arrived = mean_of([steps_to(run["accuracy"], ann - NEAR) for ann, run in pairs])
        lines.append("| " + " | ".join([name + group.only(done) + done.cut(name), *cells, best, arrived]) + " |")
        theirs = TABLE_2.get((group.network, name)) if with_paper else None
        if theirs is not None:
            by_step = dict(zip(TABLE_2_STEPS, theirs, strict=True))
            shown = [f"*{_paper(by_step.get(t))}*" for t in steps]
            lines.append("| " + " | ".join([f"*paper: {name}*", *shown, "-", "-"]) + " |")
    return lines


def _alike(group: Group, names: Sequence[str]) -> list[str]:
    """Which methods ended in one spiking network: then their rows are one run, and no comparison."""
    by_run: dict[str, list[str]] = {}
    for name in names:
        if runs := group.runs(name):
            told = [[run["v0"], run["accuracy"], run["spikes"]] for run in runs]
            by_run.setdefault(json.dumps(told), []).append(name)
    same = "; ".join(" = ".join(names) for names in by_run.values() if len(names) > 1)
    return [f"The same spiking network: {same}.", ""] if same else []


def _losses(group: Group) -> list[str]:
    """What RNL + RIL loses against its own ANN at each T, beside the paper's."""
    name = "RNL + RIL"
    theirs, table_1_row = TABLE_2.get((group.network, name)), TABLE_1.get((group.data, group.network))
    group = group.having(name)
    runs = group.runs(name)
    if not runs or theirs is None or table_1_row is None:
        return []
    steps = [t for t in TABLE_2_STEPS if all(t <= run["steps"] for run in runs)]
    anns = group.anns(name)
    their_ann = table_1_row["snn_accuracy"] + table_1_row["conversion_loss"]
    at = dict(zip(TABLE_2_STEPS, theirs, strict=True))
    ours = {t: [ann - run["accuracy"][t - 1] for ann, run in zip(anns, runs, strict=True)] for t in steps}
    paper = {t: their_ann - (at[t] or 0.0) for t in steps}
    difference = [f"{100 * (statistics.fmean(ours[t]) - paper[t]):+z.2f}" for t in steps]
    return [
        f"{name}{group.cut(name)}: loss against its own ANN ({percent(anns)}; the paper's {100 * their_ann:.2f}).",
        "",
        *head_of("loss at T", *map(str, steps)),
        "| ours | " + " | ".join(percent(ours[t], "+") for t in steps) + " |",
        "| *paper* | " + " | ".join(f"*{100 * paper[t]:+.2f}*" for t in steps) + " |",
        "| ours - paper | " + " | ".join(difference) + " |",
        "",
    ]


def mean_of(values: Sequence[float | None], digits: int = 0) -> str:
    """Mean and spread over the seeds, or a dash with the number of seeds that have the figure."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return f"- ({len(known)} of {len(values)} seeds)" if known else "-"
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    digits = max(digits, 1)
    return f"{statistics.fmean(known):.{digits}f} ± {statistics.stdev(known):.{digits}f}"
