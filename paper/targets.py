"""What `python -m paper` can be asked for by name: networks, and the paper's tables, figures and headline.

A table or figure needs networks; what is missing of them is trained, so a plan says beforehand what that will cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.figures import PICTURES, RUNS_SHOWN, Source, make_figure
from paper.networks import Networks
from paper.presets import ALL, BASELINES, BY_NAME, IN_TABLE_2, Preset, named
from paper.published import HEADLINE, TABLE_1, TABLE_2, TABLE_2_STEPS
from paper.reproduce import reproduce
from paper.results_page import write_page
from paper.scale import Scale
from paper.spiking_runs import jobs
from ratenorm import records
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.io.run_folder import METRICS
from ratenorm.workflows.record import unfinished

FIGURES = "figures"  # the folder of the figures under results/
TRAINED, IN_ZOO = "trained", "in the zoo"
NOTHING = "nothing"  # no run goes on to all images
VGG = "vgg16-cifar10"  # the network of the paper's figures


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper."""

    name: str
    shows: str
    networks: tuple[str, ...] = ()  # presets
    one_seed: bool = False  # a figure is of one network, a table of all its seeds


TARGETS: tuple[Target, ...] = (
    Target("table1", "best accuracy and conversion loss", tuple(p.name for p in ALL if (p.data, p.model) in TABLE_1)),
    Target(
        "table2",
        "accuracy at T, all methods, from the ReLU network and from our weights",
        tuple(p.name for p in ALL if p.data == "cifar10" and any(p.model == network for network, _ in TABLE_2)),
    ),
    Target("headline", "steps and energy to 90 %, RNL + RIL against Max Norm", (VGG,), True),
    Target("fig2", "response of the Rate Norm layer"),
    Target("fig3", "firing rates of a toy network under constant and Poisson coding"),
    Target("fig4", "K over time of every layer: Max Norm, and thresholds x 0.8", (VGG,), True),
    Target("fig6", "K, accuracy over time, Omega and thresholds", (VGG,), True),
    Target("fig7", "power over time, energy to 90 %, ratio of energy and speed-up", (VGG,), True),
)
BY_TARGET = {target.name: target for target in TARGETS}


@dataclass(frozen=True)
class Shown:
    """A figure (or the headline) and the network it shows."""

    name: str
    preset: Preset | None
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """Networks to reproduce, each with its seeds, in the order of the presets; and what is made from one network."""

    networks: tuple[tuple[Preset, tuple[int, ...]], ...]
    shown: tuple[Shown, ...]


def plan(words: Sequence[str], network: str | None = None, seeds: Sequence[int] | None = None) -> Plan:
    """What the words ask for: targets, presets or parts of their names; nothing: everything."""
    if seeds is not None and (not seeds or min(seeds) < 0):
        given = f"{min(seeds)} is below 0" if seeds else "no seed is named"
        raise UsageError(f"Reproducing with --seeds: {given}. Give one or more whole numbers from 0 on, such as 0 1 2.")
    seeds = None if seeds is None else tuple(dict.fromkeys(seeds))
    other = None if network is None else named(network)  # a wrong name is told whether or not it would be used
    wanted: set[str] = set()
    shown: dict[str, Shown] = {}
    for word in words or [*BY_NAME, *BY_TARGET]:
        target = BY_TARGET.get(word)
        if target is None:
            wanted |= _presets_like(word)
        elif not target.one_seed and target.networks:
            wanted |= set(target.networks)
        else:
            preset = (other or named(target.networks[0])) if target.networks else None
            shown[word] = Shown(word, preset, 0 if preset is None else (seeds or preset.seeds)[0])
    chosen = tuple((preset, tuple(seeds or preset.seeds)) for preset in ALL if preset.name in wanted)
    return Plan(chosen, tuple(sorted(shown.values(), key=lambda one: one.preset is not None)))


def _presets_like(word: str) -> set[str]:
    if word in BY_NAME:
        return {word}  # and not vgg16-cifar100 with vgg16-cifar10
    if word and (found := {name for name in BY_NAME if word in name}):
        return found
    raise UsageError(
        f"Reproducing: no network, table or figure is called like {word!r}. There are: "
        f"{', '.join([*BY_NAME, *BY_TARGET])}."
    )


def runs_named(words: Sequence[str] | None) -> tuple[str, ...] | None:
    """The runs of those names, which are checked; None: all. The word `nothing` by itself stands for no run."""
    if words is None or list(words) == [NOTHING]:
        return None if words is None else ()
    known = {job.name for job in jobs(1)}
    unknown = [word for word in words if word not in known]
    if unknown or not words:  # without a name it would not be clear whether all runs are meant or none
        wrong = f"no run is called {unknown[0]!r}" if unknown else "no run is named"
        there = ", ".join(f'"{name}"' for name in sorted(known))  # names have commas of their own
        raise UsageError(f"Reproducing with --whole: {wrong}. There are: {there}; or {NOTHING} by itself.")
    return tuple(words)


