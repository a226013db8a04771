"""One stage for some images: its constant current, and the choice between listing spikes and convolving them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ratenorm.engines.event import jobs
from ratenorm.engines.event.affine import ChunkValues
from ratenorm.engines.event.arrays import Array, zeros
from ratenorm.engines.event.board import Where, where
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.plan import Stage
from ratenorm.engines.event.room import Room
from ratenorm.engines.event.threads import torch_threads

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

FETCH = 1 / 1024  # listed spikes for each weight of a block from which most of them are needed: read them in order
MANY = 1.2  # spikes a pixel and step from which it pays to keep the currents in registers
SLIDE = 3.0  # from which it pays to keep those of its neighbours there too

_NOTHING: Array = np.zeros(0, np.float32)
_NOWHERE = where(_NOTHING)
_NO_SPIKES = where(np.zeros(0, np.uint16))


class StageWork:
    """What a stage needs besides the state of its neurons. `parts` threads may work on its blocks at once."""

    def __init__(self, stage: Stage, images: int, parts: int, value: Tensor | None) -> None:
        """`value` is the constant current where it depends on the images."""
        self.stage, self.images = stage, images
        self.parts = min(parts, stage.layout.blocks)
        if value is None:
            assert stage.base is not None
            self.value, self.base, self._where_base = stage.base, stage.base_everywhere, stage.where_base
        else:
            self.value, self.base = value, stage.base_of(value.expand(images, *stage.layout.shape))
            self._where_base = where(self.base.values)
        self.rows = self.dense_rows = 0  # run so far, and how many of them by convolution
        self.listed = True  # or else torch computes what could be listed
        self.together = 1  # steps
        self.skip: Where = _NO_SPIKES

    def fire(self, room: Room, crew: Crew, neurons: Where, extra: Array, steps: int, fresh: bool) -> None:
        """Run the neurons over a chunk; `fresh` ones begin with zeros."""
        job = jobs.listed if self.stage.driven else jobs.still
        arrays = self._arrays(room, extra) if self.stage.driven else self._where_base
        crew.run(job, self.parts, [*self._numbers(room, steps), int(fresh)], neurons + arrays)

    def _numbers(self, room: Room, steps: int) -> list[int]:
        t, base = self.stage.tables, self.base
        fetch = room.used > FETCH * (t.block_size + t.short_used)
        sizes = [self.images, steps, *self.stage.numbers, base.image, base.block, base.pixel]
        lists = [room.mark_stride, *t.numbers, int(fetch), t.total]
        return [*sizes, *lists, self.stage.fan_out_by, self.together]

    def _arrays(self, room: Room, extra: Array) -> Where:
        """Base, extra, scratch and feed, in the order of jobs.py."""
        t = self.stage.tables
        sections = t.where_sections if self.listed else [t.where_sections[0], 0]
        return [
            *self._where_base,
            *(where(extra) if len(extra) else _NOWHERE),
            *room.scratch(self.parts * t.total, self.together),
            *t.where_places,
            *room.where_lists,
            *sections,
            *t.where_rest,
            *self.skip,
            *self.stage.where_skip_scale,
        ]

    def prepare(
        self,
        room: Room,
        crew: Crew,
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
        self.listed = True
        self.rows += rows
        for k, (_, route) in enumerate(stage.listed):
            source = populations[route.source]
            found = room.add(crew, source, route, k, tables)
            # Take the spikes of a pixel together where there are several on average, else one by one.
            room.modes[k] = (found > MANY * rows * route.grid) + (found > SLIDE * rows * route.grid)
            cost += found * stage.costs[k]
        if stage.skip is not None:
            self.skip = populations[stage.skip.source].spiked.where_words
        names = list(stage.computed)
        if choose and cost > rows * stage.dense_costs[0] + stage.dense_costs[1]:
            names += dict.fromkeys(name for name, _ in stage.listed)
            self.listed = False
            self.dense_rows += rows
        self.together = min(steps, stage.together) if not names and count and room.modes[0] else 1
        if not names:
            return _NOTHING
        crew.rest()
        with torch_threads(crew.size):
            return self._computed(values, names)

    def _computed(self, values: ChunkValues, names: list[str]) -> Array:
        total: Tensor | None = None
        for name in names:
            part = values.linear(name)
            if part is not None:
                total = part if total is None else total + part
        return _NOTHING if total is None else self.stage.layout.to_lanes(total).numpy().reshape(-1)

    def currents(self, room: Room, crew: Crew, extra: Array, steps: int) -> Tensor:
        """The currents themselves, [images * steps, …]: for the output."""
        layout = self.stage.layout
        by_step = (self.images, steps, *layout.shape)
        value = self.value.unsqueeze(1)
        if self.listed and self.stage.listed:
            out = zeros(self.images * steps * layout.size, np.float32)
            crew.run(jobs.currents, self.parts, self._numbers(room, steps), 6 * _NOWHERE + self._arrays(room, out))
            found = torch.empty(by_step)
            layout.from_blocks(out, found)
            value = found.add_(value)
        if len(extra):
            value = value + layout.from_lanes(extra).view(by_step)
        return value.expand(by_step).reshape(-1, *layout.shape)
