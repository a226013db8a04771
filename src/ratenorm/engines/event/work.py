"""One stage for some images: its constant current, and the choice between listing spikes and convolving them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ratenorm.engines.event import kernels
from ratenorm.engines.event.affine import ChunkValues
from ratenorm.engines.event.arrays import Array, zeros
from ratenorm.engines.event.lists import Lists
from ratenorm.engines.event.plan import Stage

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

# What things cost, in processor cycles; only their ratios matter. Measured on one core with 512-bit vectors.
ENTRY = 8.0  # to take up a listed spike
ADDITION = 1.0 / 16  # to add one weight
MULTIPLY_ADD = 1.0 / 14  # in a dense convolution
UNPACK = 0.7  # to hand one neuron's spikes of a step to torch, and pool them
MANY = 1.5  # spikes a pixel and step from which it pays to keep the currents in registers
_NOTHING: Array = np.zeros(0, np.float32)


class StageWork:
    """What a stage needs besides the state of its neurons."""

    def __init__(self, stage: Stage, base: Tensor, images: int) -> None:
        self.stage, self.images = stage, images
        layout = stage.layout
        self.base_tensor = base
        uniform = (
            len(base) == 1 and bool((base.flatten(2) == base.flatten(2)[:, :, :1]).all())
            if base.ndim > 2
            else len(base) == 1
        )
        self.base_pixel = 0 if uniform else layout.width
        self.base_block = layout.width if uniform else layout.pixels * layout.width
        self.base_image = 0 if len(base) == 1 else layout.size
        if not stage.listed and not stage.computed:
            self.base = layout.to_blocks(base.expand(images, *base.shape[1:]))
        elif uniform:
            one = base.reshape(1, layout.channels, -1)[:, :, 0]
            self.base = _lanes(one, layout.lanes)
        else:
            self.base = layout.to_blocks(base)
        self.total = zeros(stage.tables.total, np.float32)
        self.recent = zeros(stage.tables.total, np.uint8)  # at most 255 steps: a chunk is shorter
        self.events = 0  # entries listed and rows run so far, to show the choice
        self.dense_rows = 0
        self.rows = 0

    def prepare(
        self, lists: Lists, populations: Mapping[str, PopulationState], values: ChunkValues, steps: int, choose: bool
    ) -> Array:
        """List the spikes that drive this stage; returns currents that torch computed instead, or nothing."""
        rows, stage = self.images * steps, self.stage
        tables, cost = stage.tables, 0.0
        sections = len(stage.listed)
        lists.begin(rows, sections, tables.marks)
        self.sections = tables.sections.copy()
        self.rows += rows
        self.listed = True
        for k, (_, route) in enumerate(stage.listed):
            source = populations[route.source]
            found = lists.add(source.words, source.layout, rows, route, k, sections, int(tables.sections[k, 7]))
            # Take the spikes of a pixel together where there are several on average, else one by one.
            self.sections[k, 6] = found > MANY * rows * route.grid
            share = found / max(1, route.grid * len(route.weight))  # of its inputs
            cost += found * ENTRY + share * route.additions * ADDITION
        names = list(stage.computed)
        if choose and cost > rows * stage.dense_cost(MULTIPLY_ADD, UNPACK):
            names += dict.fromkeys(name for name, _ in stage.listed)
            self.listed = False
            self.dense_rows += rows
        return self._computed(values, names)

    def _computed(self, values: ChunkValues, names: list[str]) -> Array:
        total: Tensor | None = None
        for name in names:
            part = values.linear(name)
            if part is not None:
                total = part if total is None else total + part
        if total is None:
            return _NOTHING
        return self.stage.layout.to_lanes(total).numpy().reshape(-1)

    def currents(self, lists: Lists, extra: Array, steps: int) -> Tensor:
        """The currents themselves, [images * steps, …]: for the output."""
        layout, tables = self.stage.layout, self.stage.tables
        rows = self.images * steps
        base = self.base_tensor
        value = base.expand(self.images, *base.shape[1:]).repeat_interleave(steps, 0)
        if self.stage.listed and self.listed:
            out = zeros(rows * layout.size, np.float32)
            kernels.gather_currents(
                self.images,
                layout.blocks,
                layout.pixels,
                layout.width,
                steps,
                self.total,
                tables.places,
                out,
                lists.entries,
                lists.ranges,
                lists.marks,
                lists.mark_stride,
                self.sections,
                tables.factors,
                tables.first,
                tables.rows,
                tables.shares,
                tables.weights,
                tables.block_size,
                tables.diagonal,
            )
            value = value + layout.from_blocks(out)
        if len(extra):
            value = value + layout.from_lanes(extra)
        return value


def _lanes(value: Tensor, lanes: int) -> Array:
    out = zeros(lanes, np.float32)
    out[: value.numel()] = value.reshape(-1).numpy()
    return out
