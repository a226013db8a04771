"""The support report: what conversion will do with every part of a network, before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ratenorm import notebook
from ratenorm.errors import ConversionError

Kind = Literal["site", "layer", "fold", "replaced", "dropped", "unsupported"]

_HEADINGS: dict[str, str] = {
    "unsupported": "cannot be converted",
    "site": "become spiking neurons",
    "replaced": "replaced",
    "fold": "folded",
    "layer": "kept",
    "dropped": "without effect in inference",
}


@dataclass(frozen=True)
class Entry:
    """One part of the network and what becomes of it."""

    kind: Kind
    name: str  # name of the call, e.g. "features.3" or "relu_1"
    what: str  # in words
    where: str = ""  # file:line of the forward pass
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: {self.what}"
        if self.where:
            text += f"  [{self.where}]"
        return f"{text}\n      fix: {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class SupportReport:
    """Every site, fold, replacement and obstacle. Printing it reads as a text."""

    entries: tuple[Entry, ...]

    def of(self, kind: Kind) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.kind == kind)

    @property
    def convertible(self) -> bool:
        return not self.of("unsupported")

    def __str__(self) -> str:
        lines: list[str] = []
        for kind, heading in _HEADINGS.items():
            if found := [e for e in self.entries if e.kind == kind]:
                lines.append(f"{heading} ({len(found)}):")
                lines += [f"    {entry}" for entry in found]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (heading, entry.name, entry.what + (f" (fix: {entry.remedy})" if entry.remedy else ""), entry.where)
            for kind, heading in _HEADINGS.items()
            for entry in self.entries
            if entry.kind == kind
        ]
        title = "Convertible" if self.convertible else f"Not convertible: {len(self.of('unsupported'))} obstacles"
        return notebook.table(title, ("", "part", "what", "where"), rows)

    def require(self) -> None:
        """Raise, naming everything that stands in the way."""
        if bad := self.of("unsupported"):
            lines = "\n".join(f"    {entry}" for entry in bad)
            raise ConversionError(
                f"Converting a network: {len(bad)} of its operations cannot be turned into spikes, so nothing was "
                f"converted.\n{lines}"
            )
