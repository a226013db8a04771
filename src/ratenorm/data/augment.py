"""Augmentation as tensor operations on a whole batch.

Every image is read once through an index of source pixels, which holds shift and flip together; nothing is
padded or copied in between. Random numbers come from an explicit generator and are drawn apart from their use
(`draw`, then `apply_draws`), so that a process which sees only a part of a batch uses the same numbers as one
that sees all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import torch

from ratenorm.errors import UsageError

Padding = Literal["zero", "reflect"]
Flip = Literal["none", "random", "alternating"]


@dataclass(frozen=True)
class Augment:
    """What to do with the images of a batch, before normalisation.

    Args:
        shift: Move by up to this many pixels up, down, left, right (0: not at all). The same as a random crop of the
            image padded by `shift` on every side: 4 is usual for CIFAR, 2 for MNIST.
        padding: What comes in at the border: "zero" (black) or "reflect" (mirrored at the outermost pixels).
        flip: "random" mirrors each image left-right with probability 1/2; "alternating" mirrors it in every second
            epoch, half of the images in even and half in odd ones.
        cutout: Side of a square of zeros at a random place, partly outside allowed (0: none).
    """

    shift: int = 0
    padding: Padding = "zero"
    flip: Flip = "none"
    cutout: int = 0

    def __post_init__(self) -> None:
        for name in ("shift", "cutout"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"Augment: {name} must be a whole number of pixels, 0 or more, got {value!r}.")
        for name, allowed in (("padding", get_args(Padding)), ("flip", get_args(Flip))):
            if getattr(self, name) not in allowed:
                raise UsageError(f"Augment: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Augment:
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise UsageError(f"Augment: unknown key {unknown[0]!r}, known are {', '.join(known)}.")
        return cls(**values)


# Digits have a handedness, so MNIST is not mirrored.
AUGMENTS: dict[str, Augment] = {
    "mnist": Augment(shift=2),
    "cifar10": Augment(shift=4, padding="reflect", flip="alternating"),
    "cifar100": Augment(shift=4, padding="reflect", flip="alternating"),
}


class Draws(NamedTuple):
    """The random choices for a batch of N images; None where the config asks for nothing."""

    shift: torch.Tensor | None  # [N, 2] int64, down and right
    flip: torch.Tensor | None  # [N] bool
    cutout: torch.Tensor | None  # [N, 2] int64, centre of the square: row, column

    def part(self, start: int, stop: int) -> Draws:
        """The choices for images start..stop of the batch."""
        return Draws(*(None if draw is None else draw[start:stop] for draw in self))


def draw(
    config: Augment,
    count: int,
    size: tuple[int, int],
    generator: torch.Generator,
    epoch: int = 0,
    flip_phase: torch.Tensor | None = None,
) -> Draws:
    """Choose for `count` images of (height, width) `size`.

    `flip_phase` [N] bool, for alternating flips: the images that are mirrored in even epochs; without it, all
    are mirrored in odd epochs.
    """
    shift = flip = cutout = None
    if config.shift:
        shift = torch.randint(-config.shift, config.shift + 1, (count, 2), generator=generator)
    if config.flip == "random":
        flip = torch.randint(0, 2, (count,), generator=generator).bool()
    elif config.flip == "alternating":
        phase = torch.zeros(count, dtype=torch.bool) if flip_phase is None else flip_phase
        flip = phase ^ bool(epoch % 2)
    if config.cutout:
        rows = torch.randint(0, size[0], (count,), generator=generator)
        columns = torch.randint(0, size[1], (count,), generator=generator)
        cutout = torch.stack([rows, columns], dim=1)
    return Draws(shift, flip, cutout)


def apply_draws(batch: torch.Tensor, config: Augment, draws: Draws) -> torch.Tensor:
    """The augmented copy of `batch` [N, C, H, W], of any element type, on any device."""
    count, channels, height, width = batch.shape
    if config.shift and config.padding == "reflect" and config.shift >= min(height, width):
        raise UsageError(
            f"Augmenting images of {height}x{width}: with reflect padding the shift must be smaller than "
            f"the image, got {config.shift}."
        )
    device = batch.device
    rows = torch.arange(height, device=device).expand(count, height)
    columns = torch.arange(width, device=device).expand(count, width)
    # Outermost operation first: the output pixel is un-shifted, then un-flipped, and then looked up.
    inside = None  # [N, H, W] where zeros come in
    if draws.shift is not None:
        down, right = draws.shift.to(device).unsqueeze(2).unbind(1)
        rows, columns = rows - down, columns - right
        if config.padding == "reflect":
            rows, columns = _reflected(rows, height), _reflected(columns, width)
        else:
            inside = _in_range(rows, height).unsqueeze(2) & _in_range(columns, width).unsqueeze(1)
            rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    if draws.flip is not None:
        columns = torch.where(draws.flip.to(device).unsqueeze(1), width - 1 - columns, columns)
    if draws.cutout is not None:
        kept = _outside_square(draws.cutout.to(device), config.cutout, height, width)
        inside = kept if inside is None else inside & kept
    source = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).reshape(count, 1, height * width)
    flat = batch.reshape(count, channels, height * width)
    moved = flat.gather(2, source.expand(-1, channels, -1)).reshape(batch.shape)
    return moved if inside is None else moved.masked_fill_(~inside.unsqueeze(1), 0)


def augment(
    batch: torch.Tensor,
    config: Augment,
    generator: torch.Generator,
    epoch: int = 0,
    flip_phase: torch.Tensor | None = None,
) -> torch.Tensor:
    """An augmented copy of `batch` [N, C, H, W], with random numbers from `generator` alone."""
    size = (batch.shape[2], batch.shape[3])
    draws = draw(config, len(batch), size, generator, epoch, flip_phase)
    return apply_draws(batch, config, draws)


def _reflected(positions: torch.Tensor, length: int) -> torch.Tensor:
    """Positions outside 0..length-1 mirrored at the first and last pixel, which are not repeated."""
    last = length - 1
    return last - (last - positions.abs()).abs()


def _in_range(positions: torch.Tensor, length: int) -> torch.Tensor:
    return (positions >= 0) & (positions < length)


def _outside_square(centre: torch.Tensor, side: int, height: int, width: int) -> torch.Tensor:
    """[N, H, W]: False in a square of `side` pixels around each centre, cut off at the border."""
    first = centre - side // 2  # [N, 2]
    rows = torch.arange(height, device=centre.device) - first[:, :1]
    columns = torch.arange(width, device=centre.device) - first[:, 1:]
    return ~(_in_range(rows, side).unsqueeze(2) & _in_range(columns, side).unsqueeze(1))
