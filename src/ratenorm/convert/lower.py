"""Lowering: the traced network, call by call, as a `Graph` over the closed set of operations.

Each handler (convert/handlers/) turns one kind of call into nodes. What has no handler becomes an entry of the support
report with its name, its source line and a remedy; nothing is skipped silently.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ratenorm.contexts import undisturbed_call
from ratenorm.convert.exported import followed
from ratenorm.convert.remedies import remedy_for
from ratenorm.convert.support import Entry, Kind, SupportReport
from ratenorm.convert.trace import BATCHES, Traced, changes_operand, known_as, source_line
from ratenorm.errors import ConversionError
from ratenorm.graph.net import INPUT, Graph, Node, run
from ratenorm.graph.ops import Activation, Input, Op


@dataclass(frozen=True)
class Ref:
    """A value that depends on the input: the graph node that gives it, and its shape with a batch of two in front."""

    name: str
    shape: tuple[int, ...]

    @property
    def features(self) -> tuple[int, ...]:
        return self.shape[1:]


class Refused(Exception):
    """A handler cannot express this call. Becomes an entry of the support report."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


GATE_REACH = 6  # calls between the activation of a gate and its product
GATE = (
    "it belongs to a gate (squeeze-and-excitation, for example): a product of two values of the network has no spiking "
    "form, whatever the activation is. Build the network without its gates and train it again, or add the gate instead "
    "of multiplying"
)
_PRODUCTS = frozenset((operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply"))

_BROKEN = Ref("", ())  # a result without a batch dimension: what follows cannot be judged

Handler = Callable[["Lowering", fx.Node, tuple[Any, ...], dict[str, Any]], Any]
ModuleHandler = Callable[["Lowering", fx.Node, Any, tuple[Any, ...]], Any]


class Lowering:
    """The state of one lowering: nodes so far, entries of the report, and what each fx node became."""

    def __init__(self, traced: Traced, max_pool: str) -> None:
        self.traced = traced
        self.max_pool = max_pool
        self.nodes: list[Node] = []
        self.entries: list[Entry] = []
        self.became: dict[fx.Node, Any] = {}
        self.calls: Counter[str] = Counter()
        self.names: Counter[str] = Counter()

    # -- for handlers --------------------------------------------------------------------------------------------------

    def emit(self, at: fx.Node, op: Op, *inputs: Ref, part: str = "", shape: tuple[int, ...] | None = None) -> Ref:
        """Append an operation for the call `at`; `part` names one of several operations of the same call."""
        name = self._unique(self.label(at) + (f".{part}" if part else ""))
        self.nodes.append(Node(name, op, tuple(i.name for i in inputs)))
        return Ref(name, tuple(self.value(at).shape) if shape is None else (BATCHES[0], *shape))

    def note(self, at: fx.Node, kind: Kind, what: str) -> None:
        self.entries.append(Entry(kind, self.label(at), what, source_line(at)))

    def site(self, at: fx.Node, x: Ref, activation: Activation, what: str) -> Ref:
        """An activation becomes a population of neurons."""
        ref = self.emit(at, activation, x)
        self.note(at, "site", f"{what}, {' x '.join(map(str, ref.features))} neurons")
        return ref

    def behind_relu(self, x: Ref) -> Ref:
        """What a plain ReLU reads, where `x` is one; else `x`: a clip of a ReLU is a clip."""
        node = next((n for n in self.nodes if n.name == x.name), None)
        if node is not None and isinstance(node.op, Activation) and node.op.ceiling is None:
            return Ref(node.inputs[0], x.shape)
        return x

    def value(self, at: fx.Node) -> Any:
        """What the call gave on the example."""
        return self.traced.values[0][at]

    def label(self, at: fx.Node) -> str:
        """The module's path, numbered from the second call on; for functions and methods the name fx gives."""
        return self._labels[at]

    # -- the walk ------------------------------------------------------------------------------------------------------

    def run(self) -> tuple[Graph | None, SupportReport]:
        self._labels = self._name_calls()
        output: Any = None
        input_shape: tuple[int, ...] = ()
        for at in self.traced.graph.nodes:
            if at not in self.traced.needed:
                if at.op != "get_attr":
                    self.note(at, "dropped", "nothing reads its value")
            elif at.op == "placeholder":
                if self._is_tensor(at):
                    self.nodes.append(Node(INPUT, Input()))
                    self.became[at] = Ref(INPUT, tuple(self.value(at).shape))
                    input_shape = tuple(self.value(at).shape[1:])
                else:
                    self.became[at] = self.value(at)
            elif at.op == "output":
                output = self._resolve(at.args[0])
            else:
                self.became[at] = self._lower(at)
                if changes_operand(
                    at, self.traced
                ):  # later readers of the operand see the changed value, as in eager torch
                    self.became[at.all_input_nodes[0]] = self.became[at]
        report = SupportReport(tuple(self.entries))
        if not report.convertible:
            return None, report
        if not isinstance(output, Ref):
            kind = type(output).__name__.removeprefix("immutable_")
            raise ConversionError(
                f"Converting a network: it returns a {kind}, and only one tensor that "
                "depends on the input can be read out. Wrap it so that it returns its logits."
            )
        graph, report = _without_unread(Graph(tuple(self.nodes), output.name, input_shape), report)
        return (graph.to(self._dtype()) if len(graph.dtypes) > 1 else graph), report

    def _dtype(self) -> torch.dtype:
        """The type of the numbers that the network gives."""
        found: torch.dtype = self.value(next(at for at in self.traced.graph.nodes if at.op == "output")).dtype
        return found

    def _lower(self, at: fx.Node) -> Any:
        args = tuple(self._resolve(a) for a in at.args)
        kwargs = {k: self._resolve(v) for k, v in at.kwargs.items()}
        touched = [*_flatten(args), *_flatten(kwargs.values())]
        if any(t is _BROKEN for t in touched):
            return _BROKEN
        if not any(isinstance(t, Ref) for t in touched):
            return self.value(at)  # does not depend on the input: a constant
        if not any(isinstance(v, Tensor) for v in _flatten([self.value(at)])):
            return self.value(at)  # a shape, or a number computed from shapes
        try:
            return self._handle(at, args, kwargs)
        except Refused as refusal:
            remedy = GATE if self._gates(at) else refusal.remedy
            self.entries.append(Entry("unsupported", self.label(at), refusal.what, source_line(at), remedy))
            return self._stand_in(at, self.value(at))

    def _stand_in(self, at: fx.Node, value: Any) -> Any:
        """What follows an obstacle is judged by the shapes of the network's own values; no network is built."""
        if isinstance(value, tuple | list):
            return type(value)(self._stand_in(at, one) for one in value)
        if not isinstance(value, Tensor):
            return value
        return Ref(self.label(at), tuple(value.shape)) if value.shape[:1] == (BATCHES[0],) else _BROKEN

    def _handle(self, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from ratenorm.convert.handlers import FUNCTIONS, METHODS, MODULES  # they import this module

        if at.op == "call_module":
            module = self.traced.module(str(at.target))
            if handler := MODULES.get(known_as(module)):
                self._check_batch(at)
                return handler(self, at, module, args)
            raise Refused(f"{type(module).__name__} has no spiking form here", remedy_for(type(module).__name__))
        table = FUNCTIONS if at.op == "call_function" else METHODS
        if found := table.get(at.target):  # type: ignore[arg-type]
            self._check_batch(at)
            return found(self, at, args, kwargs)
        called = getattr(at.target, "__name__", str(at.target))
        raise Refused(f"{called}() has no spiking form here", remedy_for(called))

    def _resolve(self, arg: Any) -> Any:
        """An fx argument with every node replaced by what it became."""
        return fx.node.map_arg(arg, lambda n: self.became[n])

    def _gates(self, at: fx.Node) -> bool:
        """Whether what a call gives ends, shortly after, in a product with another value of the network."""
        reached, front = {at}, [at]
        for _ in range(GATE_REACH):
            front = [user for node in front for user in node.users if user not in reached]
            reached.update(front)
            for node in front:
                other = [a for a in node.args if isinstance(a, fx.Node) and a not in reached and self._is_value(a)]
                if node.target in _PRODUCTS and other and other[0] not in at.all_input_nodes:
                    return True
        return False

    def _is_value(self, at: fx.Node) -> bool:
        """Whether a node gives one tensor for each image."""
        value = self.value(at)
        return at.op != "get_attr" and isinstance(value, Tensor) and value.shape[:1] == (BATCHES[0],)

    def _is_tensor(self, at: fx.Node) -> bool:
        return isinstance(self.value(at), Tensor)

    def _check_batch(self, at: fx.Node) -> None:
        for two, three in zip(
            _flatten([self.traced.values[0][at]]), _flatten([self.traced.values[1][at]]), strict=True
        ):
            if not (isinstance(two, Tensor) and isinstance(three, Tensor)):
                continue
            if two.shape[:1] != (BATCHES[0],) or three.shape != (BATCHES[1], *two.shape[1:]):
                raise Refused(
                    f"turns a batch of {BATCHES[0]} and of {BATCHES[1]} images into shapes {tuple(two.shape)} and "
                    f"{tuple(three.shape)}: it mixes or drops the batch dimension",
                    "keep the batch as dimension 0 of every value, for example x.flatten(1) instead of x.flatten()",
                )

    def _name_calls(self) -> dict[fx.Node, str]:
        labels: dict[fx.Node, str] = {}
        for at in self.traced.graph.nodes:
            label = str(at.target) if at.op == "call_module" else at.name
            self.calls[label] += 1
            labels[at] = label if self.calls[label] == 1 else f"{label}@{self.calls[label]}"
        return labels

    def _unique(self, name: str) -> str:
        self.names[name] += 1
        return name if self.names[name] == 1 and name != INPUT else f"{name}~{self.names[name]}"


def _without_unread(graph: Graph, report: SupportReport) -> tuple[Graph, SupportReport]:
    """Leave out what does not lead to the output, and say so where it was to become neurons."""
    read = {graph.output, INPUT}
    for node in reversed(graph.nodes):
        if node.name in read:
            read.update(node.inputs)
    unread = {node.name for node in graph.nodes if node.name not in read}
    entries = tuple(
        replace(e, kind="dropped", what=f"{e.what}: nothing reads it") if e.kind == "site" and e.name in unread else e
        for e in report.entries
    )
    kept = tuple(node for node in graph.nodes if node.name in read)
    return Graph(kept, graph.output, graph.input_shape), SupportReport(entries)


def _flatten(values: Any) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, tuple | list):
            flat += _flatten(value)
        elif isinstance(value, dict):
            flat += _flatten(value.values())
        elif isinstance(value, slice):
            flat += [value.start, value.stop, value.step]
        else:
            flat.append(value)
    return flat


def lower(model: nn.Module, example: Tensor, max_pool: str = "gated") -> tuple[Graph, SupportReport]:
    """The network as an analog graph. Raises, with every obstacle named, where it cannot be converted."""
    traced, front = followed(model, example)
    graph, report = Lowering(traced, max_pool).run()
    report = replace(report, front=front)
    report.require()
    assert graph is not None
    _check_function(graph, traced, example, max_pool)
    return graph, report


class _Averaging(TorchFunctionMode):
    """Every max-pooling gives the average over its window instead, as `max_pool="average"` makes of it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called = getattr(func, "__name__", "")
        if called.startswith("adaptive_max_pool"):
            return getattr(F, called.replace("max", "avg"))(*args[:2])
        if called not in _MAX_POOLS:
            return func(*args, **(kwargs or {}))
        pool = F.avg_pool2d if called.endswith("2d") else F.avg_pool1d
        a = dict(zip(_MAX_POOLS[called], args, strict=False)) | (kwargs or {})
        stride = a.get("stride") or a["kernel_size"]
        return pool(a["input"], a["kernel_size"], stride, a.get("padding", 0), a.get("ceil_mode", False), False)


_ARGUMENTS = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MAX_POOLS = dict.fromkeys(("max_pool1d", "max_pool2d"), _ARGUMENTS)


@torch.no_grad()
def _check_function(graph: Graph, traced: Traced, example: Tensor, max_pool: str) -> None:
    """Compare with the network itself on random images: what a trace cannot see must not pass silently.

    A value changed in place may share its memory with one that is read later, and a number computed from the batch size
    looks like a constant.
    """
    like = next((t for node in graph for t in node.op.tensors().values()), example)
    noise = torch.rand(BATCHES[1], *example.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    noise = noise.to(like)
    with _Averaging() if max_pool == "average" else nullcontext():
        expected = traced.original(noise.clone())
    found = run(graph, noise)
    tolerance = 1e-3 * max(1e-6, float(expected.nan_to_num(0.0, 0.0, 0.0).abs().amax()))
    if found.shape != expected.shape or not torch.allclose(
        found.to(expected.dtype),
        expected,
        1e-3,
        tolerance,
        equal_nan=True,  # its last call may be a cast
    ):
        raise ConversionError(
            "Converting a network: what was traced does not compute what the network does. Usual causes: an in-place "
            "operation (`y += x`, `relu_`) on a value that is read again under another name, or a number that depends "
            "on the batch size. Write these operations out of place (`y = y + x`), and use fixed numbers."
        )


@undisturbed_call
def inspect(model: nn.Module, example: Tensor, max_pool: str = "gated") -> SupportReport:
    """The support report alone: what conversion would do with every part, and what stands in its way."""
    traced, front = followed(model, example)
    return replace(Lowering(traced, max_pool).run()[1], front=front)
