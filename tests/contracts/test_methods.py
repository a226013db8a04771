"""One suite that every threshold method passes. A new method is added to `METHODS` and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from builders import dyadic, make_dyadic_, tiny_cnn
from ratenorm.convert.convert import convert, convert_graph
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.convert.observe import OmegaCeiling, sites
from ratenorm.convert.thresholds import (
    ChannelNorm,
    DataNorm,
    EqualOmega,
    Fixed,
    GaussianThresholds,
    Latency,
    LocalThresholds,
    MaxNorm,
    Method,
    ModelNorm,
    Override,
    Percentile,
    Scaled,
    SiteScale,
    SpikeNorm,
    Trained,
    from_json,
    parse,
    spike_norm,
)
from ratenorm.convert.thresholds.base import registry
from ratenorm.core.losses import ceiling_for_omega, omega
from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import CalibrationError, ConversionError, UsageError
from ratenorm.graph.net import run
from ratenorm.graph.ops import Activation, Fire
from ratenorm.simulate.simulate import simulate

METHODS: dict[str, Method] = {
    "trained": Trained(),
    "max": MaxNorm(),
    "percentile": Percentile(90.0),
    "percentile of everything": Percentile(100.0),
    "equal Omega": EqualOmega(1.4),
    "equal Omega of no effect": EqualOmega(1000.0),
    "channel": ChannelNorm(),
    "model": ModelNorm(),
    "model within bounds": ModelNorm(0.0, 1.0),
    "data": DataNorm(),
    "spike": SpikeNorm(steps=8, images=10),
    "spike on few images": SpikeNorm(steps=8, images=3),
    "scaled": Scaled(MaxNorm(), 0.8),
    "scaled without preserve": Scaled(Percentile(99.0), 0.5, preserve=False),
    "rmp": Scaled(SpikeNorm(steps=8), 0.8),
    "fixed": Fixed(1.5),
    "latency": Latency(lam=0.1, steps=6, batch_size=4),
    "latency per layer": Latency(lam=0.2, per_layer=True, steps=4, batch_size=5),
    "local": LocalThresholds(updates=5, batch_size=4),
    "gaussian": GaussianThresholds(2),
    "override": Override(MaxNorm(), (("1*", Fixed(2.0)), ("?", Percentile(90.0)))),
}
WITH_DATA = [name for name, method in METHODS.items() if method.needs_data and method != ModelNorm(0.0, 1.0)]

every_method = pytest.mark.parametrize("name", METHODS)
every_method_with_data = pytest.mark.parametrize("name", WITH_DATA)


def network(trained: bool = False) -> nn.Module:
    """Dyadic weights: sums are exact in any order, so results can be compared bit for bit."""

    def site() -> nn.Module:
        if not trained:
            return nn.ReLU()
        layer = RateNorm()
        layer.running_max.fill_(1.5)
        return layer

    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), site(), nn.AvgPool2d(2), nn.Conv2d(3, 4, 3), site(), nn.Flatten(),
        nn.Linear(16, 5), site(), nn.Linear(5, 3),
    )  # fmt: skip
    make_dyadic_(model, 3)
    with torch.no_grad():
        for i in (0, 3, 6):
            model[i].bias += 1.0  # every layer fires
    return model.eval()


def images(count: int = 10) -> Tensor:
    return dyadic(1, count, 1, 8, 8, low=0)


def network_for(method: Method) -> nn.Module:
    return network(trained=isinstance(method, Trained))


def scales(method: Method, calibration: object) -> dict[str, SiteScale]:
    given = calibration if method.needs_data else None
    return convert(network_for(method), method, example=images(1), calibration=given).scales  # type: ignore[arg-type]


def in_batches(x: Tensor, size: int) -> Iterator[Tensor]:
    return iter(x.split(size))


def test_every_registered_method_is_under_contract() -> None:
    assert {type(m) for m in METHODS.values()} == set(registry().values())


@every_method
def test_thresholds_are_finite_and_positive_for_every_site(name: str) -> None:
    method = METHODS[name]
    found = scales(method, images())
    assert list(found) == ["1", "4", "7"]
    for scale in found.values():
        assert bool((torch.isfinite(scale.threshold) & (scale.threshold > 0)).all())
        assert bool((torch.isfinite(scale.amplitude) & (scale.amplitude > 0)).all())
        assert scale.threshold.shape == scale.amplitude.shape
        assert scale.threshold.dtype == torch.float32


@every_method
def test_the_spiking_net_carries_these_thresholds(name: str) -> None:
    method = METHODS[name]
    conversion = convert(
        network_for(method), method, example=images(1), calibration=images() if method.needs_data else None, v0=0.5
    )
    for node in conversion.net.populations:
        assert isinstance(node.op, Fire)
        assert torch.equal(node.op.threshold, conversion.scales[node.name].threshold)
        assert torch.equal(node.op.start, node.op.threshold * 0.5)
    assert conversion.method == method
    assert torch.isfinite(run(conversion.net, images())).all()


@every_method_with_data
@pytest.mark.parametrize("size", [1, 3, 7])
def test_batches_do_not_matter(name: str, size: int) -> None:
    whole, parts = scales(METHODS[name], images()), scales(METHODS[name], in_batches(images(), size))
    assert_same(whole, parts)


@every_method_with_data
def test_the_order_of_images_does_not_matter(name: str) -> None:
    order = torch.randperm(10, generator=torch.Generator().manual_seed(5))
    assert_same(scales(METHODS[name], images()), scales(METHODS[name], images()[order]))


@every_method_with_data
def test_labels_are_ignored(name: str) -> None:
    pairs = [(batch, torch.zeros(len(batch))) for batch in images().split(4)]
    assert_same(scales(METHODS[name], images()), scales(METHODS[name], pairs))


@every_method
def test_the_same_twice(name: str) -> None:
    assert_same(scales(METHODS[name], images()), scales(METHODS[name], images()))


def assert_same(a: dict[str, SiteScale], b: dict[str, SiteScale]) -> None:
    for site in a:
        assert torch.equal(a[site].threshold, b[site].threshold), site
        assert torch.equal(a[site].amplitude, b[site].amplitude), site


@every_method
def test_json_round_trip(name: str) -> None:
    method = METHODS[name]
    text = json.dumps(method.to_json(), allow_nan=False)
    assert from_json(json.loads(text)) == method
    assert hash(from_json(json.loads(text))) == hash(method)
    assert method.to_json()["method"] == type(method).label
    assert isinstance(type(method).papers, tuple)


@every_method
def test_a_setting_that_it_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"no setting \['colour'\]"):
        from_json({**METHODS[name].to_json(), "colour": 1})


@pytest.mark.parametrize("label", [label for label in registry() if label != "override"])
def test_every_method_can_be_named_on_the_command_line(label: str) -> None:
    assert parse(label) == registry()[label]()


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("percentile:99", Percentile(99.0)),
        ("omega:1.5", EqualOmega(1.5)),
        ("scaled:0.7:percentile:99.9", Scaled(Percentile(99.9), 0.7)),
        ("scaled:0.7", Scaled(SpikeNorm(), 0.7)),
        ("scaled:0.8:scaled:0.5:max", Scaled(Scaled(MaxNorm(), 0.5), 0.8)),
        ("spike:100:20", SpikeNorm(100, 20)),
        ("fixed:2", Fixed(2.0)),
        ("model:-1:1", ModelNorm(-1.0, 1.0)),
        ("latency:0.3", Latency(0.3)),
        ("latency:0.3:true", Latency(0.3, per_layer=True)),
        ("latency:0.3:false:7", Latency(0.3, per_layer=False, steps=7)),
    ],
)  # fmt: skip
def test_methods_from_words(text: str, method: Method) -> None:
    assert parse(text) == method


@pytest.mark.parametrize(
    "text",
    ["", "unknown", "override", "percentile:much", "percentile:0", "percentile:101",
     "omega:1", "omega:inf", "max:1", "scaled:0", "scaled:x",
     "scaled:0.5:nothing", "spike:0", "spike:1.5", "fixed:0", "fixed:inf", "fixed:nan", "model:1:0", "latency:-1",
     "latency:0.1:perhaps", "latency:0.1:true:0"],
)  # fmt: skip
def test_words_that_name_no_method_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Reading the method"):
        parse(text)


@pytest.mark.parametrize(
    "data", [None, [], {}, {"method": "x"}, {"method": "percentile", "percent": -1}, {"method": ["max"]}]
)
def test_json_that_is_no_method_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match="Reading"):
        from_json(data)


# -- bad data ----------------------------------------------------------------------------------------------------------


@every_method_with_data
def test_no_data_is_an_error_that_says_what_to_give(name: str) -> None:
    with pytest.raises(CalibrationError, match=r"calibration=x\[:1000\]"):
        convert(network(), METHODS[name], example=images(1))


@every_method_with_data
@pytest.mark.parametrize("nothing", [images(0), [], [images(0)], [(images(0), torch.zeros(0))]],
                         ids=["no rows", "no batch", "an empty batch", "an empty pair"])  # fmt: skip
def test_empty_data_is_the_same_error(name: str, nothing: object) -> None:
    with pytest.raises(CalibrationError, match="there is no image"):
        convert(network(), METHODS[name], example=images(1), calibration=nothing)  # type: ignore[arg-type]


@every_method_with_data
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_the_data_is_named(name: str, value: float) -> None:
    x = images()
    x[7, 0, 2, 3] = value
    with pytest.raises(CalibrationError, match=r"batch 1 .*NaN or infinity"):
        convert(network(), METHODS[name], example=images(1), calibration=in_batches(x, 5))


@every_method_with_data
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (torch.rand(4, 1, 8, 9), r"\(1, 8, 9\).*\(1, 8, 8\)"),
        (torch.rand(4, 64), r"\(64,\).*\(1, 8, 8\)"),
        (torch.zeros(4, 1, 8, 8, dtype=torch.uint8), "floating-point"),
        (torch.tensor(1.0), "not a floating-point tensor of images"),
        (["image.png"], "str"),
        ([{"x": 1}], "dict"),
        ([()], "tuple"),
    ],
    ids=["size", "flat", "bytes", "number", "names", "dictionaries", "nothing"],
)
def test_data_that_does_not_fit_is_refused(name: str, wrong: object, words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        convert(network(), METHODS[name], example=images(1), calibration=wrong)  # type: ignore[arg-type]


@every_method_with_data
def test_a_layer_that_never_fires_is_named_with_the_way_out(name: str) -> None:
    model = network()
    with torch.no_grad():
        model[3].weight.fill_(0.0)
        model[3].bias.fill_(-1.0)
    method = METHODS[name]
    if isinstance(method, Override):
        method = Override(method.base, (("1", Fixed(2.0)),))
    if isinstance(method, Scaled) and isinstance(method.base, Fixed):
        pytest.skip("has thresholds of its own")
    with pytest.raises(CalibrationError, match=r"'4'.*Override"):
        convert(model, method, example=images(1), calibration=images())


def test_override_mends_a_layer_that_never_fires() -> None:
    model = network()
    with torch.no_grad():
        model[3].weight.fill_(0.0)
        model[3].bias.fill_(-1.0)
    with pytest.raises(CalibrationError, match="never fires"):
        convert(model, MaxNorm(), example=images(1), calibration=images())


# -- what each method answers ------------------------------------------------------------------------------------------


def pre_activations(model: nn.Module) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda m, i, o, name=name: found.__setitem__(name, o.detach()))
    with torch.no_grad():
        model(images())
    return found


def test_max_percentile_and_channel_norm_are_what_they_say() -> None:
    values = pre_activations(network())
    for site, value in values.items():
        assert scales(MaxNorm(), images())[site].threshold.item() == value.max()
        robust = scales(Percentile(90.0), images())[site].threshold.item()
        assert robust == pytest.approx(float(value.flatten().double().quantile(0.9)), rel=1e-6)
        channels = value.amax([0, *range(2, value.ndim)])
        expected = torch.where(channels > 0, channels, channels.amax())
        assert torch.equal(scales(ChannelNorm(), images())[site].threshold.flatten(), expected)


@pytest.mark.parametrize("wanted", [1.05, 1.3, 1.6])
def test_equal_omega_is_what_it_says(wanted: float) -> None:
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(50_000, generator=generator).exp() * (torch.rand(50_000, generator=generator) < 0.4)
    ceiling = OmegaCeiling(wanted)
    for part in u.split(7000):
        ceiling.update(part)
    theta = ceiling.value()
    assert float(omega((u / theta).clamp_max(1.0).double())) == pytest.approx(wanted, rel=5e-3)
    whole = OmegaCeiling(1e9)
    whole.update(u)
    assert torch.equal(whole.value(), u.max().reshape(1))
    silent = OmegaCeiling(2.0)
    silent.update(torch.zeros(5))
    assert float(silent.value()) == 0.0


@pytest.mark.parametrize("end", [0.0, 1 / 512 - 2**-20])
@pytest.mark.parametrize("wanted", [1.02, 1.1, 1.2])
def test_the_counted_ceiling_is_right_to_one_part_in_1000(wanted: float, end: float) -> None:
    """Values at the ends of the places they are counted in, where the middle of a place is furthest from them."""
    u = 1.0 + torch.randint(256, (20_000,), generator=torch.Generator().manual_seed(0)) / 256 + end
    counted = OmegaCeiling(wanted)
    counted.update(u)
    assert float(counted.value()) == pytest.approx(ceiling_for_omega(u.double(), wanted), rel=1e-3)


def test_the_value_of_a_spike_is_kept() -> None:
    """A ReLU site: amplitude = threshold. Scaling with `preserve` keeps that, without it the amplitude stays."""
    top, kept, free = (scales(m, images()) for m in (MaxNorm(), Scaled(MaxNorm(), 0.5), Scaled(MaxNorm(), 0.5, False)))
    for site in top:
        assert torch.equal(top[site].threshold, top[site].amplitude)
        assert torch.equal(kept[site].threshold, top[site].threshold * 0.5)
        assert torch.equal(kept[site].amplitude, top[site].amplitude * 0.5)
        assert torch.equal(free[site].threshold, kept[site].threshold)
        assert torch.equal(free[site].amplitude, top[site].amplitude)


def test_model_norm_bounds_every_activation() -> None:
    bound, seen = scales(ModelNorm(0.0, 1.0), images()), scales(MaxNorm(), images())
    assert all(bound[s].threshold >= seen[s].threshold for s in seen)
    first = network()[0]
    largest = nn.functional.conv2d(torch.ones(1, 1, 8, 8), first.weight.clamp(min=0), first.bias, padding=1).amax()
    torch.testing.assert_close(bound["1"].threshold.squeeze(), largest)


@pytest.mark.parametrize("engine", ["dense", "event"])
def test_model_norm_of_a_very_deep_network_is_silent_and_not_infinite(engine: str) -> None:
    """The bound grows a hundredfold a layer: behind thirty it would leave float32."""
    torch.manual_seed(0)
    deep = nn.Sequential(*(module for _ in range(30) for module in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 3))
    with torch.no_grad():
        for layer in deep[::2]:
            layer.weight.mul_(12.0)
    x = torch.rand(4, 64)
    net = convert(deep, ModelNorm(0.0, 1.0), example=x[:1]).net
    result = simulate(net, x, 5, engine=engine)
    assert torch.isfinite(result.logits).all()
    assert result.layers[-1].spikes.sum() == 0


def test_data_norm_is_the_larger_of_activation_and_weight() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        model[0].bias.zero_()
    for x, expected in ((0.5, 4.0), (2.0, 8.0)):
        data = torch.full((1, 2), x)
        found = convert(model, DataNorm(), example=data, calibration=data).scales
        assert found["1"].threshold.item() == expected


@pytest.mark.parametrize("room", [0, 70_000])
def test_spike_norm_needs_no_room_for_currents(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Currents are kept between two passes where there is room for all, for some, or for none: the same thresholds."""
    method, x = SpikeNorm(steps=8, images=40), images(40)
    whole = scales(method, x)
    monkeypatch.setattr(spike_norm, "_KEPT_BYTES", room)
    assert {name: float(s.threshold) for name, s in scales(method, x).items()} == {
        name: float(s.threshold) for name, s in whole.items()
    }


