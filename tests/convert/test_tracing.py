"""Tracing by call site, in-place forms and what they alias, refusals with their remedies, and the model left alone."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from builders import same_state, state_of, tiny_cnn
from ratenorm import MaxNorm, RateNorm, convert, inspect
from ratenorm.convert.lower import lower
from ratenorm.convert.observe import sites
from ratenorm.errors import ConversionError, UsageError
from ratenorm.graph.net import run
from ratenorm.graph.ops import AvgPool

IMAGE = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))


def names(model: nn.Module, example: Tensor = IMAGE) -> list[str]:
    return [node.name for node in sites(lower(model.eval(), example)[0])]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(2, 2, 3, padding=1), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.conv(self.relu(self.conv(x))))


def test_a_module_called_twice_makes_two_populations() -> None:
    model = Twice()
    assert names(model) == ["relu", "relu@2"]
    graph, _ = lower(model.eval(), IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(run(graph, IMAGE), model(IMAGE))


class Shifted(nn.ReLU):
    """A ReLU that is none: it must not pass for one."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - 0.5) * 2.0


class Renamed(nn.ReLU):
    pass


class OwnRateNorm(RateNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


@pytest.mark.parametrize("kind", [Shifted, Renamed])
def test_a_subclass_of_relu_is_looked_into(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), kind()).eval()
    graph, _ = lower(model, IMAGE)
    assert len(sites(graph)) == 1
    with torch.no_grad():
        torch.testing.assert_close(run(graph, IMAGE), model(IMAGE))


def test_a_subclass_of_rate_norm_is_refused() -> None:
    with pytest.raises(ConversionError, match="OwnRateNorm has no spiking form"):
        convert(nn.Sequential(OwnRateNorm()), example=IMAGE)


class ReadAfterInPlace(nn.Module):
    """The skip reads what relu_ has changed, as in eager torch."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.conv, self.relu, self.form = nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True), form

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.form == "module":
            z = self.relu(y)
        elif self.form == "function":
            z = F.relu(y, inplace=True)
        elif self.form == "relu_":
            z = y.relu_()
        elif self.form == "mul_":
            z = y.mul_(-1.0)
        else:
            z = torch.clamp_(y, 0.0, 0.3)
        return F.relu(z + 2.0 * y)


@pytest.mark.parametrize("form", ["module", "function", "relu_", "mul_", "clamp_"])
def test_what_is_changed_in_place_is_read_changed(form: str) -> None:
    model = ReadAfterInPlace(form).eval()
    graph, _ = lower(model, IMAGE)
    x = torch.rand(4, 2, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(run(graph, x), model(x.clone()))


class ThroughAView(nn.Module):
    """y shares its memory with x: relu_ on y changes x, which a trace cannot see."""

    def forward(self, x: Tensor) -> Tensor:
        z = x - 0.5
        y = z.flatten(1)
        y.relu_()
        return F.relu(z.flatten(1) + 1.0)


class AugmentedSum(nn.Module):
    """torch.fx records += as an addition, and loses that the first operand changed."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.0
        z = y
        z += 1.0
        return F.relu(y - 0.5)


class BatchSizeAsNumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x / x.shape[0])


@pytest.mark.parametrize("kind", [ThroughAView, AugmentedSum, BatchSizeAsNumber])
def test_what_a_trace_cannot_see_is_refused_and_never_wrong(kind: type[nn.Module]) -> None:
    model = kind().eval()
    x = torch.rand(5, 2, 6, 6)
    try:
        graph, _ = lower(model, IMAGE)
    except ConversionError as error:
        assert "does not compute what the network does" in str(error)  # noqa: PT017
    else:
        with torch.no_grad():
            torch.testing.assert_close(run(graph, x), model(x.clone()))


