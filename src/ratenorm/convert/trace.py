"""Tracing: one node for each call, so that one module called twice makes two populations.

The forward pass runs on an example whose every value is known, with two batch sizes. A value answers questions about
its shape with plain numbers, so `if x.shape[2] > 8` and loops over sizes take the path they take in eager torch. A
question about its content (`if x.sum() > 0`) is refused. What differs between the two batch sizes mixes images.

torch.fx's own tracer patches `nn.Module` for the whole process while it works: other threads then fail. This one
changes nothing outside the copy of the network that it traces.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from ratenorm.convert.copying import own_copy
from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import ConversionError

BATCHES = (2, 3)  # two sizes that no layer is likely to have by chance


@dataclass(frozen=True)
class Traced:
    """A traced copy of the network, and what each node gave on the example, for both batch sizes."""

    graph: fx.Graph
    original: nn.Module  # the copy that was traced, to compare with
    values: tuple[dict[fx.Node, Any], dict[fx.Node, Any]]
    needed: frozenset[fx.Node]  # what the output depends on

    def module(self, path: str) -> nn.Module:
        """A module that a node calls."""
        return self.original.get_submodule(path)


class ValueDependent(Exception):
    """The forward pass asked for the content of a value."""


def _in_place(target: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.tracer.create_proxy("call_function", target, (self, other), {})


class _Value(fx.Proxy):
    """What stands for a tensor while a network is traced: it tells the shape of its value, but not the content."""

    def _known(self) -> Any:
        return self.tracer.values[self.node]  # type: ignore[attr-defined]

    def __getattr__(self, k: str) -> Any:
        known = self._known()
        if k in _FACTS:
            return getattr(known, k)
        if k == "data":
            return self
        if k in _TRANSPOSED and isinstance(known, Tensor):
            return self.transpose(-2, -1) if known.ndim > 1 else self
        return super().__getattr__(k)

    def __iter__(self) -> Iterator[fx.Proxy]:
        return iter([self[i] for i in range(len(self._known()))])  # type: ignore[index]

    def __len__(self) -> int:
        return len(self._known())

    def __bool__(self) -> bool:
        raise ValueDependent("a branch asks for the content of a tensor")

    def _content(self, *_: Any) -> Any:
        raise ValueDependent("a number is taken from the content of a tensor")

    __int__ = __float__ = __index__ = __complex__ = item = tolist = numpy = _content

    __iadd__ = _in_place(operator.iadd)
    __isub__ = _in_place(operator.isub)
    __imul__ = _in_place(operator.imul)
    __itruediv__ = _in_place(operator.itruediv)


# What can be told of a value without its content.
_FACTS = frozenset(
    (
        "shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_cuda", "is_sparse", "is_quantized", "size",
        "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "is_contiguous",
        "stride", "storage_offset", "get_device", "itemsize", "nbytes", "grad_fn", "is_leaf",
    )
)  # fmt: skip
_TRANSPOSED = frozenset(("T", "mT"))


class _Tracer(fx.Tracer):
    """Records the calls of one forward pass, and carries them out as it goes."""

    record_stack_traces = True

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.root = root
        self.graph = fx.Graph()
        self.tensor_attrs = {}
        self.values: dict[fx.Node, Any] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **settings: Any) -> fx.Proxy:
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **settings)
        if kind != "placeholder":
            self.values[proxy.node] = self._carried_out(proxy.node)
        return proxy

    def create_node(self, kind: str, target: Any, *rest: Any, **settings: Any) -> fx.Node:
        node = super().create_node(kind, target, *rest, **settings)
        if kind == "get_attr":
            self.values[node] = operator.attrgetter(str(target))(self.root)
        return node

    def _carried_out(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return self.values[node]
        args: Any = fx.node.map_arg(node.args, self.values.__getitem__)
        kwargs: Any = fx.node.map_arg(node.kwargs, self.values.__getitem__)
        if node.op == "call_module":
            return _forward_of(self.root.get_submodule(str(node.target)))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "call_function" and callable(node.target):
            return node.target(*args, **kwargs)
        return args[0]  # the output

    def run(self, images: Tensor) -> None:
        """Trace the forward pass on these images."""
        signature = inspect.signature(self.root.forward)
        first = next(iter(signature.parameters.values()))
        node = self.graph.create_node("placeholder", first.name)
        self.values[node] = images
        output = self.root(self.proxy(node))
        self.create_proxy("output", "output", (output,), {})


def _forward_of(module: nn.Module) -> Callable[..., Any]:
    """A leaf's own forward pass, without the recording."""
    recorded: Callable[..., Any] = module.forward
    return getattr(recorded, "own", recorded)


