"""docs/export.md says what the result files say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.exchange_docs import PAGE, RESULTS, page


def test_the_page_is_written_from_the_result_files() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text


def test_the_figures_that_were_asked_for() -> None:
    """The issue's figures: four networks in three simulators, 20,000 files, 12 networks by each way."""
    rows = json.loads((RESULTS / "exchange.json").read_text("utf-8"))["rows"]
    main = ("cnn7-mnist", "alexnet-mnist", "preact_resnet20-cifar10", "vgg16-cifar10")
    for row in rows:
        assert row["with_adapter"]["different"] == 0
        assert row["with_adapter"]["outputs_equal"]
        assert row["round_trip"]
    seen = {(r["network"], r["reader"]) for r in rows if (r["images"], r["steps"]) == (100, 32)}
    assert {(n, s) for n in main for s in ("spikingjelly", "sinabs", "snntorch")} <= seen
    mutated = json.loads((RESULTS / "mutated_nir.json").read_text("utf-8"))
    assert mutated["files"] >= 20_000
    assert mutated["wrong"] == 0
    fronts = json.loads((RESULTS / "front_ends.json").read_text("utf-8"))["rows"]
    for way in ("torch.export", "onnx"):
        assert sum(r[way].get("different_counts") == 0 and r[way]["outputs_equal"] for r in fronts) >= 12
    assert json.loads((RESULTS / "neurobench.json").read_text("utf-8"))["equal"]


def test_every_option_of_the_page_exists() -> None:
    from ratenorm.cli.export import Export

    text = Path(PAGE).read_text("utf-8")
    fields = {name.replace("_", "-") for name in Export.__dataclass_fields__}
    for option in ("to", "out", "check", "chip", "pools"):
        assert option in fields
        assert f"--{option}" in text
