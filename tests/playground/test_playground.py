"""The playground: its spikes are Python's, it is one small page, and it works by keyboard and on a phone."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ratenorm as rn
from ratenorm.convert.convert import with_start
from ratenorm.simulate.dense import DenseSimulation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "playground.html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
STEPS, DIGITS = 16, 50


@pytest.fixture(scope="module")
def network() -> tuple[rn.SpikingNet, Any]:
    model, spec = rn.zoo.load("cnn7-mnist")
    return rn.convert(model, example=torch.zeros(1, 1, 28, 28)).net, spec


def data() -> dict[str, Any]:
    found = re.search(r"<script>const DATA = (.*?);</script>", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_the_page_is_small_and_whole() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.encode()) <= 400_000
    assert not re.search(r"(src|href)=\"(?!data:)", text), "no other file is asked for"
    assert "<noscript>" in text


def test_the_page_is_what_its_sources_make(network: tuple[rn.SpikingNet, Any]) -> None:
    """But for the early-exit rule, whose fit takes a minute."""
    sys.path.insert(0, str(ROOT / "playground"))
    import build

    net, _ = network
    kept = data()
    assert kept["layers"] == json.loads(json.dumps(build.layers(net)))
    assert kept["samples"] == build.samples(rn.data.load("mnist", "test"))
    assert PAGE.read_text(encoding="utf-8") == build.page(kept)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def spikes_of(net: rn.SpikingNet, x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """Every spike of every step, from the dense engine."""
    simulation = DenseSimulation(net, x)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in simulation.populations}
    before = {name: p.counts.clone() for name, p in simulation.populations.items()}
    for _ in range(STEPS):
        simulation.advance(1)
        for name, population in simulation.populations.items():
            found[name].append((population.counts - before[name]).bool())
            before[name] = population.counts.clone()
    return found


@pytest.mark.browser
@pytest.mark.parametrize("v0", [0.0, 0.5])
def test_every_spike_is_pythons(browser: Any, network: tuple[rn.SpikingNet, Any], v0: float) -> None:
    net, spec = network
    images = rn.data.load("mnist", "test").subset(range(DIGITS))
    x = spec.normalisation(images.images[:].float().div_(255.0))
    started = with_start(net, v0)
    expected = spikes_of(started, x)
    logits = rn.simulate(started, x, STEPS).logits
    page = browser.new_page()
    page.goto(PAGE.as_uri())
    code = """([pixels, steps, start]) => {
        const run = network.run(Uint8Array.from(atob(pixels), c => c.charCodeAt(0)), steps, start);
        const text = bytes => btoa(Array.from(bytes, b => String.fromCharCode(b)).join(""));
        return { spikes: run.spikes.map(layer => layer.map(text)), scores: run.scores };
    }"""
    count = 0
    for i in range(DIGITS):
        pixels = base64.b64encode(images.images[i, 0].contiguous().numpy().tobytes()).decode()
        found = page.evaluate(code, [pixels, STEPS, v0])
        for (name, steps), layer in zip(expected.items(), found["spikes"], strict=True):
            for step, (wanted, text) in enumerate(zip(steps, layer, strict=True), 1):
                own = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).bool()
                assert torch.equal(own, wanted[i].flatten()), f"digit {i}, layer {name}, step {step}"
                count += int(own.sum())
        scores = torch.tensor(found["scores"], dtype=torch.float64)
        assert torch.equal(scores.argmax(1), logits[:, i].argmax(1))
        assert torch.allclose(scores.float(), logits[:, i], atol=1e-6)
    assert count > 100_000, "there were spikes to compare"
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (768, "dark"), (1440, "light")])
def test_it_draws_by_pointer_and_keyboard(browser: Any, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
    )
    page.goto(PAGE.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("#clear")
    assert "Draw a digit" in page.inner_text("#answer")
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.8, steps=10)
    page.mouse.up()
    assert "The answer is 1" in page.inner_text("#answer")
    page.locator("#time").focus()
    before = page.input_value("#time")
    page.keyboard.press("ArrowLeft")
    assert int(page.input_value("#time")) == int(before) - 1
    page.check("#exit")
    assert "Early exit stopped at step" in page.inner_text("#answer")
    page.click("#clear")
    page.locator("#pad").focus()
    for key in [*["ArrowUp"] * 8, *[" ", "ArrowDown"] * 16]:
        page.keyboard.press(key)
    assert "The answer is" in page.inner_text("#answer")
    assert wrong == []
    context.close()
