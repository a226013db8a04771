"""What every threshold method is: a frozen dataclass that goes to JSON and back and gives a `SiteScale` for
each site.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.graph.net import Graph, Node
from ratenorm.graph.ops import Activation


@dataclass(frozen=True)
class SiteScale:
    """The answer for one site. A spike is fired at `threshold` and stands for `amplitude` of the site's output."""

    threshold: Tensor  # [1] or [C, 1, …]
    amplitude: Tensor  # the same shape

    def times(self, factor: float, preserve: bool = True) -> SiteScale:
        """The threshold times a factor; with `preserve` the spike's amplitude too, so that the value it codes stays."""
        return SiteScale(self.threshold * factor, self.amplitude * factor if preserve else self.amplitude)


@dataclass(frozen=True)
class Method(abc.ABC):
    """Base of the methods. `label` is its name in JSON and on the command line, `papers` where it comes from."""

    label: ClassVar[str]
    papers: ClassVar[tuple[str, ...]]
    needs_data: ClassVar[bool] = True

    @abc.abstractmethod
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        """A `SiteScale` for every site of an analog graph."""

    def to_json(self) -> dict[str, Any]:
        return {"method": self.label, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    @classmethod
    def parse_arguments(cls, arguments: list[str]) -> Method:
        """From the words behind the label on the command line; numbers for the fields in order, unless overridden."""
        if len(arguments) > len(fields(cls)):
            raise ValueError(f"it takes at most {len(fields(cls))} settings, {len(arguments)} were given")
        kinds: list[Any] = [_truth if isinstance(f.default, bool) else type(f.default) for f in fields(cls)]
        return cls(*(kind(a) for kind, a in zip(kinds, arguments, strict=False)))

    def data(self, calibration: Calibration | None) -> Calibration:
        """The images, or an error that says that this method needs some."""
        if calibration is None:
            raise CalibrationError(
                f"Calibrating with {self!r}: it needs images. Give some unlabelled training images, "
                "for example `calibration=x[:1000]`."
            )
        return calibration


def _truth(word: str) -> bool:
    """bool("false") is True: read the word."""
    if word.lower() not in ("true", "false"):
        raise ValueError(f"{word!r} is neither true nor false")
    return word.lower() == "true"


def _plain(value: Any) -> Any:
    if isinstance(value, Method):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def gain(node: Node) -> Tensor:
    """Output per unit of pre-activation at a site: 1 for ReLU and clip, 1 / theta for a Rate Norm layer's rate."""
    assert isinstance(node.op, Activation)
    if node.op.ceiling is None:
        return torch.ones(1, dtype=torch.float32)
    return node.op.ceiling.reciprocal() if node.op.amplitude is None else node.op.amplitude / node.op.ceiling


def from_thresholds(graph: Graph, thresholds: dict[str, Tensor], method: Method) -> dict[str, SiteScale]:
    """Spikes that keep the activation's value: amplitude = threshold * gain. Refuses a layer that never fires."""
    result: dict[str, SiteScale] = {}
    for node in sites(graph):
        threshold = thresholds[node.name]
        if not bool((torch.isfinite(threshold) & (threshold > 0)).all()):
            worst = float(threshold.min())
            raise CalibrationError(
                f"Calibrating {node.name!r} with {method!r}: its threshold would be {worst:g}. The layer never fires "
                "on these images: give more or other images, or set its threshold by hand with Override."
            )
        result[node.name] = SiteScale(threshold, threshold * gain(node))
    return result


def registry() -> dict[str, type[Method]]:
    """Every method by its label."""
    from ratenorm.convert import thresholds

    found = (getattr(thresholds, name) for name in thresholds.__all__)
    return {m.label: m for m in found if isinstance(m, type) and issubclass(m, Method) and m is not Method}


def from_json(data: Any) -> Method:
    """The inverse of `Method.to_json`."""
    known = registry()
    if not isinstance(data, dict) or not isinstance(data.get("method"), str) or data["method"] not in known:
        raise UsageError(f"Reading a threshold method: {data!r} is not one. Known: {', '.join(known)}.")
    kind = known[data["method"]]
    names = {f.name for f in fields(kind)}
    given = {k: v for k, v in data.items() if k != "method"}
    if unknown := set(given) - names:
        raise UsageError(
            f"Reading the method {data['method']!r}: it has no setting {sorted(unknown)}; it has {sorted(names)}."
        )
    try:
        return kind(**{k: _revive(v) for k, v in given.items()})
    except (TypeError, ValueError) as error:
        raise UsageError(f"Reading the method {data['method']!r}: {error}.") from error


def _revive(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value)
    if isinstance(value, list):
        return tuple(_revive(v) for v in value)
    return value


def as_method(given: Method | type[Method] | str) -> Method:
    """A method, its class, or its text."""
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        return parse(given)
    if isinstance(given, type) and issubclass(given, Method):
        return given()  # every setting has a default
    raise UsageError(
        f"Converting a network: the method is {given!r}. Give one such as MaxNorm() or 'percentile:99.9', or none."
    )


def parse(text: str) -> Method:
    """A method from the command line: `max`, `percentile:99.9`, `scaled:0.8:spike`, …"""
    label, *arguments = text.split(":")
    known = registry()
    if label not in known or label == "override":
        allowed = ", ".join(sorted(k for k in known if k != "override"))
        raise UsageError(
            f"Reading the method {text!r}: {label!r} is not known. Known: {allowed}. Settings follow a colon: "
            "percentile:99.9, scaled:0.8:spike, spike:100."
        )
    try:
        return known[label].parse_arguments(arguments)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Reading the method {text!r}: {error}.") from error