def test_spike_norm_is_the_largest_current_behind_spikes() -> None:
    """By hand, with Eq. 3: the first layer sees the image, the second the spikes of the first."""
    model, x = network(), images()
    found = scales(SpikeNorm(steps=8, images=10), x)
    with torch.no_grad():
        current = model[0](x)
        theta = current.amax()
        assert found["1"].threshold.item() == theta
        v, largest = torch.zeros_like(current), torch.zeros(())
        for _ in range(8):
            v = v + current
            s = (v >= theta).float()
            v = v - theta * s
            largest = torch.maximum(largest, model[3](model[2](s * theta)).amax())
    assert found["4"].threshold.item() == largest


def test_latency_lowers_thresholds_below_the_maxima_and_more_with_lambda() -> None:
    top = scales(MaxNorm(), images())
    gentle, strong = (scales(Latency(lam=lam, steps=20, batch_size=5), images()) for lam in (0.0, 2.0))
    for site in top:
        assert strong[site].threshold < gentle[site].threshold < top[site].threshold
    shared = {round(float(gentle[s].threshold / top[s].threshold), 5) for s in top}
    assert len(shared) == 1
    each = scales(Latency(lam=0.5, per_layer=True, steps=20, batch_size=5), images())
    assert len({round(float(each[s].threshold / top[s].threshold), 5) for s in top}) == 3


