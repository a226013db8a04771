"""The Rate Norm layer (Eq. 6): a clip with a trainable ceiling whose output is the firing rate to come.

| paper          | here          | shape  | meaning                                                        |
|----------------|---------------|--------|----------------------------------------------------------------|
| W r + b        | x             | [B, …] | pre-activation                                                 |
| max(W r + b)   | running_max   | []     | its running maximum, momentum m = 0.1, start 1.0 (Algorithm 1) |
| p              | p             | []     | fraction of the maximum, 1 in stage 1, sigmoid(p') in stage 2  |
| theta          | threshold     | []     | p * running_max: the firing threshold of the spiking neurons   |
| z              | (activation)  | [B, …] | clip(x, 0, theta)                                              |
| r^             | (rate)        | [B, …] | z / theta                                                      |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ratenorm.errors import SettingError

# A layer whose input is never positive would drive the running maximum to zero and the rate to 0/0.
SMALLEST_MAX = 1e-6
SMALLEST_P = 1e-4  # of a trained p
LARGEST_LEVELS = 256

Output = Literal["rate", "activation"]


def clip_rate(x: Tensor, threshold: Tensor) -> Tensor:
    """r^ = clip(x, 0, theta) / theta (Eq. 6), the plain form that `ClipRate` is tested against."""
    return (x / threshold).clamp(0.0, 1.0)


class ClipRate(torch.autograd.Function):
    """`clip_rate` with one pass less over memory each way: training with Rate Norm costs what ReLU costs.

    Inside the interval dr/dx = 1/theta and dr/dtheta = -r/theta; outside both are 0.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor) -> Tensor:
        rate = torch.div(x, threshold).clamp_(0.0, 1.0)
        ctx.save_for_backward(rate, threshold)
        return rate

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor | None]:
        rate, threshold = ctx.saved_tensors
        inside = torch.ops.aten.hardtanh_backward(grads[0], rate, 0.0, 1.0).div_(threshold)
        if not ctx.needs_input_grad[1]:
            return inside, None
        return inside, -(inside * rate).sum().reshape(threshold.shape)


