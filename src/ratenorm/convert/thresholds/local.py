"""Local threshold balancing (LTB): thresholds per channel that rise until little is cut off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds, gain
from ratenorm.errors import CalibrationError, SettingError
from ratenorm.graph.net import Graph, Node, run
from ratenorm.graph.ops import Activation, Fire


@dataclass(frozen=True)
class LocalThresholds(Method):
    """theta_c rises by twice the mean of what it cuts off, batch after batch, from 0.

        theta_c += 2 mean(relu(z - theta_c))        over batch and space, for each channel c

    Later layers see activations clipped at the thresholds so far. The images are put into an order of their own, so
    the result does not depend on how they arrive. Start the network at v(0) = theta / 2.

    Args:
        updates: Number of batches.
        batch_size: Images in a batch; the images are used again from the start when they end.
    """

    updates: int = 60
    batch_size: int = 50
    label: ClassVar[str] = "local"
    papers: ClassVar[tuple[str, ...]] = ("bu2025",)

    def __post_init__(self) -> None:
        if self.updates < 1 or self.batch_size < 1:
            raise SettingError(
                f"LocalThresholds: updates is {self.updates} and batch_size {self.batch_size}; both must be at least 1."
            )

    @torch.no_grad()
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        images = self.data(calibration).in_own_order()
        thresholds: dict[str, Tensor] = {}

        def clip(node: Node, value: Tensor) -> Tensor:
            if not isinstance(node.op, Activation):
                return value
            per_unit = gain(node)
            z = value / per_unit
            if node.name not in thresholds:
                thresholds[node.name] = z.new_zeros(z.shape[1], *[1] * (z.ndim - 2))
            over = [0, *range(2, z.ndim)]
            excess = (z - thresholds[node.name]).clamp_min(0.0).double()
            rise = excess.mean(over).float().reshape(thresholds[node.name].shape)
            thresholds[node.name] = thresholds[node.name] + 2.0 * rise
            return z.minimum(thresholds[node.name]) * per_unit

        for update in range(self.updates):
            chosen = torch.arange(update * self.batch_size, (update + 1) * self.batch_size) % len(images)
            run(graph, images[chosen.unique()], clip)
        silent_as_layer = {name: torch.where(t > 0, t, t.amax()) for name, t in thresholds.items()}
        return from_thresholds(graph, silent_as_layer, self)


@torch.no_grad()
def read_out_start(net: Graph, analog: Graph, images: Tensor, steps: int) -> int:
    """The number of first steps that LTB's late read-out leaves out: the time a spike needs to reach the output.

        t0 = sum over layers of (theta - v(0)) / max_c mean(relu(z_c)),    at most steps - 4

    `SimResult.read_out_from` averages the outputs of the steps after t0. The answer still comes after `steps` steps.
    """
    means: dict[str, float] = {}

    def look(node: Node, value: Tensor) -> Tensor:
        if isinstance(node.op, Activation):
            z = value / gain(node)
            means[node.name] = float(z.mean([0, *range(2, z.ndim)]).amax())
        return value

    run(analog, images, look)
    total = 0.0
    for site in sites(analog):
        fire = net[site.name].op
        assert isinstance(fire, Fire)
        if not means[site.name] > 0:
            raise CalibrationError(
                f"Finding the start of the read-out: layer {site.name!r} never fires on these images. Give others."
            )
        total += float((fire.threshold - fire.start).mean()) / means[site.name]
    return max(0, min(round(total), steps - 4))
