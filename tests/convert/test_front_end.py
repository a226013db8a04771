"""What strangers write in `forward`: converted where it has a spiking form, else refused with a remedy that helps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.prune import l1_unstructured
from torch.optim.swa_utils import AveragedModel

from ratenorm import MaxNorm, adapt, convert, inspect, simulate
from ratenorm.convert.copying import own_copy
from ratenorm.convert.lower import lower
from ratenorm.convert.observe import sites
from ratenorm.errors import ConversionError
from ratenorm.graph.net import run

X = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
WIDE = torch.randn(8, 5, generator=torch.Generator().manual_seed(2))


class Between(nn.Module):
    """A convolution and a ReLU, then something, then whatever reads it."""

    def __init__(self, do: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.act, self.do = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), do
        self.head = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.do(self.act(self.conv(x))).flatten(1))


def between(do: Callable[[Tensor], Tensor]) -> nn.Module:
    model = Between(do).eval()
    with torch.no_grad():
        model(X)
    return model


def squeezed(x: Tensor) -> Tensor:
    return x.mean((2, 3), keepdim=True)


ACCEPTED: dict[str, Callable[[Tensor], Tensor]] = {
    # modules and shapes in forward
    "ReLU made in forward": lambda x: nn.ReLU()(x - 0.1),
    "a branch on a shape": lambda x: x if x.shape[2] > 8 else 0.5 * x,
    "a third of the channels": lambda x: x[:, : int(x.size(1) / 3)],
    "a loop over a shape": lambda x: sum((x[:, k : k + 1] for k in range(x.shape[1])), 0.0 * x[:, :1]),
    "an assertion on a shape": lambda x: x if x.ndim == 4 else x.unsqueeze(0),
    # clips
    "clamp_max": lambda x: x.clamp_max(0.5),
    "clamp_max below": lambda x: (x - 0.3).clamp_max(-0.1),
    "clamp(max)": lambda x: x.clamp(max=0.3),
    "clamp_max_": lambda x: x.clone().clamp_max_(0.3),
    "torch.clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "maximum with 0": lambda x: torch.maximum(x - 0.2, torch.zeros(())),
    "maximum of 0": lambda x: torch.maximum(torch.tensor(0.0), x - 0.2),
    "maximum with 0.1": lambda x: torch.maximum(x - 0.2, torch.tensor(0.1)),
    "maximum by channel": lambda x: torch.maximum(x - 0.2, torch.linspace(-0.2, 0.2, 8).view(8, 1, 1)),
    "max with zeros": lambda x: torch.max(x - 0.2, torch.zeros_like(x)),
    "x.maximum": lambda x: (x - 0.2).maximum(torch.zeros(1)),
    "minimum": lambda x: torch.minimum(x, torch.tensor(0.2)),
    "minimum by channel": lambda x: torch.minimum(x, torch.linspace(0.1, 0.4, 8).view(1, 8, 1, 1)),
    "LeakyReLU(0)": lambda x: F.leaky_relu(x - 0.2, 0.0),
    "nn.LeakyReLU(0)": lambda x: nn.LeakyReLU(0.0)(x - 0.2),
    "threshold at 0": lambda x: F.threshold(x - 0.2, 0.0, 0.0),
    "nn.Threshold(0, 0)": lambda x: nn.Threshold(0.0, 0.0)(x - 0.2),
    # products with fixed tensors
    "x @ W": lambda x: x.mean((2, 3)) @ WIDE,
    "matmul on maps": lambda x: torch.matmul(x, WIDE),
    "W @ x": lambda x: (W @ x.flatten(2)).view_as(x),
    "matmul with a vector": lambda x: torch.matmul(x.mean((2, 3)), W[0]).unsqueeze(1),
    "mm": lambda x: x.mean((2, 3)).mm(W),
    "addmm": lambda x: torch.addmm(W[0], x.mean((2, 3)), W),
    "F.linear on maps": lambda x: F.linear(x, W),
    "einsum of channels": lambda x: torch.einsum("bchw,co->bohw", x, WIDE),
    "einsum, fixed first": lambda x: torch.einsum("oc,bchw->bohw", W, x),
    "einsum that turns": lambda x: torch.einsum("bchw,wv->bvhc", x, WIDE),
    "einsum that sums": lambda x: torch.einsum("bchw,co->bo", x, WIDE),
    "einsum of one": lambda x: torch.einsum("bchw->bwc", x),
    "einsum of two dimensions": lambda x: torch.einsum("bchw,hwo->bco", x, torch.ones(8, 8, 2) * W[:, :, None]),
    "einsum, fixed summed": lambda x: torch.einsum("bchw,cok->bohw", x, torch.stack([W, W], 2)),
    # sums and pools
    "sum over space": lambda x: x.sum((2, 3)),
    "torch.sum": lambda x: torch.sum(x, dim=(2, 3), keepdim=True),
    "sum over channels": lambda x: x.sum(1),
    "sum of everything": lambda x: x.sum((1, 2, 3)).unsqueeze(1),
    "adaptive max to 1": lambda x: F.adaptive_max_pool2d(x, 1),
    "adaptive max to (2, 4)": lambda x: nn.AdaptiveMaxPool2d((2, 4))(x),
    "amax": lambda x: x.amax((2, 3)),
    "amax that keeps": lambda x: torch.amax(x, (-1, -2), keepdim=True),
    # places
    "PixelShuffle": lambda x: nn.PixelShuffle(2)(x),
    "F.pixel_shuffle": lambda x: F.pixel_shuffle(torch.cat([x, x, x], 1), 2),
    "PixelUnshuffle": lambda x: nn.PixelUnshuffle(2)(x),
    "expand": lambda x: x + squeezed(x).expand(-1, -1, 8, 8),
    "expand_as": lambda x: x - squeezed(x).expand_as(x),
    "expand channels": lambda x: x + x.mean(1, keepdim=True).expand(-1, 8, -1, -1),
    "a sum that broadcasts": lambda x: squeezed(x) + x,
    "a sum of columns and rows": lambda x: x.mean(2, keepdim=True) + x.mean(3, keepdim=True),
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "stack": lambda x: torch.stack([x, 2.0 * x], 1).mean(2),
    "hstack": lambda x: torch.hstack([x[:, :2], x[:, 4:]]),
    "unbind": lambda x: torch.stack(x.unbind(1)[::-1], 1),
    "movedim": lambda x: x.movedim(1, -1),
    "swapdims": lambda x: x.swapdims(1, 3),
    "narrow": lambda x: x.narrow(1, 2, 3) + x.narrow(1, -3, 3),
    "a scale by fractions": lambda x: F.interpolate(x, scale_factor=1.5),
    "reversed difference": lambda x: torch.rsub(x, 1.0) + torch.subtract(x, 0.5),
    # what nothing reads
    "an unused sigmoid": lambda x: (torch.sigmoid(x), x)[1],
    "an unused gate": lambda x: (x * torch.sigmoid(squeezed(x)), x)[1],
    "an unused ReLU": lambda x: (F.relu(x - 0.1), x)[1],
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_strangers_write_is_converted(case: str) -> None:
    """The clipped network computes what the network does, and both engines give the same spikes."""
    model = between(ACCEPTED[case])
    assert inspect(model, X[:1]).convertible
    conversion = convert(model, MaxNorm(), example=X[:1], calibration=X, v0=0.5)
    with torch.no_grad():
        wanted = model(X)
    torch.testing.assert_close(run(conversion.analog, X), wanted, rtol=1e-4, atol=1e-4)
    found = [simulate(conversion.net, X, 200, engine=engine).logits for engine in ("dense", "event")]
    assert torch.equal(*found)
    assert float((found[0][-1] - wanted).norm()) <= 0.02 * float(wanted.norm()) + 0.02


def test_a_clip_of_a_relu_is_one_population() -> None:
    graph, report = lower(between(lambda x: x.clamp_max(0.5)), X[:1])
    assert [node.name for node in sites(graph)] == ["clamp_max"]
    assert any(entry.name == "act" and "nothing reads it" in entry.what for entry in report.of("dropped"))


def test_what_nothing_reads_makes_no_neurons() -> None:
    model = between(lambda x: (F.relu(x - 0.1), x)[1])
    conversion = convert(model, MaxNorm(), example=X[:1], calibration=X)
    assert [node.name for node in conversion.net.populations] == ["act"]
    assert "relu: nothing reads its value" in str(conversion.report)


def test_a_change_in_place_that_is_read_is_kept() -> None:
    def doubled(x: Tensor) -> Tensor:
        y = 1.0 * x
        y.mul_(2.0)  # nothing reads what mul_ gives, but y is read
        return y

    model = between(doubled)
    with torch.no_grad():
        torch.testing.assert_close(run(lower(model, X[:1])[0], X), model(X))


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
@pytest.mark.parametrize("where", ["never read", "read in vain"])
def test_broken_numbers_that_no_path_reads_do_no_harm(where: str, value: float) -> None:
    class Masked(Between):
        def forward(self, x: Tensor) -> Tensor:
            if where == "read in vain":
                _ = x + self.mask
            return super().forward(x)

    model = Masked(lambda x: x)
    model.register_buffer("mask", torch.full((8,), value))
    with torch.no_grad():
        model.eval()(X)
    convert(model, MaxNorm(), example=X[:1], calibration=X)


# -- modules and wrappers ----------------------------------------------------------------------------------------------


class OwnBatchNorm(nn.BatchNorm2d):
    pass


class OwnConv(nn.Conv2d):
    def __init__(self, channels: int) -> None:
        super().__init__(3, channels, 3, padding=1)


def hooked(pre: bool) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    if pre:
        model[2].register_forward_pre_hook(lambda module, given: (0.5 * given[0],))
    else:
        model[0].register_forward_hook(lambda module, given, output: 2.0 * output)
    return model


def checked_shape() -> nn.Module:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.head = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            b, c, h, w = x.shape
            if c != 3 or h * w < 16:
                raise ValueError("too small")
            y = self.act(self.conv(x)).view(b, 8, -1)
            return self.head(y.mean(-1))

    return Checked()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a subclass of BatchNorm2d": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), OwnBatchNorm(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)
    ),
    "a subclass of Conv2d": lambda: nn.Sequential(OwnConv(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3)),
    "a forward hook": lambda: hooked(False),
    "a forward pre-hook": lambda: hooked(True),
    "checks of shapes": checked_shape,
}


@pytest.mark.parametrize("case", MODELS)
def test_report_and_conversion_tell_one_truth(case: str) -> None:
    torch.manual_seed(0)
    model = MODELS[case]().eval()
    assert inspect(model, X[:1]).convertible
    conversion = convert(model, MaxNorm(), example=X[:1], calibration=X)
    with torch.no_grad():
        torch.testing.assert_close(run(conversion.analog, X), model(X), rtol=1e-4, atol=1e-4)


# -- refusals ----------------------------------------------------------------------------------------------------------


class Excited(nn.Module):
    """Squeeze-and-excitation as most write it."""

    def __init__(self, gate: nn.Module, late: bool = False) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()
        self.down, self.mid, self.up, self.gate = nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1), gate
        self.late = nn.Conv2d(8, 8, 1) if late else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.conv(x))
        g = self.gate(self.up(self.mid(self.down(squeezed(y)))))
        if self.late is not None:
            y = self.late(y)  # computed after the gate
        return (y * g.expand_as(y)).flatten(1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("gate", [nn.Sigmoid(), nn.Hardsigmoid(), nn.Tanh(), nn.Softmax(1)], ids=lambda m: str(m))
def test_a_gate_is_not_told_to_change_its_activation(gate: nn.Module, late: bool) -> None:
    """That would cost a fine-tuning and end at the product."""
    report = inspect(Excited(gate, late).eval(), X[:1])
    assert [entry.name for entry in report.of("unsupported")] == ["gate", "mul"]
    for entry in report.of("unsupported"):
        assert "without its gates" in entry.remedy
        assert "nn.ReLU" not in entry.remedy


def test_a_gate_that_can_be_computed_is_refused_at_its_product() -> None:
    report = inspect(Excited(nn.ReLU()).eval(), X[:1])
    assert [entry.name for entry in report.of("unsupported")] == ["mul"]


def test_a_smooth_activation_written_out_is_no_gate() -> None:
    for do in (lambda x: x * torch.sigmoid(x), lambda x: torch.tanh(x) * x):
        for entry in inspect(between(do), X[:1]).of("unsupported"):
            assert "nn.ReLU" in entry.remedy


def test_adapt_names_the_gate() -> None:
    adapted = adapt(nn.Sequential(Excited(nn.Sigmoid()), nn.SiLU()).eval(), example=X[:1])
    assert [entry.name for entry in adapted.obstacles] == ["0.gate", "mul"]


class Sequences(nn.Module):
    """A module that reads maps as sequences."""

    def __init__(self, module: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.module, self.times = module, times

    def forward(self, x: Tensor) -> Tensor:
        return self.module(*[x.flatten(2).transpose(1, 2)] * self.times)[0]


MODULES_REFUSED: dict[str, tuple[nn.Module, str, str]] = {
    "LSTM": (Sequences(nn.LSTM(8, 4)), "LSTM has no spiking form", "recurrent"),
    "GRU": (Sequences(nn.GRU(8, 4, batch_first=True)), "GRU has no spiking form", "recurrent"),
    "attention": (Sequences(nn.MultiheadAttention(8, 2), 3), "MultiheadAttention has no", "attention multiplies two"),
    "SELU": (nn.SELU(), "SELU has no spiking form", "nn.ReLU"),
    "UpsamplingBilinear2d": (nn.UpsamplingBilinear2d(scale_factor=2), "UpsamplingBilinear2d", "nearest-neighbour"),
    "LeakyReLU": (nn.LeakyReLU(0.1), "is a LeakyReLU of slope 0.1", "nn.ReLU"),
    "uneven AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d(3), "whose windows overlap", "divide the map evenly"),
}


@pytest.mark.parametrize("case", MODULES_REFUSED)
def test_a_module_is_refused_with_the_right_remedy(case: str) -> None:
    module, what, remedy = MODULES_REFUSED[case]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), module).eval()
    entry = inspect(model, X[:1]).of("unsupported")[0]
    assert what in entry.what
    assert remedy in entry.remedy
    assert "batch" not in entry.what


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str, str]] = {
    "ELU": (lambda x: F.elu(x), "elu", "nn.ReLU"),
    "a threshold of 1": (lambda x: F.threshold(x, 1.0, 0.0), "jumps", "nn.ReLU"),
    "bilinear upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "bilinear", "nearest-neigh"),
    "bilinear": (lambda x: F.bilinear(x.flatten(1)[:, :4], x.flatten(1)[:, :4], torch.ones(2, 4, 4)), "bil", "product"),
    "the larger of two": (lambda x: torch.maximum(x, 2.0 * x - 0.5), "compares two values", "max-pooling"),
    "the largest channel": (lambda x: x.max(1)[0], "compares two values", "max-pooling"),
    "amax over channels": (lambda x: x.amax(1), "takes the largest", "over all of space"),
    "uneven adaptive max": (lambda x: F.adaptive_max_pool2d(x, 3), "whose windows overlap", "divide the map evenly"),
    "indices of adaptive max": (
        lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True)[0], "indices", "max-pooling whose windows"),
    "bmm of two": (lambda x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)), "bmm", "fixed matrix"),
    "W @ batch": (lambda x: torch.ones(2, 2) @ x.flatten(1), "batch", ""),
    "one matrix for each place": (lambda x: torch.matmul(x, W.expand(8, 8, 8)), "different matrices", "one fixed"),
    "einsum of two": (lambda x: torch.einsum("bchw,bchw->bc", x, x), "of 2 values", "one value of the network"),
    "einsum place by place": (lambda x: torch.einsum("bchw,c->bchw", x, W[0]), "place by place", "sum over"),
    "einsum with dots": (lambda x: torch.einsum("b...,b...->b", x, x), "einsum", "name every dimension"),
    "repeat of images": (lambda x: x.repeat(2, 1, 1, 1)[:2], "batch", "keep the batch"),
    "unbind of images": (lambda x: torch.stack(x.unbind(0)), "batch", "keep the batch"),
    "stack of images": (lambda x: torch.stack([x, x]).mean(0), "batch", "keep the batch"),
    "index by a list": (lambda x: x[:, [1, 0]], "indexes", "slices"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_right_remedy(case: str) -> None:
    do, what, remedy = REFUSED[case]
    torch.manual_seed(0)

    class Refused(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return do(x)

    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), Refused()).eval()
    if case == "W @ batch":  # fails in torch for another batch size, before anything is traced
        with pytest.raises(ConversionError, match="no fixed batch size"):
            inspect(model, X[:1])
        return
    entry = inspect(model, X[:1]).of("unsupported")[0]
    assert what in entry.what
    assert remedy in entry.remedy
    with pytest.raises(ConversionError):
        convert(model, MaxNorm(), example=X[:1], calibration=X)


def test_max_pool_average_does_not_touch_amax() -> None:
    model = between(lambda x: x.amax((2, 3)))
    with pytest.raises(ConversionError, match="max_pool='gated'"):
        convert(model, MaxNorm(), example=X[:1], calibration=X, max_pool="average")


@pytest.mark.parametrize("pool", ["module", "function", "adaptive"])
def test_average_pools_are_compared_with_the_network(pool: str) -> None:
    """A value changed under another name is refused, with pools replaced and without."""

    class Aliased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.other = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.pool, self.act, self.alias = nn.MaxPool2d(2), nn.ReLU(), True

        def forward(self, x: Tensor) -> Tensor:
            y = self.act(self.conv(x))
            z = y.view(y.shape) if self.alias else y
            y += self.other(y)
            if pool == "module":
                return self.pool(z + y)
            return F.max_pool2d(z + y, 2, 2) if pool == "function" else F.adaptive_max_pool2d(z + y, 4)

    model = Aliased().eval()
    for max_pool in ("gated", "average"):
        with pytest.raises(ConversionError, match="does not compute what the network does"):
            convert(model, MaxNorm(), example=X[:1], calibration=X, max_pool=max_pool)
    model.alias = False
    for max_pool in ("gated", "average"):
        convert(model, MaxNorm(), example=X[:1], calibration=X, max_pool=max_pool)


def test_the_largest_finite_clip_is_a_clip() -> None:
    report = inspect(between(lambda x: x.clamp(0.0, math.inf)), X[:1])
    assert any(entry.what.startswith("ReLU") for entry in report.of("site"))


def test_a_copy_of_a_model_holds_no_results_of_autograd() -> None:
    """Where a hook computes the weight it is one, and such a model cannot be copied again."""
    layer = l1_unstructured(nn.Linear(4, 4), "weight", 0.5)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(layer)
    copied = own_copy(layer)
    assert torch.equal(copy.deepcopy(copied)(torch.ones(1, 4)), layer(torch.ones(1, 4)))


def test_wrappers_inside_a_model_are_taken_off() -> None:
    """DataParallel and averaged weights find their way to a GPU, or count; nothing of them may stay in the copy."""
    inner = nn.Linear(4, 4)
    copied = own_copy(nn.Sequential(nn.DataParallel(inner), nn.Sequential(AveragedModel(inner))))
    assert [type(module) for module in copied.modules() if not isinstance(module, nn.Sequential)] == [nn.Linear] * 2
    assert torch.equal(copied(torch.ones(1, 4)), inner(inner(torch.ones(1, 4))))


class OnADevice(Tensor):
    """Images on a GPU, as far as a machine without one can have them: no operation mixes them with the CPU's."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.cpu and func.__name__ != "__get__":
            raise RuntimeError("Expected all tensors to be on the same device")
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
            return found.as_subclass(Tensor) if isinstance(found, Tensor) else found


def test_an_example_on_a_device_is_brought_to_the_copy_of_the_network() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2))
    assert convert(model, MaxNorm(), example=X[:1].as_subclass(OnADevice), calibration=X).net.neurons == {"2": 4}


def test_the_last_cast_of_a_network_does_not_decide_its_precision() -> None:
    class Cast(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.float()

    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2), Cast())
    graph, _ = lower(model.double(), X[:1].double())
    assert graph.dtypes == {torch.float64}
