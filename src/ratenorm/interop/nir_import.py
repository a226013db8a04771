"""`import_nir`: a NIR graph as a `SpikingNet`.

A file of ours gives back the very network it was written from, or is refused: the network is built from the graph and
its metadata, expressed in NIR again, and the two graphs must have one checksum. Graphs of others become a network of
integrate-and-fire neurons with soft reset only where the caller says that they are meant so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ratenorm.errors import ConversionError, FileFormatError, RatenormError, UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.interop.extras import needed
from ratenorm.interop.nir_export import FORMAT, KEY, VERSION
from ratenorm.interop.nir_file import read_tree
from ratenorm.interop.nir_foreign import foreign_net
from ratenorm.interop.nir_restore import restored

_DAMAGED = (LookupError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError, AssertionError)


def import_nir(
    source: str | os.PathLike[str] | Any, *, reset: Literal["subtract"] | None = None, dt: float | None = None
) -> SpikingNet:
    """The spiking network of a NIR file or of a `nir.NIRGraph`.

    Args:
        source: The file, or a graph in memory.
        reset: For graphs of others: "subtract" says that their IF neurons subtract the threshold when they spike.
        dt: For graphs of others: the length of a step. A neuron adds r * dt * I at each step.

    Returns:
        The network. For files of `export_nir` it is equal to the one exported, bit for bit.

    Raises:
        FileFormatError: If the file is damaged, or its graph is no network: cycles, shapes that do not fit, NaN.
        ConversionError: If a node has no form here, such as a leaky neuron; the message names it.
        UsageError: If the file does not say how its neurons are reset, and `reset` was not given.

    Example:
        >>> import ratenorm as rn
        >>> rn.import_nir("nowhere.nir")
        Traceback (most recent call last):
        ...
        ratenorm.errors.FileFormatError: Reading nowhere.nir: there is no such file.
    """
    return import_nir_with_about(source, reset=reset, dt=dt)[0]


def import_nir_with_about(
    source: str | os.PathLike[str] | Any, *, reset: Literal["subtract"] | None = None, dt: float | None = None
) -> tuple[SpikingNet, dict[str, Any]]:
    """The network, and what was kept with it."""
    if reset not in (None, "subtract"):
        raise UsageError(f"Importing NIR: reset is {reset!r}; it must be 'subtract' or left out.")
    if dt is not None and not (isinstance(dt, int | float) and 0 < dt < float("inf")):
        raise UsageError(f"Importing NIR: dt is {dt!r}; it must be a positive number, such as 1e-4.")
    if isinstance(source, str | os.PathLike):
        where, tree = str(source), read_tree(Path(source))
    elif hasattr(source, "to_dict") and hasattr(source, "edges"):
        where, tree = "the NIR graph", source.to_dict()
    else:
        raise UsageError(f"Importing NIR: expected a file or a nir.NIRGraph, got {type(source).__name__}.")
    try:
        nodes, edges = _graph(tree)
        if (text := tree.get("metadata", {}).get(KEY)) is not None:
            content, digest = _content(text)
            net = restored(nodes, edges, content, digest)
            about = content.get("about")
        else:
            _refuse_remains(nodes)
            net, about = foreign_net(nodes, edges, reset, dt), None
            _readable(tree)
    except RatenormError as error:
        kinds = (UsageError, ConversionError)
        kind = next((k for k in kinds if type(error) is k), FileFormatError)
        raise kind(f"Reading {where}: {error}") from error
    except _DAMAGED as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise FileFormatError(
            f"Reading {where}: its parts do not make a spiking network ({why}). Copy it again, or write it again with "
            "the program that made it."
        ) from error
    return net, about if isinstance(about, dict) else {}


def _graph(tree: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[tuple[str, str]]]:
    if tree.get("type") != "NIRGraph":
        raise ValueError(f"it holds a {tree.get('type')!r}, and no NIRGraph")
    nodes = tree["nodes"]
    if not isinstance(nodes, Mapping) or not all(isinstance(n, Mapping) for n in nodes.values()):
        raise ValueError("its nodes are no groups")
    given = tree["edges"]
    pairs = [list(pair) for pair in given] if not isinstance(given, np.ndarray) or given.size else []
    if not all(len(pair) == 2 and all(isinstance(one, str) for one in pair) for pair in pairs):
        raise ValueError("its edges are no pairs of names")
    edges = [(a, b) for a, b in pairs]
    for a, b in edges:
        if missing := [one for one in (a, b) if one not in nodes]:
            raise ValueError(f"the edge from {a!r} to {b!r} names {missing[0]!r}, which is not there")
    if len(set(edges)) < len(edges):
        raise ValueError("two edges join the same nodes")
    return {name: dict(node) for name, node in nodes.items()}, edges


def _refuse_remains(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """A file of ours whose own metadata is gone is not a file of others: its neurons start elsewhere."""
    for name, node in nodes.items():
        if node.get("type") == "IF" and "start" in (node.get("metadata") or {}):
            raise FileFormatError(
                f"{name!r} says where its neurons start, but the metadata of the graph, which says how they are reset, "
                "is gone. Export it again."
            )


def _readable(tree: Mapping[str, Any]) -> None:
    """Refuse a graph that `nir` itself cannot read. Its check of shapes is left out: it errs for grouped layers."""
    nir = needed("nir")
    try:
        nir.dict2NIRNode({**_copied(tree), "type_check": False})
    except Exception as error:
        raise ValueError(f"nir cannot read it: {type(error).__name__}: {error}") from error


def _copied(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Its dictionaries, but not its arrays: `nir` takes entries out."""
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


def _content(text: Any) -> tuple[dict[str, Any], str]:
    outer = json.loads(text)
    content = json.loads(outer["content"])
    if content["format"] != FORMAT or content["version"] != VERSION:
        raise FileFormatError(
            f"its metadata has the format {content['format']!r}, version {content['version']!r}; this ratenorm reads "
            f"{FORMAT!r}, version {VERSION}. Read it with the ratenorm that wrote it ({content.get('ratenorm')})."
        )
    return content, str(outer["sha256"])