class ClipActivation(torch.autograd.Function):
    """z = theta * r^ = clip(x, 0, theta) in one pass over memory, as ReLU.

    Inside the interval dz/dx = 1, at the ceiling dz/dtheta = 1; elsewhere both are 0.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor) -> Tensor:
        # clamping with numbers is three to eight times as fast, but a GPU would have to be waited for to know them
        known = threshold.device.type == "cpu"
        activation = x.clamp(0.0, float(threshold)) if known else x.clamp(torch.zeros_like(threshold), threshold)
        ctx.save_for_backward(activation, threshold)
        return activation

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor | None]:
        activation, threshold = ctx.saved_tensors
        if threshold.device.type == "cpu" and not ctx.needs_input_grad[1]:
            return torch.ops.aten.hardtanh_backward(grads[0], activation, 0.0, float(threshold)), None
        rate = activation / threshold  # compared with 1, which is known without asking the device for theta
        inside = torch.ops.aten.hardtanh_backward(grads[0], rate, 0.0, 1.0)
        if not ctx.needs_input_grad[1]:
            return inside, None
        return inside, (grads[0] * (rate >= 1.0)).sum().reshape(threshold.shape)


class AfterSteps(torch.autograd.Function):
    """floor(T r) / T for rates r = z / unit in [0, 1]: the rate that T steps of a constant current give (Eq. 3, from
    v(0) = 0), which tends to r and is less than 1/T below it. The gradient passes as if nothing had been cut off.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, unit: Tensor, steps: int) -> Tensor:
        exact = torch.promote_types(z.dtype, torch.float32)  # bfloat16 does not know 257 from 256
        # divided before it is multiplied: a saturated neuron has r = 1 exactly and must not lose a spike to rounding
        rates = z.to(exact, copy=True).div_(unit.to(exact)).mul_(steps).floor_().div_(steps)
        return rates.mul_(unit.to(exact)).to(z.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        return grads[0], None, None


class Quantise(torch.autograd.Function):
    """theta * q(x / theta) with q(r) = clip(floor(r L + 1/2) / L, 0, 1): what L steps from v(0) = theta/2 give (QCFS).

    The gradient passes as if nothing had been rounded: dz/dx = 1 for -theta/2L < x < theta - theta/2L, else 0. For the
    threshold, dz/dtheta = q - x / theta inside and q outside. With L to infinity this is `ClipActivation`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, levels: int) -> Tensor:
        scaled = torch.div(x, threshold).mul_(levels).add_(0.5)
        rate = scaled.floor().clamp_(0.0, levels).div_(levels)
        inside = (scaled > 0.0) & (scaled < levels)
        # dz/dtheta without its sum; (scaled - 1/2) / L is x / theta
        slope = rate - torch.where(inside, scaled.sub_(0.5).div_(levels), 0.0)
        ctx.save_for_backward(inside, slope if ctx.needs_input_grad[1] else None)
        ctx.shape = threshold.shape
        return rate.mul_(threshold)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor | None, None]:
        inside, slope = ctx.saved_tensors
        passed = grads[0] * inside
        if slope is None:
            return passed, None, None
        return passed, (grads[0] * slope).sum_to_size(ctx.shape), None


class RateNorm(nn.Module):
    """Rate Norm layer: clip(x, 0, theta) / theta with theta = p * running_max (Eq. 6).

    In training mode, unless frozen, every batch moves the running maximum; under `torch.distributed` the maximum is
    taken over all processes first. The maximum is a statistic like BatchNorm's: no gradient flows through it.

    `output="activation"` hands on z = theta * r^ instead of r^, which keeps the scale of a ReLU network: with theta at
    the observed maximum the layer then equals ReLU on that data, so a trained ReLU network can go on from its weights.

    With `steps` the layer hands on what so many steps of its spiking neurons will have brought, floor(T r^) / T,
    instead of the limit r^. That is a matter of training, set for a while (`train/rates.py`) and not stored.

    With `levels` the layer is quantised: it hands on the nearest of levels + 1 equal steps from 0 to theta. The maximum
    then stays where it is, and p is a trained parameter. Convert such a network with v0=0.5.

    Args:
        momentum: Share of each batch's maximum in the running maximum.
        output: Hand on the rate r^ or the activation z.
        levels: Number of quantisation levels, 1 to 256; None for the paper's layer, their limit.
        channels: With levels, train one p for each of so many channels instead of one for the layer.

    Example:
        >>> layer = RateNorm(levels=4, output="activation")
        >>> layer(torch.tensor([0.1, 0.2, 0.6, 5.0]))
        tensor([0.0000, 0.2500, 0.5000, 1.0000], grad_fn=<QuantiseBackward>)
    """

    running_max: Tensor
    p: Tensor

    def __init__(
        self,
        momentum: float = 0.1,
        output: Output = "rate",
        levels: int | None = None,
        channels: int | None = None,
    ) -> None:
        super().__init__()
        if levels is not None and (type(levels) is not int or not 1 <= levels <= LARGEST_LEVELS):
            raise SettingError(f"RateNorm: levels is {levels!r}, it must be a whole number from 1 to {LARGEST_LEVELS}.")
        if channels is not None and (levels is None or channels < 1):
            raise SettingError(f"RateNorm: channels is {channels!r}; it must be at least 1, and belongs to levels.")
        if not 0.0 < momentum <= 1.0:
            raise SettingError(f"RateNorm: momentum is {momentum}, it must lie in (0, 1].")
        if output not in ("rate", "activation"):
            raise SettingError(f"RateNorm: output is {output!r}, it must be 'rate' or 'activation'.")
        self.momentum = momentum
        self.output: Output = output
        self.frozen = False
        self.steps: int | None = None
        self.register_buffer("running_max", torch.tensor(1.0))
        self.levels = levels
        if levels is None:
            self.register_buffer("p", torch.tensor(1.0))
        else:
            self.p = nn.Parameter(torch.ones(() if channels is None else (channels,)))

    @property
    def threshold(self) -> Tensor:
        """theta = p * running_max, [] or [C]."""
        p = self.p.clamp_min(SMALLEST_P) if isinstance(self.p, nn.Parameter) else self.p
        return p * self.running_max.clamp_min(SMALLEST_MAX)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.p, nn.Parameter):  # built with levels
            return self._with_trained_threshold(x)
        if self.training and not self.frozen:
            self.observe_(x)
        threshold = self.threshold.to(x.dtype)
        clip = ClipRate if self.output == "rate" else ClipActivation
        handed_on: Tensor = clip.apply(x, threshold)
        if self.steps is None:
            return handed_on
        unit = threshold if self.output == "activation" else torch.ones_like(threshold)
        after: Tensor = AfterSteps.apply(handed_on, unit.detach(), self.steps)
        return after

    def _with_trained_threshold(self, x: Tensor) -> Tensor:
        """Quantised, or its limit where `levels` was taken away."""
        threshold = self.threshold.to(x.dtype)
        if threshold.ndim:
            threshold = threshold.view(-1, *[1] * (x.ndim - 2))
        activation: Tensor = (
            x.clamp_min(0.0).minimum(threshold) if self.levels is None else Quantise.apply(x, threshold, self.levels)
        )
        return activation if self.output == "activation" else activation / threshold

    @torch.no_grad()
    def observe_(self, x: Tensor) -> None:
        """running_max <- (1 - m) running_max + m max(x)."""
        batch_max = x.detach().amax().to(self.running_max.dtype)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(batch_max, torch.distributed.ReduceOp.MAX)
        self.running_max.lerp_(batch_max, self.momentum)

    def freeze_(self, frozen: bool = True) -> None:
        """Hold the running maximum still, whatever mode the module is in."""
        self.frozen = frozen

    def extra_repr(self) -> str:
        levels = "" if self.levels is None else f", levels={self.levels}"
        mean = float(self.threshold.detach().mean())
        return f"threshold={mean:.4g}, p={float(self.p.detach().mean()):.4g}, output={self.output!r}{levels}"


def rate_norm_layers(model: nn.Module) -> Iterator[tuple[str, RateNorm]]:
    """Every Rate Norm layer of a network with its name, in the order of registration."""
    for name, module in model.named_modules():
        if isinstance(module, RateNorm):
            yield name, module


def set_p_(model: nn.Module, p: Tensor | float) -> None:
    """Give every Rate Norm layer the same p (one p' is shared by all layers, appendix B).

    Quantised layers keep their trained p.
    """
    for _, layer in rate_norm_layers(model):
        if layer.levels is not None:
            continue
        layer.p = torch.as_tensor(p, dtype=layer.running_max.dtype, device=layer.running_max.device)
