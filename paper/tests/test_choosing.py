"""lambda of stage 2: the rule by which it is chosen, and the choosing itself at a tiny scale."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper import networks
from paper.presets import BY_NAME
from ratenorm.core.rate_norm import rate_norm_layers, set_p_
from ratenorm.data import ImageSet
from ratenorm.errors import UsageError
from ratenorm.io.networks import load_network, save_network
from ratenorm.train.choice import Rule
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.stage1 import hold_out
from ratenorm.workflows.choose_lambda import choose_stage2, label
from ratenorm.workflows.train import TrainConfig, held_out_images, training_images

RULE = Rule(images=100, steps=4)
FAST = Stage2(lam=0.2, batch_size=32, holdout=40, lr=0.5)


def tried(lam: float, *accuracy: float, clipped: float = 1.0, per_layer: bool = False) -> dict[str, Any]:
    shown = list(accuracy) or None
    return {"lam": lam, "per_layer": per_layer, "p": [0.5], "clipped": clipped, "accuracy": shown}


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_the_fastest_wins_among_those_whose_thresholds_cut_off_nothing() -> None:
    slow, fast = tried(0.1, 0.1, 0.5, 0.9, 0.95), tried(0.2, 0.1, 0.95, 0.95, 0.95)
    cut = tried(0.5, 0.945, 0.945, 0.945, 0.945, clipped=0.945)  # faster still, but 0.5 points are gone for good
    assert RULE.winner(0.95, [slow, cut, fast]) == 2
    noisy = tried(0.3, 0.1, 0.95, 0.95, 0.945)  # an image or two at the last step decide nothing
    assert RULE.winner(0.95, [slow, noisy]) == 1


def test_who_cuts_off_something_but_arrives_beats_who_does_not_arrive() -> None:
    far, nearer = tried(0.0, 0.1, 0.3, clipped=0.95), tried(0.1, 0.9, 0.92, clipped=0.945)
    assert RULE.winner(0.95, [far, nearer]) == 1  # none arrives: the most accurate
    cut, more = tried(0.2, 0.9, 0.942, clipped=0.943), tried(0.3, 0.942, 0.942, clipped=0.942)
    assert RULE.winner(0.95, [far, more, nearer, cut]) == 3


def test_what_was_not_simulated_wins_only_when_nothing_was() -> None:
    cut, cut_less = tried(0.5, clipped=0.3), tried(0.2, clipped=0.6)
    assert RULE.winner(0.95, [cut, tried(0.1, 0.1, 0.1), cut_less]) == 1
    assert RULE.winner(0.95, [cut, cut_less]) == 1


def test_one_point_is_counted_in_images_and_not_in_last_digits() -> None:
    assert not RULE.hopeless(0.93, 0.92)  # 0.93 - 0.92 is a little more than 0.01 in floating point
    assert RULE.hopeless(0.93, 0.919)
    assert RULE.arrival(0.93, [0.1, 0.92, 0.92]) == 2


curves = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=4, max_size=4)


@given(st.lists(curves, min_size=1, max_size=5), st.integers(900, 1000).map(lambda n: n / 1000))
def test_no_loser_that_cuts_off_nothing_is_sooner(found: list[list[float]], ann: float) -> None:
    candidates = [tried(0.1 * i, *curve) for i, curve in enumerate(found)]
    best = found[RULE.winner(ann, candidates)]
    for other in found:
        if RULE.arrival(ann, other) is not None:
            assert (RULE.arrival(ann, best) or 99) <= (RULE.arrival(ann, other) or 99)


def test_the_grid_grows_where_the_winner_stands_at_its_end() -> None:
    good, better = tried(0.1, 0.1, 0.5, 0.95, 0.95), tried(0.2, 0.1, 0.95, 0.95, 0.95)
    bad = tried(0.4, 0.1, 0.942, 0.942, 0.942, clipped=0.942)
    assert RULE.beyond(0.95, [good, better]) == 0.4
    assert RULE.beyond(0.95, [good, better, bad]) is None
    assert RULE.beyond(0.95, [bad]) == 0.2  # everything cuts off: weaker
    assert RULE.beyond(0.95, [tried(0.05, clipped=0.1), bad]) is None
    unchanged = tried(0.0, 0.1, 0.95, 0.95, 0.95)
    assert RULE.beyond(0.95, [unchanged, bad]) == 0.2  # p = 1 wins: perhaps there is something between
    assert RULE.beyond(0.95, [unchanged]) is None
    assert RULE.beyond(0.95, [tried(0.0, 0.1, 0.1, 0.1, 0.1), better, bad]) is None
    assert RULE.beyond(0.95, [good, better, tried(0.8, 0.1, 0.1, 0.1, 0.1, per_layer=True)]) == 0.4


def test_the_candidates_of_a_preset_differ_and_carry_the_seed() -> None:
    for preset in BY_NAME.values():
        first, *others = preset.stage2_candidates(7)
        assert (first.lam, first.seed, first.per_layer) == (preset.ril.lam, 7, False)
        assert len({first, *others}) == len(others) + 1 == len({first.lam, *preset.lams}) * len(preset.per_layer)


# -- choosing ----------------------------------------------------------------------------------------------------------


def config(holdout: int = 40) -> TrainConfig:
    return TrainConfig(stage1=Stage1(holdout=holdout))


@pytest.mark.usefixtures("small_mnist")
def test_held_out_images_are_no_training_images(digits: dict[str, ImageSet]) -> None:
    kept = held_out_images(config(), 1000)
    learned, _ = hold_out(training_images(config()), 40, config().stage1.seed)
    assert len(kept) == 40
    assert len(held_out_images(config(), 10)) == 10
    assert len(training_images(config())) == 360
    shown = {image.numpy().tobytes() for image in digits["train"].images}
    assert all(image.numpy().tobytes() in shown for image in kept.images)
    assert not {image.numpy().tobytes() for image in learned.images} & {i.numpy().tobytes() for i in kept.images}
    with pytest.raises(UsageError, match="holds none out"):
        held_out_images(config(0), 10)


@pytest.mark.usefixtures("small_mnist")
@pytest.mark.parametrize("arrives", [True, False])
def test_what_cuts_off_something_is_simulated_only_where_nothing_else_arrives(
    arrives: bool, trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated: list[str] = []

    def simulate(name: str, *args: object, **kwargs: object) -> SimpleNamespace:
        simulated.append(name)
        return SimpleNamespace(accuracy=[0.1, 0.95 if arrives else 0.5])

    def left(model: torch.nn.Module, *args: object) -> float:
        p = next(float(layer.p) for _, layer in rate_norm_layers(model))
        return 0.95 if p == 1.0 else 0.942 if p > 0.5 else 0.2

    monkeypatch.setattr("ratenorm.workflows.choose_lambda.watched_evaluation", simulate)
    monkeypatch.setattr("ratenorm.workflows.choose_lambda.test_accuracy", left)
    monkeypatch.setattr("ratenorm.workflows.choose_lambda.LONGEST_REACH", 0)
    model, spec = load_network(trained_run / "stage2.safetensors")
    trained = {}
    for p, stage2 in ((0.9, Stage2(lam=0.5, holdout=40)), (0.3, FAST)):
        set_p_(model, p)
        trained[stage2] = save_network(tmp_path / f"{p}.safetensors", model, spec)
    monkeypatch.setattr(
        "ratenorm.workflows.choose_lambda._train", lambda stage1, training, stage2, own: trained[stage2]
    )
    stage1 = trained_run / "stage1.safetensors"
    choice = choose_stage2(stage1, config(), [*trained], tmp_path / "ril", Rule(100, steps=2), print)
    assert simulated == (["held-out, lam-0"] if arrives else ["held-out, lam-0", "held-out, lam-0.5"])
    assert [t["accuracy"] is None for t in choice["tried"]] == [arrives, True, False]  # 0.2 is hopeless


@pytest.mark.usefixtures("small_mnist")
def test_choosing_trains_tries_and_keeps_the_winner(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage1 = trained_run / "stage1.safetensors"
    said: list[str] = []
    candidates = [Stage2(lam=0.5, holdout=40), FAST]
    words = (stage1, config(), candidates, tmp_path / "ril", Rule(100, steps=16), said.append)
    choice = choose_stage2(*words)
    assert [t["lam"] for t in choice["tried"]][:3] == [0.5, 0.2, 0.0]
    assert label(choice["tried"][2]) == "p = 1, without stage 2"
    assert set(choice["tried"][2]["p"]) == {1.0}
    assert choice["tried"][2]["clipped"] == choice["ann_accuracy"]
    assert choice["images"] == 40
    assert "fewest steps to within 1 point" in choice["rule"]
    assert len(said) == len(choice["tried"]) + 1
    chosen = choice["tried"][choice["chosen"]]
    assert label(chosen) in said[-1]
    model, _ = load_network(tmp_path / "ril" / "stage2.safetensors")
    assert [float(layer.p) for _, layer in rate_norm_layers(model)] == chosen["p"]
    source, _ = load_network(stage1)
    for name, value in source.state_dict().items():
        if not name.endswith(".p"):
            assert torch.equal(value, model.state_dict()[name])  # stage 2 moved nothing but p

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained or simulated again")

    monkeypatch.setattr("ratenorm.workflows.choose_lambda.train_latency", forbidden)
    monkeypatch.setattr("ratenorm.workflows.choose_lambda.watched_evaluation", forbidden)
    assert choose_stage2(*words) == choice
    (tmp_path / "ril" / "choice.json").unlink()  # stopped before it was written: what was tried is still there
    assert choose_stage2(*words) == choice
    (tmp_path / "ril" / "choice.json").write_text("{")
    assert choose_stage2(*words) == choice


def test_all_that_a_preset_holds_out_is_asked() -> None:
    assert {preset.rnl.holdout for preset in BY_NAME.values()} == {networks.RULE.images}
