"""`convert`: any traceable network and a threshold method in, a `SpikingNet` out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ratenorm.arguments import check_start
from ratenorm.contexts import undisturbed_call
from ratenorm.convert.calibration import Calibration, calibration_batches
from ratenorm.convert.fold import fold
from ratenorm.convert.grid import on_grid
from ratenorm.convert.lower import lower
from ratenorm.convert.observe import sites
from ratenorm.convert.support import SupportReport
from ratenorm.convert.thresholds import EqualOmega, Method, SiteScale, Trained, as_method
from ratenorm.errors import ConversionError, UsageError
from ratenorm.graph.net import Graph, Node, SpikingNet
from ratenorm.graph.ops import Activation, Affine, Fire

DEFAULT_START = 0.5  # v(0) in thresholds, where no method is named


@dataclass(frozen=True)
class Calibrated:
    """A calibration after conversion: its method and settings, its papers, for which T, on how many images."""

    method: dict[str, Any]
    papers: tuple[str, ...]
    steps: int
    images: int

    def to_json(self) -> dict[str, Any]:
        """What is kept in files and records."""
        return {**self.method, "steps": self.steps, "images": self.images, "papers": list(self.papers)}


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted network, with what was done to get it. It can be used where a spiking network is expected."""

    net: SpikingNet
    analog: Graph  # the network before conversion, BatchNorm folded
    scales: dict[str, SiteScale]
    method: Method
    v0: float
    report: SupportReport
    calibrated: tuple[Calibrated, ...] = ()

    def __call__(self, x: Tensor, steps: int = 16, **options: Any) -> Any:
        """`ratenorm.simulate(net, x, steps, ...)`: a `SimResult`."""
        return self.net(x, steps, **options)

    def __repr__(self) -> str:
        after = "".join(f", {one.method['method']} for T = {one.steps}" for one in self.calibrated)
        return f"Conversion({self.method!r}, v0={self.v0:g}{after}, {self.net!r})"

    def _repr_html_(self) -> str:
        return self.net._repr_html_().replace(escape(repr(self.net)), escape(repr(self)), 1) + self.report._repr_html_()

    @property
    def exact(self) -> bool:
        """Whether engines, batches and numbers of threads give the same spikes, bit for bit."""
        return not self.inexact

    @property
    def inexact(self) -> dict[str, str]:
        """The layers whose sums depend on the order of additions, and why."""
        return dict(self.net.sums.inexact)

    @property
    def in_double(self) -> tuple[str, ...]:
        """The layers whose sums are exact in double precision only: no grid of float32 is fine enough for them."""
        return tuple(self.net.sums.in_double)


@undisturbed_call
def convert(
    model: nn.Module,
    method: Method | type[Method] | str | None = None,
    *,
    example: Tensor,
    calibration: Tensor | Iterable[Any] | Calibration | None = None,
    v0: float | None = None,
    max_pool: Literal["gated", "average"] = "gated",
) -> Conversion:
    """Turn a trained network into a spiking one. The model handed in is never changed.

    Args:
        model: The trained network, in evaluation mode or not.
        method: What gives the thresholds. None takes what was measured best without training (`recommended`): the
            trained thresholds of a Rate Norm network, `EqualOmega(2.3)` for any other. A text such as "max" or
            "percentile:99.9", or a class such as `MaxNorm`, is a method too.
        example: A batch of images, for shapes only.
        calibration: Unlabelled training images, for the methods that need some.
        v0: Membrane potential at the start, as a fraction of the threshold. With a method it is 0, as in the paper.
            Without one it is 0.5, which rounds spike counts to the nearest instead of down.
        max_pool: "gated" passes a spike where it raises the largest count of a window; "average" replaces the pool.

    Returns:
        The spiking network, with what was done to get it.

    Raises:
        ConversionError: If the network cannot become a spiking one; the message names the layer and the remedy.
        CalibrationError: If the method needs images and none, or unfit ones, were given.
        UsageError: If an argument is out of range.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x = torch.rand(64, 4)
        >>> conversion = rn.convert(model, example=x[:1], calibration=x)
        >>> conversion.method, conversion.v0
        (EqualOmega(omega=2.3), 0.5)
    """
    if max_pool not in ("gated", "average"):
        raise UsageError(f"Converting a network: max_pool is {max_pool!r}, it must be 'gated' or 'average'.")
    chosen = None if method is None else as_method(method)
    graph, report = lower(model, example.cpu() if isinstance(example, Tensor) else example, max_pool)
    if calibration is not None and not isinstance(calibration, Calibration):
        calibration = Calibration(calibration_batches(calibration, tuple(example.shape[1:])))
    analog = fold(graph.to("cpu"))
    if v0 is None:
        v0 = DEFAULT_START if method is None else 0.0
    return convert_graph(analog, recommended(analog) if chosen is None else chosen, calibration, v0, report)