@dataclass(frozen=True)
class Folders:
    """Where trainings live, where records go, where data sets lie, and at which scale."""

    work: Path
    results: Path
    root: str | None
    scale: Scale
    zoo: Path | None = None  # networks that need not be trained again
    whole: tuple[str, ...] | None = None  # runs that go on to all test images; None: all of them

    def record(self, preset: Preset, seed: int) -> Path:
        return self.results / f"{self.networks(preset, seed).label}.json"

    def networks(self, preset: Preset, seed: int) -> Networks:
        return Networks(preset, seed, self.work, self.scale, self.root, self.zoo)


def state(preset: Preset, seed: int, at: Folders) -> str:
    """How far the trainings of a network are, in words."""
    own = at.networks(preset, seed)
    for part, words in ((own.ril, TRAINED), (own.rnl, "stage 2 open"), (own.relu, "ReLU network trained")):
        if part.exists():
            return words
    if not own.relu.parent.is_dir():
        return IN_ZOO if own.in_zoo else "not begun"
    metrics = own.relu.with_name(METRICS)
    done = len(metrics.read_bytes().splitlines()) if metrics.exists() else 0
    return f"epoch {done + 1} of {own.preset.relu.epochs}"


def listing(words: Sequence[str], wanted: Plan, at: Folders) -> Iterator[str]:
    """What there is, for `--list`."""
    if wanted.networks:
        yield "networks"
    for preset, seeds in wanted.networks:
        training = f"{preset.relu.epochs} + {preset.rnl.epochs} epochs, about {preset.hours:.1f} h, T = {preset.steps}"
        yield f"  {preset.name:<25} {preset.where:<32} {training}{'; ' + preset.note if preset.note else ''}"
        for line in [*_stages(preset), *_papers_figures(preset)]:
            yield f"  {'':<25} {line}"
        for seed in seeds:
            yield f"  {'':<25} seed {seed}: {state(preset, seed, at)}{_runs_done(preset, seed, at)}"
    if wanted.networks:
        yield f"  each with {', '.join(BASELINES.values())} on the ReLU network, {', '.join(IN_TABLE_2)} on our weights"
    chosen = [target for target in TARGETS if not words or target.name in words]
    if chosen:
        yield "tables and figures"
    for target in chosen:
        shown = next((s.preset.name for s in wanted.shown if s.name == target.name and s.preset), None)
        networks = target.networks if shown is None else (shown,)
        needs = f"needs {', '.join(networks)}" if networks else "needs no network"
        yield f"  {target.name:<10} {target.shows}; {needs}"


def _runs_done(preset: Preset, seed: int, at: Folders) -> str:
    """How many of its runs the record has, where there is one that can be read."""
    if not (path := at.record(preset, seed)).exists():
        return ""
    try:
        return f"; {unfinished(records.read(path)) or 'all runs'} in its record"
    except FileFormatError:
        return "; its record is damaged and will be written anew"


def _stages(preset: Preset) -> Iterator[str]:
    """How a network is trained, in a line a part."""
    relu, rnl = preset.relu, preset.rnl
    small = f", the first {100 * relu.small_part:g} % on {relu.small_size} x {relu.small_size} images"
    yield f"ReLU: {relu.epochs} epochs, {relu.schedule} lr up to {relu.lr:g}{small if relu.small_size else ''}"
    held = "" if preset.omega is None else f", maxima held at Omega = {preset.omega:g}"
    learned = "" if rnl.lam is None else f", lambda = {rnl.lam:g} on the weights"
    seldom = "" if rnl.energy is None else f", the mean rate times {rnl.energy:g} in the loss"
    still = "" if rnl.rest is None else f", the current at rest times {rnl.rest:g}"
    early = "" if rnl.steps is None else f", rates of {rnl.steps} steps and more"
    taught = "" if rnl.teacher is None else f", {rnl.teacher:g} of the loss for the answers of the ReLU network"
    settled = "" if rnl.settle is None else f", statistics of the rates of {rnl.settle} steps"
    asked = f"{held}{learned}{seldom}{still}{early}{taught}{settled}"
    yield f"Rate Norm from there: {rnl.epochs} epochs, lr up to {rnl.lr:g}{asked}"
    tried = ", ".join(f"{lam:g}" for lam in sorted({preset.ril.lam or 0.0, *preset.lams}))
    yield f"stage 2: lambda one of {tried}, or p = 1, chosen on held-out images"