def test_latency_that_cannot_be_trained_says_why() -> None:
    x = images()
    quiet = torch.zeros_like(x[:1])
    model = network()
    with torch.no_grad():
        for i in (0, 3, 6):
            model[i].bias.zero_()
        model[0].weight.abs_()
        model[3].weight.abs_()
        model[6].weight.abs_()
    with pytest.raises(CalibrationError, match="a layer is silent"):
        convert(model, Latency(steps=12, batch_size=1), example=x[:1], calibration=torch.cat([x, quiet]))


def test_trained_takes_the_ceiling_and_refuses_plain_relu() -> None:
    for output, amplitude in (("rate", 1.0), ("activation", 1.5)):
        layer = RateNorm(output=output)
        layer.running_max.fill_(3.0)
        layer.p.fill_(0.5)
        found = convert(nn.Sequential(layer), example=torch.rand(1, 4)).scales["0"]
        assert found.threshold.item() == 1.5
        assert found.amplitude.item() == amplitude
    clipped = convert(nn.Sequential(nn.ReLU6()), Trained(), example=torch.rand(1, 4)).scales["0"]
    assert (clipped.threshold.item(), clipped.amplitude.item()) == (6.0, 6.0)
    with pytest.raises(CalibrationError, match=r"plain ReLU and has none\. Use MaxNorm"):
        convert(tiny_cnn(), Trained(), example=torch.rand(1, 1, 8, 8))


