"""The closed set of operations a graph is made of. An operation is a dataclass and its docstring is its equation.

Every operation takes tensors whose first dimension is a batch and treats each entry alike, so that steps of time may be
stacked into the batch. All but `Activation`, `Fire` and `MaxPool` are affine: between two populations of neurons the
current is an affine function of the spikes.

`paths` is the same operation with every weight 1 and every offset 0. Its adjoint counts the synapses that a spike
travels over, borders included (see graph/fanout.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class Op:
    """Base of the operations. `arity` is the number of inputs, None for any number from one on."""

    kind: ClassVar[str] = ""
    arity: ClassVar[int | None] = 1

    def __call__(self, *inputs: Tensor) -> Tensor:
        raise TypeError(f"{self.kind} is not evaluated by itself: an engine gives it its meaning")

    def paths(self, *inputs: Tensor) -> Tensor:
        return self(*inputs)

    def tensors(self) -> dict[str, Tensor]:
        """Its parameters by name."""
        return {f.name: v for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)}

    def settings(self) -> dict[str, object]:
        """What is not a tensor, ready for JSON. An absent tensor (None) is left out."""
        return {f.name: v for f in fields(self) if not isinstance(v := getattr(self, f.name), Tensor) and v is not None}


@dataclass(frozen=True, eq=False)
class Input(Op):
    """y = the image at this step."""

    kind: ClassVar[str] = "input"
    arity: ClassVar[int | None] = 0


@dataclass(frozen=True, eq=False)
class Conv(Op):
    """y = weight * x + bias, over one or two dimensions of space. `padding` is (left, right[, top, bottom]) as
    F.pad's.
    """

    weight: Tensor  # [C_out, C_in / groups, kH, kW] or [C_out, C_in / groups, k]
    bias: Tensor | None
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    padding_mode: str = "constant"  # "constant" (zeros), "reflect", "replicate", "circular"
    kind: ClassVar[str] = "conv"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self._convolve(inputs[0], self.weight, self.bias)

    def paths(self, *inputs: Tensor) -> Tensor:
        return self._convolve(inputs[0], torch.ones_like(self.weight, dtype=inputs[0].dtype), None)

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = F.conv2d if weight.ndim == 4 else F.conv1d
        sides = self.padding
        if self.padding_mode == "constant" and sides[0::2] == sides[1::2]:
            # torch's own zero padding spares a copy; F.pad counts dimensions from the last, conv from the first
            return convolve(x, weight, bias, self.stride, sides[0::2][::-1], self.dilation, self.groups)
        return convolve(F.pad(x, sides, self.padding_mode), weight, bias, self.stride, 0, self.dilation, self.groups)


@dataclass(frozen=True, eq=False)
class Linear(Op):
    """y = weight x + bias, over the last dimension."""

    weight: Tensor  # [F_out, F_in]
    bias: Tensor | None
    kind: ClassVar[str] = "linear"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self.weight, self.bias)

    def paths(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], torch.ones_like(self.weight, dtype=inputs[0].dtype))


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """y = scale x + shift, each of a shape that broadcasts over one entry of the batch ([C, 1, 1], [1], …)."""

    scale: Tensor | None = None
    shift: Tensor | None = None
    kind: ClassVar[str] = "affine"

    def __call__(self, *inputs: Tensor) -> Tensor:
        y = inputs[0]
        if self.scale is not None:
            y = y * self.scale
        return y if self.shift is None else y + self.shift

    def paths(self, *inputs: Tensor) -> Tensor:
        return inputs[0]


@dataclass(frozen=True, eq=False)
class AvgPool(Op):
    """y = mean of x over windows, torch's avg_pool in one or two dimensions."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil_mode: bool = False
    count_include_pad: bool = True
    kind: ClassVar[str] = "avg_pool"

    def __call__(self, *inputs: Tensor) -> Tensor:
        pool = F.avg_pool2d if len(self.kernel) == 2 else F.avg_pool1d
        return pool(inputs[0], self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def paths(self, *inputs: Tensor) -> Tensor:
        x = inputs[0]
        if len(self.kernel) == 1:
            two = AvgPool((1, *self.kernel), (1, *self.stride), (0, *self.padding), self.ceil_mode)
            return two.paths(x.unsqueeze(-2)).squeeze(-2)
        return F.avg_pool2d(x, self.kernel, self.stride, self.padding, self.ceil_mode, divisor_override=1)


@dataclass(frozen=True, eq=False)
class AdaptiveAvgPool(Op):
    """y = mean of x over `size` windows that share the input as evenly as they can, torch's adaptive_avg_pool."""

    size: tuple[int, ...]
    kind: ClassVar[str] = "adaptive_avg_pool"

    def __call__(self, *inputs: Tensor) -> Tensor:
        x = inputs[0]
        # Image by image and channel by channel: on 4 dimensions torch divides by height, then by width, or by both at
        # once, as the memory is laid out; the results differ in the last digit.
        flat = x.flatten(0, 1)
        y = F.adaptive_avg_pool2d(flat, self.size) if len(self.size) == 2 else F.adaptive_avg_pool1d(flat, self.size)
        return y.reshape(*x.shape[:2], *self.size)

    def paths(self, *inputs: Tensor) -> Tensor:
        y = inputs[0]
        for dim, windows in zip(range(-len(self.size), 0), self.size, strict=True):
            y = torch.tensordot(y.movedim(dim, -1), _membership(y.shape[dim], windows, y), 1).movedim(-1, dim)
        return y


def _membership(length: int, windows: int, like: Tensor) -> Tensor:
    """[length, windows]: 1 where an input belongs to a window of adaptive pooling."""
    inside = like.new_zeros(length, windows)
    for w in range(windows):
        inside[w * length // windows : -(-(w + 1) * length // windows), w] = 1.0
    return inside


@dataclass(frozen=True, eq=False)
class MaxPool(Op):
    """y(t) = M(t) - M(t-1), with M(t) the maximum over each window of what its inputs have accumulated until t.

    A spike passes if, and only if, it raises the largest count of its window. The spikes passed so far are therefore
    exactly the largest count, and the rate is the maximum of the rates at every t: a maximum of the spikes themselves
    would be a logical or, and too large. Binary in, binary out. `__call__` is the analog meaning, torch's max_pool.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False
    kind: ClassVar[str] = "max_pool"

    def __call__(self, *inputs: Tensor) -> Tensor:
        pool = F.max_pool2d if len(self.kernel) == 2 else F.max_pool1d
        return pool(inputs[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)

    def paths(self, *inputs: Tensor) -> Tensor:
        """Every input is compared once in every window it belongs to."""
        x, space = inputs[0], len(self.kernel)
        ones = x.new_ones(x.shape[1], 1, *self.kernel)
        windows = self(x.detach()).shape[-space:]
        reach = [
            (o - 1) * s + d * (k - 1) + 1
            for o, s, d, k in zip(windows, self.stride, self.dilation, self.kernel, strict=True)
        ]
        pads: list[int] = []
        for need, size, pad in zip(reach[::-1], x.shape[: -space - 1 : -1], self.padding[::-1], strict=True):
            pads += [pad, need - size - pad]  # ceil_mode reaches past the border; a short reach crops
        convolve = F.conv2d if space == 2 else F.conv1d
        return convolve(F.pad(x, pads), ones, None, self.stride, 0, self.dilation, x.shape[1])


@dataclass(frozen=True, eq=False)
class Upsample(Op):
    """y = x with its space enlarged to `size` by repeating the nearest entry."""

    size: tuple[int, ...]
    kind: ClassVar[str] = "upsample"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return F.interpolate(inputs[0], size=list(self.size), mode="nearest")


@dataclass(frozen=True, eq=False)
class Reshape(Op):
    """y = x with each entry of the batch given the shape `shape`."""

    shape: tuple[int, ...]
    kind: ClassVar[str] = "reshape"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return inputs[0].reshape(-1, *self.shape)


@dataclass(frozen=True, eq=False)
class Permute(Op):
    """y = x with its dimensions reordered; dimension 0, the batch, stays."""

    dims: tuple[int, ...]
    kind: ClassVar[str] = "permute"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return inputs[0].permute(self.dims)


@dataclass(frozen=True, eq=False)
class Slice(Op):
    """y = x[start:stop] along dimension `dim`."""

    dim: int
    start: int
    stop: int
    kind: ClassVar[str] = "slice"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return inputs[0].narrow(self.dim, self.start, self.stop - self.start)


@dataclass(frozen=True, eq=False)
class Add(Op):
    """y = the sum of the inputs."""

    kind: ClassVar[str] = "add"
    arity: ClassVar[int | None] = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        total = inputs[0]
        for x in inputs[1:]:
            total = total + x
        return total


@dataclass(frozen=True, eq=False)
class Concat(Op):
    """y = the inputs one behind the other along dimension `dim`."""

    dim: int
    kind: ClassVar[str] = "concat"
    arity: ClassVar[int | None] = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, self.dim)


@dataclass(frozen=True, eq=False)
class Activation(Op):
    """y = amplitude clip(x / ceiling, 0, 1), or max(x, 0) where there is no ceiling: a site before conversion."""

    ceiling: Tensor | None = None
    amplitude: Tensor | None = None
    kind: ClassVar[str] = "activation"

    def __call__(self, *inputs: Tensor) -> Tensor:
        if self.ceiling is None:
            return inputs[0].relu()
        rate = (inputs[0] / self.ceiling).clamp(0.0, 1.0)
        return rate if self.amplitude is None else rate * self.amplitude


@dataclass(frozen=True, eq=False)
class Fire(Op):
    """s(t) of Eq. 3: a population of integrate-and-fire neurons with soft reset, starting from v(0) = `start`.

    As t grows its rate tends to clip(x / threshold, 0, 1) (Lemma 1), which `__call__` gives: the analog meaning.

    `step_bias` is a current added at each step: row t at step t, counted from 1, and the last row at every later step.
    A network whose last row is 0 therefore has the same limit as one without step biases. Engines add it to the current
    first and the sum to the potential: v + (current + bias), so that they round alike.

    `signed` is another neuron: it also sends a negative spike where m <= -threshold, as long as the sum of its spikes
    so far is positive.
    """

    threshold: Tensor  # [1] or [C, 1, 1], positive
    start: Tensor  # [1], [C, 1, 1] or the full shape of the population
    step_bias: Tensor | None = None  # [S, 1], [S, C, 1, 1] or [S, full shape]; None: no such current
    signed: bool = False
    kind: ClassVar[str] = "fire"

    def __call__(self, *inputs: Tensor) -> Tensor:
        current = inputs[0] if self.step_bias is None else inputs[0] + self.step_bias[-1]
        return (current / self.threshold).clamp(0.0, 1.0)

    def settings(self) -> dict[str, object]:
        """`signed` only where it is on, so that files and fingerprints of other networks stay as they were."""
        return {"signed": True} if self.signed else {}

    def bias_at(self, step: int) -> Tensor | None:
        """The current added at a step, counted from 1; None where there is none."""
        return None if self.step_bias is None else self.step_bias[min(step, len(self.step_bias)) - 1]


KINDS: dict[str, type[Op]] = {
    op.kind: op
    for op in (
        Input,
        Conv,
        Linear,
        Affine,
        AvgPool,
        AdaptiveAvgPool,
        MaxPool,
        Upsample,
        Reshape,
        Permute,
        Slice,
        Add,
        Concat,
        Activation,
        Fire,
    )
}
