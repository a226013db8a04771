"""The rule that chooses lambda: who wins, and where one more is tried."""

from __future__ import annotations

from typing import Any

import pytest

from ratenorm.train.choice import Rule

ANN = 0.9
RULE = Rule(images=1000, near=0.01, cut=0.001)
SLOW, QUICK = [0.5, 0.6, 0.9], [0.5, 0.9, 0.9]  # they arrive at T = 3 and T = 2


def candidate(lam: float, accuracy: list[float] | None, clipped: float = ANN, per_layer: bool = False) -> Any:
    return {"lam": lam, "per_layer": per_layer, "clipped": clipped, "accuracy": accuracy}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (candidate(0.1, QUICK), candidate(0.1, SLOW)),  # fewest steps
        (candidate(0.1, SLOW), candidate(0.1, QUICK, clipped=0.895)),  # thresholds that cut accuracy off come later
        (candidate(0.1, QUICK, clipped=0.896), candidate(0.1, QUICK, clipped=0.895)),  # of these, the least cut off
        (candidate(0.1, SLOW, clipped=0.895), candidate(0.1, [0.8, 0.8, 0.8])),  # one that never arrives
        (candidate(0.1, [0.5, 0.6, 0.8]), candidate(0.1, [0.8, 0.8, 0.7])),  # the most accurate of those
        (candidate(0.1, [0.1, 0.1, 0.1]), candidate(0.1, None)),  # one that was not worth simulating
        (candidate(0.1, None, clipped=0.8), candidate(0.1, None, clipped=0.7)),
    ],
)
def test_who_wins(better: Any, worse: Any) -> None:
    assert RULE.winner(ANN, [better, worse]) == 0
    assert RULE.winner(ANN, [worse, better]) == 1


def grid(best: float, clipped: float = ANN) -> list[Any]:
    """p = 1 and three lambdas, of which one is quicker than the others."""
    lams = (0.0, 0.02, 0.1, 0.5)
    return [candidate(lam, QUICK if lam == best else SLOW, clipped if lam == best else ANN) for lam in lams]


@pytest.mark.parametrize(("best", "next_one"), [(0.5, 1.0), (0.1, None), (0.02, None), (0.0, 0.01)])
def test_beyond_an_end_of_the_grid_one_more_is_tried(best: float, next_one: float | None) -> None:
    """A stronger one where the strongest wins and cuts nothing off, a weaker one where no stage 2 is best."""
    assert RULE.beyond(ANN, grid(best)) == next_one


def test_a_weaker_one_is_tried_where_even_the_weakest_cuts_accuracy_off() -> None:
    cut = [candidate(lam, QUICK, clipped=0.9 - 0.005 * (1 + lam)) for lam in (0.02, 0.1, 0.5)]
    assert RULE.winner(ANN, cut) == 0
    assert RULE.beyond(ANN, cut) == 0.01
    strongest = [candidate(lam, QUICK, clipped=0.895 + 0.001 * lam) for lam in (0.02, 0.1, 0.5)]
    assert RULE.winner(ANN, strongest) == 2
    assert RULE.beyond(ANN, strongest) is None


def test_only_lambdas_of_the_winner_s_kind_are_a_grid() -> None:
    """For thresholds by layer and by network the lambdas mean different things."""
    both = [candidate(0.02, SLOW), candidate(0.5, SLOW), candidate(0.1, QUICK, per_layer=True)]
    assert RULE.beyond(ANN, both) == 0.2
    assert RULE.beyond(ANN, [candidate(0.0, QUICK)]) is None
