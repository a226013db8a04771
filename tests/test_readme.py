"""What the README claims is what the records have."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.headline import race
from paper.published import HEADLINE, TABLE_1, TABLE_2, TABLE_2_STEPS
from ratenorm import records

HERE = Path(__file__).parents[1]
README = (HERE / "README.md").read_text(encoding="utf-8")


def row(name: str) -> list[str]:
    line = next(line for line in README.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def percent(*values: float | None) -> list[str]:
    return [f"{100 * (value or 0.0):.2f}" for value in values]


def test_our_row_is_the_record_of_all_test_images() -> None:
    record = records.read(HERE / "paper" / "results" / "vgg16-cifar10-s0.json")
    run = next(run for run in record["runs"] if run["name"] == "RNL + RIL")
    found = race(record, 0.9)
    assert "images" not in run  # on all of them
    assert record["data"]["images"] == 10_000
    assert run["v0"] == 0.0
    assert found is not None
    assert row("ours")[:3] == [f"{found.ours} steps", str(found.theirs), f"{found.energy:.3f}"]
    at = [run["accuracy"][t - 1] for t in TABLE_2_STEPS]
    assert row("ours")[3:] == percent(*at, record["ann"]["accuracy"])


def test_the_papers_row_is_the_papers() -> None:
    steps, theirs = f"{HEADLINE['steps']:.0f} steps", f"{HEADLINE['max_norm_steps']:.0f}"
    assert row("the paper")[:3] == [steps, theirs, str(HEADLINE["energy_ratio"])]
    table_1 = TABLE_1["cifar10", "vgg16"]
    ann = table_1["snn_accuracy"] + table_1["conversion_loss"]
    assert row("the paper")[3:] == percent(*TABLE_2["vgg16", "RNL + RIL"], ann)


@pytest.mark.parametrize("line", [line for line in README.splitlines() if "](" in line])
def test_links_lead_somewhere(line: str) -> None:
    for link in (part.partition(")")[0] for part in line.split("](")[1:]):
        assert link.startswith("http") or (HERE / link).exists(), link
