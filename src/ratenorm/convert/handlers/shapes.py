"""What moves values without changing them. Shape arithmetic needs no handler: the trace was run, its numbers
are known.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ratenorm.convert.handlers.arguments import REQUIRED, bind, the_input
from ratenorm.convert.lower import Handler, Lowering, ModuleHandler, Ref, Refused
from ratenorm.graph.ops import Concat, Permute, Reshape, Slice, Upsample


def _reshape(lo: Lowering, at: fx.Node, x: Any) -> Ref:
    """Any reordering-free change of shape: the batch stays in front (checked before), the rest is what the run
    showed.
    """
    ref = the_input(x)
    shape = tuple(lo.value(at).shape[1:])
    return ref if shape == ref.features else lo.emit(at, Reshape(shape), ref)


def _permute_to(lo: Lowering, at: fx.Node, ref: Ref, order: tuple[int, ...]) -> Ref:
    if order[0] != 0:
        raise Refused("moves the batch dimension", "keep the batch as dimension 0")
    return lo.emit(at, Permute(order), ref)


def _permute(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    ref = the_input(args[0])
    dims = kwargs.get("dims", args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:])
    return _permute_to(lo, at, ref, tuple(int(d) % len(ref.shape) for d in dims))


def _transpose(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, dim0=REQUIRED, dim1=REQUIRED)
    ref = the_input(a["input"])
    order = list(range(len(ref.shape)))
    i, j = a["dim0"] % len(order), a["dim1"] % len(order)
    order[i], order[j] = order[j], order[i]
    return _permute_to(lo, at, ref, tuple(order))


def _pieces(
    lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], size_name: str
) -> tuple[Ref, ...]:
    """chunk and split: one slice for each piece that the run showed."""
    a = bind(args, kwargs, **{"input": REQUIRED, size_name: REQUIRED, "dim": 0})
    ref = the_input(a["input"])
    dim = a["dim"] % len(ref.shape)
    if dim == 0:
        raise Refused("splits the batch", "split along channels or space")
    pieces: list[Ref] = []
    start = 0
    for k, piece in enumerate(lo.value(at)):
        length = piece.shape[dim]
        pieces.append(lo.emit(at, Slice(dim, start, start + length), ref, part=str(k), shape=tuple(piece.shape[1:])))
        start += length
    return tuple(pieces)


def _getitem(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    container, index = args
    if not isinstance(container, Ref):
        return container[index]
    ref = container
    wanted = tuple(i for i in (index if isinstance(index, tuple) else (index,)) if i is not None)  # None: a reshape
    if Ellipsis in wanted:
        gap = wanted.index(Ellipsis)
        fill = (slice(None),) * (len(ref.shape) - len(wanted) + 1)
        wanted = wanted[:gap] + fill + wanted[gap + 1 :]
    shape = list(ref.features)
    for dim, item in enumerate(wanted):
        if isinstance(item, int) and dim > 0:
            item = slice(item, item + 1 or None)
        if not isinstance(item, slice) or item.step not in (None, 1) or (dim == 0 and item != slice(None)):
            raise Refused(f"indexes with {index}", "use slices with step 1 and whole batches, for example x[:, :16]")
        if dim > 0 and item != slice(None):
            start, stop, _ = item.indices(shape[dim - 1])
            shape[dim - 1] = stop - start
            ref = lo.emit(at, Slice(dim, start, stop), ref, part=str(dim), shape=tuple(shape))
    return _reshape(lo, at, ref)


def _channel_shuffle(lo: Lowering, at: fx.Node, x: Any, groups: int) -> Ref:
    ref = the_input(x)
    channels, *space = ref.features
    split = (groups, channels // groups, *space)
    apart = lo.emit(at, Reshape(split), ref, part="apart", shape=split)
    order = (0, 2, 1, *range(3, len(split) + 1))
    swapped = lo.emit(at, Permute(order), apart, part="swap", shape=(split[1], split[0], *space))
    return lo.emit(at, Reshape(ref.features), swapped)


def _pixel_shuffle(lo: Lowering, at: fx.Node, x: Any, factor: int) -> Ref:
    """[C r², H, W] -> [C, H r, W r]."""
    ref = the_input(x)
    channels, height, width = ref.features
    split = (channels // factor**2, factor, factor, height, width)
    return _moved(lo, at, ref, split, (0, 1, 4, 2, 5, 3))


def _pixel_unshuffle(lo: Lowering, at: fx.Node, x: Any, factor: int) -> Ref:
    """[C, H r, W r] -> [C r², H, W]."""
    ref = the_input(x)
    channels, height, width = ref.features
    split = (channels, height // factor, factor, width // factor, factor)
    return _moved(lo, at, ref, split, (0, 1, 3, 5, 2, 4))


def _moved(lo: Lowering, at: fx.Node, ref: Ref, split: tuple[int, ...], order: tuple[int, ...]) -> Ref:
    """A reshape, a permutation, and the shape that the run showed."""
    apart = lo.emit(at, Reshape(split), ref, part="apart", shape=split)
    shape = tuple(split[d - 1] for d in order[1:])
    swapped = lo.emit(at, Permute(order), apart, part="swap", shape=shape)
    return lo.emit(at, Reshape(tuple(lo.value(at).shape[1:])), swapped)


def expanded(lo: Lowering, at: fx.Node, ref: Ref, shape: tuple[int, ...], part: str) -> Ref:
    """The value repeated until it has a shape, as torch broadcasts it."""
    if ref.features == shape:
        return ref
    if len(shape) in (2, 3) and all(n == 1 for n in ref.features[1:]) and any(n > 1 for n in shape[1:]):
        enlarged = (ref.features[0], *shape[1:])
        ref = lo.emit(at, Upsample(shape[1:]), ref, part=f"{part}.enlarged", shape=enlarged)
    for dim, (have, want) in enumerate(zip(ref.features, shape, strict=True), 1):
        if have != want:
            wider = (*ref.features[: dim - 1], want, *ref.features[dim:])
            ref = lo.emit(at, Concat(dim), *[ref] * want, part=f"{part}.repeated{dim}", shape=wider)
    return ref


def _expand(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    ref, value = the_input(args[0]), lo.value(at)
    if value.ndim != len(ref.shape):
        raise Refused(f"adds dimensions to {ref.features} in front", "keep the batch as dimension 0")
    return expanded(lo, at, ref, tuple(value.shape[1:]), "")


def _repeat(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    ref = the_input(args[0])
    times = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
    if len(times) != len(ref.shape) or times[0] != 1:
        raise Refused(f"repeats {tuple(times)} times", "repeat along channels or space only: x.repeat(1, n, ...)")
    for dim, count in enumerate(times):
        if count > 1:
            wider = (*ref.features[: dim - 1], count * ref.features[dim - 1], *ref.features[dim:])
            ref = lo.emit(at, Concat(dim), *[ref] * count, part=str(dim), shape=wider)
    return ref


def _move_dimensions(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """movedim: the order follows from moving the numbers of the dimensions."""
    a = bind(args, kwargs, input=REQUIRED, source=REQUIRED, destination=REQUIRED)
    ref = the_input(a["input"])
    sizes = torch.empty([2 + d for d in range(len(ref.shape))], device="meta")
    order = tuple(n - 2 for n in sizes.movedim(a["source"], a["destination"]).shape)
    return _permute_to(lo, at, ref, order)


def _narrow(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, dim=REQUIRED, start=REQUIRED, length=REQUIRED)
    ref = the_input(a["input"])
    dim = a["dim"] % len(ref.shape)
    if dim == 0:
        raise Refused("picks images of the batch", "pick channels or places only")
    start = a["start"] % ref.shape[dim] if a["length"] else 0
    return lo.emit(at, Slice(dim, start, start + a["length"]), ref)


def _unbind(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Ref, ...]:
    a = bind(args, kwargs, input=REQUIRED, dim=0)
    ref = the_input(a["input"])
    dim = a["dim"] % len(ref.shape)
    if dim == 0:
        raise Refused("takes the batch apart", "unbind channels or places only")
    pieces = []
    for k, piece in enumerate(lo.value(at)):
        kept = (*ref.features[: dim - 1], 1, *ref.features[dim:])
        slim = lo.emit(at, Slice(dim, k, k + 1), ref, part=f"{k}.kept", shape=kept)
        pieces.append(lo.emit(at, Reshape(tuple(piece.shape[1:])), slim, part=str(k), shape=tuple(piece.shape[1:])))
    return tuple(pieces)


def _filled(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros_like and others: a constant whose shape is a value's."""
    return lo.value(at)[:1]


