"""The contract of docs/records.md as checks: what each key of a record holds.

A check takes a value, the name of its place and T (the steps of the run it belongs to), and raises `Invalid`
with both the place and what is wrong there. Unknown keys pass: a newer minor version may add some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str, int], None]

_NAMES = {
    dict: "object",
    list: "list",
    str: "text",
    bool: "truth value",
    int: "whole number",
    float: "number",
}


class Invalid(Exception):
    """One key of a record that does not keep the contract."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f'"{where}" {problem}' if where else f"the record {problem}")


def name_of(value: object) -> str:
    """The kind of a value in words a reader of JSON knows."""
    if value is None:
        return "null"
    return _NAMES.get(type(value), type(value).__name__)


def _text(value: Any, where: str, _steps: int) -> None:
    if not isinstance(value, str):
        raise Invalid(where, f"is a {name_of(value)}, not a text")


def _json_object(value: Any, where: str, _steps: int) -> None:
    if not isinstance(value, Mapping):
        raise Invalid(where, f"is a {name_of(value)}, not an object")


def _number(low: float = -math.inf, high: float = math.inf) -> Check:
    def check(value: Any, where: str, _steps: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid(where, f"is a {name_of(value)}, not a number")
        if not low <= value <= high:  # also catches NaN
            raise Invalid(where, f"is {value}; it lies between {low:g} and {high:g}")

    return check


def _integer(low: int = 0) -> Check:
    def check(value: Any, where: str, _steps: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(where, f"is a {name_of(value)}, not a whole number")
        if value < low:
            raise Invalid(where, f"is {value}; it is at least {low}")

    return check


def _or_null(inner: Check) -> Check:
    return lambda value, where, steps: None if value is None else inner(value, where, steps)


def _list_of(item: Check, length: int | None = None) -> Check:
    def check(value: Any, where: str, steps: int) -> None:
        if not isinstance(value, list | tuple):
            raise Invalid(where, f"is a {name_of(value)}, not a list")
        if length is not None and len(value) != length:
            raise Invalid(where, f"has {len(value)} entries, not {length}")
        for i, entry in enumerate(value):
            item(entry, f"{where}[{i}]", steps)

    return check


def _each_step(item: Check) -> Check:
    """A list called [T] in the contract: one entry for each step."""
    entries = _list_of(item)

    def check(value: Any, where: str, steps: int) -> None:
        entries(value, where, steps)
        if len(value) != steps:
            raise Invalid(where, f"has {len(value)} entries for {steps} steps")

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: Any, where: str, steps: int) -> None:
        _json_object(value, where, steps)
        for key, inner in required.items():
            place = f"{where}.{key}" if where else key
            if key not in value:
                raise Invalid(place, "is missing")
            inner(value[key], place, steps)
        for key, inner in (optional or {}).items():
            if value.get(key) is not None:
                inner(value[key], f"{where}.{key}" if where else key, steps)

    return check


_share = _number(0, 1)
_amount = _number(0)
_step = _integer(1)

_HISTOGRAM = _object({"edges": _list_of(_share, 21), "counts": _list_of(_integer(), 20)})

_LAYER = _object(
    {
        "name": _text,
        "neurons": _integer(1),
        "threshold": _amount,
        "threshold_min": _amount,
        "threshold_max": _amount,
        "omega": _or_null(_amount),
        "k": _each_step(_or_null(_amount)),
        "spikes": _each_step(_amount),
        "synaptic_ops": _each_step(_amount),
        "rate_histogram": _HISTOGRAM,
        "saturated": _share,
        "dead": _share,
        "negative": _share,
    }
)

_EARLY_EXIT = _object(
    {
        "criterion": _text,
        "threshold": _number(),
        "allowed_loss": _number(),
        "accuracy": _share,
        "mean_steps": _amount,
        "worst_steps": _step,
        "histogram": _each_step(_integer()),
    }
)

_RUN = _object(
    {
        "name": _text,
        "network": _text,
        "method": _json_object,
        "papers": _list_of(_text),
        "v0": _number(),
        "coding": _text,
        "engine": _text,
        "steps": _step,
        "ann_accuracy": _share,
        "accuracy": _each_step(_share),
        "images_per_second": _or_null(_amount),
        "neurons": _integer(1),
        "spikes": _each_step(_amount),
        "synaptic_ops": _each_step(_amount),
        "input_macs": _amount,
        "membrane_updates": _amount,
        "layers": _list_of(_LAYER),
    },
    {"early_exit": _EARLY_EXIT},
)

_DATA = _object({"name": _text, "split": _text, "images": _integer(1), "classes": _list_of(_text)})
_ANN = _object(
    {
        "name": _text,
        "accuracy": _share,
        "macs": _amount,
        "images_per_second": _or_null(_amount),
        "parameters": _integer(),
    }
)

_EXAMPLE_LAYER = _object(
    {
        "name": _text,
        "k": _each_step(_or_null(_amount)),
        "first_spike": _or_null(_step),
        "raster": _list_of(_list_of(_integer(), 2)),
    }
)

_EXAMPLE = _object(
    {
        "run": _text,
        "index": _integer(),
        "label": _integer(),
        "image": _list_of(_list_of(lambda value, where, steps: _pixel(value, where, steps))),
        "scores": _each_step(_list_of(_number())),
        "settled": _or_null(_step),
        "layers": _list_of(_EXAMPLE_LAYER),
    }
)

_DIAGNOSED_LAYER = _object(
    {"name": _text},
    {
        "slope": _number(),
        "correlation": _number(-1.000001, 1.000001),  # a perfect correlation rounds a hair past one
        "k": _amount,
        "omega": _amount,
        "saturated": _share,
        "dead": _share,
        "negative": _share,
        "first_spike": _number(0),
    },
)

_DIAGNOSIS = _object(
    {
        "run": _text,
        "findings": _list_of(_object({"text": _text, "remedy": _text}, {"layer": _text, "cost": _number()})),
        "layers": _list_of(_DIAGNOSED_LAYER),
    }
)

_FRONT = _list_of(
    _object(
        {"name": _text, "steps": _number(0), "accuracy": _share},
        {"loss": _number(), "settings": _json_object},
    )
)

_FOUNDATION: dict[str, Check] = {"data": _DATA, "ann": _ANN}
# Keys a report can do without, and what stands in for each when it is missing or wrong.
_HEAD: dict[str, tuple[Check, Any]] = {
    "kind": (_text, "unknown"),
    "title": (_text, None),
    "config": (_json_object, {}),
    "seed": (_integer(-(2**63)), None),
    "versions": (_json_object, {}),
    "hardware": (_json_object, {}),
    "seconds": (_amount, None),
    "scale": (_text, "unknown"),
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
    _list_of(lambda *_: None)(record["runs"], "runs", 0)
    steps_of: dict[str, int] = {}
    for i, run in enumerate(record["runs"]):
        _check_run(run, f"runs[{i}]", steps_of)
    for key, check_part in _PARTS.items():
        if record.get(key) is not None:
            check_part(record, steps_of)


def check_foundation(record: Mapping[str, Any]) -> None:
    """Hold to the contract what every figure stands on: the data set and the network before conversion."""
    _object(_FOUNDATION)(record, "", 0)


def keep_sound_parts(record: Mapping[str, Any], fallback_title: str) -> tuple[dict[str, Any], list[str]]:
    """The record without what breaks the contract, and what was wrong with each part taken away."""
    kept = dict(record)
    problems: list[str] = []
    for key, (check, substitute) in _HEAD.items():
        try:
            _object({key: check})(record, "", 0)
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
    _object({"name": _text, "steps": _step})(run, where, 0)
    _RUN(run, where, run["steps"])
    if run["name"] in steps_of:
        raise Invalid(
            f"{where}.name", f"is {run['name']!r} like that of a run before; names are unique in a record"
        )
    steps_of[run["name"]] = run["steps"]


def _known_run(value: Any, where: str, steps_of: Mapping[str, int]) -> int:
    if value not in steps_of:
        raise Invalid(
            where, f"is {value!r}, which is no run of this record ({', '.join(steps_of) or 'it has none'})"
        )
    return steps_of[value]


def _check_examples(record: Mapping[str, Any], steps_of: Mapping[str, int]) -> None:
    _list_of(_object({"run": _text}))(record["examples"], "examples", 0)
    classes = len(record["data"]["classes"])
    for i, example in enumerate(record["examples"]):
        where = f"examples[{i}]"
        _EXAMPLE(example, where, _known_run(example["run"], f"{where}.run", steps_of))
        for t, scores in enumerate(example["scores"]):
            if len(scores) != classes:
                raise Invalid(f"{where}.scores[{t}]", f"has {len(scores)} entries for {classes} classes")
        if example["label"] >= classes:
            raise Invalid(
                f"{where}.label", f"is {example['label']}; there are {classes} classes, counted from 0"
            )
        if len({len(row) for row in example["image"]}) != 1:
            raise Invalid(f"{where}.image", "has rows of different lengths")
        if len({name_of(pixel) == "list" for row in example["image"] for pixel in row}) != 1:
            raise Invalid(f"{where}.image", "is empty or mixes grey and coloured pixels")


def _check_diagnosis(record: Mapping[str, Any], steps_of: Mapping[str, int]) -> None:
    _DIAGNOSIS(record["diagnosis"], "diagnosis", 0)
    _known_run(record["diagnosis"]["run"], "diagnosis.run", steps_of)


_PARTS: dict[str, Callable[[Mapping[str, Any], Mapping[str, int]], None]] = {
    "examples": _check_examples,
    "diagnosis": _check_diagnosis,
    "front": lambda record, _: _FRONT(record["front"], "front", 0),
    "paper": lambda record, _: _json_object(record["paper"], "paper", 0),
}


def _pixel(value: Any, where: str, steps: int) -> None:
    """Grey (one number) or red, green, blue; both 0..255."""
    level = _number(0, 255)
    if isinstance(value, list | tuple):
        _list_of(level, 3)(value, where, steps)
    else:
        level(value, where, steps)
