"""What every calibrator is: a frozen dataclass that goes to JSON and back and improves one population at a time."""

from __future__ import annotations

import abc
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from ratenorm.calibrators.walk import Population
from ratenorm.errors import UsageError
from ratenorm.graph.ops import Fire


@dataclass(frozen=True)
class Calibrator(abc.ABC):
    """Base of the calibrators. `label` is the name in JSON and on the command line, `papers` where it comes from."""

    label: ClassVar[str]
    papers: ClassVar[tuple[str, ...]]
    after: ClassVar[str]  # what happens after the last calibrated step, as text

    @abc.abstractmethod
    def fit(self, population: Population) -> Fire:
        """The calibrated neurons of a population. All of its steps must have been run with them when this returns."""

    def to_json(self) -> dict[str, Any]:
        """The calibrator as plain values."""
        return {"method": self.label, **asdict(self)}


def registry() -> dict[str, type[Calibrator]]:
    """Every calibrator by its label."""
    import ratenorm.calibrators  # noqa: F401 (it imports them all)

    return {kind.label: kind for kind in Calibrator.__subclasses__()}


def from_json(data: Any) -> Calibrator:
    """The inverse of `Calibrator.to_json`."""
    known = registry()
    label = data.get("method") if isinstance(data, dict) else None
    if not isinstance(label, str) or label not in known:
        raise UsageError(f"Reading a calibrator: {data!r} is not one. Known: {', '.join(sorted(known))}.")
    given = {k: v for k, v in data.items() if k != "method"}
    return _make(f"Reading the calibrator {label!r}", known[label], given)


def parse(text: str) -> Calibrator:
    """A calibrator from the command line: `step-bias`, `step-bias:0.4:6`, `start-potential`, …"""
    label, *words = text.split(":")
    known = registry()
    if label not in known:
        raise UsageError(f"Reading the calibrator {text!r}: {label!r} is not known. Known: {', '.join(sorted(known))}.")
    own = fields(known[label])
    if len(words) > len(own):
        raise UsageError(f"Reading the calibrator {text!r}: it takes at most {len(own)} settings, not {len(words)}.")
    try:
        given = {f.name: type(f.default)(word) for f, word in zip(own, words, strict=False)}  # type: ignore[misc]
    except ValueError as error:
        raise UsageError(f"Reading the calibrator {text!r}: {error}.") from error
    return _make(f"Reading the calibrator {text!r}", known[label], given)


def _make(doing: str, kind: type[Calibrator], given: dict[str, Any]) -> Calibrator:
    try:
        return kind(**given)
    except TypeError as error:
        raise UsageError(f"{doing}: {error}. Its settings are {[f.name for f in fields(kind)]}.") from error
