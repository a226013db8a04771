"""The state of a population and of a max-pool for some images, and what they did."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ratenorm.engines.event import kernels
from ratenorm.engines.event.arrays import Array, aligned, zeros
from ratenorm.engines.event.lists import Lists
from ratenorm.engines.event.plan import Stage
from ratenorm.engines.event.work import StageWork
from ratenorm.engines.result import Fit
from ratenorm.graph.net import Node
from ratenorm.graph.ops import Fire, MaxPool


class PopulationState:
    """Potentials, counts and the spikes of the current chunk."""

    def __init__(self, stage: Stage, images: int, fan_out: Tensor, target: Tensor | None, first_spikes: bool) -> None:
        assert isinstance(stage.node.op, Fire)
        self.stage, self.layout, self.name, self.images = stage, stage.layout, stage.name, images
        layout, op = stage.layout, stage.node.op
        shape = (1, *layout.shape)
        self._potential = layout.to_blocks(op.start.float().expand(shape).expand(images, *layout.shape))
        self._counts = zeros(images * layout.size, np.float32)
        found = _threshold(op.threshold.float().expand(shape), stage)
        self.threshold, self.threshold_block, self.threshold_pixel = found
        self.fan_out, self.fan_out_by_word = layout.fan_out(fan_out)
        self.words: Array = np.zeros(0, np.uint16)
        self._spikes: list[Array] = []
        self._synaptic_ops: list[Array] = []
        self._target = target
        self._goal = None if target is None else aligned(layout.to_lanes(target).numpy())
        self._fit_counts = zeros(0 if target is None else images * layout.size, np.int32)
        self._sums: list[Array] = []  # growth of |n|^2 and of n.r in each step
        self._first = np.zeros(images * layout.size, np.int32) if first_spikes else None

    def fire(self, work: StageWork, lists: Lists, extra: Array, steps: int, first_step: int) -> None:
        """Run the population over a chunk of steps; its spikes are then in `words`."""
        layout, tables = self.layout, self.stage.tables
        size = self.images * steps * layout.pixels * layout.words
        if len(self.words) != size:
            self.words = zeros(size, np.uint16)
        if not self.stage.listed and not self.stage.computed:
            kernels.fire_still(
                work.base,
                self._potential,
                self._counts,
                self.threshold,
                self.threshold_block,
                self.threshold_pixel,
                self.words,
                self.images,
                layout.blocks,
                layout.pixels,
                layout.width,
                steps,
            )
        else:
            sections = work.sections if work.listed else tables.sections[:0]
            kernels.fire_listed(
                self.images,
                layout.blocks,
                0,
                layout.blocks,
                layout.pixels,
                layout.width,
                steps,
                work.total,
                work.recent,
                tables.places,
                extra,
                work.base,
                work.base_image,
                work.base_block,
                work.base_pixel,
                self._potential,
                self._counts,
                self.threshold,
                self.threshold_block,
                self.threshold_pixel,
                self.words,
                lists.entries,
                lists.ranges,
                lists.marks,
                lists.mark_stride,
                sections,
                tables.factors,
                tables.first,
                tables.rows,
                tables.shares,
                tables.weights,
                tables.block_size,
                tables.diagonal,
            )
        self._note(steps, first_step)

    def _note(self, steps: int, first_step: int) -> None:
        layout = self.layout
        rows, neurons = self.images * steps, layout.size
        counted, operations = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
        count = kernels.tally if self.fan_out_by_word else kernels.tally_each
        count(self.words, rows, steps, layout.pixels * layout.words, self.fan_out, counted, operations)
        self._spikes.append(counted)
        self._synaptic_ops.append(operations)
        if self._goal is not None:
            sums = np.zeros((steps, 2))
            kernels.measure_fit(self.words, self.images, steps, neurons, self._fit_counts, self._goal, sums)
            self._sums.append(np.column_stack([2 * sums[:, 0] + counted, sums[:, 1]]))
        if self._first is not None:
            kernels.note_first(self.words, self.images, steps, neurons, first_step, self._first)

    def as_floats(self, steps: int) -> Tensor:
        """The spikes of the current chunk as torch reads them, [images * steps, …], channels last in memory."""
        layout = self.layout
        rows = self.images * steps
        out = zeros(rows * layout.pixels * layout.channels, np.float32)
        kernels.unpack(self.words, layout.pixels, layout.words, layout.channels, out)
        last = torch.from_numpy(out).view(rows, *layout.shape[1:], layout.channels)
        return last.movedim(-1, 1)

    def potential(self) -> Tensor:
        return self.layout.from_blocks(self._potential)

    def counts(self) -> Tensor:
        return self.layout.from_blocks(self._counts)

    def spikes(self) -> Tensor:
        return torch.from_numpy(np.concatenate(self._spikes)).double()

    def synaptic_ops(self) -> Tensor:
        return torch.from_numpy(np.concatenate(self._synaptic_ops)).double()

    def fit(self) -> Fit | None:
        if self._target is None:
            return None
        # |n / t - r|^2 = |n|^2 / t^2 - 2 n.r / t + |r|^2, where |n|^2 and n.r change only when a neuron spikes
        rates = self._target.double()
        squares, products = np.concatenate(self._sums).cumsum(0).T
        time = np.arange(1, len(squares) + 1)
        power = float(rates.square().sum())
        error = np.maximum(squares / time**2 - 2 * products / time + power, 0.0)
        return Fit(torch.from_numpy(error), float(rates.sum()), power)

    def first_spikes(self) -> Tensor | None:
        return None if self._first is None else self.layout.from_lanes(self._first)


def _threshold(full: Tensor, stage: Stage) -> tuple[Array, int, int]:
    """Thresholds lane by lane, and how far it is from one block's to the next and from one pixel's to the next.

    Those that all pixels share are repeated over the 64 lanes that a kernel may read at once.
    """
    layout = stage.layout
    flat = full.reshape(1, layout.channels, layout.pixels)
    if bool((flat == flat[:, :, :1]).all()):
        lanes = np.full(layout.lanes, np.inf, np.float32)
        lanes[: layout.channels] = flat[0, :, 0].numpy()
        return aligned(np.tile(lanes, 1 + -(-64 // layout.lanes))), layout.width, 0
    return layout.to_blocks(full, float("inf")), layout.pixels * layout.width, layout.width


class RelayState:
    """What has accumulated before a max-pool, and its maximum a step ago."""

    def __init__(self, node: Node, fan_out: Tensor) -> None:
        self.node, self.fan_out = node, fan_out
        self.accumulated: Tensor | None = None
        self.largest: Tensor | None = None
        self._synaptic_ops: list[Tensor] = []

    def run(self, value: Tensor, images: int, steps: int) -> Tensor:
        """The spikes passed on over a chunk, [images * steps, …]."""
        pool, out = self.node.op, []
        assert isinstance(pool, MaxPool)
        by_step = value.view(images, steps, *value.shape[1:])
        for s in range(steps):
            now = by_step[:, s]
            self.accumulated = now.clone() if self.accumulated is None else self.accumulated + now
            largest = pool(self.accumulated)
            passed = largest if self.largest is None else largest - self.largest
            self.largest = largest
            self._synaptic_ops.append(((passed != 0).sum(0).double() * self.fan_out).sum())
            out.append(passed)
        return torch.stack(out, 1).flatten(0, 1)

    def synaptic_ops(self) -> Tensor:
        return torch.stack(self._synaptic_ops)
