"""The same answers whatever a caller has switched on, however images lie in memory, and in several threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from builders import tiny_cnn, tiny_mlp
from contracts.test_methods import METHODS
from ratenorm import diagnose, evaluate
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.lower import inspect
from ratenorm.convert.thresholds import ChannelNorm, Fixed, MaxNorm, Percentile, SpikeNorm
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.errors import UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.simulate.simulate import ENGINES, simulate, start, stream
from strangers.architectures import dyadic, shape_of, stranger


@contextmanager
def default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


CONTEXTS: dict[str, Callable[[], object]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "gradients": torch.enable_grad,
    "default float64": default_float64,
}
NAMES = ("densenet", "inverted_residual", "vgg")


def model_and_images(name: str, count: int = 4) -> tuple[nn.Module, Tensor]:
    return stranger(name), torch.rand(count, *shape_of(name), generator=torch.Generator().manual_seed(5))


def converted(name: str) -> tuple[Conversion, Tensor]:
    model, x = model_and_images(name)
    return convert(model, MaxNorm(), example=x[:1], calibration=x, v0=0.5), x


@pytest.mark.parametrize("coding", [Constant(), Poisson(1.0, seed=2)], ids=["constant", "poisson"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_simulation_is_the_same_in_every_context(context: str, engine: str, coding: Coding) -> None:
    conversion, x = converted("densenet")
    wanted = simulate(conversion.net, x, 10, engine=engine, coding=coding, fit=True)
    with CONTEXTS[context]():  # type: ignore[attr-defined]
        found = simulate(conversion.net, x, 10, engine=engine, coding=coding, fit=True)
        simulation = start(conversion.net, x, engine, coding)
        simulation.advance(4)
    assert found.logits.dtype == torch.float32
    assert torch.equal(found.logits, wanted.logits)
    for a, b in zip(wanted.layers, found.layers, strict=True):
        assert torch.equal(a.counts, b.counts)
        assert a.fit is not None
        assert b.fit is not None
        assert torch.equal(a.fit.error, b.fit.error)
    simulation.advance(6)  # begun in the context, ended outside
    assert torch.equal(simulation.result().logits, wanted.logits)


@pytest.mark.parametrize(
    "method", [MaxNorm(), Percentile(99.9), ChannelNorm(), SpikeNorm(steps=8)], ids=lambda m: m.label
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_conversion_is_the_same_in_every_context(context: str, method: object) -> None:
    for name in NAMES:
        model, x = model_and_images(name)
        wanted = convert(model, method, example=x[:1], calibration=x).net  # type: ignore[arg-type]
        with CONTEXTS[context]():  # type: ignore[attr-defined]
            found = convert(model, method, example=x[:1], calibration=x).net  # type: ignore[arg-type]
            assert inspect(model, x[:1]).convertible
        assert found.same_as(wanted), name
        assert torch.equal(simulate(found, x, 8).logits, simulate(wanted, x, 8).logits)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("trained", "override")])
def test_every_method_is_the_same_in_every_context(name: str) -> None:
    model, x = model_and_images("linear_between", 6)
    wanted = convert(model, METHODS[name], example=x[:1], calibration=x).net
    for context in ("autocast", "inference mode", "default float64"):
        with CONTEXTS[context]():  # type: ignore[attr-defined]
            found = convert(model, METHODS[name], example=x[:1], calibration=x).net
        assert found.same_as(wanted), context


@pytest.mark.parametrize("context", CONTEXTS)
def test_evaluation_and_diagnosis_are_the_same_in_every_context(context: str) -> None:
    conversion, x = converted("vgg")
    labels = torch.arange(len(x)) % 5
    wanted = evaluate(conversion.net, [(x, labels)], 6), diagnose(conversion, x, labels, 6)
    with CONTEXTS[context]():  # type: ignore[attr-defined]
        found = evaluate(conversion.net, [(x, labels)], 6), diagnose(conversion, x, labels, 6)
    assert (found[0].accuracy, found[0].analog_accuracy) == (wanted[0].accuracy, wanted[0].analog_accuracy)
    assert torch.equal(found[0].spikes, wanted[0].spikes)
    assert str(found[1]) == str(wanted[1])


def forms(x: Tensor) -> dict[str, Tensor]:
    """The same images, lying in memory in other ways or in other precision."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    return {
        "channels last": x.to(memory_format=torch.channels_last),
        "every second": wide[..., ::2],
        "expanded": x[:1].expand(len(x), *x.shape[1:]),
        "transposed": x.transpose(2, 3).contiguous().transpose(2, 3),
        "double": x.double(),
        "with gradient": x.clone().requires_grad_(),
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_images_may_lie_in_memory_as_they_like(name: str, engine: str) -> None:
    conversion, x = converted(name)
    for form, images in forms(x).items():
        wanted = simulate(conversion.net, images.detach().float().contiguous().clone(), 8, engine=engine).logits
        assert torch.equal(simulate(conversion.net, images, 8, engine=engine).logits, wanted), form