def test_the_model_is_never_changed() -> None:
    model = nn.Sequential(tiny_cnn(RateNorm), nn.ReLU(inplace=True))
    model.train()
    model[0][1].eval()
    model[0][0].weight.requires_grad_(False)
    before, modes = state_of(model), [m.training for m in model.modules()]
    grads = [p.requires_grad for p in model.parameters()]
    x = torch.rand(6, 1, 8, 8)
    kept = x.clone()
    convert(model, MaxNorm(), example=x[:1], calibration=x)
    inspect(model, x[:1])
    assert same_state(before, state_of(model))
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == grads
    assert torch.equal(x, kept)


def test_the_conversion_does_not_share_memory_with_the_model() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.rand(5, 3)
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x)
    before = run(conversion.net, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(run(conversion.net, x), before)


# -- refusals ----------------------------------------------------------------------------------------------------------


class Calls(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)  # the line that a refusal names


WEIGHT = torch.randn(3, 2, 3, 3)
REFUSED_MODULES = {
    "sigmoid": (nn.Sigmoid(), "Sigmoid", "nn.ReLU"),
    "tanh": (nn.Tanh(), "Tanh", "nn.ReLU"),
    "softmax": (nn.Softmax(1), "Softmax", "leave it out"),
    "log softmax": (nn.LogSoftmax(1), "LogSoftmax", "leave it out"),
    "gelu": (nn.GELU(), "GELU", "fine-tuning"),
    "silu": (nn.SiLU(), "SiLU", "fine-tuning"),
    "leaky relu": (nn.LeakyReLU(), "LeakyReLU", "nn.ReLU6"),
    "prelu": (nn.PReLU(), "PReLU", "nn.ReLU6"),
    "layer norm": (nn.LayerNorm(6), "LayerNorm", "BatchNorm"),
    "group norm": (nn.GroupNorm(1, 2), "GroupNorm", "BatchNorm"),
    "instance norm": (nn.InstanceNorm2d(2), "InstanceNorm2d", "BatchNorm"),
    "conv transpose": (nn.ConvTranspose2d(2, 2, 2), "ConvTranspose2d", "nearest-neighbour upsampling"),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), "'bilinear'", "nearest-neighbour"),
    "batch norm without statistics": (
        nn.BatchNorm2d(2, track_running_stats=False), "without running statistics", "track_running_stats=True"),
    "hardtanh from -1": (nn.Hardtanh(), r"clips to \[-1.0, 1.0\]", "clip from 0"),
    "pooling with a divisor": (nn.AvgPool2d(2, divisor_override=3), "divisor_override", "scale by a constant"),
}  # fmt: skip
REFUSED_CALLS = {
    "F.gelu": (lambda x: F.gelu(x), r"gelu\(\)", "nn.ReLU"),
    "torch.sigmoid": (lambda x: torch.sigmoid(x), r"sigmoid\(\)", "nn.ReLU"),
    "x.softmax": (lambda x: x.softmax(1), r"softmax\(\)", "leave it out"),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x), "scaled_dot_product_attention", "two activations"),
    "matmul": (lambda x: torch.matmul(x, x), "multiplies two values", "fixed matrix"),
    "gate": (lambda x: x * x.relu().mean((2, 3), keepdim=True), "multiplies two values", "without its gates"),
    "smooth activation": (lambda x: x * x.relu(), "multiplies two values", "nn.ReLU"),
    "division": (lambda x: 1.0 / (x + 2.0), "divides by a value", "constants only"),
    "clamp from -1": (lambda x: x.clamp(-1, 1), r"clips to \[-1, 1\]", "clip from 0"),
    "clamp to nothing": (lambda x: x.clamp(0, 0), "empty", "positive upper limit"),
    "flatten of the batch": (lambda x: x.flatten(), "batch", "keep the batch"),
    "mean of everything": (lambda x: x.mean() + x, "batch", "keep the batch"),
    "batch moved": (lambda x: x.permute(1, 0, 2, 3), "batch", "keep the batch"),
    "image picked": (lambda x: x[0], "batch", "keep the batch"),
    "strided slice": (lambda x: x[:, :, ::2], "indexes with", "step 1"),
    "concatenated batch": (lambda x: torch.cat([x, x]), "batch", "keep the batch"),
    "padding with ones": (lambda x: F.pad(x, (1, 1), value=1.0), "pads", "with zeros"),
    "padding of channels": (lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)), "pads", "with zeros"),
    "active dropout": (lambda x: F.dropout(x, 0.5), "stays active", "training=self.training"),
    "training batch norm": (
        lambda x: F.batch_norm(x, torch.zeros(2), torch.ones(2), training=True), "training mode", "evaluation mode"),
    "infinite constant": (lambda x: x * math.inf, "NaN or infinite", "finite constants"),
    "exp": (lambda x: x.exp(), r"exp\(\)", "supported operations"),
    "fold": (lambda x: F.unfold(x, 2), r"unfold\(\)", "supported operations"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_MODULES)
