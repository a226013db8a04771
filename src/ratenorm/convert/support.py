"""The support report: what conversion will do with every part of a network, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ratenorm import notebook
from ratenorm.errors import ConversionError

Kind = Literal["site", "layer", "fold", "replaced", "dropped", "unsupported"]

NAMES_SHOWN = 6  # of the calls that share an obstacle

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


def grouped(entries: Iterable[Entry]) -> list[str]:
    """Entries as text; obstacles of one kind share a line, with the names of all calls."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for number, entry in enumerate(entries):
        key = (entry.what, entry.remedy) if entry.kind == "unsupported" else (str(number),)
        groups.setdefault(key, []).append(entry)
    lines = []
    for first, *others in groups.values():
        names = [first.name, *(entry.name for entry in others)]
        shown = ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" * (len(names) > NAMES_SHOWN))
        count = f" ({len(names)} times)" if others else ""
        lines.append(str(replace(first, name=shown, what=first.what + count)))
    return lines


@dataclass(frozen=True)
class SupportReport:
    """Every site, fold, replacement and obstacle. Printing it reads as a text."""

    entries: tuple[Entry, ...]
    front: str = "torch.fx"  # what followed the network: torch.fx, or torch.export where that could not

    def of(self, kind: Kind) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.kind == kind)

    @property
    def convertible(self) -> bool:
        return not self.of("unsupported")

    def summary(self) -> str:
        """One line: how many parts there are of each kind."""
        counts = ((heading, len(self.of(kind))) for kind, heading in _HEADINGS.items())  # type: ignore[arg-type]
        return (
            "Layers: "
            + ", ".join(f"{count} {heading}" for heading, count in counts if count)
            + "."
            + self._followed(" ")
        )

    def __str__(self) -> str:
        lines: list[str] = []
        for kind, heading in _HEADINGS.items():
            if found := [e for e in self.entries if e.kind == kind]:
                lines.append(f"{heading} ({len(found)}):")
                lines += [f"    {line}" for line in grouped(found)]
        return "\n".join(lines) + self._followed("\n")

    def _followed(self, before: str) -> str:
        """Said where it was not the usual way."""
        return "" if self.front == "torch.fx" else f"{before}Followed by {self.front}: torch.fx could not."

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
            lines = "\n".join(f"    {line}" for line in grouped(bad))
            raise ConversionError(
                f"Converting a network: {len(bad)} of its operations cannot be turned into spikes, so nothing was "
                f"converted.\n{lines}"
            )
