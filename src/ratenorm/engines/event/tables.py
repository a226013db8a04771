"""The routes of a stage as flat tables for the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ratenorm.engines.event.arrays import Array, aligned
from ratenorm.engines.event.lanes import WIDE
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.pairs import segments
from ratenorm.engines.event.routes import Route, Window
from ratenorm.engines.event.scatter import RUN
from ratenorm.engines.event.short import Short, as_short

# Kinds of sections: how the spikes of a list find the currents they add to.
ROWS = 0  # along the segments of their pixel, to all channels
OWN = 1  # along the segments of their pixel, to their own channel only
WINDOW = 2  # to three runs of three pixels, all channels: a 3x3 convolution
POINT = 3  # to one pixel, all channels: a 1x1 convolution, or a linear layer
POINTS = 4  # along the segments of their pixel, each one pixel long, to all channels: 16-bit weights

# A pixel's spikes are mostly those of the same neurons, step after step: where several steps are added together, their
# weights are in the first-level cache after the first.
TOGETHER = (32, 16, 8)  # steps; fewer do not pay
TOGETHER_FROM = 20_000  # 16-bit weights of a block from which it pays: they exceed the first-level cache
PLANES = 72_000  # currents of all these steps that stay in the second-level cache beside the weights
# Where the currents of several steps lie plane behind plane, those of one place in neighbouring steps must not lie a
# multiple of 4096 bytes apart: a processor takes such a load for one of the store before and waits. A window is 96
# numbers wide.
PAGE, APART = 1024, 96


@dataclass(frozen=True, eq=False)
class Tables:
    """The routes of a stage as the kernels read them."""

    sections: Array  # [routes, 13], see _Builder.add
    factors: Array  # by section and digit
    first: Array  # by pixel: its first segment (ROWS, OWN, POINTS), or where its currents begin (WINDOW, POINT)
    cut: Array  # by pixel: what of its window lies outside the picture, see _cut; 0 for other kinds
    rows: Array  # [segments, 3]
    shares: Array  # [segments]
    weights: Array
    block_size: int
    short: Array  # the weights of sections that are read in 16 bits
    short_size: int  # of a block
    short_used: int  # of it, most of the time: without the rows for windows in which four neurons spike or more
    units: Array  # [sections in 16 bits, lanes]: what 1 stands for
    diagonal: Array
    places: Array  # where the current of each pixel lies
    total: int  # size of the currents of a block
    marks: int  # of a row

    @property
    def in_short(self) -> list[bool]:
        """Of every section: whether its weights have 16 bits."""
        return (self.sections[:, 9] > 0).tolist()  # type: ignore[no-any-return]

    @cached_property
    def together(self) -> int:
        """How many steps can be added together; 1 where that is not for these tables."""
        kinds = self.sections[:, 0].tolist()
        if kinds != [WINDOW] or self.in_short != [True] or self.short_used < TOGETHER_FROM:
            return 1
        return next((count for count in TOGETHER if count * self.total <= PLANES), 1)

    @property
    def lists(self) -> list[tuple[int, int]]:
        """Of every section: its first mark, and the distance of digits in its lists."""
        return [(int(section[6]), int(section[11])) for section in self.sections]

    @property
    def numbers(self) -> list[int]:
        """For a job: pixels in a row's lists, columns of sections, sizes of a block's weights, size of its currents."""
        return [self.marks, self.sections.shape[1], self.block_size, self.short_size, self.short_used, self.total]

    @property
    def arrays(self) -> list[Array]:
        """Those from `sections` to `diagonal`, for a job."""
        spikes = [self.sections, self.factors, self.first, self.cut, self.rows, self.shares]
        return [*spikes, self.weights, self.short, self.units, self.diagonal]


def _places(layout: Layout, routes: list[Route]) -> tuple[Array, int, int]:
    """Where the currents of the pixels lie, how long a row of pixels is, and the space all take.

    Behind a 3x3 convolution the picture has a margin, so that windows at the border are like all others; a last pixel
    takes what reaches none.
    """
    width = layout.width
    window = next((r.window for r in routes if r.window is not None), None)
    if window is None or width != WIDE:
        return np.arange(layout.pixels) * width, 0, (layout.pixels + 1) * width
    line = window.width + 2
    height, breadth = layout.shape[1:]
    y, x = np.divmod(np.arange(height * breadth), breadth)
    places = ((y + 2 - window.top) * line + x + 2 - window.left) * width
    size = ((window.height + 2) * line + 1) * width
    return places, line, size + (APART - size) % PAGE


def _cut(window: Window, layout: Layout) -> tuple[Array, int]:
    """Which of the three rows and columns of a pixel's window lie inside the picture, where two of them do.

    Bit 0: two rows; bit 1: two columns; bits 2 and 3: the first of those rows, of those columns, is the second one.
    Where only one lies inside, all three are computed, in the margin. RUN: here begins a run of pixels, as many as the
    second result says, whose three columns all lie inside, and whose rows are all computed.
    """

    def inside(length: int, reached: int, padding: int) -> tuple[Array, Array, Array]:
        begin = np.arange(length)[:, None] + np.arange(3) - (2 - padding)
        within = (begin >= 0) & (begin < reached)
        return within.sum(1) == 2, ~within[:, 0], within.sum(1) == 3

    two_rows, low, _ = inside(window.height, layout.shape[1], window.top)
    two_columns, right, whole = inside(window.width, layout.shape[2], window.left)
    rows = (two_rows * (1 + 4 * low))[:, None]
    columns = (two_columns * (2 + 8 * right))[None, :]
    cut = np.asarray(rows | columns)
    if whole.any():
        cut[~two_rows, whole.argmax()] |= int(RUN)
    return cut.reshape(-1), int(whole.sum())


class _Builder:
    """Collects the tables of a stage, route by route."""

    def __init__(self, layout: Layout, routes: list[Route]) -> None:
        self.layout = layout
        self.places, self.line, self.total = _places(layout, routes)
        self.sections: list[tuple[int, ...]] = []
        self.factors: list[float] = []
        self.first: list[Array] = []
        self.cut: list[Array] = []
        self.rows: list[Array] = [np.zeros((0, 3), np.int64)]
        self.shares: list[Array] = [np.zeros(0, np.float32)]
        self.weights: list[Tensor] = [torch.zeros(layout.blocks, 0, dtype=torch.float32)]
        self.short: list[Array] = [np.zeros((layout.blocks, 0), np.int16)]
        self.units: list[Array] = [np.zeros(0, np.float32)]
        self.diagonal: list[Array] = [np.zeros(0, np.float32)]
        self.pixels = self.segments = self.weight0 = self.short0 = self.short_used = self.diagonal0 = self.marks = 0

    def add(self, route: Route) -> None:
        short = self._short(route)
        kind, first = self._kind(route, short is not None)
        inside, run = first[:0], 0
        if kind == WINDOW and route.window is not None:
            inside, run = _cut(route.window, self.layout)
        self.sections.append(
            (
                kind,
                self.pixels,  # where its pixels begin in `first`
                self.diagonal0 if kind == OWN else self.weight0 if short is None else self.short0,
                route.weight.shape[1],  # taps
                self.line * self.layout.width if kind == WINDOW else 0,  # from one run of a window to the next
                route.grid,
                self.marks,
                route.shift,
                len(self.factors),
                0 if short is None else short.most,  # spikes that can be added in 16 bits; 0: weights are float32
                self.layout.lanes * (len(self.units) - 1),  # where its units begin
                len(route.weight) if short is not None else 1 << route.shift,  # of lists, from one digit to the next
                run,  # of pixels, see _cut
            )
        )
        self.factors += [route.share * 2.0**digit for digit in range(route.digits)]
        self.marks += route.grid
        self.first.append(first)
        self.cut.append(np.pad(inside, (0, len(first) - len(inside))))
        self.pixels += len(first)
        self._add_weights(route, short)

    def _short(self, route: Route) -> Short | None:
        plain = not route.diagonal and self.layout.width == WIDE and bool((route.pairs.share == 1).all())
        # 16-bit additions load all targets of a spike before they store any: each target may be met once only
        return as_short(self._blocked(route), route) if plain and route.pairs.targets_differ else None

    def _kind(self, route: Route, short: bool) -> tuple[int, Array]:
        width, pairs = self.layout.width, route.pairs
        if route.window is not None and self.line == route.window.width + 2:
            y, x = np.divmod(np.arange(route.grid), route.window.width)
            return WINDOW, (y * self.line + x) * width
        simple = route.weight.shape[1] == 1 and len(np.unique(pairs.source)) == pairs.count
        if simple and not short and not route.diagonal and width == WIDE and bool((pairs.share == 1).all()):
            start = np.full(route.grid, self.total - width)
            start[pairs.source] = self.places[pairs.target]
            return POINT, start
        cut = segments(pairs, route.grid, short or self.line > 0)
        self.rows.append(np.stack([self.places[cut.rows[:, 0]], cut.rows[:, 1] * width, cut.rows[:, 2] * width], 1))
        self.shares.append(cut.shares)
        first = cut.first + self.segments
        self.segments += len(cut.rows)
        return (OWN if route.diagonal else POINTS if short else ROWS), first

    def _blocked(self, route: Route) -> Tensor:
        """[block, C_in, tap, lane]"""
        layout = self.layout
        inputs, taps, _ = route.weight.shape
        padded = F.pad(route.weight.float(), (0, layout.lanes - layout.channels))
        return padded.view(inputs, taps, layout.blocks, layout.width).permute(2, 0, 1, 3)

    def _add_weights(self, route: Route, short: Short | None) -> None:
        if short is not None:
            self.short.append(short.weights)
            self.units.append(short.units)
            self.short0 += short.weights.shape[1]
            self.short_used += short.weights.shape[1] // route.digits * min(2, route.digits)
        elif route.diagonal:
            self.diagonal.append(route.weight.float().flatten().numpy())
            self.diagonal0 += route.weight.numel()
        else:
            blocked = self._blocked(route).flatten(1)
            self.weights.append(blocked)
            self.weight0 += blocked.shape[1]

    def done(self) -> Tables:
        first = np.concatenate([*self.first, np.zeros(1, np.int64)]).astype(np.uint32)
        return Tables(
            np.array(self.sections, np.int64).reshape(-1, 13),
            np.array(self.factors, np.float32),
            first,
            np.concatenate([*self.cut, np.zeros(1, np.int64)]).astype(np.uint8),
            np.concatenate(self.rows).astype(np.uint32),
            np.concatenate(self.shares).astype(np.float32),
            aligned(torch.cat(self.weights, 1).contiguous().numpy()),
            self.weight0,
            aligned(np.concatenate(self.short, 1)),
            self.short0,
            self.short_used,
            aligned(np.concatenate(self.units)),
            np.concatenate(self.diagonal),
            self.places.astype(np.uint32),
            self.total,
            self.marks,
        )


def make_tables(layout: Layout, routes: list[Route]) -> Tables:
    """The tables of a stage with this layout."""
    builder = _Builder(layout, routes)
    for route in routes:
        builder.add(route)
    return builder.done()
