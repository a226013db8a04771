"""Wrong uses of the Python API: each is answered by an error of ours that names what is wrong, never by a raw one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import ratenorm as rn
from ratenorm.errors import RatenormError

X = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(16, 3)]
    return nn.Sequential(*layers).eval()


def conversion(**settings: Any) -> rn.Conversion:
    return rn.convert(model(), rn.MaxNorm(), example=X[:1], calibration=X, **settings)


def net() -> rn.SpikingNet:
    return conversion().net


class Looks(nn.Module):
    """A forward pass that does something with x."""

    def __init__(self, do: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.do = do

    def forward(self, x: Tensor) -> Any:
        return self.do(x.relu())


def traced(do: Callable[[Tensor], Any]) -> Any:
    return rn.convert(Looks(do), rn.MaxNorm(), example=X[:1], calibration=X)


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(model())


def with_nan() -> nn.Module:
    broken = model()
    with torch.no_grad():
        broken[0].weight[0] = float("nan")
    return broken


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    # the network
    "convert a function": (lambda _: rn.convert(lambda x: x, rn.MaxNorm(), example=X), "model is a function"),
    "convert a class": (lambda _: rn.convert(nn.ReLU, rn.MaxNorm(), example=X), "give a torch.nn.Module"),
    "convert None": (lambda _: rn.convert(None, rn.MaxNorm(), example=X), "give a torch.nn.Module"),
    "convert a converted network": (lambda _: rn.convert(net(), rn.MaxNorm(), example=X), "give a torch.nn.Module"),
    "TorchScript": (lambda _: rn.convert(scripted(), rn.MaxNorm(), example=X), "TorchScript"),
    "a lazy module": (
        lambda _: rn.convert(nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU()), rn.MaxNorm(), example=X), "is lazy"),
    "NaN in a weight": (lambda _: rn.convert(with_nan(), rn.Fixed(1.0), example=X), "'0.weight' holds NaN"),
    "no activation": (lambda _: rn.convert(nn.Conv2d(3, 2, 1), rn.Fixed(1.0), example=X), "no activation"),
    "a branch on a value": (lambda _: traced(lambda x: x if x.sum() > 0 else -x), "must not depend on values"),
    "a number from a value": (lambda _: traced(lambda x: x * float(x.mean())), "must not depend on values"),
    "item": (lambda _: traced(lambda x: x * x.max().item()), "must not depend on values"),
    "NumPy inside": (lambda _: traced(lambda x: torch.from_numpy(np.asarray(x))), "cannot be followed"),
    "a list as output": (lambda _: traced(lambda x: [x]), "returns a list"),
    "nothing as output": (lambda _: traced(lambda x: None), "returns a NoneType"),
    "a dictionary as output": (lambda _: traced(lambda x: {"out": x}), "returns a dict"),
    "two inputs": (lambda _: rn.convert(nn.Bilinear(2, 2, 2), rn.MaxNorm(), example=X), "takes 2 inputs"),
    "an error of the network's own": (lambda _: traced(lambda x: x.view(7, 7, 7)), "Running the network"),
    # arguments of convert
    "no example": (lambda _: rn.convert(model(), rn.MaxNorm(), example=None), "the example is NoneType"),
    "a NumPy example": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X.numpy()), "the example is ndarray"),
    "an example of bytes": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X.byte()), "floating point"),
    "an empty example": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X[:0]), "at least one image"),
    "an example of another size": (lambda _: rn.convert(model(), rn.Fixed(), example=X[:, :2]), "Running the network"),
    "an unknown method": (lambda _: rn.convert(model(), "maxx", example=X), "'maxx' is not known"),
    "a class that is no method": (lambda _: rn.convert(model(), dict, example=X), "the method is <class"),
    "no calibration": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X), "needs images"),
    "calibration of another size": (
        lambda _: rn.convert(model(), rn.MaxNorm(), example=X, calibration=X[:, :, 1:]), "the network takes"),
    "NumPy calibration": (
        lambda _: rn.convert(model(), rn.MaxNorm(), example=X, calibration=X.numpy()), "not a floating-point tensor"),
    "calibration by a number": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X, calibration=5), "calibration"),
    "empty calibration": (lambda _: rn.convert(model(), rn.MaxNorm(), example=X, calibration=[]), "no image"),
    "NaN in calibration": (
        lambda _: rn.convert(model(), rn.MaxNorm(), example=X, calibration=X / 0.0 * 0.0), "NaN or infinity"),
    "v0 of 1": (lambda _: conversion(v0=1.0), "v0 is 1.0"),
    "v0 as text": (lambda _: conversion(v0="half"), "v0 is 'half'"),
    "v0 as a tensor": (lambda _: conversion(v0=torch.zeros(3)), "v0 is tensor"),
    "max_pool unknown": (lambda _: conversion(max_pool="mean"), "max_pool is 'mean'"),
    "trained thresholds of a ReLU network": (lambda _: rn.convert(model(), rn.Trained(), example=X), "plain ReLU"),
    # settings of methods
    "Percentile(0)": (lambda _: rn.Percentile(0), "the percentile is 0"),
    "Percentile(101)": (lambda _: rn.Percentile(101.0), "the percentile is 101"),
    "Fixed(0)": (lambda _: rn.Fixed(0.0), "the threshold is 0"),
    "Fixed(nan)": (lambda _: rn.Fixed(float("nan")), "the threshold is nan"),
    "Scaled by nothing": (lambda _: rn.Scaled(rn.MaxNorm(), 0.0), "the factor is 0"),
    "SpikeNorm without steps": (lambda _: rn.SpikeNorm(steps=0), "steps is 0"),
    "EqualOmega(1)": (lambda _: rn.EqualOmega(1.0), "Omega is 1"),
    "Latency without updates": (lambda _: rn.Latency(steps=0), "steps 0"),
    "ModelNorm of an empty range": (lambda _: rn.ModelNorm(1.0, 0.0), "must not be empty"),
    "Override by a dictionary": (lambda _: rn.Override(rn.Fixed(1.0), {"0": 1.0}), "is not a rule"),
    "Override by numbers": (lambda _: rn.Override(rn.Fixed(1.0), (("0", 1.0),)), "is not a rule"),
    "Override of an unknown layer": (
        lambda _: rn.convert(model(), rn.Override(rn.Fixed(1.0), (("nowhere", rn.Fixed(2.0)),)), example=X),
        "nowhere",
    ),
    "Poisson(0)": (lambda _: rn.Poisson(0.0), "amplitude is 0"),
    "RateNorm with a momentum of 0": (lambda _: rn.RateNorm(momentum=0.0), "momentum is 0"),
    "RateNorm with an unknown output": (lambda _: rn.RateNorm(output="spike"), "output is 'spike'"),
    # simulating
    "simulate the model": (lambda _: rn.simulate(model(), X, 4), "got Sequential"),
    "NumPy images": (lambda _: rn.simulate(net(), X.numpy(), 4), "torch.from_numpy"),
    "images as a list": (lambda _: rn.simulate(net(), X.tolist(), 4), "the batch is a list"),
    "images of bytes": (lambda _: rn.simulate(net(), (X * 255).byte(), 4), "torch.uint8"),
    "one image without a batch": (lambda _: rn.simulate(net(), X[0], 4), r"takes \[batch, 3, 8, 8\]"),
    "images of another size": (lambda _: rn.simulate(net(), X[:, :, 1:], 4), r"takes \[batch, 3, 8, 8\]"),
    "a number as image": (lambda _: rn.simulate(net(), torch.tensor(1.0), 4), "floating point"),
    "no image": (lambda _: rn.simulate(net(), X[:0], 4), "no image"),
    "infinite images": (lambda _: rn.simulate(net(), X * float("inf"), 4), "NaN or infinity"),
    "steps of 10.0": (lambda _: rn.simulate(net(), X, 10.0), "steps is 10.0"),
    "no steps": (lambda _: rn.simulate(net(), X, 0), "steps is 0"),
    "steps as text": (lambda _: rn.simulate(net(), X, "4"), "steps is '4'"),
    "a chunk of none": (lambda _: rn.simulate(net(), X, 4, chunk=0), "chunk is 0"),
    "an unknown engine": (lambda _: rn.simulate(net(), X, 4, engine="fast"), "the engine is 'fast'"),
    "a coding by name": (lambda _: rn.simulate(net(), X, 4, coding="poisson"), "the coding is a str"),
    "stream no steps": (lambda _: list(rn.stream(net(), X, -1)), "steps is -1"),
    # evaluating, diagnosing, calibrating
    "evaluate too few labels": (lambda _: rn.evaluate(net(), [(X, Y[:4])], 4), "6 images"),
    "evaluate labels of another kind": (lambda _: rn.evaluate(net(), [(X, Y.tolist())], 4), "labels are a list"),
    "evaluate one-hot labels": (lambda _: rn.evaluate(net(), [(X, torch.eye(3)[Y])], 4), r"shape \(6, 3\)"),
    "evaluate NumPy images": (lambda _: rn.evaluate(net(), [(X.numpy(), Y)], 4), "Evaluating: item 0 must be a pair"),
    "evaluate images of bytes": (lambda _: rn.evaluate(net(), [(X, Y), (X.byte(), Y)], 4), "Evaluating: batch 2 has"),
    "evaluate without labels": (lambda _: rn.evaluate(net(), [X], 4), "pairs"),
    "evaluate nothing": (lambda _: rn.evaluate(net(), [], 4), "no image"),
    "evaluate for 2.5 steps": (lambda _: rn.evaluate(net(), [(X, Y)], 2.5), "steps is 2.5"),
    "diagnose a network": (lambda _: rn.diagnose(net(), X), "what `convert` returned"),
    "diagnose too few labels": (lambda _: rn.diagnose(conversion(), X, Y[:2]), r"shape \(2,\) for 6"),
    "diagnose NumPy": (lambda _: rn.diagnose(conversion(), X.numpy()), "torch.from_numpy"),
    "diagnose another size": (lambda _: rn.diagnose(conversion(), X[:, :, 1:]), r"takes \[batch, 3, 8, 8\]"),
    "calibrate a network": (lambda _: rn.calibrate(net(), X), "what `convert` returned"),
    "calibrate with a method of thresholds": (lambda _: rn.calibrate(conversion(), X, 4, rn.MaxNorm()), "calibrator"),
    "calibrate for no steps": (lambda _: rn.calibrate(conversion(), X, 0), "steps is 0"),
    "early exit from lists": (lambda _: rn.fit_early_exit([[1.0]], [1]), "must be tensors"),
    "early exit of too few labels": (lambda _: rn.fit_early_exit(torch.rand(4, 6, 3), Y[:2]), "2 labels"),
    # files
    "load a folder": (lambda at: rn.load(at), "Reading"),
    "load what is not there": (lambda at: rn.load(at / "no.safetensors"), "no such file"),
    "load a text": (lambda at: rn.load(_text(at)), "not a ratenorm-spiking-net"),
    "save to a folder": (lambda at: rn.save(net(), at), "Writing"),
    "save a model": (lambda at: rn.save(model(), at / "a"), "got Sequential"),
    "load a network of another kind": (lambda at: rn.load_network(rn.save(net(), at / "a.st")), "was expected"),
    "an unknown network of the zoo": (lambda _: rn.zoo.load("vgg99"), "vgg99"),
    "an unknown data set": (lambda _: rn.data.load("cifar11", "test"), "cifar11"),
    "an unknown network": (lambda _: rn.models.build("vgg99"), "vgg99"),
}  # fmt: skip


def _text(folder: Path) -> Path:
    path = folder / "text.safetensors"
    path.write_text("this is no network")
    return path


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_use_is_told_what_is_wrong(case: str, tmp_path: Path) -> None:
    call, words = WRONG[case]
    with pytest.raises(RatenormError, match=words) as caught:
        call(tmp_path)
    text = str(caught.value)
    assert ": " in text or text.startswith("Expected ")  # what was being done comes first
    assert text.endswith((".", "?", ")"))
    assert "--" not in text  # the library does not speak of the command line


def test_there_are_more_than_sixty() -> None:
    assert len(WRONG) >= 60


def pruned() -> nn.Module:
    made = model()
    prune.l1_unstructured(made[0], "weight", 0.5)
    return made


def weight_normed(by_hook: bool) -> nn.Module:
    made = model()
    if by_hook:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.utils.weight_norm(made[0])
    else:
        nn.utils.parametrizations.weight_norm(made[0])
    return made


RIGHT: dict[str, Callable[[], nn.Module]] = {
    "half precision": lambda: model().bfloat16(),
    "pruned": pruned,
    "weight_norm by hook": lambda: weight_normed(True),
    "weight_norm by parametrization": lambda: weight_normed(False),
    "spectral_norm": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 3, 1)), model()),
    "DataParallel": lambda: nn.DataParallel(model()),
    "DataParallel inside": lambda: nn.Sequential(nn.DataParallel(model())),
    "averaged weights": lambda: torch.optim.swa_utils.AveragedModel(model()),
    "torch.compile": lambda: torch.compile(model()),
    "compiled inside": lambda: nn.Sequential(torch.compile(model())),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_looks_wrong_and_can_be_converted(case: str) -> None:
    """The support report and the conversion say the same."""
    given = RIGHT[case]().eval()
    before = {key: value.clone() for key, value in given.state_dict().items()}
    assert rn.inspect(given, X[:1]).convertible
    found = rn.convert(given, rn.MaxNorm(), example=X[:1], calibration=X)
    assert {key: value.dtype for key, value in given.state_dict().items()} == {k: v.dtype for k, v in before.items()}
    assert all(torch.equal(value, before[key]) for key, value in given.state_dict().items())
    inner = getattr(given, "_orig_mod", getattr(given, "module", given))
    if case not in ("compiled inside",):  # running it would compile it
        with torch.no_grad():
            wanted = inner.float()(X)
        torch.testing.assert_close(rn.simulate(found.net, X, 400).logits[-1], wanted, rtol=0.05, atol=0.05)
    rn.simulate(found.net, X, 4)