def _papers_figures(preset: Preset) -> Iterator[str]:
    if theirs := TABLE_1.get((preset.data, preset.model)):
        best, loss = theirs["snn_accuracy"], theirs["conversion_loss"]
        yield f"the paper, table 1: {100 * best:.2f} %, conversion loss {100 * loss:+.2f}"
    if preset.data == "cifar10" and (row := TABLE_2.get((preset.model, "RNL + RIL"))):
        at = ", ".join(f"{100 * a:.2f} at {t}" for t, a in zip(TABLE_2_STEPS, row, strict=True) if a is not None)
        yield f"the paper, table 2, RNL + RIL: {at}"
    if preset.name == VGG:
        ours, theirs_too = HEADLINE["steps"], HEADLINE["max_norm_steps"]
        yield f"the paper, to 90 %: {ours:.0f} steps, Max Norm {theirs_too:.0f}, energy {HEADLINE['energy_ratio']}"


def run_plan(wanted: Plan, at: Folders, draw: Callable[[Path], Any], say: Callable[[str], None]) -> None:
    """Train, resume, evaluate what is missing, and write records, page and figures. `draw` makes pictures of a figure's
    JSON."""
    for line in announcement(wanted, at):
        say(line)
    for preset, seeds in wanted.networks:
        for seed in seeds:
            reproduce(at.networks(preset, seed), at.results, say, at.whole)
            for shown in _read_off(preset, seed, at):
                _show(shown, at, draw, say)
            say(f"{write_page(at.results)} is up to date")
    for shown in wanted.shown:
        _show(shown, at, draw, say)
    say(f"{write_page(at.results)} is up to date")


def _show(shown: Shown, at: Folders, draw: Callable[[Path], Any], say: Callable[[str], None]) -> None:
    source = None if shown.preset is None else _source(shown.name, shown.preset, shown.seed, at, say)
    if shown.name in PICTURES:
        for picture in draw(make_figure(shown.name, stem(shown, at), source, at.results / FIGURES)):
            say(f"{picture}")


def _read_off(preset: Preset, seed: int, at: Folders) -> list[Shown]:
    """The figures there are of a network's record, which has changed: they must not tell of another one."""
    found = [Shown(name, preset, seed) for name in PICTURES if RUNS_SHOWN.get(name)]
    return [
        shown
        for shown in found
        if (at.results / FIGURES / f"{stem(shown, at)}.json").exists() and _recorded(shown.name, preset, seed, at)
    ]


def _source(name: str, preset: Preset, seed: int, at: Folders, say: Callable[[str], None]) -> Source:
    """The network that is shown: from its record where that is enough, reproduced where it is not."""
    networks = at.networks(preset, seed)
    if _recorded(name, preset, seed, at):
        record = records.read(at.record(preset, seed))
        if name == "fig4":  # the only one that runs a network
            networks.train_relu(say)
    else:
        shown = RUNS_SHOWN.get(name)  # a figure needs its runs on all images, and no others
        record = reproduce(networks, at.results, say, at.whole if shown is None else {*shown, *(at.whole or ())})
    return Source(networks, record)


def _recorded(name: str, preset: Preset, seed: int, at: Folders) -> bool:
    """Only figure 4 runs the network itself; figures are read off its record, where that has the runs they show."""
    path, networks = at.record(preset, seed), at.networks(preset, seed)
    if not path.exists() or (name == "fig4" and not (networks.relu.exists() or networks.relu_in_zoo)):
        return False
    record = records.read(path)
    if name in RUNS_SHOWN:
        return {run["name"] for run in record["runs"] if "images" not in run}.issuperset(RUNS_SHOWN[name])
    return not unfinished(record)


def stem(shown: Shown, at: Folders) -> str:
    """The plain name for the paper's own network, and a longer one for any other."""
    preset = shown.preset
    if preset is None or (preset.name == VGG and shown.seed == preset.seeds[0] and at.scale.full):
        return shown.name
    return f"{shown.name}-{at.networks(preset, shown.seed).label}"


def announcement(wanted: Plan, at: Folders) -> Iterator[str]:
    """What has to be trained and how long that may take: hours must not come as a surprise."""
    needed = {(preset.name, seed): "" for preset, seeds in wanted.networks for seed in seeds}
    for shown in wanted.shown:
        if shown.preset is not None and not _recorded(shown.name, shown.preset, shown.seed, at):
            needed.setdefault((shown.preset.name, shown.seed), f"{shown.name} needs it; ")
    total = 0.0
    for (name, seed), why in needed.items():
        found = state(BY_NAME[name], seed, at)
        if found in (TRAINED, IN_ZOO):
            continue
        hours = BY_NAME[name].hours if at.scale.full else 0.0
        total += hours
        cost = f"; its training takes about {hours:.1f} h on two free cores" if hours else ""
        yield f"to train: {name}, seed {seed} ({why}{found}{cost})"
    if total > 1:
        yield f"about {total:.0f} h in all if none had begun; stop at any time, the same command goes on"
