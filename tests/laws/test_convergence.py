"""The law of issue 3: for any supported network the spiking one approaches the clipped ANN at slope -1 in log-log."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from random_networks import BLOCKS, Recipe, clipped_ann, recipes
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds import ChannelNorm, MaxNorm, Method, Percentile, Scaled
from ratenorm.errors import CalibrationError
from ratenorm.graph.net import run
from ratenorm.simulate.simulate import simulate

METHODS = (MaxNorm(), Percentile(95.0), ChannelNorm(), Scaled(MaxNorm(), 0.7))
EACH_BLOCK = [Recipe((block, "conv"), ("F.relu", "in place", "clamp"), True, "flatten", 5) for block in BLOCKS]


def converted(recipe: Recipe, method: Method, v0: float = 0.0) -> Conversion:
    return convert(recipe.build(), method, example=recipe.images(1), calibration=recipe.images(), v0=v0)


def or_discard(recipe: Recipe, method: Method, v0: float = 0.0) -> Conversion:
    """For hypothesis: a network with a layer that never fires is refused, as it should be, and no example."""
    try:
        return converted(recipe, method, v0)
    except CalibrationError:
        assume(False)
        raise


def check_clipped_ann(recipe: Recipe, conversion: Conversion) -> None:
    x = recipe.images(6) * 1.3
    amplitudes = [conversion.scales[site.name].amplitude for site in sites(conversion.analog)]
    expected = clipped_ann(recipe.build(), x, amplitudes)
    with torch.no_grad():
        found = run(conversion.net, x)
        original = run(conversion.analog, x)
        eager = recipe.build()(x)
    size = float(expected.abs().max())
    torch.testing.assert_close(original, eager, rtol=1e-4, atol=1e-4 * float(eager.abs().max()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * size)


@pytest.mark.parametrize("recipe", EACH_BLOCK, ids=BLOCKS)
def test_the_rates_limit_is_the_clipped_ann_with_each_block(recipe: Recipe) -> None:
    check_clipped_ann(recipe, converted(recipe, Scaled(MaxNorm(), 0.6)))


@settings(max_examples=40)
@given(recipes(), st.sampled_from(METHODS))
def test_the_rates_limit_is_the_clipped_ann(recipe: Recipe, method: Method) -> None:
    check_clipped_ann(recipe, or_discard(recipe, method))


@settings(max_examples=12)
@given(recipes(), st.sampled_from(METHODS), st.sampled_from([0.0, 0.5]))
def test_the_output_approaches_the_clipped_ann_at_slope_minus_one(recipe: Recipe, method: Method, v0: float) -> None:
    conversion, x = or_discard(recipe, method, v0), recipe.images(8)
    with torch.no_grad():
        limit = run(conversion.net, x)
    steps = 1024
    logits = simulate(conversion.net, x, steps, engine="dense", chunk=128).logits
    error = (logits - limit).double().square().mean((1, 2)).sqrt()  # [T]
    size = float(limit.double().square().mean().sqrt())
    assume(float(error[31]) > 1e-4 * size)  # else the answer is exact at once
    # the error is a bounded charge divided by T, but the charge wanders: octaves are averaged before the fit
    octaves = [slice(t // 2, t) for t in (32, 64, 128, 256, 512, 1024)]
    times = numpy.array([32, 64, 128, 256, 512, 1024]) * 0.75
    slope = numpy.polyfit(numpy.log(times), numpy.log([float(error[o].mean()) for o in octaves]), 1)[0]
    assert -1.6 < slope < -0.7
    assert float(error[-1]) < float(error[15]) / 12