def _record_leaves(root: nn.Module) -> None:
    """Let every leaf of the copy record its calls where a traced value comes in. Hooks run around it as always."""
    for path, module in root.named_modules():
        if path and is_leaf(module):
            module.forward = _recording(path, module.forward)  # type: ignore[method-assign]


def _recording(path: str, own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        traced = [a for a in (*args, *kwargs.values()) if isinstance(a, fx.Proxy)]
        if not traced:
            return own(*args, **kwargs)
        bound = inspect.signature(own).bind(*args, **kwargs)
        return traced[0].tracer.create_proxy("call_module", path, bound.args, bound.kwargs)

    forward.own = own  # type: ignore[attr-defined]
    return forward


def is_leaf(module: nn.Module) -> bool:
    """Whether a module is taken as a whole: torch's own modules and Rate Norm layers. Others are looked into."""
    if isinstance(module, RateNorm):
        return True
    torchs = known_as(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
    return torchs and not isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)


def known_as(module: nn.Module) -> type[nn.Module]:
    """The class whose forward pass a module has: a subclass that changes nothing in it is its base."""
    kind = type(module)
    while kind.__bases__ and "forward" not in vars(kind) and issubclass(kind.__bases__[0], nn.Module):
        kind = kind.__bases__[0]
    if kind.__name__.startswith("_") or kind is nn.Module:  # a hidden base of several of torch's modules
        return type(module)
    return type(module) if type(module).__module__.startswith("torch.nn.modules") else kind


@torch.no_grad()
def trace(model: nn.Module, example: Tensor) -> Traced:
    """Trace a copy of `model` (in evaluation mode) on `example`, one or more images."""
    _check_example(example)
    _check_model(model)
    copied = own_copy(model)
    example = example.to(next((p.dtype for p in copied.parameters() if p.is_floating_point()), example.dtype))
    for batch in BATCHES:
        _run(copied, _images(example, batch))
    _record_leaves(copied)
    tracers = []
    for batch in BATCHES:
        tracer = _Tracer(copied)
        try:
            tracer.run(_images(example, batch))
        except Exception as error:
            raise ConversionError(_why_not(model, error)) from error
        tracers.append(tracer)
    first, second = (list(tracer.graph.nodes) for tracer in tracers)
    if [_call(n) for n in first] != [_call(n) for n in second]:
        raise ConversionError(
            f"Tracing {type(model).__name__}: its forward pass takes another path for a batch of {BATCHES[1]} images "
            f"than for one of {BATCHES[0]}. It must not depend on the batch size."
        )
    needed = _needed(copied, first)
    _check_weights(copied, [node for node in first if node in needed])
    values = {node: tracers[1].values.get(twin) for node, twin in zip(first, second, strict=True)}
    return Traced(tracers[0].graph, copied, (tracers[0].values, values), needed)


def _needed(root: nn.Module, nodes: list[fx.Node]) -> frozenset[fx.Node]:
    """What the output depends on; a call that changes its operand in place is a part of all that reads it later."""
    needed: set[fx.Node] = set()
    for node in reversed(nodes):
        operands = node.all_input_nodes
        changes = bool(operands) and operands[0] in needed and _in_place_call(root, node)
        if node.op in ("output", "placeholder") or node in needed or changes:
            needed.update((node, *operands))
    return frozenset(needed)


def changes_operand(at: fx.Node, traced: Traced) -> bool:
    """Whether a call changes its first operand in place."""
    return _in_place_call(traced.original, at)


def _in_place_call(root: nn.Module, at: fx.Node) -> bool:
    if at.op == "call_module":
        return bool(getattr(root.get_submodule(str(at.target)), "inplace", False))
    if at.target in (operator.iadd, operator.isub, operator.imul, operator.itruediv):
        return True
    called = getattr(at.target, "__name__", str(at.target))
    return bool(at.kwargs.get("inplace", False)) or (called.endswith("_") and not called.endswith("__"))


def _call(node: fx.Node) -> tuple[str, str]:
    """What a node does, whatever its operands; constants are numbered as they come."""
    return node.op, str(node.target).rstrip("0123456789") if node.op == "get_attr" else str(node.target)


def _images(example: Tensor, batch: int) -> Tensor:
    return example[:1].detach().expand(batch, *example.shape[1:]).clone()


def _run(module: nn.Module, images: Tensor) -> None:
    """Run the network itself, so that its own errors are not taken for those of tracing."""
    try:
        module(images)
    except Exception as error:
        raise ConversionError(
            f"Running the network on a batch of {len(images)} copies of the example {tuple(images.shape[1:])} failed: "
            f"{_first_line(error)}. Give an example of the shape the network was trained on, and no fixed batch size."
        ) from error


def _why_not(model: nn.Module, error: Exception) -> str:
    doing = f"Tracing {type(model).__name__}:"
    if isinstance(error, ValueDependent):
        return (
            f"{doing} {error}{_place_of(error)}. The path through the network must not depend on values: replace "
            "`if x.sum() > 0` and loops over tensors by fixed structure, or move them out of the module that is "
            "converted."
        )
    return (
        f"{doing} its forward pass cannot be followed{_place_of(error)} ({_first_line(error)}). Only calls of torch, "
        "of modules and of tensor methods can be: move other code out of the module that is converted."
    )


def _place_of(error: Exception) -> str:
    """Where in the user's code it happened."""
    place, frame = "", error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if frame.tb_frame.f_code.co_name == "forward" and not file.startswith(_NOT_THE_USERS):
            place = f" at {os.path.basename(file)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


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


def _check_model(model: nn.Module) -> None:
    """Refuse what cannot even be copied and run."""
    if not isinstance(model, nn.Module):
        raise ConversionError(
            f"Tracing a network: the model is a {type(model).__name__}; give a torch.nn.Module. For a function, write "
            "a module whose forward pass calls it."
        )
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ConversionError(
                f"Tracing a network: {name or 'the model'!r} is a TorchScript module, whose calls cannot be followed. "
                "Convert the Python module that it was made from, with the same weights."
            )
    if lazy := [name for name, p in [*model.named_parameters(), *model.named_buffers()] if is_lazy(p)]:
        raise ConversionError(
            f"Tracing a network: {lazy[0]!r} has no shape yet, because its module is lazy. Run the network once on a "
            "batch, then train it or load its weights, then convert it."
        )
    required = _required_inputs(model)
    if len(required) != 1:
        raise ConversionError(
            f"Tracing {type(model).__name__}: its forward pass takes {len(required)} inputs "
            f"({', '.join(required)}); a spiking network takes one. Wrap it in a module with one input."
        )


def _required_inputs(model: nn.Module) -> list[str]:
    found = inspect.signature(model.forward).parameters.values()
    needed = [p.name for p in found if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return needed or [p.name for p in found if p.kind is not p.VAR_KEYWORD][:1]


def _check_weights(root: nn.Module, nodes: list[fx.Node]) -> None:
    """Refuse NaN and infinity in whatever the forward pass reads."""
    read: dict[str, Tensor] = {}
    for node in nodes:
        if node.op == "call_module":
            module = root.get_submodule(str(node.target))
            found = [*module.named_parameters(), *module.named_buffers()]
            read.update({f"{node.target}.{name}": value for name, value in found})
        elif node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(root)
            if isinstance(value, Tensor) and not str(node.target).startswith("_tensor_constant"):
                read[str(node.target)] = value
    for name, value in read.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ConversionError(
                f"Tracing a network: {name!r} holds NaN or infinity. The network is broken before "
                "conversion: load an earlier checkpoint."
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_NOT_THE_USERS = (os.path.dirname(torch.__file__), __file__)


def source_line(node: fx.Node) -> str:
    """file:line of the user's forward pass where the call stands, or nothing if it is not known."""
    place = ""
    for match in _FRAME.finditer(node.stack_trace or ""):
        if match["function"] == "forward" and not match["file"].startswith(_NOT_THE_USERS):
            place = f"{os.path.basename(match['file'])}:{match['line']}"
    return place