@pytest.mark.parametrize(
    "method", [MaxNorm(), Percentile(100.0), SpikeNorm(steps=4), ModelNorm(0, 100), Latency(steps=2)]
)
def test_a_clip_bounds_every_threshold(method: Method) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(0.0, 0.25), nn.Linear(4, 2)).eval()
    with torch.no_grad():
        model[0].bias += 5.0
    x = torch.rand(6, 3)
    found = convert(model, method, example=x[:1], calibration=x).scales["1"]
    assert found.threshold.item() <= 0.25
    assert torch.equal(found.threshold, found.amplitude)


def test_overrides_by_name_and_pattern() -> None:
    method = Override(MaxNorm(), (("4", Fixed(2.0)), ("[47]", Fixed(3.0))))
    found = scales(method, images())
    assert torch.equal(found["1"].threshold, scales(MaxNorm(), images())["1"].threshold)
    assert found["4"].threshold.item() == 2.0  # the first match counts
    assert found["7"].threshold.item() == 3.0
    with pytest.raises(CalibrationError, match=r"no site matches 'features\.\*'. The sites are: 1, 4, 7"):
        scales(Override(MaxNorm(), (("features.*", Fixed(2.0)),)), images())


def test_methods_share_one_lowering() -> None:
    graph, report = lower(network(), images(1))
    analog = fold(graph)
    assert all(isinstance(n.op, Activation) for n in sites(analog))
    with pytest.raises(ConversionError, match="no activation"):
        convert_graph(fold(lower(nn.Linear(3, 2), torch.rand(1, 3))[0]), Fixed(), None, 0.0, report)
    assert convert_graph(analog, Fixed(2.0), None, 0.0, report).scales["1"].threshold.item() == 2.0


