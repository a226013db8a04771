"""The numbers that matter, derived from records: losses, steps to the target, spikes, speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratenorm.records import Record
from ratenorm.report import energy

TARGET_LOSS = 0.01  # "within one point of the ANN" is the target everywhere in the report
ROUNDING = 1e-6  # accuracies are rounded to seven digits on disk: exactly one point must not fail on the eighth
K_SETTLED = 0.1  # a layer counts as settled once K stays below this: 10 % of the squared rates still wrong


@dataclass(frozen=True)
class Run:
    """One simulated network, with what the report needs of the record around it."""

    label: str  # unique in this report
    data: Mapping[str, Any]  # the run as it stands in the record
    ann: Mapping[str, Any]
    images: int
    target: float | None = None  # accuracy to reach; None: one point below the ANN
    data_name: str = ""  # which set the images are of

    @property
    def steps(self) -> int:
        return int(self.data["steps"])

    @property
    def accuracy(self) -> Sequence[float]:
        accuracy: Sequence[float] = self.data["accuracy"]
        return accuracy

    def loss_at(self, step: int) -> float:
        """Points lost against the ANN when answering at `step`, as a fraction; negative is a gain."""
        return float(self.ann["accuracy"] - self.accuracy[step - 1])

    @property
    def target_step(self) -> int | None:
        """The first step from which the accuracy stays within one point of the ANN (or at `target`), or None."""
        if self.target is not None:
            return first_lasting([a >= self.target - ROUNDING for a in self.accuracy])
        return first_lasting([loss_within_target(self.ann["accuracy"], a) for a in self.accuracy])

    @property
    def reading_step(self) -> int:
        """Where energy and spikes are read off: the target step, or the last step where there is none."""
        return self.target_step or self.steps

    def spikes_per_neuron(self, step: int) -> float:
        return float(sum(self.data["spikes"][:step]) / self.data["neurons"])

    @property
    def energy_ratio(self) -> float | None:
        """Energy at the reading step over the ANN's, both in 32-bit float."""
        rival = energy.analog(self.ann["macs"])
        return energy.spiking(self.data, self.reading_step).total / rival if rival else None

    @property
    def slowdown(self) -> float | None:
        """How many times slower the simulation of all T steps runs than the ANN, where both were timed."""
        ours, theirs = self.data["images_per_second"], self.ann["images_per_second"]
        return theirs / ours if ours and theirs else None


def loss_within_target(ann_accuracy: float, accuracy: float) -> bool:
    return ann_accuracy - accuracy <= TARGET_LOSS + ROUNDING


def first_lasting(holds: Sequence[bool]) -> int | None:
    """The first step (from 1) at which `holds` is true and stays true to the end."""
    step = None
    for t in range(len(holds), 0, -1):
        if not holds[t - 1]:
            break
        step = t
    return step


def runs_of(records: Sequence[Record]) -> list[Run]:
    """All runs of all records, with labels that tell them apart."""
    pairs = [(record, run) for record in records for run in record["runs"]]
    names = [run["name"] for _, run in pairs]
    labels: list[str] = []
    for record, run in pairs:
        label = run["name"]
        if names.count(label) > 1:
            label = f"{label}, {run['network']} on {record['data']['name']}"
        repeated = sum(other == label or other.startswith(f"{label} (") for other in labels)
        labels.append(f"{label} ({repeated + 1})" if repeated else label)
    return [_run(label, record, run) for label, (record, run) in zip(labels, pairs, strict=True)]


def _run(label: str, record: Record, run: Mapping[str, Any]) -> Run:
    """A run may be of a part of the images, and have an ANN of its own to be compared with, on just these."""
    ann = dict(record["ann"])
    if "source_accuracy" in run:
        ann |= {"name": f"{ann['name']} {run.get('source', '')}".rstrip(), "accuracy": run["source_accuracy"]}
    if "images" in run:
        label = f"{label}, first {run['images']:,} images"
    return Run(label, run, ann, run.get("images", record["data"]["images"]), data_name=record["data"]["name"])


def by_network(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Runs that share the names of their layers, grouped in order, so that layers can be compared."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        key = (run.data["network"], *(layer["name"] for layer in run.data["layers"]))
        groups.setdefault(key, []).append(run)
    return [(key[0], members) for key, members in groups.items() if len(key) > 1]


def comparable(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs on the same number of images of the same set, in order: only these are compared with each other."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.data_name, run.images), []).append(run)
    return list(groups.values())


def leader(runs: Sequence[Run]) -> Run | None:
    """The run the summary opens with: soonest within a point of its ANN, else most accurate at the end."""
    if not runs:
        return None
    return min(
        runs,
        key=lambda run: (
            run.target_step or float("inf"),
            energy.spiking(run.data, run.reading_step).total if run.target_step else -run.accuracy[-1],
        ),
    )


MOST_CURVES = 10


def in_plots(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """At most ten runs to draw together, and the rest. The soonest of every group of comparable runs come first."""
    if len(runs) <= MOST_CURVES:
        return list(runs), []
    queues = [sorted(group, key=_arrival) for group in comparable(runs)]
    chosen: list[Run] = []
    while len(chosen) < MOST_CURVES:
        for queue in queues:
            if queue and len(chosen) < MOST_CURVES:
                chosen.append(queue.pop(0))
    return [run for run in runs if run in chosen], [run for run in runs if run not in chosen]


def _arrival(run: Run) -> tuple[float, float]:
    return run.target_step or float("inf"), -run.accuracy[-1]


def shown_steps(runs: Sequence[Run]) -> list[int]:
    """Powers of two up to the longest run, and its last step: the columns of every accuracy table."""
    longest = max((run.steps for run in runs), default=0)
    steps = [2**i for i in range(longest.bit_length()) if 2**i <= longest]
    return sorted({*steps, longest} - {0})


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (steps, accuracy) points that no other beats in both, by rising steps."""
    front: list[int] = []
    best = -1.0
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[i][1] > best:
            front.append(i)
            best = points[i][1]
    return front


def layer_settled(k: Sequence[float | None]) -> int | None:
    """The first step from which a layer's K stays below `K_SETTLED`."""
    return first_lasting([value is not None and value < K_SETTLED for value in k])
