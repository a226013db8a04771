"""The report in words: what a reader should know who reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratenorm.report import energy, measures
from ratenorm.report.measures import Run
from ratenorm.report.words import duration, joules, percent, points, several, times


@dataclass(frozen=True)
class Tile:
    """One number worth setting large, and what it is."""

    figure: str
    meaning: str


def headline(runs: Sequence[Run]) -> str:
    """One sentence about the best run; one for each set of images where runs are of several."""
    groups = measures.comparable(runs)
    if not groups:
        return "These records hold no simulated network yet."
    if len(groups) == 1:
        return _headline(groups[0])
    shown = groups[:MOST_HEADLINES]
    parts = [f"{group[0].data_name}, {group[0].images:,} images: {_headline(group)}" for group in shown]
    if len(groups) > len(shown):
        parts.append(f"{len(groups) - len(shown)} more sets of images are in the table below.")
    return " ".join(parts)


MOST_HEADLINES = 3


def _headline(runs: Sequence[Run]) -> str:
    best = measures.leader(runs)
    assert best is not None
    ann = percent(best.ann["accuracy"], 2)
    if best.target_step is None:
        return (
            f"No run came within one point of its ANN. The closest, “{best.label}”, ends at "
            f"{percent(best.accuracy[-1], 2)} after {several(best.steps, 'time-step')}; its ANN has {ann}."
        )
    ratio = best.energy_ratio
    energy_part = f" and {percent(ratio)} of the ANN’s energy" if ratio is not None else ""
    return (
        f"“{best.label}” comes within one point of its ANN ({ann}) after "
        f"{several(best.target_step, 'time-step')}, "
        f"with {best.spikes_per_neuron(best.target_step):.2f} spikes per neuron{energy_part}."
    )


def tiles(runs: Sequence[Run]) -> list[Tile]:
    """Four numbers of the best run, where all runs are of the same images."""
    groups = measures.comparable(runs)
    best = measures.leader(groups[0]) if len(groups) == 1 else None
    if best is None:
        return []
    step = best.reading_step
    where = f"at step {step}"
    end = best.loss_at(best.steps)
    found = [
        Tile(str(best.target_step) if best.target_step else "–", "steps to within 1 point of the ANN"),
        Tile(f"{abs(100 * end):.2f}", f"points {'gained' if end < 0 else 'lost'} at step {best.steps}"),
        Tile(f"{best.spikes_per_neuron(step):.2f}", f"spikes per neuron {where}"),
    ]
    if best.energy_ratio is not None:
        found.append(Tile(percent(best.energy_ratio), f"of the ANN’s energy {where}"))
    return found


def background(run: Run) -> str:
    """What else is worth knowing about a run: integers, the analog network behind it, speed."""
    sentences = [_integers(run)]
    if run.data["ann_accuracy"] != run.ann["accuracy"]:
        sentences.append(
            f"The analog network it converges to has {percent(run.data['ann_accuracy'], 2)}, "
            f"the one before conversion {percent(run.ann['accuracy'], 2)}."
        )
    sentences.append(_speed(run))
    return " ".join(sentence for sentence in sentences if sentence)


def target(run: Run) -> str:
    """When a run comes within one point of its ANN, at which cost, and where it ends."""
    step = run.reading_step
    used = energy.spiking(run.data, step).total
    share = f", {percent(run.energy_ratio)} of the ANN’s" if run.energy_ratio is not None else ""
    cost = f"{joules(used)} an image{share}, and {run.spikes_per_neuron(step):.2f} spikes per neuron"
    if run.target_step:
        end = f"At step {run.steps}: {points(run.loss_at(run.steps))}."
        return f"Within one point of the ANN from step {step} on, at {cost}. {end}"
    end = points(run.loss_at(run.steps))
    return f"Not within one point of the ANN in {several(step, 'step')} ({end}); all of them cost {cost}."


def _integers(run: Run) -> str:
    step, macs = run.reading_step, run.ann["macs"]
    if not macs:
        return ""
    bits = energy.equivalent_bits(step)
    ours, theirs = energy.spiking_integer(run.data, step), energy.analog_quantised(macs, bits)
    rest = f"{percent(ours / theirs)} of" if ours <= theirs else f"{times(ours / theirs)}"
    rival = f"an ANN of {several(bits, 'bit')}"
    return f"In integers it would use {joules(ours)}, {rest} what {rival} uses ({joules(theirs)})."


def _speed(run: Run) -> str:
    ours = run.data["images_per_second"]
    if ours is None:
        return ""
    sentence = f"The simulation of all {several(run.steps, 'step')} runs at {ours:,.0f} images a second"
    if run.slowdown is None:
        return sentence + "."
    if run.slowdown >= 1:
        return f"{sentence}, {times(run.slowdown)} slower than the ANN."
    return f"{sentence}, {times(1 / run.slowdown)} faster than the ANN."


def wall_time(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)
