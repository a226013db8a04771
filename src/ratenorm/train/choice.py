"""The rule by which lambda of stage 2 is chosen on held-out training images, with p = 1 among the candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratenorm.core.energy import steps_to

LAMBDAS = (0.02, 0.1, 0.5)  # tried where none is given; 0.5 is the paper's
LONGEST_REACH = 1  # lambdas tried beyond an end of the grid: each costs minutes
LAST_DIGIT = 1e-9  # shares of images are compared as whole numbers of images would be


@dataclass(frozen=True)
class Rule:
    """Who wins. All accuracies are of held-out training images; the yardstick is the network at p = 1."""

    images: int  # at most: as many as are held out
    steps: int = 256
    near: float = 0.01  # this close counts as arrived
    cut: float = 0.001  # that thresholds may cut off: no number of steps brings it back

    def __str__(self) -> str:
        near, cut = f"{100 * self.near:g} point", f"{100 * self.cut:g} points"
        return (
            f"fewest steps to within {near} of the ANN at p = 1, among those whose thresholds cut off at most {cut} "
            f"(what no number of steps brings back); where none of these comes there within T = {self.steps}, the one "
            f"that does and cuts off least (simulated only then, and not where it cuts off more than {near}); where "
            f"none does, the most accurate; p = 1 is a candidate; where the winner stands at an end of the grid, "
            f"{LONGEST_REACH} more is tried beyond it"
        )

    def hopeless(self, ann: float, clipped: float) -> bool:
        """No number of steps brings back what the thresholds cut off."""
        return ann - clipped > self.near + LAST_DIGIT

    def whole(self, ann: float, candidate: Mapping[str, Any]) -> bool:
        """Its thresholds leave the ANN's accuracy as it is. Asked of the network before conversion: what a spiking one
        has at the last step moves by several images from one step to the next."""
        return bool(ann - candidate["clipped"] <= self.cut + LAST_DIGIT)

    def arrival(self, ann: float, accuracy: Sequence[float]) -> int | None:
        return steps_to(accuracy, ann - self.near - LAST_DIGIT)

    def winner(self, ann: float, tried: Sequence[Mapping[str, Any]]) -> int:
        """The place in `tried` of the candidate to take."""

        def rank(candidate: Mapping[str, Any]) -> tuple[int, float, float]:
            accuracy = candidate["accuracy"]
            if accuracy is None:
                return (3, -candidate["clipped"], 0.0)
            arrived = self.arrival(ann, accuracy)
            if arrived is None:
                return (2, -accuracy[-1], -candidate["clipped"])
            if not self.whole(ann, candidate):
                return (1, -candidate["clipped"], arrived)
            return (0, arrived, -accuracy[-1])

        return min(range(len(tried)), key=lambda i: rank(tried[i]))

    def beyond(self, ann: float, tried: Sequence[Mapping[str, Any]]) -> float | None:
        """The lambda to try next where the winner stands at an end of the grid and may not be the best."""
        best = tried[self.winner(ann, tried)]
        kin = [t["lam"] for t in tried if t["per_layer"] == best["per_layer"] and t["lam"] > 0.0]
        lam: float = best["lam"]
        if kin and lam == max(kin) and self.whole(ann, best):
            return 2 * lam
        at_weak_end = lam == 0.0 or (lam == min(kin) and not self.whole(ann, best))
        return min(kin) / 2 if kin and at_weak_end else None