_shuffle_function: Handler = lambda lo, at, args, kwargs: _pixel_shuffle(lo, at, args[0], args[1])  # noqa: E731
_unshuffle_function: Handler = lambda lo, at, args, kwargs: _pixel_unshuffle(lo, at, args[0], args[1])  # noqa: E731
_reshaping: Handler = lambda lo, at, args, kwargs: _reshape(lo, at, args[0] if args else kwargs["input"])  # noqa: E731
_chunk: Handler = lambda lo, at, args, kwargs: _pieces(lo, at, args, kwargs, "chunks")  # noqa: E731
_split: Handler = lambda lo, at, args, kwargs: _pieces(lo, at, args, kwargs, "split_size_or_sections")  # noqa: E731
_split_method: Handler = lambda lo, at, args, kwargs: _pieces(lo, at, args, kwargs, "split_size")  # noqa: E731

MODULES: dict[type, ModuleHandler] = {
    nn.Flatten: lambda lo, at, m, args: _reshape(lo, at, args[0]),
    nn.Unflatten: lambda lo, at, m, args: _reshape(lo, at, args[0]),
    nn.PixelShuffle: lambda lo, at, m, args: _pixel_shuffle(lo, at, args[0], m.upscale_factor),
    nn.PixelUnshuffle: lambda lo, at, m, args: _pixel_unshuffle(lo, at, args[0], m.downscale_factor),
    nn.ChannelShuffle: lambda lo, at, m, args: _channel_shuffle(lo, at, args[0], m.groups),
}