def test_modules_without_a_spiking_form_are_named_with_a_remedy(name: str) -> None:
    module, what, remedy = REFUSED_MODULES[name]
    model = nn.Sequential(nn.Conv2d(2, 2, 1), module, nn.ReLU()).eval()
    with pytest.raises(ConversionError, match=what) as caught:
        convert(model, MaxNorm(), example=IMAGE, calibration=IMAGE)
    assert remedy in str(caught.value)
    assert "nothing was converted" in str(caught.value)


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_calls_without_a_spiking_form_are_named_with_line_and_remedy(name: str) -> None:
    function, what, remedy = REFUSED_CALLS[name]
    model = Calls(function).eval()
    report = inspect(model, IMAGE)
    assert not report.convertible
    entry = report.of("unsupported")[0]
    assert re.search(what, entry.what)
    assert remedy in entry.remedy
    assert re.fullmatch(r"test_tracing\.py:\d+", entry.where)
    with pytest.raises(ConversionError, match=re.escape(entry.where)):
        convert(model, MaxNorm(), example=IMAGE, calibration=IMAGE)


def test_indices_of_max_pooling_are_refused() -> None:
    class Indices(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2, return_indices=True)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.pool(x)[0])

    with pytest.raises(ConversionError, match=r"(?s)indices of max-pooling.*return_indices=False"):
        convert(Indices().eval(), MaxNorm(), example=IMAGE, calibration=IMAGE)


def test_a_weight_that_depends_on_the_input_is_refused() -> None:
    model = Calls(lambda x: F.linear(x, x.transpose(0, 1) @ x))
    with pytest.raises(ConversionError):
        convert(model, MaxNorm(), example=torch.rand(1, 4), calibration=torch.rand(3, 4))


def test_every_obstacle_is_named_once_and_the_rest_is_reported_too() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Sigmoid(), nn.ReLU(), nn.Conv2d(2, 2, 1), nn.GELU()).eval()
    report = inspect(model, IMAGE)
    assert [e.name for e in report.of("unsupported")] == ["1", "4"]  # the walk goes on past an obstacle
    text = str(report)
    assert "cannot be converted (2):" in text
    assert "fix: train with nn.ReLU" in text
    side_by_side = inspect(Calls(lambda x: torch.cat([x.sigmoid(), x.exp()], 1)), IMAGE)
    assert len(side_by_side.of("unsupported")) == 2


def test_the_report_tells_what_becomes_of_every_part() -> None:
    model = nn.Sequential(
        nn.ZeroPad2d(1), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.MaxPool2d(2)
    )
    report = inspect(model.eval(), IMAGE)
    assert report.convertible
    kinds = {e.name: e.kind for e in report.entries}
    assert kinds == {"0": "replaced", "1": "layer", "2": "fold", "3": "site", "4": "dropped", "5": "layer"}
    text = str(report)
    for heading in ("become spiking neurons (1)", "replaced (1)", "folded (1)", "kept (2)", "without effect"):
        assert heading in text
    report.require()


