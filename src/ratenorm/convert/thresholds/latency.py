"""Stage 2 of the paper on a stranger's network (Ding et al. 2021, Eq. 13): thresholds from its maxima, p' trained.

No weights are touched and no labels are needed: the teacher is the network itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import Maximum, observe, sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds, gain
from ratenorm.core.losses import latency_loss, omega
from ratenorm.core.rate_norm import clip_rate
from ratenorm.errors import CalibrationError, SettingError
from ratenorm.graph.net import Graph, Node, run
from ratenorm.graph.ops import Activation


@dataclass(frozen=True)
class Latency(Method):
    """theta_l = sigmoid(p'_l) max_l, with p' minimising 1 - cos(teacher, student) + lam * mean Omega.

    First one p' shared by all layers; with `per_layer`, then one for each layer, from where the shared one ended. The
    images are put into an order of their own (by content), so the answer does not depend on how they arrive.
    """

    lam: float = 0.1
    per_layer: bool = False
    steps: int = 100
    batch_size: int = 50
    lr: float = 0.1
    start: float = 4.0
    label: ClassVar[str] = "latency"
    papers: ClassVar[tuple[str, ...]] = ("ding2021",)

    def __post_init__(self) -> None:
        if self.lam < 0 or self.steps < 1 or self.batch_size < 1 or not self.lr > 0:
            raise SettingError(
                f"Latency: lam is {self.lam}, steps {self.steps}, batch_size {self.batch_size}, lr {self.lr}: lam must "
                "not be negative, the others must be positive."
            )

    @torch.enable_grad()
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        images = self.data(calibration).in_own_order()
        maxima = {n: s.threshold for n, s in from_thresholds(graph, self._maxima(graph, calibration), self).items()}
        p_prime = torch.full((1,), self.start, dtype=torch.float32)
        for stage in range(2 if self.per_layer else 1):
            p_prime = p_prime.expand(len(maxima)).clone() if stage else p_prime
            p_prime = self._train(graph, maxima, images, p_prime)
        p = p_prime.sigmoid().expand(len(maxima))
        thresholds = {name: maximum * p[i] for i, (name, maximum) in enumerate(maxima.items())}
        return from_thresholds(graph, thresholds, self)

    def _maxima(self, graph: Graph, calibration: Calibration | None) -> dict[str, Tensor]:
        return observe(graph, self.data(calibration), lambda _: Maximum())

    def _train(self, graph: Graph, maxima: dict[str, Tensor], images: Tensor, start: Tensor) -> Tensor:
        p_prime = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([p_prime], lr=self.lr)
        order = {node.name: i for i, node in enumerate(sites(graph))}
        for step in range(self.steps):
            chosen = torch.arange(step * self.batch_size, (step + 1) * self.batch_size) % len(images)
            batch = images[chosen.unique()]
            with torch.no_grad():
                teacher = run(graph, batch)
            p = p_prime.sigmoid().expand(len(order))
            omegas: list[Tensor] = []

            def clipped(node: Node, value: Tensor, p: Tensor = p, omegas: list[Tensor] = omegas) -> Tensor:
                if not isinstance(node.op, Activation):
                    return value
                per_unit = gain(node)
                threshold = maxima[node.name] * p[order[node.name]]
                rate = clip_rate(value / per_unit, threshold)  # below its ceiling an activation is gain * x
                omegas.append(omega(rate))
                return rate * threshold * per_unit

            loss = latency_loss(teacher, run(graph, batch, clipped), omegas, self.lam)
            if not torch.isfinite(loss):
                raise CalibrationError(
                    f"Training p' with {self!r}: the loss became {float(loss.detach())} at step {step + 1}: a layer "
                    "is silent. Give more images, or a smaller lam."
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return p_prime.detach()
