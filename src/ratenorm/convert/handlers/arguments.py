"""Reading the arguments of a traced call by the names of the function's own signature."""

from __future__ import annotations

from typing import Any

from ratenorm.convert.lower import Ref, Refused

REQUIRED = object()


def bind(args: tuple[Any, ...], kwargs: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Positional and keyword arguments by name, in the order of `defaults`."""
    names = list(defaults)
    bound = {**defaults, **dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in defaults}}
    if missing := [name for name, value in bound.items() if value is REQUIRED]:
        raise Refused(f"is called without {', '.join(missing)}", "pass every argument explicitly")
    return bound


def per_dimension(value: Any, dimensions: int) -> tuple[int, ...]:
    """A number or a tuple of numbers as a tuple with one entry a dimension of space."""
    if isinstance(value, int):
        return (value,) * dimensions
    entries = tuple(int(v) for v in value)
    return entries * dimensions if len(entries) == 1 else entries


def the_input(value: Any) -> Ref:
    """The one operand that depends on the network's input."""
    if not isinstance(value, Ref):
        raise Refused(
            "applies a fixed tensor to something else than the network's values",
            "compute constants outside the forward pass",
        )
    return value