class Pooled(nn.Module):
    """Max-pooling between populations, a negative scale on a skip, a concatenation: ways that few methods expect."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 1), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = nn.functional.max_pool2d(self.first(x).relu(), 2)
        b = (self.second(a) - 0.5 * a).relu()
        return self.last(torch.cat([a, b], 1).flatten(1))


def pooled() -> nn.Module:
    model = make_dyadic_(Pooled(), 5)
    with torch.no_grad():
        model.first.bias += 1.0
        model.second.bias += 1.0
    return model.eval()


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("trained", "override")])
def test_every_method_takes_pools_skips_and_concatenations(name: str) -> None:
    method, x = METHODS[name], images()
    conversion = convert(pooled(), method, example=x[:1], calibration=x)
    assert len(conversion.scales) == 2
    assert torch.isfinite(run(conversion.net, x)).all()
    if name in ("max", "model"):
        seen = convert(pooled(), MaxNorm(), example=x[:1], calibration=x).scales
        assert all(conversion.scales[s].threshold >= seen[s].threshold for s in seen)


def test_spike_norm_behind_max_pooling_sees_the_spikes_that_pass() -> None:
    model, x = pooled(), images()
    found = list(convert(model, SpikeNorm(steps=6), example=x[:1], calibration=x).scales.values())
    with torch.no_grad():
        current = model.first(x)
        theta = current.amax()
        v, total, before, largest = torch.zeros_like(current), torch.zeros_like(current), 0.0, 0.0
        for _ in range(6):
            v = v + current
            s = (v >= theta).float()
            v, total = v - theta * s, total + s * theta
            now = nn.functional.max_pool2d(total, 2)
            passed, before = now - before, now
            largest = max(largest, float((model.second(passed) - 0.5 * passed).amax()))
    assert found[0].threshold.item() == theta
    assert found[1].threshold.item() == largest


def test_spike_norm_takes_one_image_and_one_step() -> None:
    x = images(4)
    assert all((scale.threshold > 0).all() for scale in scales(SpikeNorm(steps=1, images=1), x).values())
    for steps, count in ((0, 1), (1, 0)):
        with pytest.raises(UsageError, match="both must be at least 1"):
            SpikeNorm(steps=steps, images=count)
