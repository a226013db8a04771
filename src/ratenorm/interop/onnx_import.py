"""`load_onnx`: a network from an ONNX file as a torch module, checked against ONNX Runtime before anything else.

The file is read by onnx2torch. Before that, what could do harm or would fail without a good message is looked for: data
outside the file's folder, operators that are not known, a batch size that is fixed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.errors import ConversionError, FileFormatError
from ratenorm.interop.extras import needed
from ratenorm.io.files import SIZE_LIMIT

NEWEST_OPSET = 18  # that onnx2torch knows all usual layers of; newer files are brought to it
IMAGES = 3  # random ones, on which the module is compared with ONNX Runtime
_FAILURES = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, AssertionError)


def load_onnx(path: str | os.PathLike[str], *, shape: tuple[int, ...] | None = None) -> nn.Module:
    """The network of an ONNX file, in evaluation mode, ready for `convert`.

    Args:
        path: The file. Weights kept beside it are read from its own folder only.
        shape: The shape of one image, without the batch; needed only where the file leaves it open.

    Returns:
        A torch module that gives, on random images, what ONNX Runtime gives.

    Raises:
        FileFormatError: If the file is damaged, or its weights lie outside its folder.
        ConversionError: If it has operators that are not known, more than one input or output, or a fixed batch size.
        UsageError: If onnx, onnx2torch or onnxruntime is missing.

    Example:
        >>> import ratenorm as rn
        >>> rn.load_onnx("nowhere.onnx")
        Traceback (most recent call last):
        ...
        ratenorm.errors.FileFormatError: Reading nowhere.onnx: there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileFormatError(f"Reading {path}: there is no such file.")
    onnx = needed("onnx")
    model = _read(onnx, path)
    sizes = _input(model, path)
    with _torchvision():
        converter = needed("onnx2torch")
        registry = needed("onnx2torch.node_converters.registry")
        _check_operators(model, registry, path)
        try:
            module: nn.Module = converter.convert(model).eval()
        except _FAILURES as error:
            raise ConversionError(
                f"Reading {path}: onnx2torch cannot make a torch network of it ({_first(error)}). Convert the network "
                "it was exported from, in Python."
            ) from error
    _compare(module, model, path, _image_shape(path, sizes, shape))
    return module


def _read(onnx: ModuleType, path: Path) -> Any:
    """The model, with its weights, checked by onnx itself and of an opset that onnx2torch knows."""
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise FileFormatError(f"Reading {path}: it has more than {SIZE_LIMIT} bytes.")
        model = onnx.load_model(str(path), load_external_data=False)
        _check_places(onnx, model, path)
        onnx.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
        versions = {one.domain: one.version for one in model.opset_import}
        if versions.get("", 0) > NEWEST_OPSET:
            with contextlib.suppress(RuntimeError, ValueError):  # what cannot be brought there is named later
                model = onnx.version_converter.convert_version(model, NEWEST_OPSET)
    except FileFormatError:
        raise
    except Exception as error:  # protobuf and onnx raise classes of their own
        raise FileFormatError(
            f"Reading {path}: it is not an ONNX file, or it is damaged ({_first(error)}). Export it again, with opset "
            f"{NEWEST_OPSET} or older."
        ) from error
    return model


