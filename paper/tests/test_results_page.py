"""The generated page: seeds become mean and spread, bounds are bounds, and every figure is one of a record."""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Any

import pytest

from paper.headline import headline, race
from paper.presets import BASELINES, BY_NAME, IN_TABLE_2
from paper.published import HEADLINE, TABLE_1, TABLE_2
from paper.results_groups import grouped
from paper.results_page import write_page
from paper.results_tables import accuracy_at_t, departures, other_methods, table_1
from ratenorm import records


@pytest.fixture
def record(tiny_results: Path) -> dict[str, Any]:
    return records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")


def run_of(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(run for run in record["runs"] if run["name"] == name)


def with_seed(record: dict[str, Any], seed: int, shift: float = 0.0) -> dict[str, Any]:
    """The same experiment as another seed, every accuracy a little higher."""
    other = copy.deepcopy(record) | {"seed": seed}
    for run in other["runs"]:
        run["accuracy"] = [min(1.0, a + shift) for a in run["accuracy"]]
    return other


def as_vgg(record: dict[str, Any], steps: int = 512) -> dict[str, Any]:
    """A record like the paper's VGG-16 on CIFAR-10: every curve climbs to its ANN, ours eight times sooner."""
    other = copy.deepcopy(record)
    other["ann"] |= {"name": "vgg16", "accuracy": 0.93}
    other["data"]["name"] = "cifar10"
    other["config"] |= {"relu_ann": 0.93}
    for run in other["runs"]:
        slow = 8 if run["name"] == "Max Norm" else 1
        run["steps"] = steps
        run["accuracy"] = [0.93 * min(1.0, t / (slow * 50)) for t in range(1, steps + 1)]
        run["spikes"] = [10.0 / slow] * steps
    return other


def cells(lines: list[str], start: str) -> list[str]:
    row = next(line for line in lines if line.startswith(start))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_three_seeds_are_one_row_with_mean_and_spread(record: dict[str, Any]) -> None:
    found = [with_seed(record, seed, shift) for seed, shift in ((2, 0.05), (0, 0.0), (1, 0.02))]
    (group,) = grouped(found)
    assert group.seeds == "0, 1, 2"
    best = [100 * max(run["accuracy"]) for run in group.runs("RNL")]
    row = cells(table_1([group]), "| cnn7")
    assert row[4] == f"{statistics.fmean(best):.2f} ± {statistics.stdev(best):.2f}"
    at_4 = [100 * run["accuracy"][3] for run in group.runs("RMP")]
    assert cells(accuracy_at_t(group), "| RMP |")[3] == f"{statistics.fmean(at_4):.2f} ± {statistics.stdev(at_4):.2f}"


def test_seeds_at_different_points_are_one_row_that_says_which_is_missing_what(record: dict[str, Any]) -> None:
    scale, parts = record["scale"], [with_seed(record, seed) for seed in (0, 1, 2)]
    parts[1]["scale"], parts[2]["scale"] = (f"unfinished: {n} of 14 runs; {scale}" for n in (6, 4))
    parts[2]["runs"] = [run for run in parts[2]["runs"] if run["name"] != "SpikeNorm"]
    (group,) = grouped(parts)
    assert group.seeds == "0, 1, 2"
    assert group.scale == scale
    assert group.still_open == "seed 1: 6 of 14 runs; seed 2: 4 of 14 runs"
    alike = [{**part, "scale": parts[1]["scale"]} for part in parts]
    assert grouped(alike)[0].still_open == "seeds 0, 1, 2: 6 of 14 runs"
    assert len(group.runs("RNL")) == 3
    assert group.having("SpikeNorm").numbers == [0, 1]
    assert cells(accuracy_at_t(group), "| SpikeNorm (seed 0, 1) |")
    assert cells(other_methods([group]), "| cnn7")[5].endswith("(seed 0, 1)")
    for part in parts:
        part["runs"] = []
    (group,) = grouped(parts)
    row = cells(table_1([group]), "| cnn7")
    assert "±" in row[3]  # the ANN is known before any run
    assert row[4:8] == ["-"] * 4
    assert not any(line.startswith("| cnn7") for line in headline([group]))


def test_how_a_network_departs_from_the_papers_is_said_once_and_pointed_to_beside_its_figures(
    record: dict[str, Any], tmp_path: Path
) -> None:
    seen = BY_NAME[record["config"]["preset"]["name"]].seen
    assert f"{seen}." in departures(grouped([record]))[2]  # what was known of the test images is told with the recipe
    record["config"]["preset"] |= {"name": "another", "note": "", "rnl_note": ""}
    records.write(tmp_path / "record.json", record)
    assert "Not as in the paper" not in write_page(tmp_path).read_text()
    record["config"]["preset"] |= {"note": "narrow layers", "rnl_note": "Trained otherwise"}
    records.write(tmp_path / "record.json", record)
    page = write_page(tmp_path).read_text()
    assert "## Not as in the paper\n\n- cnn7 on mnist: narrow layers. Trained otherwise.\n" in page
    assert "[Not as in the paper](#not-as-in-the-paper)" in "\n".join(accuracy_at_t(grouped([record])[0]))


def test_what_is_still_open_is_said_once_and_nothing_where_all_is_through(
    record: dict[str, Any], tmp_path: Path
) -> None:
    records.write(tmp_path / "record.json", record)
    assert "still open" not in write_page(tmp_path).read_text()
    records.write(tmp_path / "record.json", record | {"scale": f"unfinished: 6 of 14 runs; {record['scale']}"})
    page = write_page(tmp_path).read_text()
    assert "## What is still open" in page
    assert page.count("6 of 14 runs") == 1
    assert "- cnn7 on mnist, seed 0: 6 of 14 runs\n" in page


def test_runs_of_several_machines_are_said_to_be(record: dict[str, Any], tmp_path: Path) -> None:
    record["hardware"] |= {"cpu": "Abacus", "cores": 2, "threads": 1}
    for run in record["runs"]:
        run.pop("hardware", None)
    record["runs"][0]["hardware"] = record["hardware"] | {"cpu": "Slide rule", "threads": 2}
    records.write(tmp_path / "record.json", record)
    page = write_page(tmp_path).read_text()
    assert "Slide rule, 2 cores, 2 threads and Abacus, 2 cores, 1 thread;" in page


def test_one_seed_is_said_and_has_no_spread(record: dict[str, Any]) -> None:
    groups = grouped([record])
    assert cells(table_1(groups), "| cnn7")[2] == "0 (one seed)"
    assert "±" not in "\n".join(
        [*table_1(groups), *other_methods(groups), *accuracy_at_t(groups[0]), *headline(groups)]
    )


def test_networks_stand_in_the_order_of_the_presets_and_scales_apart(record: dict[str, Any]) -> None:
    full = with_seed(record, 1) | {"scale": "full"}
    groups = grouped([as_vgg(record), record, full])
    assert [(g.network, g.scale) for g in groups] == [
        ("cnn7", record["scale"]), ("cnn7", "full"), ("vgg16", record["scale"])
    ]  # fmt: skip


def test_losses_are_against_the_ann_a_run_was_converted_from(record: dict[str, Any]) -> None:
    record["config"]["relu_ann"], record["ann"]["accuracy"] = 0.5, 0.75
    (group,) = grouped([record])
    best = max(run_of(record, "Max Norm")["accuracy"])
    assert cells(other_methods([group]), "| cnn7")[3] == f"{100 * best:.2f} ({100 * (0.5 - best):+.2f})"
    assert group.anns("Max Norm, our weights") == group.anns("RNL + RIL, v(0) = θ/2") == [0.75]


def test_baselines_start_from_relu_in_the_first_table_and_from_our_weights_in_the_second(
    record: dict[str, Any],
) -> None:
    text = "\n".join(accuracy_at_t(grouped([record])[0]))
    first, second = text.split("All from our weights")
    assert all(f"| {name} |" in first for name in BASELINES.values())
    for name in IN_TABLE_2:
        assert f"| {name}, our weights |" in second
        assert f"| {name}, our weights |" not in first


def test_table_2_has_all_columns_and_the_papers_rows_below_ours(record: dict[str, Any]) -> None:
    lines = accuracy_at_t(grouped([as_vgg(record)])[0])
    assert lines[0].startswith("## Table 2: vgg16 on cifar10")
    head = next(line for line in lines if line.startswith("| method"))
    assert head.startswith("| method | 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512 |")
    for name in ("Max Norm", "Robust Norm", "RMP", "RNL + RIL"):
        place = next(i for i, line in enumerate(lines) if line.startswith(f"| {name} |"))
        theirs = [cell.strip().strip("*") for cell in lines[place + 1].strip("|").split("|")]
        assert theirs[0] == f"paper: {name}"
        assert theirs[5:10] == ["-" if v is None else f"{100 * v:.2f}" for v in TABLE_2["vgg16", name]]


def test_the_papers_losses_are_against_its_own_ann(record: dict[str, Any]) -> None:
    lines = accuracy_at_t(grouped([as_vgg(record)])[0])
    theirs = [float(cell.strip("*")) for cell in cells(lines, "| *paper* |")[1:]]
    assert theirs == pytest.approx([34.92, 7.42, 1.67, 0.31, -0.13])
    ours = [float(cell) for cell in cells(lines, "| ours |")[1:]]
    difference = [float(cell) for cell in cells(lines, "| ours - paper |")[1:]]
    assert difference == pytest.approx([a - b for a, b in zip(ours, theirs, strict=True)], abs=0.011)


def test_the_headline_counts_steps_and_spikes_up_to_the_target(record: dict[str, Any]) -> None:
    vgg = as_vgg(record)
    found = race(vgg, 0.9)
    assert found is not None
    assert (found.ours, found.theirs) == (49, 388)
    row = cells(headline(grouped([vgg])), "| vgg16")
    assert row[3:9] == ["90 %", "RNL + RIL", "49", "388", f"{388 / 49:.2f}", f"{49 * 10 / (388 * 1.25):.3f}"]
    assert f"*{HEADLINE['energy_ratio']}*" in "\n".join(headline([]))


def test_the_headline_also_races_from_half_a_threshold_where_that_was_run(record: dict[str, Any]) -> None:
    vgg = as_vgg(record)
    named = "RNL + RIL, v(0) = θ/2"
    vgg["runs"] = [run for run in vgg["runs"] if run["name"] != named]
    assert not [line for line in headline(grouped([vgg])) if f"| {named} |" in line]
    faster = copy.deepcopy(run_of(vgg, "RNL + RIL")) | {"name": named}
    faster["accuracy"] = faster["accuracy"][40:] + [0.95] * 40
    vgg["runs"].append(faster)
    rows = [line for line in headline(grouped([vgg])) if f"| {named} | 9 | 388 |" in line]
    assert len(rows) == 1
    assert "| 90 % |" in rows[0]


def test_a_race_is_between_runs_on_the_same_images(record: dict[str, Any]) -> None:
    vgg = as_vgg(record)
    run_of(vgg, "RNL + RIL").update(images=1000, source_accuracy=0.95)
    assert not [line for line in headline(grouped([vgg])) if "| RNL + RIL † |" in line]
    run_of(vgg, "Max Norm").update(images=1000, source_accuracy=0.95)
    assert [line for line in headline(grouped([vgg])) if "| RNL + RIL † |" in line]


def test_a_figure_of_a_part_of_the_images_is_not_set_against_the_papers(record: dict[str, Any]) -> None:
    vgg = as_vgg(record)
    assert cells(table_1(grouped([vgg])), "| vgg16")[10] == "-"  # nor is a short run
    vgg["scale"] = "full"
    whole = cells(table_1(grouped([vgg])), "| vgg16")
    run_of(vgg, "RNL").update(images=1000, source_accuracy=0.95)
    part = cells(table_1(grouped([vgg])), "| vgg16")
    assert whole[10] == f"{93 - 92.86:+.2f}"
    assert part[10] == "-"
    assert all(cell.endswith("†") for cell in part[4:7])
    assert not any(cell.endswith("†") for cell in whole)


def test_methods_that_end_in_one_spiking_network_are_named(record: dict[str, Any]) -> None:
    for at, run in enumerate(record["runs"]):
        run["accuracy"] = [0.01 * at] * len(run["accuracy"])
    assert "The same spiking network" not in "\n".join(accuracy_at_t(grouped([record])[0]))
    for name in ("RNL", "Max Norm, our weights"):
        run_of(record, name).update({key: run_of(record, "RNL + RIL")[key] for key in ("v0", "accuracy", "spikes")})
    text = "\n".join(accuracy_at_t(grouped([record])[0]))
    first, second = text.split("All from our weights")
    assert "The same spiking network: RNL = RNL + RIL." in first
    assert "The same spiking network: RNL = RNL + RIL = Max Norm, our weights." in second


def test_a_variant_of_a_training_has_rows_of_its_own(record: dict[str, Any], tmp_path: Path) -> None:
    published = copy.deepcopy(record)
    published["config"]["preset"] |= {"name": "cnn7-mnist-published", "variant": "as published"}
    groups = grouped([published, record])
    assert [group.title for group in groups] == ["cnn7 on mnist", "cnn7 on mnist, as published"]
    assert cells(table_1(groups), "| cnn7, as published")[1:3] == ["mnist", "0 (one seed)"]
    records.write(tmp_path / "record.json", published)
    page = write_page(tmp_path).read_text()
    assert page.count("- cnn7 on mnist, as published, seed 0") == 2  # the choice of lambda, and where it comes from


def test_what_max_norm_does_not_reach_is_a_bound(record: dict[str, Any]) -> None:
    vgg, cut = as_vgg(record), as_vgg(record, steps=256)
    true, bound = (cells(headline(grouped([r])), "| vgg16") for r in (vgg, cut))
    assert bound[6] == "> 256"
    assert float(bound[7].strip("> ")) < float(true[7])
    assert float(bound[8].strip("< ")) > float(true[8])
    later = copy.deepcopy(vgg) | {"seed": 1}
    run_of(later, "Max Norm")["accuracy"] = [0.1] * 512
    assert (
        cells(headline(grouped([vgg, later])), "| vgg16")[6] == "> 450 (1 of 2 seeds there)"
    )  # 388 and 512: no spread
    never = copy.deepcopy(cut)
    run_of(never, "RNL + RIL")["accuracy"] = [0.1] * 256
    assert cells(headline(grouped([never])), "| vgg16")[5:9] == ["-", "-", "-", "-"]


def test_a_page_without_records_is_still_a_page(tmp_path: Path, record: dict[str, Any]) -> None:
    (tmp_path / "torture.json").write_text("{}")
    records.write(tmp_path / "demo.json", record | {"kind": "demo"})
    page = write_page(tmp_path).read_text()
    assert "No network is reproduced yet" in page
    assert "cnn7" not in page


def test_every_network_of_table_2_is_simulated_long_enough() -> None:
    for network in {network for network, _ in TABLE_2}:
        assert BY_NAME[f"{network}-cifar10"].steps == 512
    assert all((preset.data, preset.model) in TABLE_1 or preset.where == "workhorse" for preset in BY_NAME.values())


def test_what_a_reader_of_a_run_must_know_stands_on_the_page(record: dict[str, Any], tmp_path: Path) -> None:
    for name in ("RMP", "RNL"):
        run_of(record, name)["note"] = "measured on a Sunday"
    records.write(tmp_path / "record.json", record)
    assert "  - RNL, RMP: measured on a Sunday" in write_page(tmp_path).read_text()


def test_a_short_run_has_its_row_apart_and_no_more_beside_whole_ones(record: dict[str, Any], tmp_path: Path) -> None:
    records.write(tmp_path / "short.json", record)
    assert "## Accuracy at T: cnn7 on mnist" in write_page(tmp_path).read_text()  # there is nothing else to show
    records.write(tmp_path / "whole.json", {**as_vgg(record, 8), "scale": "full"} | {"seed": 1})
    page = write_page(tmp_path).read_text()
    assert "## Accuracy at T: cnn7 on mnist" not in page
    assert "## Table 2: vgg16 on cifar10" in page
    before, after = page.split("## Networks of Table 1 that are not trained yet")
    assert "| mnist" not in before
    assert [line.partition("| mnist")[0] for line in after.splitlines() if "| mnist" in line] == ["| cnn7 "]
    assert before.index("## Headline") < before.index("## Table 1") < before.index("## Table 2")
