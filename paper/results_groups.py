"""What the results page shows in one row: the records of one network on one data set at one scale, a seed each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paper.presets import ALL, BASELINES, BY_NAME
from ratenorm.workflows.record import scale_of_runs, unfinished

PART = "†"  # behind figures of a part of the images
REDUCED = "reduced"  # how the scale of a short run begins

Record = dict[str, Any]
Run = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The records of one network on one data set at one scale: one for each seed."""

    network: str
    data: str
    variant: str  # what sets it apart from another training of the same network
    scale: str  # of the runs there are, whether or not others are still missing
    records: tuple[Record, ...]

    @property
    def seeds(self) -> str:
        return ", ".join(map(str, self.numbers)) + (" (one seed)" if len(self.records) == 1 else "")

    @property
    def notes(self) -> list[str]:
        """How the network and its training depart from the paper's, as its preset says, and what was known of the test
        images when it was written: that is told of the preset as it is now, whatever an old record has."""
        preset = self.records[0]["config"].get("preset", {})
        known = BY_NAME.get(preset.get("name", ""))
        told = [*(preset.get(key) for key in ("note", "rnl_note")), known.seen if known else ""]
        return [f"{text}." for text in told if text]

    @property
    def short(self) -> bool:
        """Proven by a short run: figures near chance, to be shown apart."""
        return self.scale.startswith(REDUCED)

    @property
    def still_open(self) -> str:
        """Of which seeds how many runs are through, where some are not."""
        alike: dict[str, list[str]] = {}
        for record in self.records:
            if part := unfinished(record):
                alike.setdefault(part, []).append(str(record["seed"]))
        return "; ".join(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {part}" for part, seeds in alike.items())

    @property
    def title(self) -> str:
        return f"{self.network} on {self.data}{', ' * bool(self.variant)}{self.variant}"

    @property
    def who(self) -> str:
        return f"{self.network}{', ' * bool(self.variant)}{self.variant} | {self.data} | {self.seeds}"

    @property
    def steps(self) -> int:
        """Of the longest runs."""
        return int(max((run["steps"] for r in self.records for run in r["runs"]), default=0))

    def runs(self, name: str) -> list[Run]:
        """The runs of that name, one for each seed that has it."""
        return [run for r in self.records for run in r["runs"] if run["name"] == name]

    def having(self, *names: str) -> Group:
        """The seeds that have all these runs already."""
        found = [r for r in self.records if {run["name"] for run in r["runs"]}.issuperset(names)]
        return replace(self, records=tuple(found))

    def only(self, part: Group) -> str:
        """Which seeds a figure is of, where it is not of all."""
        return "" if len(part.records) == len(self.records) else f" (seed {', '.join(map(str, part.numbers))})"

    @property
    def numbers(self) -> list[int]:
        return [int(r["seed"]) for r in self.records]

    def cut(self, *names: str) -> str:
        """A sign behind figures of which some are of a part of the images."""
        return f" {PART}" if any("images" in run for name in names for run in self.runs(name)) else ""

    def anns(self, name: str) -> list[float]:
        """The accuracy of the ANN that a run of that name was converted from, for each seed."""
        return [ann_of(r, name) for r in self.records]


def grouped(found: Sequence[Record]) -> list[Group]:
    """In the order of the presets; what is none of them comes last."""
    place = {(preset.model, preset.data, preset.variant): i for i, preset in enumerate(ALL)}
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in sorted(found, key=lambda r: int(r["seed"])):
        variant = str(record["config"].get("preset", {}).get("variant", ""))
        key = (record["ann"]["name"], record["data"]["name"], variant, scale_of_runs(record))
        groups.setdefault(key, []).append(record)
    in_order = sorted(groups.items(), key=lambda item: place.get(item[0][:3], len(place)))
    return [Group(*key, tuple(members)) for key, members in in_order]


def ann_of(record: Record, name: str) -> float:
    """The accuracy that a run's losses are taken against, on the images of the run."""
    run: Run = next((run for run in record["runs"] if run["name"] == name), {})
    if "images" in run:
        return float(run["source_accuracy"])
    from_relu = name in BASELINES.values()
    return float(record["config"]["relu_ann"] if from_relu else record["ann"]["accuracy"])
