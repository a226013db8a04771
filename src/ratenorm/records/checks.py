"""Small checks that add up to a schema.

A check takes a value, the name of its place and T (the steps of the run it belongs to), and raises `Invalid`
with both the place and what is wrong there.
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


def text(value: Any, where: str, _steps: int) -> None:
    if not isinstance(value, str):
        raise Invalid(where, f"is a {name_of(value)}, not a text")


def json_object(value: Any, where: str, _steps: int) -> None:
    if not isinstance(value, Mapping):
        raise Invalid(where, f"is a {name_of(value)}, not an object")


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    def check(value: Any, where: str, _steps: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid(where, f"is a {name_of(value)}, not a number")
        if not low <= value <= high:  # also catches NaN
            raise Invalid(where, f"is {value}; it lies between {low:g} and {high:g}")

    return check


def integer(low: int = 0) -> Check:
    def check(value: Any, where: str, _steps: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(where, f"is a {name_of(value)}, not a whole number")
        if value < low:
            raise Invalid(where, f"is {value}; it is at least {low}")

    return check


def or_null(inner: Check) -> Check:
    return lambda value, where, steps: None if value is None else inner(value, where, steps)


def list_of(item: Check, length: int | None = None) -> Check:
    def check(value: Any, where: str, steps: int) -> None:
        if not isinstance(value, list | tuple):
            raise Invalid(where, f"is a {name_of(value)}, not a list")
        if length is not None and len(value) != length:
            raise Invalid(where, f"has {len(value)} entries, not {length}")
        for i, entry in enumerate(value):
            item(entry, f"{where}[{i}]", steps)

    return check


def each_step(item: Check) -> Check:
    """A list called [T] in the contract: one entry for each step."""
    entries = list_of(item)

    def check(value: Any, where: str, steps: int) -> None:
        entries(value, where, steps)
        if len(value) != steps:
            raise Invalid(where, f"has {len(value)} entries for {steps} steps")

    return check


def object_of(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: Any, where: str, steps: int) -> None:
        json_object(value, where, steps)
        for key, inner in required.items():
            place = f"{where}.{key}" if where else key
            if key not in value:
                raise Invalid(place, "is missing")
            inner(value[key], place, steps)
        for key, inner in (optional or {}).items():
            if value.get(key) is not None:
                inner(value[key], f"{where}.{key}" if where else key, steps)

    return check
