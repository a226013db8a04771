"""One stage for some images: its constant current, and the choice between listing spikes and convolving them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ratenorm.engines.event import fire
from ratenorm.engines.event.affine import ChunkValues
from ratenorm.engines.event.arrays import Array, aligned, zeros
from ratenorm.engines.event.fire import Base, Scratch, Sizes
from ratenorm.engines.event.plan import Stage
from ratenorm.engines.event.room import Room
from ratenorm.engines.event.scatter import Feed

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

# What things cost, in nanoseconds on one core with 512-bit vectors; only their ratios matter. See benchmarks/engine.py.
ENTRY = 1.6  # to take up a listed spike for a block
ADDITION = 1 / 34  # to add one weight
MULTIPLY_ADD = 1 / 85  # in a dense convolution, the padding included
UNPACK = 1.5  # to hand one neuron's spike of a step to torch, pooled, and to take back a current
REORDER = 7.0  # to bring one weight into the order of a dense convolution, in every chunk
FETCH = 1 / 1024  # listed spikes for each weight of a block from which most of them are needed: read them in order
MANY = 1.2  # spikes a pixel and step from which it pays to keep the currents in registers

_NOTHING: Array = np.zeros(0, np.float32)
_NO_SPIKES: Array = np.zeros(0, np.uint16)


class StageWork:
    """What a stage needs besides the state of its neurons. `parts` threads may work on its blocks at once."""

    def __init__(self, stage: Stage, value: Tensor, images: int, parts: int) -> None:
        self.stage, self.images, self.value = stage, images, value
        layout = stage.layout
        self.parts = min(parts, layout.blocks)
        self.base = _base(stage, value, images)
        self.scratch = [
            Scratch(zeros(stage.tables.total, np.float32), zeros(stage.tables.total, np.uint8), stage.tables.places)
            for _ in range(self.parts)
        ]
        self.rows = self.dense_rows = 0  # run so far, and how many of them by convolution
        self.sections = stage.tables.sections
        self.skip = _NO_SPIKES

    def blocks(self, part: int) -> tuple[int, int]:
        """The blocks that one of the parts takes."""
        count = self.stage.layout.blocks
        return part * count // self.parts, (part + 1) * count // self.parts

    def sizes(self, steps: int) -> Sizes:
        layout = self.stage.layout
        return Sizes(self.images, steps, layout.pixels, layout.blocks, layout.width)

    def feed(self, room: Room) -> Feed:
        t = self.stage.tables
        return Feed(
            entries=room.entries,
            ranges=room.ranges,
            marks=room.marks,
            mark_stride=room.mark_stride,
            sections=self.sections,
            factors=t.factors,
            first=t.first,
            cut=t.cut,
            segments=t.rows,
            shares=t.shares,
            weights=t.weights,
            block_size=t.block_size,
            short=t.short,
            short_size=t.short_size,
            short_used=t.short_used,
            units=t.units,
            diagonal=t.diagonal,
            skip=self.skip,
            skip_scale=self.stage.skip_scale,
            fetch=room.used > FETCH * (t.block_size + t.short_used),
        )

    def prepare(
        self,
        room: Room,
        populations: Mapping[str, PopulationState],
        values: ChunkValues,
        steps: int,
        choose: bool,
    ) -> Array:
        """List the spikes that drive this stage; returns currents that torch computed instead, or nothing."""
        rows, stage = self.images * steps, self.stage
        tables, cost = stage.tables, 0.0
        count = len(stage.listed)
        room.begin(rows, count, tables.marks)
        self.sections = tables.sections.copy()
        self.rows += rows
        for k, (_, route) in enumerate(stage.listed):
            source = populations[route.source]
            found = room.add(source.words, source.layout, rows, route, k, count, int(tables.sections[k, 7]))
            # Take the spikes of a pixel together where there are several on average, else one by one.
            self.sections[k, 6] = found > MANY * rows * route.grid
            share = found / max(1, route.grid * len(route.weight))  # of its inputs
            cost += found * stage.layout.blocks * ENTRY + share * route.additions * ADDITION
        if stage.skip is not None:
            self.skip = populations[stage.skip.source].words
        names = list(stage.computed)
        if choose and cost > stage.dense_cost(rows, MULTIPLY_ADD, UNPACK, REORDER):
            names += dict.fromkeys(name for name, _ in stage.listed)
            self.sections = self.sections[:0]
            self.dense_rows += rows
        return self._computed(values, names)

    def _computed(self, values: ChunkValues, names: list[str]) -> Array:
        total: Tensor | None = None
        for name in names:
            part = values.linear(name)
            if part is not None:
                total = part if total is None else total + part
        return _NOTHING if total is None else self.stage.layout.to_lanes(total).numpy().reshape(-1)

    def currents(self, room: Room, extra: Array, steps: int) -> Tensor:
        """The currents themselves, [images * steps, …]: for the output."""
        layout = self.stage.layout
        value = self.value.expand(self.images, *layout.shape).repeat_interleave(steps, 0)
        if len(self.sections):
            out = zeros(self.images * steps * layout.size, np.float32)
            fire.gather_currents(self.sizes(steps), self.scratch[0], self.feed(room), out)
            value = value + layout.from_blocks(out)
        return value + layout.from_lanes(extra) if len(extra) else value


def _base(stage: Stage, value: Tensor, images: int) -> Base:
    """The constant current as the kernels read it, no larger than it must be."""
    layout = stage.layout
    block = layout.pixels * layout.width
    if not stage.driven:
        return Base(layout.to_blocks(value.expand(images, *layout.shape)), layout.size, block, layout.width)
    if len(value) > 1:
        return Base(layout.to_blocks(value), layout.size, block, layout.width)
    flat = value.reshape(layout.channels, layout.pixels)
    if not bool((flat == flat[:, :1]).all()):
        return Base(layout.to_blocks(value), 0, block, layout.width)
    lanes = np.zeros(layout.lanes, np.float32)
    lanes[: layout.channels] = flat[:, 0].numpy()
    return Base(aligned(lanes), 0, layout.width, 0)
