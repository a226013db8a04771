"""The headline of the results page: steps and energy to a target, ours against Max Norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from paper.published import HEADLINE
from paper.results_groups import Group, Record, Run, ann_of
from paper.results_tables import HALF, NEAR, head_of, mean_of
from ratenorm.core.energy import steps_to


def headline(groups: Sequence[Group]) -> list[str]:
    lines = [
        "## Headline: steps and energy (spikes) to the target, RNL + RIL against Max Norm",
        "",
        "Counted to the step from which on the accuracy stays at the target. `>` and `<`: Max Norm was not there at",
        "the last step simulated, so the figure is a bound. Both start from 0 as in the paper; where ours starts from",
        "θ/2 (Bu et al. 2022: beyond the paper), Max Norm still starts from 0.",
        "",
        *head_of(
            "network", "data", "seeds", "target", "ours", "steps", "Max Norm", "speed-up", "energy ratio", "scale"
        ),
        f"| *paper: vgg16* | *cifar10* | - | *90 %* | *RNL + RIL* | *{HEADLINE['steps']:.0f}* | "
        f"*{HEADLINE['max_norm_steps']:.0f}* | *{HEADLINE['speed_up']}* | *{HEADLINE['energy_ratio']}* | - |",
    ]
    for group in groups:
        targets: list[tuple[str, float | None]] = [("90 %", 0.9)] if group.data == "cifar10" else []
        for name in ("RNL + RIL", f"RNL + RIL{HALF}"):
            both = _on_the_same_images(group.having(name, "Max Norm"), name)
            for text, target in [*targets, ("own ANN - 1 point", None)] if both.records else []:
                cells = _raced([race(record, target, name) for record in both.records])
                who = f"| {both.who} | {text} | {name}{both.cut(name, 'Max Norm')} | "
                lines.append(who + " | ".join(cells) + f" | {group.scale} |")
    return [*lines, ""]


def _on_the_same_images(group: Group, name: str) -> Group:
    """The seeds of which both runs are of as many images: the first ones are easier than the others."""
    alike = [r for r in group.records if len({run.get("images") for run in _pair(r, name)}) == 1]
    return replace(group, records=tuple(alike))


def _pair(record: Record, name: str) -> list[Run]:
    """Our run of that name, and Max Norm's."""
    runs = {run["name"]: run for run in record["runs"]}
    return [runs[one] for one in (name, "Max Norm") if one in runs]


@dataclass(frozen=True)
class Race:
    """Steps to a target and the spikes up to there, ours and Max Norm's; `steps` None: not within the simulation."""

    ours: int | None
    theirs: int | None
    our_spikes: float
    their_spikes: float  # up to the target, or all that were simulated
    simulated: int

    @property
    def energy(self) -> float | None:
        """Our spikes for one of theirs; None where they had none, which happens at tiny scales."""
        return self.our_spikes / self.their_spikes if self.their_spikes else None


def race(record: Record, target: float | None, name: str = "RNL + RIL") -> Race | None:
    """A run of ours against Max Norm to a target; None: each to one point below its own ANN."""
    if len(pair := _pair(record, name)) < 2:
        return None
    ours, theirs = pair
    a = steps_to(ours["accuracy"], ann_of(record, name) - NEAR if target is None else target)
    b = steps_to(theirs["accuracy"], ann_of(record, "Max Norm") - NEAR if target is None else target)
    return Race(a, b, sum(ours["spikes"][:a]), sum(theirs["spikes"][:b]), theirs["steps"])


def _raced(found: Sequence[Race | None]) -> list[str]:
    """Cells: our steps, theirs, speed-up, energy ratio."""
    known = [one for one in found if one is not None]
    if len(known) < len(found) or any(one.ours is None for one in known):
        return ["-", mean_of([one.theirs for one in known]), "-", "-"]
    late = [one for one in known if one.theirs is None]
    theirs = [one.simulated if one.theirs is None else one.theirs for one in known]
    speed = [b / (one.ours or 1) for b, one in zip(theirs, known, strict=True)]
    energy = [one.energy for one in known]
    ours = mean_of([one.ours for one in known])
    if not late:
        return [ours, mean_of(theirs), mean_of(speed, 2), mean_of(energy, 3)]
    there = f" ({len(known) - len(late)} of {len(known)} seeds there)" if len(known) > 1 else ""
    less = "-" if None in energy else f"< {fmean(filter(None, energy)):.3f}"  # a bound has no spread
    return [ours, f"> {fmean(theirs):.0f}{there}", f"> {fmean(speed):.2f}", less]
