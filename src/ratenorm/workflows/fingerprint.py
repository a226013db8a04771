"""Fingerprints: equal for equal content. What is kept of an experiment is named by the content it was computed from,
and not by where that lay, so that a changed network or image is never answered with old figures."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from torch import Tensor, nn

from ratenorm.data import ImageSet
from ratenorm.errors import FileFormatError
from ratenorm.graph.net import Graph
from ratenorm.io.files import regular

PART = 4096  # images read together


def of_graph(graph: Graph) -> str:
    """Of a network, spiking or not: its operations, their order and every weight."""
    digest = hashlib.sha256(repr((graph.output, graph.input_shape)).encode())
    for node in graph.nodes:
        digest.update(repr((node.name, node.op.kind, node.inputs, sorted(node.op.settings().items()))).encode())
        for name, tensor in sorted(node.op.tensors().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_content(tensor))
    return digest.hexdigest()


def of_tensors(*tensors: Tensor) -> str:
    """Of images and labels: their kind, shape and every value, in this order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(_content(tensor))
    return digest.hexdigest()


def of_images(images: ImageSet) -> str:
    """Of images and labels, read in parts: equal to `of_tensors` of both."""
    digest = hashlib.sha256()
    digest.update(f"{images.images.dtype}{tuple(images.images.shape)}".encode())
    for first in range(0, len(images), PART):
        digest.update(_content(images.images[first : first + PART]))
    digest.update(f"{images.labels.dtype}{tuple(images.labels.shape)}".encode())
    digest.update(_content(images.labels))
    return digest.hexdigest()


def of_weights(model: nn.Module) -> str:
    """Of all that a network has learned, thresholds included."""
    return of_tensors(*(tensor for _, tensor in sorted(model.state_dict().items())))


def of_file(path: str | os.PathLike[str]) -> str:
    """Of a file: its bytes."""
    try:
        with regular(path) as (file, _):
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileFormatError(f"Reading {path}: {error.strerror or error}.") from error


def _content(tensor: Tensor) -> Any:
    """Its bytes, as an array that a hash reads without a copy."""
    return tensor.detach().cpu().contiguous().numpy()
