"""Where the currents of a stage lie, and its routes as tables for the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from ratenorm.simulate.event import _core, costs
from ratenorm.simulate.event.layout import Layout
from ratenorm.simulate.event.pairs import segments
from ratenorm.simulate.event.routes import Route, Window
from ratenorm.simulate.event.short import Short, as_short
from ratenorm.simulate.event.tables import Array, RouteKind, RouteTable, flat

WIDE = 32  # lanes of a block whose weights have 16 bits

# A pixel's spikes are mostly those of the same neurons, step after step: where several steps are added together, their
# weights are in the first-level cache after the first.
TOGETHER = (32, 16, 8)  # steps; fewer do not pay
TOGETHER_FROM = 20_000  # 16-bit weights of a block from which it pays: they exceed the first-level cache
PLANES = 72_000  # currents of all these steps that stay in the second-level cache beside the weights
# Where the currents of several steps lie plane after plane, those of one place in neighbouring steps must not lie a
# multiple of 4096 bytes apart: a processor takes such a load for one of the store before and waits. A window is 96
# numbers wide.
PAGE, APART = 1024, 96


@dataclass(frozen=True, eq=False)
class Currents:
    """The scratch of one block of a stage. After a 3x3 convolution the picture has a margin, so that windows at the
    border are like all others.
    """

    layout: Layout
    places: Array  # where the current of each pixel lies
    line: int  # from one row of pixels to the next, in pixels; 0 without a margin
    total: int  # size of the currents of a block

    @classmethod
    def of(cls, layout: Layout, routes: Sequence[Route]) -> Currents:
        width = layout.width
        window = next((r.window for r in routes if r.window is not None), None)
        if window is None or width != WIDE:
            return cls(layout, np.arange(layout.pixels) * width, 0, layout.pixels * width)
        line = window.width + 2
        height, breadth = layout.shape[1:]
        y, x = np.divmod(np.arange(height * breadth), breadth)
        places = ((y + 2 - window.top) * line + x + 2 - window.left) * width
        size = ((window.height + 2) * line + 1) * width
        return cls(layout, places, line, size + (APART - size) % PAGE)

    def table(self, route: Route, sources: Mapping[str, int]) -> RouteTable:
        """A route for the core; `sources` are the numbers of the stages."""
        short = self._short(route)
        kind, placed = self._placed(route, short is not None)
        weights = self._weights(route, short)
        cost = costs.of_a_spike(route, self.layout.blocks, short is not None)
        return RouteTable(
            kind=kind,
            source=sources[route.source],
            grid=route.grid,
            inputs=len(route.weight),
            taps=route.weight.shape[1],
            digits=route.digits,
            digit_shift=route.shift,
            apart=len(route.weight) if short is not None else 1 << route.shift,
            members=0 if route.windows is None else route.windows.shape[1],
            windows=flat([] if route.windows is None else route.windows, np.uint32),
            spike_cost=round(1000 * cost),
            **placed,
            **weights,
        )

    def _short(self, route: Route) -> Short | None:
        plain = not route.diagonal and self.layout.width == WIDE and bool((route.pairs.share == 1).all())
        return as_short(self._blocked(route), route) if plain else None

    def _placed(self, route: Route, short: bool) -> tuple[RouteKind, dict[str, Any]]:
        """Where the spikes of each pixel go."""
        width = self.layout.width
        if short and route.window is not None and self.line == route.window.width + 2:
            y, x = np.divmod(np.arange(route.grid), route.window.width)
            cut, run = _cut(route.window, self.layout)
            first = flat((y * self.line + x) * width, np.uint32)
            return RouteKind.WINDOW, {"first": first, "cut": cut, "run": run, "line": self.line * width}
        found = segments(route.pairs, route.grid, short or self.line > 0)
        rows = np.stack([self.places[found.rows[:, 0]], found.rows[:, 1] * width, found.rows[:, 2] * width], 1)
        placed = {"first": flat(found.first, np.uint32), "segments": flat(rows, np.uint32)}
        if short:
            return RouteKind.POINTS, placed
        placed |= {"shares": flat(found.shares, np.float32)}
        return (RouteKind.OWN if route.diagonal else RouteKind.ROWS), placed

    def _blocked(self, route: Route) -> Tensor:
        """[block, C_in, tap, lane]"""
        layout = self.layout
        inputs, taps, _ = route.weight.shape
        padded = F.pad(route.weight.float(), (0, layout.lanes - layout.channels))
        return padded.view(inputs, taps, layout.blocks, layout.width).permute(2, 0, 1, 3)

    def _weights(self, route: Route, short: Short | None) -> dict[str, Any]:
        if short is not None:
            block = short.weights.shape[1]
            used = block // route.digits * min(2, route.digits)  # few windows have four spikes
            shorts, units = flat(short.weights, np.int16), flat(short.units, np.float32)
            return {"shorts": shorts, "units": units, "most": short.most, "block": block, "used": used}
        factors = flat([route.share * 2.0**digit for digit in range(route.digits)], np.float32)
        if route.diagonal:
            return {
                "weights": flat(route.weight.float().numpy(), np.float32),
                "factors": factors,
                "block": 0,
                "used": 0,
            }
        blocked = self._blocked(route).flatten(1)
        block = blocked.shape[1]
        return {"weights": flat(blocked.numpy(), np.float32), "factors": factors, "block": block, "used": block}


def together(currents: Currents, tables: Sequence[RouteTable]) -> int:
    """How many steps can be added before the neurons fire; 1 where that is not for these tables."""
    if len(tables) != 1 or tables[0].kind != RouteKind.WINDOW or tables[0].used < TOGETHER_FROM:
        return 1
    return next((count for count in TOGETHER if count * currents.total <= PLANES), 1)


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
        cut[~two_rows, whole.argmax()] |= _core.RUN
    return flat(cut, np.uint8), int(whole.sum())
