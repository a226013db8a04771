"""`Graph`: named operations in an order in which they can be evaluated. `SpikingNet`: a graph that spikes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from ratenorm import notebook
from ratenorm.errors import ConversionError, SimulationError, UsageError
from ratenorm.graph.ops import Activation, Conv, Fire, Input, Linear, MaxPool, Op

if TYPE_CHECKING:
    from ratenorm.graph.exact import Sums

INPUT = "input"


@dataclass(frozen=True)
class Node:
    """One operation, its name, and the names of the nodes it reads."""

    name: str
    op: Op
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes in topological order; the first is the input of shape `input_shape` (without the batch)."""

    nodes: tuple[Node, ...]
    output: str
    input_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise ConversionError(f"Building a graph: two nodes are called {node.name!r}; names must differ.")
            if missing := [i for i in node.inputs if i not in seen]:
                raise ConversionError(
                    f"Building a graph: node {node.name!r} reads {missing}, which no earlier node gives."
                )
            if node.op.arity is not None and node.op.arity != len(node.inputs):
                raise ConversionError(
                    f"Building a graph: node {node.name!r} ({node.op.kind}) has {len(node.inputs)} "
                    f"inputs, it takes {node.op.arity}."
                )
            seen.add(node.name)
        if not self.nodes or not isinstance(self.nodes[0].op, Input):
            raise ConversionError("Building a graph: the first node must be the input.")
        if self.output not in seen:
            raise ConversionError(f"Building a graph: the output {self.output!r} is not one of its nodes.")

    def __repr__(self) -> str:
        """One line: a network has millions of values, and nobody reads them."""
        return (
            f"{type(self).__name__}({len(self.nodes)} nodes, {self.parameters:,} parameters, input {self.input_shape}, "
            f"output {self.output!r})"
        )

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """Who reads each node."""
        found: dict[str, list[Node]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def last_use(self) -> Mapping[str, str]:
        """For each node the last node that reads it (itself if none): where its value can be dropped."""
        last = {node.name: node.name for node in self.nodes}
        for node in self.nodes:
            for name in node.inputs:
                last[name] = node.name
        return last

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each node's value without the batch, found by a dry run."""
        like = next((t for node in self.nodes for t in node.op.tensors().values()), torch.empty(0))
        found: dict[str, tuple[int, ...]] = {}

        def note(node: Node, value: Tensor) -> Tensor:
            found[node.name] = tuple(value.shape[1:])
            return value

        with torch.no_grad():
            run(self, like.new_zeros(1, *self.input_shape), note)
        return found

    @property
    def device(self) -> torch.device:
        return next((t.device for node in self.nodes for t in node.op.tensors().values()), torch.device("cpu"))

    @property
    def parameters(self) -> int:
        """The number of stored values."""
        return sum(t.numel() for node in self.nodes for t in node.op.tensors().values())

    @cached_property
    def dtypes(self) -> frozenset[torch.dtype]:
        """The kinds of numbers that its tensors hold."""
        return frozenset(t.dtype for node in self.nodes for t in node.op.tensors().values())

    @cached_property
    def macs(self) -> Mapping[str, int]:
        """Multiply-accumulates of one evaluation of each convolution and linear layer, borders counted as full."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            if isinstance(node.op, Conv | Linear):
                outputs = torch.Size(self.shapes[node.name]).numel()
                counts[node.name] = outputs * node.op.weight[0].numel()
        return counts

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same graph with every tensor replaced."""
        return replace(
            self,
            nodes=tuple(
                replace(node, op=replace(node.op, **{k: change(t) for k, t in node.op.tensors().items()}))
                for node in self.nodes
            ),
        )

    def to(self, target: torch.device | str | torch.dtype) -> Self:
        """A copy on another device, or of another precision."""
        if isinstance(target, torch.dtype):
            return self.map_tensors(lambda t: t.to(dtype=target))
        return self.map_tensors(lambda t: t.to(device=target))

    def same_as(self, other: Graph) -> bool:
        """Equal in structure, settings and every bit of every tensor."""
        if (self.output, self.input_shape, len(self.nodes)) != (other.output, other.input_shape, len(other.nodes)):
            return False
        return all(_same_node(a, b) for a, b in zip(self.nodes, other.nodes, strict=True))


def _same_node(a: Node, b: Node) -> bool:
    if (a.name, a.inputs, type(a.op)) != (b.name, b.inputs, type(b.op)):
        return False
    for field in fields(a.op):
        x, y = getattr(a.op, field.name), getattr(b.op, field.name)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            if x.dtype != y.dtype or not torch.equal(x.cpu(), y.cpu()):
                return False
        elif isinstance(x, Tensor) or isinstance(y, Tensor) or x != y:
            return False
    return True


@dataclass(frozen=True, eq=False, repr=False)
class SpikingNet(Graph):
    """A graph whose nonlinearities are `Fire` populations and gated `MaxPool`s. Its output is averaged over time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for node in self.nodes:
            if isinstance(node.op, Activation):
                raise ConversionError(f"Building a SpikingNet: node {node.name!r} is still an analog activation.")
            if isinstance(node.op, Fire):
                bad = ~(torch.isfinite(node.op.threshold) & (node.op.threshold > 0))
                if bad.any():
                    raise ConversionError(
                        f"Building a SpikingNet: population {node.name!r} has threshold "
                        f"{float(node.op.threshold[bad][0])}; thresholds must be positive and finite."
                    )

    def __call__(self, x: Tensor, steps: int = 16, **options: Any) -> Any:
        """`ratenorm.simulate(net, x, steps, ...)`: a `SimResult`."""
        return importlib.import_module("ratenorm.simulate.simulate").simulate(self, x, steps, **options)

    def __repr__(self) -> str:
        neurons = sum(self.neurons.values())
        return (
            f"SpikingNet({len(self.populations)} populations, {neurons:,} neurons, {self.parameters:,} parameters, "
            f"input {self.input_shape}, output {self.output!r})"
        )

    def _repr_html_(self) -> str:
        rows = []
        for node in self.populations:
            assert isinstance(node.op, Fire)
            low, high = float(node.op.threshold.min()), float(node.op.threshold.max())
            threshold = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
            rows.append((node.name, f"{self.neurons[node.name]:,}", threshold))
        return notebook.table(repr(self), ("population", "neurons", "threshold"), rows)

    @cached_property
    def populations(self) -> tuple[Node, ...]:
        """The nodes that hold spiking neurons, in order."""
        return tuple(node for node in self.nodes if isinstance(node.op, Fire))

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each value has, the largest first."""
        return sorted((torch.Size(shape).numel() for shape in self.shapes.values()), reverse=True)

    @cached_property
    def neurons(self) -> Mapping[str, int]:
        """The number of neurons of each population."""
        return {node.name: torch.Size(self.shapes[node.name]).numel() for node in self.populations}

    @cached_property
    def static(self) -> frozenset[str]:
        """Nodes whose value under constant coding is the same at every step: no spike lies before them."""
        still: set[str] = set()
        for node in self.nodes:
            if not isinstance(node.op, Fire | MaxPool) and all(i in still for i in node.inputs):
                still.add(node.name)
        return frozenset(still)

    @cached_property
    def sums(self) -> Sums:
        """How each node is summed, so that all engines agree (see graph/exact.py)."""
        from ratenorm.graph.exact import sums  # stands on this module

        return sums(self)

    def value(self, node: Node, *inputs: Tensor) -> Tensor:
        """What a node that neither fires nor relays gives: the same numbers on every engine and in every batch."""
        wide = self.sums.in_double.get(node.name)
        if wide is None:
            return node.op(*inputs)
        from ratenorm.graph.exact import in_double

        return in_double(wide, inputs[0])

    @cached_property
    def fan_out(self) -> Mapping[str, Tensor]:
        """For each population and max-pool the synapses that a spike of each of its neurons travels over."""
        from ratenorm.graph.fanout import count_paths  # stands on this module

        return count_paths(self)

    @cached_property
    def input_macs(self) -> int:
        """Multiply-accumulates of the layers that see the analog input."""
        return sum(count for name, count in self.macs.items() if name in self.static)


class Converted(Protocol):
    """What holds a spiking network, such as a `Conversion`."""

    @property
    def net(self) -> SpikingNet:
        """The network."""


def spiking_net(given: SpikingNet | Converted) -> SpikingNet:
    """The spiking network of what a user hands in, or an error that says what it is."""
    net = given if isinstance(given, SpikingNet) else getattr(given, "net", None)
    if isinstance(net, SpikingNet):
        return net
    kind = type(given).__name__
    raise UsageError(
        f"Expected a spiking network or a Conversion, got {kind}. A trained network becomes one by "
        "ratenorm.convert(model, example=x[:1], calibration=x)."
    )


Visit = Callable[[Node, Tensor], Tensor]


def run(graph: Graph, x: Tensor, visit: Visit | None = None) -> Tensor:
    """Evaluate the graph on a batch, each operation by its own (analog) meaning; `visit` may look at or replace values.

    For a `SpikingNet` this is the clipped ANN: the network its rates converge to.
    """
    check_input(graph, x)
    values: dict[str, Tensor] = {}
    for node in graph.nodes:
        value = x if isinstance(node.op, Input) else node.op(*(values[i] for i in node.inputs))
        values[node.name] = value if visit is None else visit(node, value)
        for name in node.inputs:
            if graph.last_use[name] == node.name and name != graph.output:
                values.pop(name, None)
    return values[graph.output]


def check_input(graph: Graph, x: Tensor) -> None:
    """Refuse a batch that does not fit, before anything is computed."""
    if tuple(x.shape[1:]) != graph.input_shape or not x.is_floating_point():
        raise SimulationError(
            f"Running a network: the batch has shape {tuple(x.shape)} and type {x.dtype}; the network takes "
            f"[batch, {', '.join(map(str, graph.input_shape))}] of floating point. Reshape or convert the images."
        )
