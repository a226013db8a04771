"""The paper's figures as pictures: drawn from JSON alone, the same bytes every time, damage told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ratenorm import report
from ratenorm.errors import FileFormatError
from ratenorm.report.measures import Run
from ratenorm.report.plots.paper import depth_colours


def run(name: str, steps: int = 16, layers: int = 3, speed: float = 1.0, **more: Any) -> dict[str, Any]:
    curve = [min(0.93, 0.1 * speed * t) for t in range(1, steps + 1)]
    return {
        "name": name, "network": "vgg16", "steps": steps, "neurons": 100, "accuracy": curve, "spikes": [10.0] * steps,
        "ann": {"name": "ANN", "accuracy": 0.93, "macs": 0},
        "layers": [
            {"name": f"features.{i}", "neurons": 10, "threshold": 1.0 + i, "threshold_min": 1.0, "threshold_max": 3.0,
             "omega": 4.0 if i else None, "k": [None, *(1 / t for t in range(2, steps + 1))]} for i in range(layers)
        ], **more,
    }  # fmt: skip


RUNS = [run("RNL + RIL", speed=2), run("RNL"), run("Max Norm")]
DATA: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "fig2": ([""], {"steps": 8}, {
        "x": [0.0, 1.0], "spiking_x": [0.5],
        "curves": [{"p": 0.5, "threshold": 0.5, "rate": [0, 1], "spiking_rate": [1]}],
    }),
    "fig3": ([""], {}, {"analog": [0.5], "constant": [[[0.0, 0.5]]], "poisson": [[[1.0, 0.5]]]}),
    "fig4": (["", "-layers"], {}, {"runs": RUNS[:2]}),
    "fig6": (
        ["a", "b", "c"],
        {"layers": ["features.0", "features.2"], "in_a_and_c": ["RNL"], "only_in_c": ["Max Norm"]},
        {"runs": RUNS},
    ),
    "fig7": (["a", "b"], {"target": 0.9}, {
        "runs": [run("RNL + RIL", speed=2, target=0.9), run("Max Norm", target=0.95)],
        "ratio": {"accuracy": [0.5, 0.9], "log10_speed_up": [0.3, 0.4], "log10_energy": [-0.1, -0.2]},
    }),
}  # fmt: skip


def write(name: str, folder: Path, **changes: Any) -> Path:
    ends, config, data = DATA[name]
    content = {
        "format": "ratenorm-figure", "version": 1, "figure": name, "config": config, "data": data,
        "pictures": [f"{name}{end}.svg" for end in ends],
    }  # fmt: skip
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content | changes))
    return path


@pytest.mark.parametrize("name", DATA)
def test_every_figure_is_drawn_beside_its_data_and_always_alike(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path)
    pictures = report.save_figure(path)
    assert [p.name for p in pictures] == [f"{name}{end}.svg" for end in DATA[name][0]]
    before = [p.read_bytes() for p in pictures]
    assert all(b"<svg" in content for content in before)
    assert [p.read_bytes() for p in report.save_figure(path)] == before


def test_figure_6_has_scaled_thresholds_in_its_last_part_only(tmp_path: Path) -> None:
    first, _, last = (picture.read_text() for picture in report.save_figure(write("fig6", tmp_path)))
    assert ">Max Norm<" not in first
    assert ">Max Norm<" in last
    assert ">RNL<" in first


def test_figure_7_names_the_target_that_is_not_reached(tmp_path: Path) -> None:
    power, _ = report.save_figure(write("fig7", tmp_path))
    text = power.read_text()
    assert "not at 95.0 % in 16 steps" in text
    assert "in 5 steps" in text  # 0.2 a step: 0.9 is passed at step 5


def test_a_target_of_its_own_takes_the_place_of_one_point_below_the_ann() -> None:
    data = run("a")
    assert Run("a", data, data["ann"], 10).target_step == 10  # 0.92 is one point below; 0.9 is not
    assert Run("a", data, data["ann"], 10, 0.9).target_step == 9
    assert Run("a", data, data["ann"], 10, 0.94).target_step is None


def test_layers_are_told_apart_by_depth() -> None:
    assert len(set(depth_colours(17))) == 17
    assert len(depth_colours(1)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "x"},
        {"version": 2},
        {"figure": "fig5"},
        {"data": {}},
        {"data": None},
        {"pictures": []},
        {"config": 3},
    ],
    ids=str,
)
def test_a_damaged_figure_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = write("fig7", tmp_path, **changes)
    with pytest.raises(FileFormatError, match=r"fig7\.json"):
        report.save_figure(path)
    assert list(tmp_path.iterdir()) == [path]


def test_pictures_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write("fig2", tmp_path / "in", pictures=["../outside.svg"])
    assert report.save_figure(tmp_path / "in" / "fig2.json") == [tmp_path / "in" / "outside.svg"]
    with pytest.raises(FileFormatError, match="cannot be read"):
        report.save_figure(tmp_path / "none.json")
