"""Citations: of what was used, each once, as BibTeX that is whole."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import ratenorm as rn
from ratenorm.errors import UsageError
from ratenorm.records.papers import PAPERS, bibtex, reference


def test_a_conversion_names_its_methods() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.rand(32, 4)
    scaled = rn.convert(model, rn.Scaled(rn.SpikeNorm(8), 0.8), example=x[:1], calibration=x)
    assert re.findall(r"@\w+\{(\w+),", rn.cite(scaled))[:1] == ["ding2021"]
    assert "han2020" in rn.cite(scaled)
    calibrated = rn.calibrate(rn.convert(model, "max", example=x[:1], calibration=x), x, 4)
    text = rn.cite(calibrated)
    assert {"ding2021", "rueckauer2017", "wu2024"} <= set(re.findall(r"@\w+\{(\w+),", text))
    assert text.count("@inproceedings{ding2021") == 1


def test_every_entry_is_whole() -> None:
    for key, paper in PAPERS.items():
        text = bibtex([key])
        assert text.count("{") == text.count("}")
        for field in ("author", "title", "year"):
            assert re.search(rf"^  {field}\s+= ", text, re.MULTILINE), key
        assert str(paper.year) in key or key == "bu2022qcfs"
        assert text.isascii()
        first = paper.authors.removesuffix(" et al.").split(", ")[0].rpartition(" ")[2]
        assert f"{{{first}, " in text
    assert "% nobody1999" in bibtex(["nobody1999"])


def test_a_reference_is_shown_whole_and_an_unknown_key_as_it_stands() -> None:
    for key, paper in PAPERS.items():
        assert paper.title in reference(key)
        assert str(paper.year) in reference(key)
    assert reference("nobody1999").startswith("nobody1999")


def test_what_cannot_be_cited() -> None:
    with pytest.raises(UsageError, match="expected a Conversion or a record, got int"):
        rn.cite(3)  # type: ignore[arg-type]
