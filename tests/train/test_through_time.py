"""Training through time: the unrolled network is the network, it learns, it resumes, it refuses what it cannot do."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from builders import image_set, tiny_cnn
from random_networks import recipes
from ratenorm.calibrators import StepBias, calibrate
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.thresholds import EqualOmega, Fixed, MaxNorm
from ratenorm.data import Augment, Batches, ImageSet
from ratenorm.errors import TrainingError, UsageError
from ratenorm.graph.net import Node
from ratenorm.graph.ops import Conv, Fire, Linear, MaxPool
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import load, save
from ratenorm.simulate.simulate import simulate
from ratenorm.train import through_time
from ratenorm.train.interrupt import Interrupted
from ratenorm.train.through_time import ThroughTime, Unrolled, train_through_time

SHORT = ThroughTime(steps=3, epochs=2, batch_size=8, lr=5e-3, holdout=12, augment=Augment(shift=1), bfloat16=False)


def pixels(images: ImageSet) -> Tensor:
    return images.images.float() / 255 if images.images.dtype == torch.uint8 else images.images


def converted(steps: int = 3) -> Conversion:
    torch.manual_seed(7)
    x = pixels(image_set())
    conversion = convert(tiny_cnn(channels=3), EqualOmega(2.0), example=x[:1], calibration=x, v0=0.5)
    return calibrate(conversion, x, steps=steps, method=StepBias(repeats=2))


@settings(max_examples=25)
@given(recipe=recipes())
def test_the_unrolled_network_is_the_dense_engine(recipe: Any) -> None:
    model, x = recipe.build(), recipe.images(4)
    net = convert(model, Fixed(0.5), example=x[:1], v0=0.5).net
    if any(isinstance(node.op, MaxPool) and node.name not in net.static for node in net.nodes):
        with pytest.raises(UsageError, match="max-pool on spikes"):
            through_time.check_trainable(net)
        return
    found = Unrolled(net, 5)(x)
    expected = simulate(net, x, 5, engine="dense").logits
    torch.testing.assert_close(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


def test_step_biases_of_a_calibration_are_where_training_starts() -> None:
    conversion, x = converted(steps=2), pixels(image_set())
    found = Unrolled(conversion.net, 4)(x)
    assert torch.allclose(found, simulate(conversion.net, x, 4, engine="dense").logits, atol=1e-6)


def test_the_gradient_is_the_triangle_through_all_steps() -> None:
    """Against automatic differentiation of the recurrence with the triangle written out."""
    torch.manual_seed(1)
    current, bias, threshold = torch.randn(4, 2, 3), 0.1 * torch.randn(4, 3), torch.tensor([0.5, 1.0, 2.0])
    start = 0.5 * threshold
    seed = torch.randn(4, 2, 3)
    ours, ours_bias = current.clone().requires_grad_(), bias.clone().requires_grad_()
    (through_time._Spikes.apply(ours, ours_bias, start, threshold) * seed).sum().backward()
    plain, plain_bias = current.clone().double().requires_grad_(), bias.clone().double().requires_grad_()
    potential, total = start.double().expand(2, 3), torch.zeros((), dtype=torch.float64)
    for t in range(4):
        m = potential + plain[t] + plain_bias[t]
        slope = (1 - (m.detach() - threshold).abs() / threshold).clamp_min(0) / threshold
        spikes = (m.detach() >= threshold).double() + slope * (m - m.detach())
        total = total + (spikes * seed[t]).sum()
        potential = m - spikes * threshold
    total.backward()
    for found, expected in ((ours.grad, plain.grad), (ours_bias.grad, plain_bias.grad)):
        assert found is not None
        assert expected is not None
        torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-2)  # slopes are kept in bfloat16


def test_the_constant_current_of_the_image_is_never_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded to bfloat16 it moved the spikes of a plain background: CNN-7 lost 15 points at T = 1."""
    conversion, x = converted(), pixels(image_set())
    seen: list[torch.dtype] = []
    plain = through_time._Spikes.forward

    def forward(ctx: Any, current: Tensor, *others: Tensor) -> Tensor:
        seen.append(current.dtype)
        return plain(ctx, current, *others)

    monkeypatch.setattr(through_time._Spikes, "forward", staticmethod(forward))
    with torch.autocast("cpu", torch.bfloat16):
        Unrolled(conversion.net, 3)(x)
    assert seen == [torch.float32, torch.bfloat16]


def test_training_lowers_the_loss_and_ends_as_a_spiking_net(tmp_path: Path) -> None:
    conversion, images = converted(), image_set()
    teacher = pixels(images)
    done, history = train_through_time(
        conversion, images, replace(SHORT, epochs=16, teacher=1.0, holdout=0), show=False
    )
    assert [entry["epoch"] for entry in history] == list(range(1, 17))

    def distance(c: Conversion) -> float:
        logits = simulate(c.net, teacher, 3, engine="dense").logits
        return float((logits - through_time.run(conversion.analog, teacher)).square().mean())

    assert distance(done) < 0.8 * distance(conversion)
    assert done.calibrated[-1].steps == 3
    assert done.calibrated[-1].method["method"] == "through-time"
    save(done.net, tmp_path / "net.safetensors")
    assert load(tmp_path / "net.safetensors").same_as(done.net)
    for node in done.net.populations:
        assert isinstance(node.op, Fire)
        assert node.op.step_bias is not None
        assert len(node.op.step_bias) == 4
        assert not node.op.step_bias[-1].any()  # nothing is added after the last trained step