def test_max_pooling_is_replaced_on_request() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(18, 2)).eval()
    x = torch.rand(4, 2, 6, 6)
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x, max_pool="average")
    assert any(isinstance(n.op, AvgPool) for n in conversion.net)
    assert "becomes average pooling" in str(conversion.report)
    expected = nn.Sequential(model[0], model[1], nn.AvgPool2d(3, 2, 1, count_include_pad=False), *model[3:])
    with torch.no_grad():
        torch.testing.assert_close(run(conversion.analog, x), expected(x))
    dilated = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, dilation=2)).eval()
    with pytest.raises(ConversionError, match="dilated max-pooling"):
        convert(dilated, MaxNorm(), example=x[:1], calibration=x, max_pool="average")


class Forks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if x.sum() > 0 else x


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.relu(x + y)


class TwoOutputs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.relu(x), x


class Optional(nn.Module):
    """A second input with a default is a constant."""

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        return F.relu(x) * scale


class FixedBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).view(2, -1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Forks(), "must not depend on values"),
        (TwoInputs(), r"takes 2 inputs \(x, y\).*Wrap it"),
        (TwoOutputs(), "returns a tuple.*Wrap it"),
        (FixedBatch(), "keep the batch as dimension 0"),
        (nn.Conv2d(3, 2, 1), "the shape the network was trained on"),
        (Calls(lambda x: torch.ones(2, 3)), "Converting|fixed batch"),
        (nn.Conv2d(2, 2, 1), "no activation that could become spiking"),
    ],
    ids=["control flow", "two inputs", "two outputs", "fixed batch", "wrong shape", "constant", "no activation"],
)
def test_networks_that_cannot_be_traced_are_refused_with_the_fix(model: nn.Module, words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        convert(model.eval(), MaxNorm(), example=IMAGE, calibration=IMAGE)


def decide(x: Tensor) -> bool:
    return bool(x.sum() > 0)


class Decides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if decide(x) else x


@pytest.mark.parametrize("kind", [Forks, Decides])
def test_a_refusal_names_the_line_of_the_user_s_own_forward(kind: type[nn.Module]) -> None:
    line = kind.forward.__code__.co_firstlineno + 1
    with pytest.raises(ConversionError, match=rf"at test_tracing\.py:{line}\."):
        convert(nn.Sequential(kind()).eval(), MaxNorm(), example=IMAGE, calibration=IMAGE)


def test_an_optional_input_is_a_constant() -> None:
    graph, _ = lower(Optional().eval(), IMAGE)
    torch.testing.assert_close(run(graph, IMAGE), F.relu(IMAGE) * 2.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights_are_refused_by_name(value: float) -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()).eval()
    with torch.no_grad():
        model[0].bias[1] = value
    with pytest.raises(ConversionError, match=r"'0\.bias' holds NaN or infinity"):
        convert(model, MaxNorm(), example=IMAGE, calibration=IMAGE)


@pytest.mark.parametrize(
    "example", [torch.zeros(3), torch.zeros(0, 2, 6, 6), torch.zeros(1, 2, 6, 6, dtype=torch.int64), [1.0]],
    ids=["one dimension", "no image", "integers", "list"],
)  # fmt: skip
def test_an_example_that_is_no_batch_of_images_is_refused(example: object) -> None:
    with pytest.raises(ConversionError, match="give a batch of at least one image"):
        convert(nn.ReLU(), MaxNorm(), example=example)  # type: ignore[arg-type]


@pytest.mark.parametrize("v0", [-0.1, 1.0, float("nan")])
def test_a_start_outside_the_threshold_is_refused(v0: float) -> None:
    with pytest.raises(UsageError, match=r"v0 is .*\[0, 1\)"):
        convert(nn.Sequential(nn.ReLU()), MaxNorm(), example=IMAGE, calibration=IMAGE, v0=v0)


def test_an_unknown_max_pool_is_refused() -> None:
    with pytest.raises(UsageError, match="'gated' or 'average'"):
        convert(nn.Sequential(nn.ReLU()), example=IMAGE, max_pool="sum")  # type: ignore[arg-type]