def recommended(analog: Graph) -> Method:
    """The best thresholds that need no training: the trained ones of a Rate Norm network, else equal Omega.

    Ten methods were compared on held-out images of VGG-16: `docs/few-steps.md` has the figures.
    """
    trained = [isinstance(node.op, Activation) and node.op.ceiling is not None for node in sites(analog)]
    return Trained() if trained and all(trained) else EqualOmega(2.3)


@undisturbed_call
def convert_graph(
    analog: Graph, method: Method, calibration: Calibration | None, v0: float, report: SupportReport
) -> Conversion:
    """The second half of `convert`, for a network that is lowered already: several methods can share the first half."""
    v0 = check_start("Converting a network", v0)
    if not sites(analog):
        raise ConversionError(
            "Converting a network: it has no activation that could become spiking neurons. Was its ReLU "
            "left out, or applied outside the module?"
        )
    if calibration is not None:
        calibration.fit(analog.input_shape, analog.dtypes)
    scales = method.scales(analog, calibration)
    if len(analog.dtypes) == 1:  # thresholds are numbers of the network's own type, whatever torch's default is
        [kind] = analog.dtypes
        scales = {name: SiteScale(s.threshold.to(kind), s.amplitude.to(kind)) for name, s in scales.items()}
    return Conversion(spiking(analog, scales, v0), analog, scales, method, v0, report)


def spiking(analog: Graph, scales: dict[str, SiteScale], v0: float = 0.0) -> SpikingNet:
    """Every site becomes a population; the amplitude of its spikes is folded into the weights behind it.

    These are then rounded to a grid on which sums are exact, so that every engine gives the same spikes.
    """
    nodes: list[Node] = []
    carried: dict[str, str] = {}  # site -> the node that carries its spikes' amplitude
    names = {node.name for node in sites(analog)}
    for node in analog.nodes:
        inputs = tuple(carried.get(i, i) for i in node.inputs)
        if node.name not in names:
            nodes.append(replace(node, inputs=inputs))
            continue
        scale = scales[node.name]
        nodes.append(Node(node.name, Fire(scale.threshold.clone(), scale.threshold * v0), inputs))
        if not torch.equal(scale.amplitude, torch.ones_like(scale.amplitude)):
            carried[node.name] = f"{node.name}.amplitude"
            nodes.append(Node(carried[node.name], Affine(scale=scale.amplitude.clone()), (node.name,)))
    output = carried.get(analog.output, analog.output)
    return on_grid(fold(SpikingNet(tuple(nodes), output, analog.input_shape)))


def with_start(net: SpikingNet, v0: float) -> SpikingNet:
    """The same network starting from another fraction of the threshold."""
    return replace(
        net,
        nodes=tuple(
            replace(n, op=replace(n.op, start=n.op.threshold * v0)) if isinstance(n.op, Fire) else n for n in net.nodes
        ),
    )


def normalise_weights(net: SpikingNet) -> SpikingNet:
    """Theorem 1: all thresholds 1, their inverse in the weights before. The same spikes as with balanced thresholds."""
    nodes: list[Node] = []
    for node in net.nodes:
        if isinstance(node.op, Fire):
            scaled = f"{node.name}.normalised"
            nodes.append(Node(scaled, Affine(scale=1.0 / node.op.threshold), node.inputs))
            one = torch.ones_like(node.op.threshold)
            bias = None if node.op.step_bias is None else node.op.step_bias / node.op.threshold
            fire = replace(node.op, threshold=one, start=node.op.start / node.op.threshold, step_bias=bias)
            nodes.append(Node(node.name, fire, (scaled,)))
        else:
            nodes.append(node)
    return fold(replace(net, nodes=tuple(nodes)))
