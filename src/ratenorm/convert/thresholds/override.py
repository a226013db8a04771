"""Thresholds by hand, and other methods for some layers, by name or pattern."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

import torch

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.convert.thresholds.max_norm import MaxNorm
from ratenorm.errors import CalibrationError, SettingError
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class Fixed(Method):
    """theta = a number, in units of the pre-activation."""

    threshold: float = 1.0
    label: ClassVar[str] = "fixed"
    papers: ClassVar[tuple[str, ...]] = ()
    needs_data: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold < float("inf"):
            raise SettingError(f"Fixed: the threshold is {self.threshold}, it must be positive and finite.")

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        return from_thresholds(graph, {n.name: torch.tensor([self.threshold]) for n in sites(graph)}, self)


@dataclass(frozen=True)
class Override(Method):
    """`base`, but for sites whose name matches a pattern (as in a shell: * and ?) another method. The first match
    counts.

    Override(MaxNorm(), (("features.0.*", Fixed(2.0)), ("classifier.*", Percentile(99.9))))
    """

    base: Method = field(default_factory=MaxNorm)
    rules: tuple[tuple[str, Method], ...] = ()
    label: ClassVar[str] = "override"
    papers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for rule in self.rules if isinstance(self.rules, tuple | list) else [self.rules]:
            sound = isinstance(rule, tuple | list) and len(rule) == 2
            if not sound or not isinstance(rule[0], str) or not isinstance(rule[1], Method):
                raise SettingError(
                    f"Override: {rule!r} is not a rule. Give pairs of a pattern and a method, such as "
                    '(("features.0.*", Fixed(2.0)),).'
                )

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        names = [n.name for n in sites(graph)]
        for pattern, _ in self.rules:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise CalibrationError(
                    f"Overriding thresholds: no site matches {pattern!r}. The sites are: {', '.join(names)}."
                )
        answers: dict[Method, dict[str, SiteScale]] = {}
        result: dict[str, SiteScale] = {}
        for name in names:
            method = next((m for pattern, m in self.rules if fnmatchcase(name, pattern)), self.base)
            if method not in answers:
                answers[method] = method.scales(graph, calibration)
            result[name] = answers[method][name]
        return result
