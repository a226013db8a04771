"""Tracing by torch.fx: one node for each call, so that one module called twice makes two populations.

The trace is then run on an example with two batch sizes. That gives every shape and every number computed from
shapes, and shows whether each value keeps the batch in front: what mixes images cannot be converted.
"""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import ConversionError

BATCHES = (2, 3)  # two sizes that no layer is likely to have by chance


class SiteTracer(fx.Tracer):
    """Rate Norm layers and torch's own modules are leaves; everything else is looked into."""

    record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, RateNorm) or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True)
class Traced:
    """A traced copy of the network, and what each node gave on the example, for both batch sizes."""

    module: fx.GraphModule
    original: nn.Module  # the copy that was traced, to compare with
    values: tuple[dict[fx.Node, Any], dict[fx.Node, Any]]


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        # In-place operations change what was recorded before; shapes are what counts, so a copy is not needed.
        self.values[n] = value
        return value


def trace(model: nn.Module, example: Tensor) -> Traced:
    """Trace a copy of `model` (in evaluation mode) and run it on `example`, one or more images."""
    _check_example(example)
    _check_weights(model)
    copied = copy.deepcopy(model).eval()
    for layer in copied.modules():
        if isinstance(layer, RateNorm):
            layer.levels = None  # the analog network is the limit of many levels
    tracer = SiteTracer()
    try:
        module = fx.GraphModule(copied, tracer.trace(copied))
    except Exception as error:
        raise ConversionError(
            f"Tracing {type(model).__name__}: torch.fx cannot follow its forward pass ({_first_line(error)}). The path "
            "through the network must not depend on values: replace `if x.sum() > 0` and loops over tensors by fixed "
            "structure, or move them out of the module that is converted."
        ) from error
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    required = [n for n in placeholders if not n.args]
    if len(required) != 1:
        raise ConversionError(
            f"Tracing {type(model).__name__}: its forward pass takes {len(required)} inputs "
            f"({', '.join(n.name for n in required)}); a spiking network takes one. Wrap it in a module with one input."
        )
    return Traced(module, copied, (_record(module, example, BATCHES[0]), _record(module, example, BATCHES[1])))


def _record(module: fx.GraphModule, example: Tensor, batch: int) -> dict[fx.Node, Any]:
    recorder = _Recorder(module)
    images = example[:1].expand(batch, *example.shape[1:]).clone()
    try:
        with torch.no_grad():
            recorder.run(images)
    except Exception as error:
        raise ConversionError(
            f"Running the network on a batch of {batch} copies of the example {tuple(example.shape[1:])} failed: "
            f"{_first_line(error)}. Give an example of the shape the network was trained on, and no fixed batch size."
        ) from error
    return recorder.values


def _check_example(example: Tensor) -> None:
    if not isinstance(example, Tensor) or example.ndim < 2 or len(example) == 0 or not example.is_floating_point():
        got = (
            f"shape {tuple(example.shape)} of {example.dtype}"
            if isinstance(example, Tensor)
            else type(example).__name__
        )
        raise ConversionError(
            f"Tracing a network: the example is {got}; give a batch of at least one image, "
            "[batch, ...] of floating point, for example `example=x[:1]`."
        )


def _check_weights(model: nn.Module) -> None:
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ConversionError(
                f"Tracing a network: {name!r} holds NaN or infinity. The network is broken before "
                "conversion: load an earlier checkpoint."
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_TORCH = os.path.dirname(torch.__file__)


def source_line(node: fx.Node) -> str:
    """file:line of the user's forward pass where the call stands, or nothing if it is not known."""
    place = ""
    for match in _FRAME.finditer(node.stack_trace or ""):
        if match["function"] == "forward" and not match["file"].startswith(_TORCH):
            place = f"{os.path.basename(match['file'])}:{match['line']}"
    return place
