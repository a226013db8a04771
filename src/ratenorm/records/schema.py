"""The contract of docs/records.md as checks: what each key of a record holds.

Unknown keys pass: a newer minor version may add some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ratenorm.records.checks import (
    Check,
    Invalid,
    each_step,
    integer,
    json_object,
    list_of,
    name_of,
    number,
    object_of,
    or_null,
    text,
)

_share = number(0, 1)
_amount = number(0)
_step = integer(1)

_HISTOGRAM = object_of({"edges": list_of(_share, 21), "counts": list_of(integer(), 20)})

_LAYER = object_of(
    {
        "name": text,
        "neurons": integer(1),
        "threshold": _amount,
        "threshold_min": _amount,
        "threshold_max": _amount,
        "omega": or_null(_amount),
        "k": each_step(or_null(_amount)),
        "spikes": each_step(_amount),
        "synaptic_ops": each_step(_amount),
        "rate_histogram": _HISTOGRAM,
        "saturated": _share,
        "dead": _share,
        "negative": _share,
    }
)

_EARLY_EXIT = object_of(
    {
        "criterion": text,
        "allowed_loss": number(),
        "accuracy": _share,
        "mean_steps": _amount,
        "worst_steps": _step,
        "histogram": each_step(integer()),
    },
    {
        "threshold": number(),  # one for all steps: records of version 0.1
        "thresholds": list_of(or_null(number())),
        "last_step": _step,
        "fixed_steps": or_null(_step),
        "fitted_on": text,
    },
)

_NEUROBENCH = object_of(
    {
        "Footprint": _amount,
        "ConnectionSparsity": _share,
        "ActivationSparsity": _share,
        "SynapticOperations": object_of({"Effective_MACs": _amount, "Effective_ACs": _amount, "Dense": _amount}),
        "MembraneUpdates": _amount,
        "Effective_MACs_once": _amount,
        "images": integer(1),
        "steps": _step,
    }
)

_RUN = object_of(
    {
        "name": text,
        "network": text,
        "method": json_object,
        "papers": list_of(text),
        "v0": number(),
        "coding": text,
        "engine": text,
        "steps": _step,
        "ann_accuracy": _share,
        "accuracy": each_step(_share),
        "images_per_second": or_null(_amount),
        "neurons": integer(1),
        "spikes": each_step(_amount),
        "synaptic_ops": each_step(_amount),
        "input_macs": _amount,
        "membrane_updates": _amount,
        "layers": list_of(_LAYER),
    },
    {
        "calibrated": list_of(json_object),
        "spike_kind": text,
        "early_exit": _EARLY_EXIT,
        "neurobench": _NEUROBENCH,
        "note": text,
        "images": integer(1),
        "hardware": json_object,
        "source": text,
        "source_accuracy": _share,
    },
)

_DATA = object_of({"name": text, "split": text, "images": integer(1), "classes": list_of(text)})
_ANN = object_of(
    {
        "name": text,
        "accuracy": _share,
        "macs": _amount,
        "images_per_second": or_null(_amount),
        "parameters": integer(),
    }
)

_EXAMPLE_LAYER = object_of(
    {
        "name": text,
        "k": each_step(or_null(_amount)),
        "first_spike": or_null(_step),
        "raster": list_of(list_of(integer(), 2)),
    }
)

_EXAMPLE = object_of(
    {
        "run": text,
        "index": integer(),
        "label": integer(),
        "image": list_of(list_of(lambda value, where, steps: _pixel(value, where, steps))),
        "scores": each_step(list_of(number())),
        "settled": or_null(_step),
        "layers": list_of(_EXAMPLE_LAYER),
    }
)

_DIAGNOSED_LAYER = object_of(
    {"name": text},
    {
        "slope": number(),
        "correlation": number(-1.000001, 1.000001),  # a perfect correlation rounds a hair past one
        "k": _amount,
        "omega": _amount,
        "saturated": _share,
        "dead": _share,
        "negative": _share,
        "first_spike": number(0),
        "rest": _amount,
    },
)

_DIAGNOSIS = object_of(
    {
        "run": text,
        "findings": list_of(object_of({"text": text, "remedy": text}, {"layer": text, "cost": number()})),
        "layers": list_of(_DIAGNOSED_LAYER),
    }
)

_FRONT = list_of(
    object_of(
        {"name": text, "steps": number(0), "accuracy": _share},
        {"loss": number(), "settings": json_object},
    )
)

_CHOICE = object_of(
    {
        "rule": text,
        "images": integer(1),
        "ann_accuracy": _share,
        "tried": list_of(
            object_of({"lam": _amount, "p": list_of(_share), "clipped": _share}, {"accuracy": list_of(_share)})
        ),
        "chosen": integer(),
    }
)

_FOUNDATION: dict[str, Check] = {"data": _DATA, "ann": _ANN}
# Keys a report can do without, and what stands in for each when it is missing or wrong.
_HEAD: dict[str, tuple[Check, Any]] = {
    "kind": (text, "unknown"),
    "title": (text, None),
    "config": (json_object, {}),
    "seed": (integer(-(2**63)), None),
    "versions": (json_object, {}),
    "hardware": (json_object, {}),
    "seconds": (_amount, None),
    "scale": (text, "unknown"),
}


def check_record(record: Mapping[str, Any]) -> None:
    """Hold a whole record to the contract."""
    check_foundation(record)
    for key, (check, _) in _HEAD.items():
        if key not in record:
            raise Invalid(key, "is missing")
        check(record[key], key, 0)
    if "runs" not in record:
        raise Invalid("runs", "is missing")
    list_of(lambda *_: None)(record["runs"], "runs", 0)
    steps_of: dict[str, int] = {}
    for i, run in enumerate(record["runs"]):
        _check_run(run, f"runs[{i}]", steps_of)
    for key, check_part in _PARTS.items():
        if record.get(key) is not None:
            check_part(record, steps_of)


def check_foundation(record: Mapping[str, Any]) -> None:
    """Hold to the contract what every figure stands on: the data set and the network before conversion."""
    object_of(_FOUNDATION)(record, "", 0)


def keep_sound_parts(record: Mapping[str, Any], fallback_title: str) -> tuple[dict[str, Any], list[str]]:
    """The record without what breaks the contract, and what was wrong with each part taken away."""
    kept = dict(record)
    problems: list[str] = []
    for key, (check, substitute) in _HEAD.items():
        try:
            object_of({key: check})(record, "", 0)
        except Invalid as problem:
            problems.append(str(problem))
            kept[key] = fallback_title if key == "title" else substitute
    kept["runs"] = []
    steps_of: dict[str, int] = {}
    runs = record.get("runs")
    if not isinstance(runs, list):
        problems.append(str(Invalid("runs", f"is a {name_of(runs)}, not a list")))
        runs = []
    for i, run in enumerate(runs):
        try:
            _check_run(run, f"runs[{i}]", steps_of)
            kept["runs"].append(run)
        except Invalid as problem:
            problems.append(str(problem))
    for key, check_part in _PARTS.items():
        if kept.get(key) is None:
            continue
        try:
            check_part(kept, steps_of)
        except Invalid as problem:
            problems.append(str(problem))
            del kept[key]
    return kept, problems


def _check_run(run: Any, where: str, steps_of: dict[str, int]) -> None:
    object_of({"name": text, "steps": _step})(run, where, 0)
    _RUN(run, where, run["steps"])
    exits = run.get("early_exit")
    if exits and exits["worst_steps"] > run["steps"]:
        raise Invalid(f"{where}.early_exit.worst_steps", f"is {exits['worst_steps']} of {run['steps']} steps")
    if run["name"] in steps_of:
        raise Invalid(f"{where}.name", f"is {run['name']!r} like that of a run before; names are unique in a record")
    steps_of[run["name"]] = run["steps"]


def _known_run(value: Any, where: str, steps_of: Mapping[str, int]) -> int:
    if value not in steps_of:
        raise Invalid(where, f"is {value!r}, which is no run of this record ({', '.join(steps_of) or 'it has none'})")
    return steps_of[value]


def _check_examples(record: Mapping[str, Any], steps_of: Mapping[str, int]) -> None:
    list_of(object_of({"run": text}))(record["examples"], "examples", 0)
    classes = len(record["data"]["classes"])
    for i, example in enumerate(record["examples"]):
        where = f"examples[{i}]"
        _EXAMPLE(example, where, _known_run(example["run"], f"{where}.run", steps_of))
        for t, scores in enumerate(example["scores"]):
            if len(scores) != classes:
                raise Invalid(f"{where}.scores[{t}]", f"has {len(scores)} entries for {classes} classes")
        if example["label"] >= classes:
            raise Invalid(f"{where}.label", f"is {example['label']}; there are {classes} classes, counted from 0")
        if len({len(row) for row in example["image"]}) != 1:
            raise Invalid(f"{where}.image", "has rows of different lengths")
        if len({name_of(pixel) == "list" for row in example["image"] for pixel in row}) != 1:
            raise Invalid(f"{where}.image", "is empty or mixes grey and coloured pixels")


def _check_diagnosis(record: Mapping[str, Any], steps_of: Mapping[str, int]) -> None:
    _DIAGNOSIS(record["diagnosis"], "diagnosis", 0)
    _known_run(record["diagnosis"]["run"], "diagnosis.run", steps_of)


def _check_choice(record: Mapping[str, Any], _steps_of: Mapping[str, int]) -> None:
    _CHOICE(record["choice"], "choice", 0)
    chosen, tried = record["choice"]["chosen"], len(record["choice"]["tried"])
    if chosen >= tried:
        raise Invalid("choice.chosen", f"is {chosen}; {tried} were tried, counted from 0")


_PARTS: dict[str, Callable[[Mapping[str, Any], Mapping[str, int]], None]] = {
    "examples": _check_examples,
    "diagnosis": _check_diagnosis,
    "front": lambda record, _: _FRONT(record["front"], "front", 0),
    "choice": _check_choice,
    "paper": lambda record, _: json_object(record["paper"], "paper", 0),
}


def _pixel(value: Any, where: str, steps: int) -> None:
    """Grey (one number) or red, green, blue; both 0..255."""
    level = number(0, 255)
    if isinstance(value, list | tuple):
        list_of(level, 3)(value, where, steps)
    else:
        level(value, where, steps)
