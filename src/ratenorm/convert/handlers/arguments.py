"""Reading the arguments of a traced call by the names of the function's own signature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from ratenorm.convert.lower import Lowering, Ref, Refused

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


def constant(lo: Lowering, at: fx.Node, value: Any) -> Tensor:
    """A number or fixed tensor in a shape that broadcasts over one entry of the batch."""
    fixed = torch.as_tensor(value, dtype=lo.value(at).dtype).detach().clone()
    ndim = lo.value(at).ndim
    if fixed.ndim == ndim:
        if fixed.shape[0] > 1 and bool((fixed == fixed[:1]).all()):  # made from the shape of a value: ones_like
            fixed = fixed[:1]
        if fixed.shape[0] != 1:
            raise Refused(
                f"combines with a constant of shape {tuple(fixed.shape)}, one for each image of a batch",
                "use a constant that is the same for every image",
            )
        fixed = fixed.squeeze(0)
    if not torch.isfinite(fixed).all():
        raise Refused("combines with a constant that is NaN or infinite", "use finite constants")
    return fixed.reshape(1) if fixed.ndim == 0 else fixed
