"""Objects behave as people expect: short to print, called like functions, taken where they fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ratenorm as rn
from builders import tiny_cnn, tiny_conversion
from ratenorm.errors import UsageError


def test_a_method_may_be_a_text_or_a_class() -> None:
    x = torch.rand(8, 1, 8, 8)
    found = [rn.convert(tiny_cnn(), m, example=x[:1], calibration=x).method for m in ("max", rn.MaxNorm, rn.MaxNorm())]
    assert found == [rn.MaxNorm()] * 3
    with pytest.raises(UsageError, match="'maxx' is not known"):
        rn.convert(tiny_cnn(), "maxx", example=x[:1], calibration=x)
    with pytest.raises(UsageError, match="the method is 3"):
        rn.convert(tiny_cnn(), 3, example=x[:1], calibration=x)  # type: ignore[arg-type]


def test_a_conversion_is_taken_where_a_network_is_expected(tmp_path: Path) -> None:
    conversion, x = tiny_conversion()
    expected = rn.simulate(conversion.net, x, 4).logits
    assert torch.equal(rn.simulate(conversion, x, 4).logits, expected)
    assert torch.equal(conversion(x, steps=4).logits, expected)
    assert torch.equal(conversion.net(x, steps=4).logits, expected)
    labels = torch.zeros(len(x), dtype=torch.int64)
    assert rn.evaluate(conversion, [(x, labels)], 4).images == len(x)
    assert rn.load(rn.save(conversion, tmp_path / "net.safetensors")).same_as(conversion.net)
    with pytest.raises(UsageError, match=r"got Sequential\. A trained network becomes one by"):
        rn.simulate(nn.Sequential(nn.ReLU()), x, 4)  # type: ignore[arg-type]


def test_objects_print_in_a_line_and_show_themselves_in_a_notebook() -> None:
    conversion, x = tiny_conversion()
    result = conversion(x, steps=4)
    found = rn.diagnose(conversion, x, steps=4)
    for thing in (conversion, conversion.net, conversion.analog, result):
        assert len(repr(thing)) < 300
    assert "MaxNorm()" in repr(conversion)
    for shown in (conversion, conversion.net, conversion.report, result, found):
        page = shown._repr_html_()
        assert page.count("<table>") == page.count("</table>") >= 1
        assert len(page) < 20_000
    assert "<polyline" in result._repr_html_()
    refused = rn.inspect(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), torch.rand(1, 4))
    assert "Not convertible: 1 obstacles" in refused._repr_html_()


def test_what_a_name_holds_cannot_become_markup() -> None:
    from ratenorm import notebook

    page = notebook.table("<script>", ("a",), [("<b>&",)])
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_an_evaluation_becomes_a_record_and_a_page(tmp_path: Path) -> None:
    images, labels = rn.data.sample("mnist", 40)
    model, _ = rn.zoo.load("cnn7-mnist-relu")
    made = {
        "recommended": rn.convert(model, example=images[:1], calibration=images),
        "max": rn.convert(model, "max", example=images[:1], calibration=images),
    }
    found = {name: rn.evaluate(one, [(images, labels)], steps=4) for name, one in made.items()}
    record = rn.record(made, found, title="CNN-7", data="mnist", ann_accuracy=0.99)
    assert [run["name"] for run in record["runs"]] == ["recommended", "max"]
    assert record["ann"]["accuracy"] == 0.99
    built = rn.build_report([record], tmp_path / "report.html")
    assert built.runs == 2
    assert not built.warnings
    assert "CNN-7" in built.path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="under the same name"):
        rn.record(made, {"max": found["max"]})
    with pytest.raises(UsageError, match="count is 0"):
        rn.data.sample("mnist", 0)
