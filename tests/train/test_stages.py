"""What the two stages do: learn, hold out, change nothing else; schedules; starting from a ReLU network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from builders import image_set, set_maxima_, state_of, tiny_cnn
from ratenorm.core.losses import ceiling_for_omega, omega
from ratenorm.core.rate_norm import RateNorm, clip_rate, rate_norm_layers
from ratenorm.data import Batches
from ratenorm.errors import AccuracyWarning, DataError, TrainingError, UsageError
from ratenorm.train.config import Stage1, Stage2, learning_rate
from ratenorm.train.from_relu import start_from_relu_
from ratenorm.train.loop import accuracy, evaluating
from ratenorm.train.rates import mean_rate, omegas, watched
from ratenorm.train.stage1 import _AccuracyStage, hold_out, train_accuracy
from ratenorm.train.stage2 import train_latency


def rate_net() -> nn.Module:
    torch.manual_seed(1)
    return tiny_cnn(RateNorm, channels=3)


def trained_maxima() -> nn.Module:
    return set_maxima_(rate_net(), image_set().images)


@pytest.mark.parametrize("ema", [0.0, 0.8])
def test_stage_1_learns_and_leaves_the_network_ready(ema: float) -> None:
    model, data = rate_net(), image_set(90)
    outcome = train_accuracy(model, data, Stage1(epochs=8, batch_size=10, lr=0.05, holdout=30, ema=ema), show=False)
    assert outcome.validation_accuracy is not None
    assert outcome.validation_accuracy > 0.9
    assert outcome.validation_accuracy == pytest.approx(accuracy(model, Batches(hold_out(data, 30, 0)[1], 30)))
    assert not model.training
    assert all(float(layer.p) == 1.0 for _, layer in rate_norm_layers(model))
    assert [e["epoch"] for e in outcome.history] == list(range(1, 9))
    assert outcome.history[-1]["loss"] < outcome.history[0]["loss"]
    assert outcome.history[-1]["eta_seconds"] == 0.0


def test_the_average_follows_closely_at_first_and_becomes_the_result() -> None:
    model, config = rate_net(), Stage1(epochs=1, batch_size=20, lr=0.05, holdout=0, ema=0.25)
    stage = _AccuracyStage(model, Batches(image_set(60), 20), None, config)
    average = state_of(model)["0.weight"]
    for step, (images, labels) in enumerate(stage.batches):
        stage.step(images, labels, step)
        decay = min(0.25, (step + 1) / (step + 10))
        average = decay * average + (1 - decay) * state_of(model)["0.weight"]
    assert not torch.allclose(average, state_of(model)["0.weight"])
    stage.finish()
    torch.testing.assert_close(state_of(model)["0.weight"], average)


def test_stage_1_starts_at_p_one_whatever_was_before() -> None:
    model = rate_net()
    for _, layer in rate_norm_layers(model):
        layer.p.fill_(0.5)
    train_accuracy(model, image_set(20), Stage1(epochs=1, batch_size=10, holdout=0), show=False)
    assert all(float(layer.p) == 1.0 for _, layer in rate_norm_layers(model))


def held_maxima() -> nn.Module:
    """Thresholds that stay: what changes then, the weights have done."""
    model = trained_maxima()
    for _, layer in rate_norm_layers(model):
        layer.freeze_()
    return model


def test_a_lambda_in_stage_1_lowers_omega_by_the_weights() -> None:
    """Eq. 9 with the thresholds held still: only the weights can do it."""
    found = []
    for lam in (None, 0.5):
        model = held_maxima()
        config = Stage1(epochs=3, batch_size=10, lr=0.01, holdout=0, lam=lam)
        outcome = train_accuracy(model, image_set(), config, show=False)
        assert ("omega" in outcome.history[-1]) is (lam is not None)
        with torch.no_grad(), watched(layer for _, layer in rate_norm_layers(model)) as sums:
            model(image_set().images)
        found.append(float(torch.stack(omegas(sums)).mean()))
    assert found[1] < 0.95 * found[0]


def test_an_energy_in_stage_1_lowers_the_rates_by_the_weights() -> None:
    found = []
    for energy in (None, 2.0):
        model = held_maxima()
        config = Stage1(epochs=3, batch_size=10, lr=0.01, holdout=0, energy=energy)
        outcome = train_accuracy(model, image_set(), config, show=False)
        assert ("rate" in outcome.history[-1]) is (energy is not None)
        spikes, neurons = [0.0], [0]

        def count(layer: RateNorm, inputs: tuple[torch.Tensor], output: torch.Tensor, spikes=spikes, neurons=neurons):
            spikes[0] += float(clip_rate(inputs[0], layer.threshold).double().sum())
            neurons[0] += output.numel()

        for _, layer in rate_norm_layers(model):
            layer.register_forward_hook(count)
        with torch.no_grad(), watched(layer for _, layer in rate_norm_layers(model)) as sums:
            model(image_set().images)
        assert float(mean_rate(sums)) == pytest.approx(spikes[0] / neurons[0], rel=1e-6)
        found.append(float(mean_rate(sums)))
    assert found[1] < 0.8 * found[0]


def test_what_is_watched_is_the_omega_of_the_rates() -> None:
    model = trained_maxima().eval()
    rates: list[torch.Tensor] = []
    for kind in ("rate", "activation"):
        for _, layer in rate_norm_layers(model):
            layer.output = kind  # type: ignore[assignment]
        handles = [
            layer.register_forward_hook(lambda m, i, o: rates.append(clip_rate(i[0], m.threshold)))
            for _, layer in rate_norm_layers(model)
        ]
        with torch.no_grad(), watched(layer for _, layer in rate_norm_layers(model)) as sums:
            model(image_set().images)
        for handle in handles:
            handle.remove()
        expected = [float(omega(rate.double())) for rate in rates[-2:]]
        assert [float(o) for o in omegas(sums)] == pytest.approx(expected, rel=1e-5)


def test_the_seed_decides_everything() -> None:
    states = []
    for seed in (0, 0, 1):
        model = rate_net()
        train_accuracy(model, image_set(), Stage1(epochs=1, batch_size=10, holdout=10, seed=seed), show=False)
        states.append(state_of(model)["0.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("per_layer", [False, True])
def test_stage_2_changes_nothing_but_p(per_layer: bool) -> None:
    model = trained_maxima()
    model.train()
    model[0].weight.requires_grad_(False)
    before, needs = state_of(model), [p.requires_grad for p in model.parameters()]
    data = image_set()
    images, labels = data.images.clone(), data.labels.clone()
    config = Stage2(epochs=2, batch_size=16, lam=0.5, holdout=12, per_layer=per_layer)
    outcome = train_latency(model, data, config, show=False)
    after = state_of(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"2.p", "5.p"}
    ps = [float(layer.p) for _, layer in rate_norm_layers(model)]
    assert all(0.0 < p < 1.0 for p in ps)
    assert (len(set(ps)) == 1) is not per_layer
    assert [p.requires_grad for p in model.parameters()] == needs
    assert all(not layer.frozen and not layer.p.requires_grad for _, layer in rate_norm_layers(model))
    assert torch.equal(data.images, images)
    assert torch.equal(data.labels, labels)
    assert outcome.validation_accuracy is not None
    assert len(outcome.history) == (4 if per_layer else 2)


def test_stage_2_does_not_look_at_labels() -> None:
    ps = []
    for shuffled in (False, True):
        model, data = trained_maxima(), image_set()
        if shuffled:
            data.labels.copy_(data.labels.flip(0))
        train_latency(model, data, Stage2(lam=0.5, batch_size=16, holdout=0), show=False)
        ps.append(float(next(rate_norm_layers(model))[1].p))
    assert ps[0] == ps[1]


def test_a_larger_lambda_ends_at_a_smaller_p() -> None:
    ps = []
    for lam in (0.0, 2.0):
        model = trained_maxima()
        train_latency(model, image_set(), Stage2(epochs=4, batch_size=16, lam=lam, holdout=0, lr=0.2), show=False)
        ps.append(float(next(rate_norm_layers(model))[1].p))
    assert ps[1] < ps[0] - 0.1


def test_stage_2_may_use_some_images_only() -> None:
    outcome = train_latency(
        trained_maxima(), image_set(), Stage2(lam=0.5, batch_size=5, images=10, holdout=0), show=False
    )
    assert outcome.history[0]["step"] == 2


def test_stage_2_works_on_layers_that_hand_on_activations() -> None:
    model = trained_maxima()
    for _, layer in rate_norm_layers(model):
        layer.output = "activation"
    train_latency(model, image_set(), Stage2(lam=0.5, batch_size=16, holdout=0), show=False)
    assert all(float(layer.p) < 0.9821 for _, layer in rate_norm_layers(model))


def test_a_lambda_in_stage_1_needs_a_rate_norm_layer_and_layers_that_fire() -> None:
    config = Stage1(epochs=1, batch_size=10, holdout=0, lam=0.5)
    with pytest.raises(TrainingError, match="no Rate Norm layer"):
        train_accuracy(tiny_cnn(), image_set(), config, show=False)
    model = trained_maxima()
    with torch.no_grad():
        model[4].bias.fill_(-1e6)
    with pytest.raises(TrainingError, match="layer 5 does not fire: its Omega is infinite"):
        train_accuracy(model, image_set(), config, show=False)


def test_an_energy_needs_a_rate_norm_layer_and_a_positive_number() -> None:
    with pytest.raises(TrainingError, match="no Rate Norm layer"):
        train_accuracy(tiny_cnn(), image_set(), Stage1(epochs=1, batch_size=10, holdout=0, energy=1.0), show=False)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match=r"energy is .*must be positive"):
            Stage1(energy=wrong)


class Contrarian(nn.Module):
    """A teacher of three classes that is sure of the one behind the right one."""

    def __init__(self) -> None:
        super().__init__()
        self.right = trained_maxima()
        train_accuracy(self.right, image_set(90), Stage1(epochs=8, batch_size=10, lr=0.05, holdout=0), show=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        return 5 * torch.roll(self.right(x), 1, dims=1)


def test_a_teacher_is_believed_as_far_as_its_share_goes() -> None:
    teacher, data = Contrarian(), image_set(90)
    before = state_of(teacher)
    taught = {}
    for share in (0.1, 1.0):
        model = held_maxima()
        config = Stage1(epochs=8, batch_size=10, lr=0.05, holdout=0, teacher=share)
        outcome = train_accuracy(model, data, config, show=False, teacher=teacher)
        assert outcome.history[-1]["taught"] > 0.0
        with torch.no_grad():
            answers = model(data.images).argmax(1)
        taught[share] = float((answers == (data.labels + 1) % 3).float().mean())
    assert taught[0.1] < 0.2
    assert taught[1.0] > 0.8
    assert all(torch.equal(value, state_of(teacher)[name]) for name, value in before.items())  # it learns nothing


def test_a_teacher_and_its_share_come_together() -> None:
    config = Stage1(epochs=1, batch_size=10, holdout=0)
    with pytest.raises(UsageError, match="give both the network"):
        train_accuracy(rate_net(), image_set(), config, show=False, teacher=tiny_cnn(channels=3))
    with pytest.raises(UsageError, match="give both the network"):
        train_accuracy(rate_net(), image_set(), replace(config, teacher=0.5), show=False)
    for wrong in (0.0, 1.1, float("nan")):
        with pytest.raises(UsageError, match=r"teacher is .*it must lie in \(0, 1\]"):
            Stage1(teacher=wrong)


def test_stage_2_needs_a_rate_norm_layer() -> None:
    with pytest.raises(TrainingError, match="no Rate Norm layer"):
        train_latency(tiny_cnn(), image_set(), Stage2(lam=0.5, holdout=0), show=False)


# -- from a ReLU network ---------------------------------------------------------------------------------------------


def test_starting_from_relu_computes_what_the_relu_network_does() -> None:
    torch.manual_seed(4)
    relu, model = tiny_cnn(nn.ReLU, channels=3), rate_net()
    batches = Batches(image_set(), 20)
    start_from_relu_(model, relu, batches)
    for images, _ in batches:
        torch.testing.assert_close(model.eval()(images), relu(images), rtol=1e-5, atol=1e-5)
    for (_, layer), site in zip(rate_norm_layers(model), (2, 5), strict=True):
        with torch.no_grad():
            largest = relu[:site](image_set().images).max()
        assert float(layer.running_max) == pytest.approx(float(largest), rel=1e-6)
        assert layer.output == "activation"
        assert "forward" not in layer.__dict__


def test_with_an_omega_the_maxima_start_where_every_layer_has_it_and_stay() -> None:
    torch.manual_seed(4)
    relu, model = tiny_cnn(nn.ReLU, channels=3), rate_net()
    images = image_set()
    start_from_relu_(model, relu, Batches(images, len(images)), omega=1.5)
    before = [float(layer.running_max) for _, layer in rate_norm_layers(model)]
    for found, site in zip(before, (2, 5), strict=True):
        with torch.no_grad():
            rates = clip_rate(relu[:site](images.images), torch.tensor(found))
        assert float(omega(rates.double())) == pytest.approx(1.5, rel=1e-5)
    train_accuracy(model, image_set(), Stage1(epochs=1, batch_size=10, holdout=0), show=False)
    assert [float(layer.running_max) for _, layer in rate_norm_layers(model)] == before


def test_a_silent_layer_has_no_omega_to_start_with() -> None:
    relu = tiny_cnn(nn.ReLU, channels=3)
    with torch.no_grad():
        relu[4].bias.fill_(-1e6)
    with pytest.raises(TrainingError, match="its layer 5 never fires"):
        start_from_relu_(rate_net(), relu, Batches(image_set(), 20), omega=1.5)


def test_the_ceiling_of_an_omega_never_lies_above_the_maximum() -> None:
    x = torch.tensor([-1.0, 0.5, 1.0, 2.0])
    assert ceiling_for_omega(x, 100.0) == 2.0
    assert ceiling_for_omega(-x.abs(), 2.0) == 0.0
    ceilings = [ceiling_for_omega(x, o) for o in (1.05, 1.2, 1.3)]
    assert ceilings == sorted(ceilings)
    assert ceilings[0] < ceilings[-1] < 2.0


@pytest.mark.parametrize("wrong", [1.0, 0.5, -1.0, float("nan")])
def test_an_omega_that_no_layer_can_have_is_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="Omega is"):
        start_from_relu_(rate_net(), tiny_cnn(nn.ReLU, channels=3), Batches(image_set(), 20), wrong)


def test_a_network_that_does_not_fit_is_refused() -> None:
    batches = Batches(image_set(), 20)
    with pytest.raises(TrainingError, match="Both must be the same network"):
        start_from_relu_(rate_net(), tiny_cnn(nn.ReLU, channels=5), batches)
    with pytest.raises(TrainingError, match="no Rate Norm layer"):
        start_from_relu_(tiny_cnn(), tiny_cnn(), batches)


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"peak": 1.0}, {"momentum": -0.1},
              {"ema": 1.0}, {"label_smoothing": 1.5}, {"lam": 0.0}, {"lam": float("inf")}],
    ids=str,
)  # fmt: skip
def test_stage_1_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"Stage 1: {next(iter(wrong))} is"):
        Stage1(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": -1.0}, {"lam": -0.5}, {"images": 0}], ids=str)
def test_stage_2_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"Stage 2: {next(iter(wrong))} is"):
        Stage2(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["triangular", "cosine"])
def test_the_learning_rate_rises_to_its_peak_and_falls_towards_zero(schedule: str) -> None:
    config = Stage1(lr=0.4, peak=0.25, schedule=schedule)  # type: ignore[arg-type]
    rates = [learning_rate(config, step, 100) for step in range(100)]
    assert max(rates) == pytest.approx(0.4, rel=0.01)
    assert rates.index(max(rates)) in (24, 25)
    assert rates[:25] == sorted(rates[:25])
    assert rates[25:] == sorted(rates[25:], reverse=True)
    assert len(set(rates[:25])) == 25
    assert 0.0 < rates[-1] < 0.02


def test_a_constant_schedule_is_constant() -> None:
    assert {learning_rate(Stage1(lr=0.3, schedule="constant"), s, 10) for s in range(10)} == {0.3}


def test_holding_out() -> None:
    data = image_set(30)
    assert hold_out(data, 0, 0) == (data, None)
    rest, held = hold_out(data, 9, 0)
    assert held is not None
    assert (len(rest), len(held)) == (21, 9)
    for count in (30, 31):
        with pytest.raises(DataError, match="nothing would be left"):
            hold_out(data, count, 0)


def test_evaluating_restores_the_mode_even_after_an_error() -> None:
    model = rate_net().train()
    with evaluating(model):
        assert not model.training
    with pytest.raises(ZeroDivisionError), evaluating(model):
        _ = 1 / 0
    assert model.training


def test_lambda_is_chosen_on_held_out_images_with_no_stage_2_among_the_candidates() -> None:
    """Without options no accuracy is lost in silence: p that cuts off more than the rule allows is not taken."""
    model, data = trained_maxima(), image_set(120)
    outcome = train_latency(model, data, Stage2(batch_size=16, holdout=40), show=False)
    choice = outcome.choice
    assert choice is not None
    assert [one["lam"] for one in choice["tried"]] == [0.02, 0.1, 0.5, 0.0]
    assert choice["images"] == 40
    best = choice["tried"][choice["chosen"]]
    assert best["clipped"] == pytest.approx(outcome.validation_accuracy)
    assert [float(layer.p) for _, layer in rate_norm_layers(model)] == pytest.approx(best["p"])
    assert best["clipped"] >= choice["ann_accuracy"] - 0.001 or all(
        one["accuracy"] is None or one["clipped"] < choice["ann_accuracy"] for one in choice["tried"]
    )
    assert choice["tried"][3]["p"] == [1.0] * len(best["p"])


def test_a_lambda_that_costs_accuracy_says_so() -> None:
    model, data = trained_maxima(), image_set(120)
    train_accuracy(model, data, Stage1(epochs=6, batch_size=16, lr=0.05, holdout=40), show=False)
    with pytest.warns(AccuracyWarning, match="Stage 2 with lam = 100 leaves"):
        train_latency(model, data, Stage2(lam=100.0, lr=1.0, epochs=4, batch_size=16, holdout=40), show=False)


def test_choosing_without_held_out_images_is_refused() -> None:
    with pytest.raises(UsageError, match=r"lambda is chosen on held-out images, and holdout is 0"):
        Stage2(holdout=0)
