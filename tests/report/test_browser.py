"""The report in a real browser: no requests, no errors, no sideways scrolling, working sliders."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratenorm import records, report

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(make_record: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    record = make_record(steps=16, methods=2, layers=2, examples=2, side=8)
    record["runs"][0]["name"] = record["diagnosis"]["run"] = "a_name_without_any_place_to_break_" * 3
    record["front"] = None
    records.write(folder / "record.json", record)
    return report.build([folder], folder / "report.html").path


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (768, "dark"), (1440, "dark")])
def test_it_opens_cleanly(browser: Any, page_file: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(page_file.as_uri())
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert requests == [page_file.as_uri()]
    assert messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.evaluate("[...document.querySelectorAll('figure svg')].filter(s => s.checkVisibility()).length")
    assert shown == 9  # one of two images is picked, each plot is shown at one of its two sizes
    ink = page.evaluate("getComputedStyle(document.querySelector('#accuracy svg text')).fill")
    assert ink != page.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()


def test_sliders_and_picker_work(browser: Any, page_file: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(page_file.as_uri())
    slider = page.locator("#steps input")
    slider.fill("16")
    assert page.locator("#steps output").inner_text() == "16"
    last = page.locator("#steps tbody tr").last.locator("td").first.inner_text()
    table = page.locator("#accuracy table").nth(1)
    assert last == table.locator("tbody tr").last.locator("td").last.inner_text()
    page.locator('label[for="pick-1"]').click()
    assert not page.locator('[data-example="0"]').is_visible()
    panel = page.locator('[data-example="1"]')
    assert panel.is_visible()
    assert panel.locator(".bars b").count() == 10
    page.close()


def test_all_that_matters_is_there_without_a_script(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("#accuracy figure .wide svg").is_visible()
    assert page.locator("#accuracy table").nth(1).is_visible()
    assert not page.locator("#steps").is_visible()
    page.locator('label[for="pick-1"]').click()
    assert page.locator('[data-example="1"] figure .wide svg').is_visible()
    context.close()
