"""`diagnose`: figures for every layer, and a ranked list in words of what costs accuracy and what to try.

Every cost is measured: layers are made analog one after the other (from the input on), ceilings are taken away one at a
time, and remedies are tried on the same images.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ratenorm import notebook
from ratenorm.arguments import check_count, check_images, check_kind, check_labels
from ratenorm.contexts import undisturbed_call
from ratenorm.convert.convert import Conversion, with_start
from ratenorm.diagnose.hybrid import analog_run, currents_at_rest, original, outputs
from ratenorm.errors import UsageError
from ratenorm.graph.net import check_input
from ratenorm.simulate.dense import analog_rates
from ratenorm.simulate.result import LayerActivity
from ratenorm.simulate.simulate import simulate

WORTH_SAYING = 0.002  # a fraction of the images: costs below it are not findings
RESTLESS = 0.1  # thresholds a step at rest from which on a late layer is told that this is why


@dataclass(frozen=True)
class LayerFigures:
    """The rate of a layer against the analog rate, and the state of its neurons after T steps."""

    name: str
    slope: float | None  # of the rate against the analog rate, through the origin: 1 is right, less is too slow
    correlation: float | None
    k: float | None
    omega: float | None
    saturated: float
    dead: float
    negative: float
    first_spike: float | None  # mean step of the first spike among the neurons that should fire
    rest: float | None  # current at rest in thresholds, root mean square; None: sees the image itself


@dataclass(frozen=True)
class Finding:
    """One thing that costs accuracy (in points), or helps, and what to do."""

    layer: str | None
    cost: float | None
    text: str
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """What was found on `images` images at T = `steps`. Prints as a text."""

    steps: int
    images: int
    ann_accuracy: float
    analog_accuracy: float
    snn_accuracy: float
    measure: str  # "accuracy", or "agreement with the ANN" where there were no labels
    layers: tuple[LayerFigures, ...]
    findings: tuple[Finding, ...]

    def to_json(self, run: str) -> dict[str, Any]:
        """The `diagnosis` entry of a record."""
        return {
            "run": run,
            "findings": [asdict(f) for f in self.findings],
            "layers": [asdict(layer) for layer in self.layers],
        }

    def _repr_html_(self) -> str:
        rows = [(str(i), f.text, f.remedy) for i, f in enumerate(self.findings, start=1)]
        title = str(self).splitlines()[0]
        return notebook.table(title, ("", "finding", "try"), rows or [("", "Nothing to mend.", "")])

    def __str__(self) -> str:
        lines = [
            f"{self.images} images, T = {self.steps}, {self.measure}: ANN {100 * self.ann_accuracy:.2f} %, clipped at "
            f"the thresholds {100 * self.analog_accuracy:.2f} %, spiking {100 * self.snn_accuracy:.2f} %.",
            "",
        ]
        for rank, finding in enumerate(self.findings, start=1):
            lines += [f"{rank}. {finding.text}", f"   Try: {finding.remedy}"]
        if not self.findings:
            lines.append("Nothing to mend: no layer costs anything on these images.")
        lines += [
            "",
            f"{'layer':<24} {'slope':>6} {'corr':>6} {'K':>7} {'Omega':>7} {'satur.':>7} {'dead':>6} "
            f"{'v<0':>6} {'1st spike':>9} {'at rest':>7}",
        ]
        lines += [_row(layer) for layer in self.layers]
        return "\n".join(lines)


def _row(layer: LayerFigures) -> str:
    def shown(value: float | None, width: int, digits: int) -> str:
        return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"

    shares = " ".join(f"{100 * s:>5.1f}%" for s in (layer.dead, layer.negative))
    return (
        f"{layer.name:<24} {shown(layer.slope, 6, 3)} {shown(layer.correlation, 6, 3)} {shown(layer.k, 7, 4)} "
        f"{shown(layer.omega, 7, 2)} {100 * layer.saturated:>6.1f}% {shares} {shown(layer.first_spike, 9, 1)} "
        f"{shown(layer.rest, 7, 3)}"
    )


@undisturbed_call
def diagnose(conversion: Conversion, images: Tensor, labels: Tensor | None = None, steps: int = 32) -> Diagnosis:
    """Find what a converted network loses against its ANN, layer by layer, on some images.

    Without labels, agreement with the ANN's answers takes the place of accuracy. Costs L + 4 simulations.
    """
    check_kind("Diagnosing", "the conversion", conversion, Conversion, "what `convert` returned")
    check_images("Diagnosing", "the batch", images)
    check_count("Diagnosing", "steps", steps)
    if len(images) == 0:
        raise UsageError("Diagnosing: there is no image; at least one is needed.")
    check_input(conversion.net, images)
    net = conversion.net
    shape = net.shapes[net.output]
    if math.prod(shape) < 2:
        raise UsageError(
            f"Diagnosing: the network gives one number an image (shape {list(shape)}), and there is no class to be "
            "right about. Compare `simulate(...).logits` with the ANN's output instead."
        )
    truth = original(conversion.analog, images).flatten(1) if labels is None else labels
    if labels is not None:
        check_labels("Diagnosing", labels, len(images))
        if len(shape) != 1:
            raise UsageError(
                f"Diagnosing: one label for each image, but outputs of shape {list(shape)}. Leave the labels out: "
                "agreement with the ANN is measured then, place by place."
            )

    def right(given: Tensor) -> float:
        """The share of images answered right; of a map, the share of its pixels."""
        if labels is not None:
            return float((given.argmax(-1) == truth.to(given.device)).double().mean())
        found, wanted = (o.reshape(len(images), *shape).argmax(1) for o in (given, truth))
        return float((found == wanted).double().mean())

    result = simulate(net, images, steps, engine="dense", fit=True, first_spikes=True)
    rates = analog_rates(net, images)
    ann_accuracy, clipped = right(original(conversion.analog, images)), right(analog_run(net, images))
    spiking = right(result.logits[-1])
    rest = currents_at_rest(net)
    findings = [
        *_clipping(conversion, images, right, ann_accuracy, clipped),
        *_slowness(conversion, images, rates, rest, right, spiking, steps, result.layers),
        *_remedies(conversion, images, right, spiking, steps),
    ]
    findings.sort(key=lambda f: -abs(f.cost or 0.0))
    return Diagnosis(
        steps,
        len(images),
        ann_accuracy,
        clipped,
        spiking,
        "accuracy" if labels is not None else "agreement with the ANN",
        tuple(_figures(layer, rates[layer.name], steps, rest.get(layer.name)) for layer in result.layers),
        tuple(findings),
    )


def _clipping(conversion: Conversion, images: Tensor, right: Any, ann: float, clipped: float) -> list[Finding]:
    """What the thresholds cut off, before any spike is fired."""
    if ann - clipped < WORTH_SAYING:
        return []
    gains = {
        node.name: right(analog_run(conversion.net, images, {node.name})) - clipped
        for node in conversion.net.populations
    }
    worst = max(gains, key=lambda name: gains[name])
    return [
        Finding(
            worst,
            100 * (ann - clipped),
            f"The thresholds cut off {100 * (ann - clipped):.2f} points before any spike is fired; without the ceiling "
            f"of {worst!r} alone, {100 * gains[worst]:.2f} points come back.",
            f"a higher threshold there, for example Override(..., (({worst!r}, MaxNorm()),)), or a larger percentile",
        )
    ]


def _slowness(
    conversion: Conversion,
    images: Tensor,
    rates: dict[str, Tensor],
    rest: dict[str, float],
    right: Any,
    spiking: float,
    steps: int,
    layers: tuple[LayerActivity, ...],
) -> list[Finding]:
    """What each layer loses at T: the accuracy gained when it, too, is made analog."""
    names = [layer.name for layer in layers]
    ladder = [spiking] + [
        right(outputs(conversion.net, images, rates, names[: i + 1], steps)) for i in range(len(names))
    ]
    findings = []
    for i, layer in enumerate(layers):
        cost = ladder[i + 1] - ladder[i]
        if cost < WORTH_SAYING:
            continue
        assert layer.fit is not None
        k, omega = float(layer.fit.k[-1]), layer.fit.omega
        mean_rate = layer.fit.total / rates[layer.name].numel()
        pushed, learn = "", ""
        if (alone := rest.get(layer.name, 0.0)) >= RESTLESS:
            pushed = f" Until spikes come, its biases alone drive it, with {alone:.2g} thresholds a step."
            learn = ", or weights that do without (train --rest)"
        findings.append(
            Finding(
                layer.name,
                100 * cost,
                f"Layer {layer.name!r} costs {100 * cost:.2f} points at T = {steps}: its rates have not arrived "
                f"(K = {k:.3g}, Omega = {omega:.3g}, mean rate {mean_rate:.3g}: {mean_rate * steps:.2g} spikes each "
                f"by now).{pushed}",
                "a lower threshold for it (Percentile, Latency or Scaled through Override), v0 = 0.5, or more "
                f"steps{learn}",
            )
        )
    return findings


def _remedies(conversion: Conversion, images: Tensor, right: Any, spiking: float, steps: int) -> list[Finding]:
    """What helps, tried on the same images."""
    found = []
    if conversion.v0 != 0.5:
        better = simulate(with_start(conversion.net, 0.5), images, steps, engine="dense").logits[-1]
        gain = right(better) - spiking
        if gain >= WORTH_SAYING:
            found.append(
                Finding(
                    None,
                    100 * gain,
                    f"Starting the membranes at half the threshold wins {100 * gain:.2f} points at "
                    f"T = {steps}: spike counts are then rounded instead of rounded down.",
                    "v0 = 0.5",
                )
            )
    longer = simulate(conversion.net, images, 2 * steps, engine="dense").logits[-1]
    gain = right(longer) - spiking
    if gain >= WORTH_SAYING:
        found.append(
            Finding(
                None,
                100 * gain,
                f"Twice the steps (T = {2 * steps}) win {100 * gain:.2f} points: the network is late, not wrong.",
                "more steps, or lower thresholds to be there sooner",
            )
        )
    return found


def _figures(layer: LayerActivity, target: Tensor, steps: int, rest: float | None) -> LayerFigures:
    assert layer.fit is not None
    assert layer.first_spike is not None
    rate, target = layer.rates(steps).flatten().double(), target.flatten().double()
    power = float(target.square().sum())
    due = (layer.first_spike > 0) & (target.view_as(layer.first_spike) > 0)
    spread = torch.stack([rate, target])
    varies = bool((spread.std(dim=1) > 0).all())
    k = float(layer.fit.k[-1])
    limit = max(1, steps - 1)
    return LayerFigures(
        layer.name,
        float((rate * target).sum()) / power if power > 0 else None,
        float(torch.corrcoef(spread)[0, 1]) if varies else None,
        k if k != float("inf") else None,
        layer.fit.omega if layer.fit.omega != float("inf") else None,
        float((layer.counts >= limit).double().mean()),
        float((layer.counts == 0).double().mean()),
        float((layer.potential < 0).double().mean()),
        float(layer.first_spike[due].double().mean()) if bool(due.any()) else None,
        rest,
    )
