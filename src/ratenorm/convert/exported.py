"""A second way to follow a network: torch.export, for forward passes that cannot be followed call by call.

torch.export runs Python with tensors that have shapes and no content, so code that asks for the type of its input,
calls scripted functions or hides its calls from torch.fx can be followed. Its graph is made of ATen calls.
`Replayed` is a module that carries them out by the functions of torch they belong to, so that the tracer takes it like
any other network. Every call keeps the name of the module that it was made in.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ratenorm.convert.copying import own_copy
from ratenorm.convert.trace import BATCHES, Traced, trace
from ratenorm.errors import ConversionError

FX, EXPORT = "torch.fx", "torch.export"


def followed(model: nn.Module, example: Tensor) -> tuple[Traced, str]:
    """The trace of a network, and which way led to it: torch.fx, or where that cannot follow it torch.export."""
    try:
        return trace(model, example), FX
    except ConversionError as cannot:
        if not isinstance(cannot.__cause__, Exception) or not str(cannot).startswith("Tracing"):
            raise  # what is wrong with the network or the example is wrong on every way
        try:
            found = replayed(model, example)
            _check_replay(found, model, example)
            return trace(found, example), EXPORT
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise ConversionError(f"{cannot} torch.export cannot follow it either ({first}).") from error


@torch.no_grad()
def _check_replay(found: Replayed, model: nn.Module, example: Tensor) -> None:
    """Compare with the network itself on random images, in another number than it was exported with."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(BATCHES[1], *example.shape[1:], generator=generator).to(example.dtype)
    expected, got = own_copy(model)(images), found(images)
    tolerance = 1e-4 * max(1e-6, float(expected.abs().amax()))
    if expected.shape != got.shape or not torch.allclose(expected, got, 1e-4, tolerance):
        raise ConversionError("its graph does not compute what the network does")


@torch.no_grad()
def replayed(model: nn.Module, example: Tensor) -> Replayed:
    """The network as torch.export sees it, for any batch size."""
    copied = own_copy(model)
    images = example[:1].detach().expand(BATCHES[0], *example.shape[1:]).clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own deprecations
        program = torch.export.export(copied, (images,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
        return Replayed(program.module())


@dataclass(frozen=True)
class _Value:
    """The value of an earlier call."""

    place: int


class Replayed(nn.Module):
    """The calls of an exported network, carried out by the functions of torch they belong to."""

    def __init__(self, program: fx.GraphModule) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any] | None, Any, Any]] = []  # None: the input
        self.tensors: dict[int, str] = {}
        self.output: Any = None
        nodes = [node for node in program.graph.nodes if "guard" not in str(node.target)]
        places: dict[fx.Node, Any] = {node: _Value(i) for i, node in enumerate(nodes)}
        for place, node in enumerate(nodes):
            args, kwargs = (fx.node.map_arg(given, places.__getitem__) for given in (node.args, node.kwargs))
            if node.op == "get_attr":
                self.tensors[place] = f"tensor_{place}"
                self.register_buffer(self.tensors[place], operator.attrgetter(str(node.target))(program).detach())
            elif node.op == "output":
                self.output = _plain(args[0])
                continue
            self.calls.append((None if node.op != "call_function" else _called(node.target), _plain(args), kwargs))
        self.eval()

    def forward(self, x: Tensor) -> Any:
        values: list[Any] = []

        def known(given: Any) -> Any:
            if isinstance(given, _Value):
                return values[given.place]
            if isinstance(given, list | tuple):
                return type(given)(known(one) for one in given)
            return given

        for place, (function, args, kwargs) in enumerate(self.calls):
            if place in self.tensors:
                values.append(getattr(self, self.tensors[place]))
            elif function is None:
                values.append(x)
            else:
                values.append(function(*known(args), **{key: known(value) for key, value in kwargs.items()}))
        found = known(self.output)
        return found[0] if isinstance(found, tuple | list) and len(found) == 1 else found


def _plain(given: Any) -> Any:
    """Arguments as plain lists and tuples, which can be copied."""
    if isinstance(given, list | tuple):
        return (list if isinstance(given, list) else tuple)(_plain(one) for one in given)
    return given


def _called(target: Any) -> Callable[..., Any]:
    """The function of torch that an ATen call belongs to; the call itself where there is none."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return target  # type: ignore[no-any-return]
    name = str(schema.name).removeprefix("aten::")
    if name in _SPECIAL:
        return _SPECIAL[name]
    for place in (F, torch):
        if callable(found := getattr(place, name, None)):
            return found  # type: ignore[no-any-return]
    if hasattr(Tensor, name):
        return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
    return target  # type: ignore[no-any-return]


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    return F.batch_norm(x, mean, var, weight, bias, False, *rest[:2])


def _upsample(x: Any, size: Any = None, factors: Any = None) -> Any:
    if isinstance(factors, int | float):
        factors = (factors, factors)
    return F.interpolate(x, size=size, scale_factor=None if factors is None else list(factors), mode="nearest")


def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    whole = end is None or end >= x.size(dim)
    if not start and whole and step == 1:
        return x
    return x[(slice(None),) * dim + (slice(start, None if whole else end, step),)]


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _first(x: Any, *_: Any, **__: Any) -> Any:
    return x


_SPECIAL: dict[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "upsample_nearest2d": _upsample,
    "upsample_nearest1d": lambda x, size=None, factors=None: F.interpolate(x, size=size, scale_factor=factors),
    "slice": _slice,
    "select": lambda x, dim, index: x[(slice(None),) * dim + (index,)],
    "sym_size": lambda x, dim: x.size(dim),
    "view": _method("view"),
    "reshape": _method("reshape"),
    "expand": _method("expand"),
    "contiguous": _method("contiguous"),
    "clone": _first,
    "detach": _first,
    "alias": _first,
    "lift_fresh_copy": _first,
    "to": _first,
    "_to_copy": _first,
    "_assert_tensor_metadata": lambda *_, **__: None,
    "sym_constrain_range_for_size": lambda *_, **__: None,
    "pad": F.pad,
    "dropout": lambda x, *_: x,
    "feature_dropout": lambda x, *_: x,
    "relu_": torch.relu,
    "hardtanh_": F.hardtanh,
    "clamp_": torch.clamp,
    "add_": torch.add,
    "mul_": torch.mul,
    "sub_": torch.sub,
    "div_": torch.div,
}