def test_resuming_equals_not_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = train_through_time(converted(), image_set(), SHORT, show=False)
    plain, done = through_time._Stage.step, []

    def step(self: Any, *args: Any) -> dict[str, float]:
        done.append(1)
        if len(done) == 8:
            signal.raise_signal(signal.SIGINT)
        return plain(self, *args)

    with RunFolder(tmp_path) as folder, monkeypatch.context() as patch:
        patch.setattr(through_time._Stage, "step", step)
        with pytest.raises(Interrupted, match="Continue with --resume"):
            train_through_time(converted(), image_set(), SHORT, run_folder=folder, show=False)
    with RunFolder(tmp_path, "resume") as folder:
        resumed, _ = train_through_time(converted(), image_set(), SHORT, run_folder=folder, show=False)
    assert resumed.net.same_as(whole.net)


def test_a_diverging_training_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through_time, "teaching_loss", lambda known, answer: answer.sum() * torch.inf)
    with pytest.raises(TrainingError, match="through-time: the loss became nan in epoch 1, batch 1"):
        train_through_time(converted(), image_set(), SHORT, show=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps is 0; it must be a whole number from 1 to 8"),
        ({"steps": 9}, "steps is 9"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lr": -1.0}, "lr is -1"),
        ({"lr": 1.5}, "lr is 1.5; it must be in"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"warmup": 1.0}, "warmup is 1"),
        ({"teacher": 1.5}, "teacher is 1.5"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ThroughTime(**change)


def test_signed_spikes_are_refused() -> None:
    conversion = converted()

    def signed(node: Node) -> Node:
        return replace(node, op=replace(node.op, signed=True)) if isinstance(node.op, Fire) else node

    net = replace(conversion.net, nodes=tuple(signed(node) for node in conversion.net.nodes))
    with pytest.raises(UsageError, match="signed spikes"):
        train_through_time(replace(conversion, net=net), image_set(), SHORT, show=False)


def test_max_pools_are_refused_with_the_remedy() -> None:
    x = torch.rand(4, 1, 8, 8)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x)
    with pytest.raises(UsageError, match=r"max_pool='average'"):
        train_through_time(conversion, image_set(), SHORT, show=False)


def test_memory_is_stated_before_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through_time, "available_memory", lambda: 1000)
    with pytest.raises(TrainingError, match=r"takes about [\d,]+ MB, and 0 MB are free"):
        train_through_time(converted(), image_set(), SHORT, show=False)


def test_an_epoch_reports_the_accuracy_after_every_step_on_images_held_out() -> None:
    """As the dense engine has it on the network that is returned."""
    data = image_set()
    _, held = through_time.hold_out(data, SHORT.holdout, SHORT.seed)
    done, history = train_through_time(converted(), data, replace(SHORT, lr=5e-2, epochs=4), show=False)
    logits = simulate(done.net, pixels(held), 3, engine="dense").logits
    right = (logits.argmax(-1) == held.labels).double().mean(1).tolist()
    assert [history[-1][f"accuracy_at_{t}"] for t in (1, 2, 3)] == right
    assert history[-1]["accuracy"] == right[-1]
    _, silent = train_through_time(converted(), data, replace(SHORT, holdout=0), show=False)
    assert "accuracy" not in silent[-1]


def stage(config: ThroughTime, teacher: Any = None) -> Any:
    batches = Batches(image_set(), config.batch_size)
    return through_time._Stage(Unrolled(converted().net, config.steps), teacher, batches, None, config)


def test_the_learning_rate_rises_in_a_line_and_falls_to_zero() -> None:
    config = replace(SHORT, epochs=40, warmup=0.25, lr=1.0)
    made = stage(config)
    rates = [made._rate(step) for step in range(made.last + 1)]
    peak = rates.index(max(rates))
    assert rates[peak] == pytest.approx(1.0, abs=1e-3)
    assert peak / made.last == pytest.approx(0.25, abs=0.01)
    half = (peak + made.last) // 2
    assert rates[peak // 2] == pytest.approx(0.5, abs=0.02)
    assert rates[half] == pytest.approx(0.5, abs=0.02)
    assert rates[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_teacher_without_a_share_is_not_asked() -> None:
    def teacher(_: Tensor) -> Tensor:
        raise AssertionError("asked")

    x, labels = pixels(image_set())[:8], image_set().labels[:8]
    assert stage(replace(SHORT, teacher=0.0), teacher).step(x, labels, 0)["loss"] > 0


def test_an_infinite_gradient_does_not_reach_the_weights() -> None:
    made = stage(replace(SHORT, teacher=0.0))
    before = {name: value.detach().clone() for name, value in made.model.values.items()}
    next(iter(made.model.values.values())).register_hook(lambda g: g * torch.inf)
    found = made.step(pixels(image_set())[:8], image_set().labels[:8], 0)
    assert not torch.isfinite(torch.tensor(found["gradient"]))
    assert all(torch.equal(value, before[name]) for name, value in made.model.values.items())


def test_a_weight_moves_by_a_share_of_the_size_of_its_tensor() -> None:
    """However many weights there are: Adam moves each by the learning rate times the root of their mean square."""
    net = converted().net
    wide = replace(
        net,
        nodes=tuple(
            replace(n, op=replace(n.op, weight=torch.full_like(n.op.weight, 0.25)))
            if isinstance(n.op, Conv | Linear)
            else n
            for n in net.nodes
        ),
    )
    scales = [scale for key, scale in Unrolled(wide, 3).scales.items() if key.endswith("/weight")]
    assert scales
    assert scales == [0.25] * len(scales)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_fewer_steps_are_the_first_ones(steps: int) -> None:
    x = pixels(image_set())
    made = Unrolled(converted().net, 3)
    assert torch.allclose(made(x, steps), made(x)[:steps], atol=1e-6)
    assert len(made(x, steps)) == steps
