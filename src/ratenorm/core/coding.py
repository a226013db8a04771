"""How an image enters the spiking network: the two rate codings of the paper (section 2.3).

Constant coding hands the analog value in at every step as a current. Poisson coding hands in spikes of one amplitude
whose expectation is the value. Its random numbers are a function of (seed, image, step, pixel) and of nothing else:
the same image gets the same spikes in any batch, on any engine, on any process.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ratenorm.errors import SettingError

_ODD_1, _ODD_2 = -7046029254386353131, -4417276706812531889  # splitmix64's multipliers as signed integers
_STEP = -0x61C8864680B583EB  # its increment


@dataclass(frozen=True)
class Constant:
    """x(t) = x."""

    def encode(self, x: Tensor, step: int, first_image: int = 0) -> Tensor:
        del step, first_image
        return x


@dataclass(frozen=True)
class Poisson:
    """x(t) = sign(x) a with probability |x| / a, else 0, so that E x(t) = x for |x| <= a.

    `amplitude` is a; larger values of |x| are clipped to it, so give it at least the largest input.
    """

    amplitude: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.amplitude > 0:
            raise SettingError(f"Poisson coding: amplitude is {self.amplitude}, it must be positive.")

    def encode(self, x: Tensor, step: int, first_image: int = 0) -> Tensor:
        """The input at step `step` (from 0) for images `first_image`, `first_image + 1`, …"""
        uniform = counter_uniform(self.seed, step, first_image, x)
        return x.sign() * self.amplitude * (uniform * self.amplitude < x.abs())


Coding = Constant | Poisson


def counter_uniform(seed: int, step: int, first_image: int, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) shaped like `like` [B, …], each a hash of (seed, step, image, pixel)."""
    pixels = like[0].numel()
    image = torch.arange(first_image, first_image + len(like), device=like.device).unsqueeze(1)
    pixel = torch.arange(pixels, device=like.device).unsqueeze(0)
    stream = _mix(_mix(torch.tensor(seed, device=like.device)) + step)
    bits = _mix(_mix(stream + image) + pixel)
    return ((bits >> 11) & ((1 << 24) - 1)).to(like.dtype).div_(1 << 24).view_as(like)


def _mix(z: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64 (multiplication wraps around; masks make the shifts logical)."""
    z = z + _STEP
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _ODD_1
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _ODD_2
    return z ^ ((z >> 31) & ((1 << 33) - 1))