@pytest.mark.parametrize("name", NAMES)
def test_networks_may_lie_in_memory_as_they_like(name: str) -> None:
    model, x = model_and_images(name)
    wanted = convert(model, MaxNorm(), example=x[:1], calibration=x).net
    last = model.to(memory_format=torch.channels_last)
    found = convert(last, MaxNorm(), example=x[:1], calibration=x).net
    assert torch.equal(simulate(found, x, 8, engine="event").logits, simulate(found, x, 8, engine="dense").logits)
    for a, b in zip(found, wanted, strict=True):
        for key, tensor in a.op.tensors().items():
            torch.testing.assert_close(tensor, b.op.tensors()[key], rtol=1e-3, atol=2e-5)


def test_images_of_double_precision_convert_like_those_of_single() -> None:
    model, x = model_and_images("vgg")
    wanted = convert(model, MaxNorm(), example=x[:1], calibration=x).net
    assert convert(model, MaxNorm(), example=x[:1].double(), calibration=x.double()).net.same_as(wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_step_and_ten_thousand(engine: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 6)
    net = convert(tiny_mlp(), MaxNorm(), example=x[:1], calibration=x).net
    long = simulate(net, x, 10_000, engine=engine)
    assert torch.equal(long.logits, simulate(net, x, 10_000, engine="dense", chunk=1000).logits)
    assert torch.equal(simulate(net, x, 1, engine=engine).logits, long.logits[:1])
    assert long.layers[0].counts.max() <= 10_000


@pytest.mark.parametrize("engine", ENGINES)
def test_one_image_and_a_thousand(engine: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(1000, 1, 8, 8)
    net = convert(tiny_cnn(), MaxNorm(), example=x[:1], calibration=x[:20]).net
    many = simulate(net, x, 6, engine=engine)
    assert torch.equal(many.logits, simulate(net, x, 6, engine="dense").logits)
    for k in (0, 499, 999):
        assert torch.equal(simulate(net, x[k : k + 1], 6, engine=engine).logits, many.logits[:, k : k + 1])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_thresholds_of_any_size(size: float, engine: str) -> None:
    """Weights and thresholds scaled together change no spike."""
    torch.manual_seed(0)
    x = torch.rand(3, 1, 8, 8)
    model = dyadic("plain")
    x = torch.rand(3, *shape_of("plain"))
    scaled = nn.Sequential(model, nn.Identity()).eval()
    with torch.no_grad():
        first = next(m for m in scaled.modules() if isinstance(m, nn.BatchNorm2d))
        factor = 2.0 ** round(torch.tensor(size).log2().item())
        wanted = convert(scaled, MaxNorm(), example=x[:1], calibration=x).net
        first.weight.mul_(factor)
        first.bias.mul_(factor)
    net = convert(scaled, MaxNorm(), example=x[:1], calibration=x).net
    assert float(net.populations[0].op.threshold.max()) == factor * float(wanted.populations[0].op.threshold.max())
    ours, theirs = simulate(net, x, 12, engine=engine), simulate(wanted, x, 12, engine=engine)
    assert torch.equal(ours.layers[0].counts, theirs.layers[0].counts)
    assert torch.equal(ours.logits, simulate(net, x, 12, engine="dense").logits)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_that_never_fires(engine: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.Conv2d(20, 20, 3), nn.ReLU(), nn.Flatten(), nn.Linear(320, 3)
    )
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
        model[2].bias.fill_(-1.0)
    x = torch.rand(2, 1, 8, 8)
    net = convert(model.eval(), Fixed(1.0), example=x[:1]).net
    result = simulate(net, x, 5, engine=engine)
    assert float(result.spikes_per_step.sum()) == 0.0
    torch.testing.assert_close(result.logits[-1], model[5].bias.expand(2, 3))


class Scalar(nn.Module):
    """One number an image: [B]."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.first, self.second, self.end = nn.Linear(6, 40), nn.Linear(40, 1), end

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        if self.end == "mean":
            return y.mean(1)
        z = self.second(y).squeeze(1)
        return (z + 1.0).relu() if self.end == "relu" else z


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("end", ["squeeze", "mean", "relu"])
def test_one_number_an_image(end: str, engine: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(5, 6)
    model = Scalar(end).eval()
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x, v0=0.5)
    found, dense = simulate(conversion.net, x, 300, engine=engine), simulate(conversion.net, x, 300, engine="dense")
    assert found.logits.shape == (300, 5, 1)
    assert torch.equal(found.logits, dense.logits)
    for a, b in zip(found.layers, dense.layers, strict=True):
        assert torch.equal(a.counts, b.counts)
        assert torch.equal(a.potential, b.potential)
    with torch.no_grad():
        torch.testing.assert_close(found.logits[-1, :, 0], model(x), rtol=0.05, atol=0.02)
    with pytest.raises(UsageError, match="one number an image"):
        diagnose(conversion, x, steps=4)
    with pytest.raises(UsageError, match=r"outputs of shape \[\]"):
        evaluate(conversion.net, [(x, torch.zeros(5))], 4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spiking", [False, True])
def test_maps(spiking: bool, engine: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.Conv2d(20, 4, 1), *[nn.ReLU()] * spiking]
    model, x = nn.Sequential(*layers).eval(), torch.rand(3, 3, 6, 6)
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x, v0=0.5)
    found = simulate(conversion.net, x, 20, engine=engine)
    assert found.logits.shape == (20, 3, 4 * 36)
    assert torch.equal(found.logits, simulate(conversion.net, x, 20, engine="dense").logits)
    assert torch.equal(torch.stack(list(stream(conversion.net, x, 20, engine=engine))), found.logits)
    diagnosis = diagnose(conversion, x, steps=200)  # agreement pixel by pixel
    assert 0.5 < diagnosis.snn_accuracy <= 1.0
    with pytest.raises(UsageError, match=r"outputs of shape \[4, 6, 6\]"):
        diagnose(conversion, x, torch.zeros(3), steps=4)
    with pytest.raises(UsageError, match="one number for each class"):
        evaluate(conversion.net, [(x, torch.zeros(3))], 4)


def convert_and_simulate(model: nn.Module, x: Tensor) -> tuple[SpikingNet, Tensor]:
    net = convert(model, MaxNorm(), example=x[:1], calibration=x, v0=0.5).net
    return net, simulate(net, x, 12, engine="event").logits


def test_threads_convert_simulate_and_run_modules_at_once() -> None:
    """While one thread traces, others trace, simulate, and call modules of their own."""
    names = ("vgg", "densenet", "resnet", "inception")
    given = {name: model_and_images(name) for name in names}
    wanted = {name: convert_and_simulate(*given[name]) for name in names}
    call = nn.Module.__call__
    bystander, x = model_and_images("resnet")
    answer = bystander(x)
    with ThreadPoolExecutor(8) as pool:
        jobs = [(name, pool.submit(convert_and_simulate, *given[name])) for name in names * 4]
        others = [pool.submit(bystander, x) for _ in range(40)]
        for name, job in jobs:
            net, logits = job.result()
            assert net.same_as(wanted[name][0])
            assert torch.equal(logits, wanted[name][1])
        for other in others:
            torch.testing.assert_close(other.result(), answer)
    assert nn.Module.__call__ is call


def test_one_network_is_simulated_by_threads_at_once() -> None:
    conversion, x = converted("densenet")
    wanted = simulate(conversion.net, x, 12).logits
    fresh = convert(stranger("densenet"), MaxNorm(), example=x[:1], calibration=x, v0=0.5).net  # no plan made yet
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda engine: simulate(fresh, x, 12, engine=engine).logits, ENGINES * 4))
    assert all(torch.equal(f, wanted) for f in found)


def test_a_failed_conversion_leaves_torch_as_it_was() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    call, get = nn.Module.__call__, nn.Module.__getattr__
    with pytest.raises(Exception, match="must not depend on values"):
        convert(Broken(), Fixed(1.0), example=torch.rand(1, 3))
    assert (nn.Module.__call__, nn.Module.__getattr__) == (call, get)
    assert nn.Linear(2, 2)(torch.rand(1, 2)).shape == (1, 2)


FORK = """
import os, sys, torch
sys.path[:0] = [{tests!r}]
from strangers.architectures import shape_of, stranger
from ratenorm import MaxNorm, convert, simulate
torch.manual_seed(0)
x = torch.rand(4, *shape_of("vgg"))
net = convert(stranger("vgg"), MaxNorm(), example=x[:1], calibration=x).net
wanted = simulate(net, x, 8).logits
pid = os.fork()
if pid == 0:
    torch.set_num_threads(1)
    os._exit(0 if torch.equal(simulate(net, x, 8).logits, wanted) else 3)
_, status = os.waitpid(pid, 0)
assert torch.equal(simulate(net, x, 8).logits, wanted)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_may_fork_after_use() -> None:
    program = FORK.format(tests=os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads of OpenMP do not survive a fork, whoever starts them
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, timeout=120, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