def _check_places(onnx: ModuleType, model: Any, path: Path) -> None:
    """Refuse weights that lie outside the folder of the file."""
    folder = path.parent.resolve()
    for tensor in _tensors(onnx, model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        target = (folder / place).resolve()
        if not place or Path(place).is_absolute() or folder not in target.parents:
            raise FileFormatError(
                f"Reading {path}: the weights {tensor.name!r} are kept in {place!r}, outside the file's folder, and "
                "are not read from there. Put them beside the file, or export it in one piece."
            )
        if not target.is_file() or target.stat().st_size > SIZE_LIMIT:
            raise FileFormatError(
                f"Reading {path}: the weights {tensor.name!r} should be in {place!r} beside it, where there is no file "
                "of a usual size. Copy it too."
            )


def _tensors(onnx: ModuleType, graph: Any) -> Iterator[Any]:
    """Every tensor of a graph and of the graphs within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if len(inner.node) or len(inner.initializer):
                    yield from _tensors(onnx, inner)


def _input(model: Any, path: Path) -> list[int | None]:
    """The dimensions of the one input; None where the file leaves one open."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        names = ", ".join(one.name for one in (*inputs, *model.graph.output))
        raise ConversionError(
            f"Reading {path}: it has {len(inputs)} inputs and {len(model.graph.output)} outputs ({names}); a spiking "
            "network has one of each. Export the part between one input and the logits."
        )
    dims = inputs[0].type.tensor_type.shape.dim
    sizes = [int(d.dim_value) if d.dim_value > 0 else None for d in dims]
    if len(sizes) < 2:
        raise ConversionError(f"Reading {path}: its input has the shape {sizes}; [batch, ...] is expected.")
    if sizes[0] is not None:
        raise ConversionError(
            f"Reading {path}: its batch size is fixed to {sizes[0]}, and conversion runs several images. Export it "
            'with a batch of any size, such as dynamic_axes={"input": {0: "batch"}} of torch.onnx.export.'
        )
    return sizes


def _check_operators(model: Any, registry: ModuleType, path: Path) -> None:
    """Name every operator that onnx2torch does not know."""
    versions = {one.domain: one.version for one in model.opset_import}
    unknown: dict[str, list[str]] = {}
    for node in model.graph.node:
        try:
            registry.get_converter(operation_type=node.op_type, version=versions[node.domain], domain=node.domain)
        except (RuntimeError, KeyError):  # no converter
            unknown.setdefault(node.op_type, []).append(node.name or node.output[0])
    if unknown:
        lines = "; ".join(f"{kind} ({', '.join(names[:3])})" for kind, names in unknown.items())
        raise ConversionError(
            f"Reading {path}: it has operators that onnx2torch does not know: {lines}. Replace these layers by "
            "convolutions, linear layers, pools, BatchNorm, ReLU and sums, or export with another opset."
        )


def _image_shape(path: Path, sizes: list[int | None], shape: tuple[int, ...] | None) -> tuple[int, ...]:
    found = tuple(size for size in sizes[1:] if size is not None)
    if shape is not None and len(shape) == len(sizes) - 1:
        if all(size in (None, given) for size, given in zip(sizes[1:], shape, strict=True)):
            return shape
    elif len(found) == len(sizes) - 1 and shape is None:
        return found
    raise ConversionError(
        f"Reading {path}: its input is {sizes} (None: open), and the shape of an image was given as {shape}. Give one "
        "that fits, without the batch: load_onnx(path, shape=(3, 32, 32))."
    )


@torch.no_grad()
def _compare(module: nn.Module, model: Any, path: Path, shape: tuple[int, ...]) -> None:
    """Run both on random images: what was read must compute what the file says."""
    runtime = needed("onnxruntime")
    images = torch.rand(IMAGES, *shape, generator=torch.Generator().manual_seed(0))
    try:
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        wanted = torch.from_numpy(session.run(None, {name: images.numpy()})[0])
        found: Tensor = module(images)
    except Exception as error:  # ONNX Runtime has classes of its own
        raise ConversionError(
            f"Reading {path}: it cannot be run on {IMAGES} random images of {shape} ({_first(error)}). Export it in "
            "float32, for images of this shape and any batch size."
        ) from error
    tolerance = 1e-4 * max(1e-6, float(wanted.abs().amax()))
    if found.shape != wanted.shape or not torch.allclose(found, wanted, 1e-4, tolerance):
        off = "" if found.shape != wanted.shape else f" by up to {float((found - wanted).abs().amax()):.3g}"
        raise ConversionError(
            f"Reading {path}: as a torch network it gives other outputs than ONNX Runtime{off}. Convert the network it "
            "was exported from, in Python."
        )


@contextlib.contextmanager
def _torchvision() -> Iterator[None]:
    """onnx2torch imports torchvision for two operators of detectors; where it is missing, those two are missing."""
    try:
        import torchvision  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except (ImportError, RuntimeError):
        pass
    else:
        yield
        return
    stand_ins = {name: ModuleType(name) for name in ("torchvision", "torchvision.ops")}
    stand_ins["torchvision.ops"].roi_align = None  # type: ignore[attr-defined]
    stand_ins["torchvision"].ops = stand_ins["torchvision.ops"]  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
