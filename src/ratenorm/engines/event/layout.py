"""How the values of a population lie in memory.

A population of C channels on P pixels is held as [image, block, pixel, lane] with blocks of `width` lanes, channels
last; its spikes as words of 16 bits, [row, pixel, word]. A flat population (F neurons) is one pixel of F channels.
Channels that only fill up a block have an infinite threshold and never spike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ratenorm.engines.event.arrays import Array, aligned

LIMIT = 1 << 16  # pixels and channels that fit the two halves of a list entry


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

    @cached_property
    def words(self) -> int:
        """Words of spikes a pixel."""
        return self.lanes // 16

    @cached_property
    def size(self) -> int:
        """Entries of the state of one image."""
        return self.lanes * self.pixels

    @property
    def listable(self) -> bool:
        return self.pixels <= LIMIT and self.lanes <= LIMIT

    def to_lanes(self, value: Tensor, fill: float = 0.0) -> Tensor:
        """[N, C, …] as [N, P, lanes]."""
        last = value.reshape(len(value), self.channels, self.pixels).transpose(1, 2)
        if self.lanes > self.channels:
            last = F.pad(last, (0, self.lanes - self.channels), value=fill)
        return last.contiguous()

    def to_blocks(self, value: Tensor, fill: float = 0.0) -> Array:
        """[N, C, …] as flat [N, block, P, lane]."""
        lanes = self.to_lanes(value.float(), fill).view(len(value), self.pixels, self.blocks, self.width)
        return aligned(lanes.transpose(1, 2).numpy())

    def from_blocks(self, flat: Array, out: Tensor) -> None:
        """The reverse of `to_blocks`, into a tensor [N, C, …]; N may be several sizes."""
        value = torch.from_numpy(flat).view(-1, self.blocks, self.pixels, self.width).transpose(2, 3)
        if self.lanes == self.channels:
            out.view(value.shape).copy_(value)
        else:
            value = value.reshape(-1, self.lanes, self.pixels)
            out.view(len(value), self.channels, -1).copy_(value[:, : self.channels])

    def from_lanes(self, flat: Array) -> Tensor:
        """The reverse of `to_lanes`."""
        value = torch.from_numpy(flat).view(-1, self.pixels, self.lanes)[:, :, : self.channels]
        return value.transpose(1, 2).reshape(-1, *self.shape)

    def fan_out(self, paths: Tensor) -> tuple[Array, bool]:
        """The fan-out as whole numbers, one a word where all its channels agree (True), else one a neuron."""
        lanes = self.to_lanes(paths.double().unsqueeze(0), fill=-1.0).view(-1, 16)
        by_word = bool(((lanes == lanes[:, :1]) | (lanes < 0)).all())
        chosen = lanes[:, 0] if by_word else lanes.flatten()
        return chosen.clamp_min(0).long().numpy().astype(np.int64), by_word
