"""How the values of a population lie in memory.

A population of C channels on P pixels is held as [image, block, pixel, lane] with blocks of `width` lanes, channels
last; its spikes as words of 16 bits, [row, pixel, word]. A flat population (F neurons) is one pixel of F channels.
Channels that only fill up a block have an infinite threshold and never spike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from ratenorm.simulate.event.tables import Array, flat

LIMIT = 1 << 16  # pixels and channels that an entry of a list can number
WORD = 16  # neurons of a word of spikes


@dataclass(frozen=True)
class Layout:
    """The sizes of one population."""

    shape: tuple[int, ...]
    width: int  # lanes of a block
    blocks: int

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Layout:
        """Blocks of 32 lanes: nine rows of them, a 3x3 kernel, fit the registers of a core."""
        channels = shape[0] if shape else 1
        width = 16 if channels <= 16 else 32
        return cls(shape, width, -(-channels // width))

    def widened(self) -> Layout:
        """Blocks of up to 128 lanes, for stages that keep no windows in registers: each spike is visited less often."""
        width = next((w for w in (128, 64) if self.lanes % w == 0), self.width)
        return replace(self, width=width, blocks=self.lanes // width)

    @property
    def channels(self) -> int:
        return self.shape[0] if self.shape else 1  # a single number is one channel

    @cached_property
    def lanes(self) -> int:
        """Channels with those that fill up."""
        return self.width * self.blocks

    @cached_property
    def pixels(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def listable(self) -> bool:
        return self.pixels <= LIMIT and self.lanes <= LIMIT

    @property
    def sizes(self) -> dict[str, Any]:
        """For the table of a stage."""
        return {"pixels": self.pixels, "blocks": self.blocks, "width": self.width, "channels": self.channels}

    def to_lanes(self, value: Tensor, fill: float = 0.0) -> Tensor:
        """[N, C, …] as [N, P, lanes]."""
        last = value.reshape(len(value), self.channels, self.pixels).transpose(1, 2)
        if self.lanes > self.channels:
            last = F.pad(last, (0, self.lanes - self.channels), value=fill)
        return last.contiguous()

    def to_blocks(self, value: Tensor, fill: float = 0.0) -> Array:
        """[N, C, …] as flat [N, block, P, lane]."""
        lanes = self.to_lanes(value.float(), fill).view(len(value), self.pixels, self.blocks, self.width)
        return flat(lanes.transpose(1, 2).numpy(), np.float32)

    def by_channel(self, value: Tensor, fill: float = 0.0) -> Array | None:
        """A value of every neuron, [C, …], lane by lane where all pixels share it; else None."""
        own = value.expand(self.shape or (1,)).reshape(self.channels, self.pixels)
        if not bool((own == own[:, :1]).all()):
            return None
        lanes = np.full(self.lanes, fill, np.float32)
        lanes[: self.channels] = own[:, 0].numpy()
        return lanes

    def fan_out(self, paths: Tensor) -> dict[str, Array]:
        """The fan-out as whole numbers: one for each run of words that share it, else one a neuron without runs."""
        lanes = self.to_lanes(paths.double().unsqueeze(0), fill=-1.0).view(-1, WORD)
        if not bool(((lanes == lanes[:, :1]) | (lanes < 0)).all()):
            return {"fan_out": flat(lanes.clamp_min(0).long().numpy(), np.int64)}
        words = lanes[:, 0].clamp_min(0).long().numpy()
        heads = np.flatnonzero(np.diff(words, prepend=-1))
        return {"fan_out": flat(words[heads], np.int64), "runs": flat(np.diff(heads, append=len(words)), np.int32)}