FUNCTIONS: dict[Any, Handler] = {
    torch.flatten: _reshaping,
    torch.reshape: _reshaping,
    torch.squeeze: _reshaping,
    torch.unsqueeze: _reshaping,
    torch.permute: _permute,
    torch.transpose: _transpose,
    torch.swapaxes: _transpose,
    torch.swapdims: _transpose,
    torch.movedim: _move_dimensions,
    torch.moveaxis: _move_dimensions,
    torch.narrow: _narrow,
    torch.unbind: _unbind,
    torch.broadcast_to: _expand,
    torch.zeros_like: _filled,
    torch.ones_like: _filled,
    torch.full_like: _filled,
    torch.pixel_shuffle: _shuffle_function,
    torch.pixel_unshuffle: _unshuffle_function,
    F.pixel_shuffle: _shuffle_function,
    F.pixel_unshuffle: _unshuffle_function,
    torch.chunk: _chunk,
    torch.split: _split,
    operator.getitem: _getitem,
    F.channel_shuffle: lambda lo, at, args, kwargs: _channel_shuffle(lo, at, args[0], args[1]),
}

# Methods that change the shape, or nothing at all, without reordering.
_RESHAPING = ("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze")
_SAME = ("contiguous", "clone", "detach", "float", "to", "type_as")

METHODS: dict[Any, Handler] = {
    **dict.fromkeys((*_RESHAPING, *_SAME), _reshaping),
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "swapdims": _transpose,
    "movedim": _move_dimensions,
    "moveaxis": _move_dimensions,
    "narrow": _narrow,
    "unbind": _unbind,
    "expand": _expand,
    "expand_as": _expand,
    "broadcast_to": _expand,
    "repeat": _repeat,
    "chunk": _chunk,
    "split": _split_method,
}
