"""Every command end to end, in process, at a tiny scale."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from builders import chain, fire
from ratenorm import load, load_network, records, save
from ratenorm.cli.commands import COMMANDS, command_class
from ratenorm.cli.main import main
from ratenorm.graph.ops import Linear
from ratenorm.workflows import sweep, sweep_parts

pytestmark = pytest.mark.usefixtures("small_mnist")


@pytest.fixture(scope="session")
def spiking_file(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("nets") / "net.safetensors"
    assert main(["convert", str(trained_run / "stage2.safetensors"), "--out", str(out), "--v0", "0.5"]) == 0
    return out


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


def fails(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """The command ends with `code`, one paragraph on stderr, and no traceback; returns what it said."""
    assert main(list(words)) == code
    out, err = said(capsys)
    assert "Traceback" not in out + err
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out, _ = said(capsys)
    assert "usage: ratenorm" in out
    assert command in out


def test_the_manual_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out, _ = said(capsys)
    assert all(name in out for name in COMMANDS)
    assert "Exit codes" in out


def test_the_manual_is_quick_and_says_what_the_commands_say() -> None:
    """Neither torch nor the parser is loaded for --help and --version; misspelt commands are recognised."""
    for words in (["--help"], ["--version"], ["convrt"]):
        code = (
            "import sys\nfrom ratenorm.cli.main import main\n"
            f"code = main({words!r})\nsys.exit(3 if 'torch' in sys.modules or 'tyro' in sys.modules else code)"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ended.returncode == (2 if words == ["convrt"] else 0), ended.stderr
    assert "Did you mean convert?" in ended.stderr
    for name, (_, summary) in COMMANDS.items():
        first = (command_class(name).__doc__ or "").split(".")[0].split(":")[0]
        assert first.split()[0] == summary.split()[0], name


def test_help_does_not_repeat_what_an_option_says(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        main([name, "--help"])
        text, _ = said(capsys)
        assert "(default: None)" not in text
        assert "{None}" not in text


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert said(capsys)[0].startswith("ratenorm ")


@pytest.mark.parametrize("words", [[], ["fly"], ["train"], ["train", "--out", "x", "--epochs", "many"], ["info"],
                                   ["data", "get", "imagenet"], ["evaluate", "x", "--out", "y", "--engine", "steam"]],
                         ids=" ".join)  # fmt: skip
def test_wrong_words_end_with_2_and_an_explanation(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, 2, *words)


# -- train -----------------------------------------------------------------------------------------------------------


def test_train_leaves_everything_a_later_step_needs(trained_run: Path) -> None:
    names = {f.name for f in trained_run.iterdir()}
    assert {"config.json", "metrics.jsonl", "stage1.safetensors", "stage2.safetensors"} <= names
    lines = [json.loads(line) for line in (trained_run / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [
        ("stage1", 1),
        ("stage1", 2),
        ("stage1", 3),
        ("stage2", 1),
    ]
    assert all({"loss", "seconds", "eta_seconds", "accuracy"} <= line.keys() for line in lines)
    config = json.loads((trained_run / "config.json").read_text())
    assert config["model"] == "cnn7"
    assert config["stage1"]["epochs"] == 3
    model, spec = load_network(trained_run / "stage2.safetensors")
    assert (spec.dataset, spec.input_shape, spec.num_classes) == ("mnist", (1, 28, 28), 10)
    assert all(0 < float(m.p) < 1 for m in model.modules() if hasattr(m, "running_max"))


def test_a_used_folder_is_refused_and_resumed_or_overwritten_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    words = ["train", "--out", out, "--epochs", "1", "--batch-size", "64", "--holdout", "20", "--images", "120"]
    assert main([*words, "--no-stage2"]) == 0
    assert "held-out images" in said(capsys)[0]
    assert "used before" in fails(capsys, 2, *words, "--no-stage2")
    before = (tmp_path / "run" / "stage1.safetensors").read_bytes()
    assert main([*words, "--no-stage2", "--resume"]) == 0  # done already: nothing changes
    assert (tmp_path / "run" / "stage1.safetensors").read_bytes() == before
    assert "differs in stage1" in fails(capsys, 2, *words, "--no-stage2", "--lr", "0.3", "--resume")
    assert "exclude each other" in fails(capsys, 2, *words, "--resume", "--overwrite")
    assert main([*words, "--no-stage2", "--seed", "1", "--overwrite"]) == 0
    assert (tmp_path / "run" / "stage1.safetensors").read_bytes() != before


def test_a_relu_network_and_what_starts_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--epochs", "1", "--batch-size", "64", "--holdout", "20", "--images", "120"]
    relu = tmp_path / "relu"
    assert main(["train", "--out", str(relu), "--activation", "relu", *words]) == 0
    assert not (relu / "stage2.safetensors").exists()
    from_relu = ["--from-relu", str(relu / "stage1.safetensors")]
    taught = ["--no-stage2", "--teacher", "0.5"]
    assert main(["train", "--out", str(tmp_path / "rate"), *words, *from_relu, *taught]) == 0
    said(capsys)
    plain = ["convert", str(relu / "stage1.safetensors"), "--out", str(tmp_path / "x")]
    assert "plain ReLU and has none" in fails(capsys, 1, *plain, "--method", "trained")
    net = tmp_path / "net.safetensors"
    convert = ["convert", str(relu / "stage1.safetensors"), "--out", str(net), "--method", "max", "--images", "50"]
    assert main(convert) == 0
    assert load(net).populations


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--model", "lenet"], 2, "'lenet' is not known"),
        (["--data", "no/such/folder"], 2, "neither a known set"),
        (["--epochs", "0"], 2, "epochs is 0"),
        (["--lr", "-1"], 2, "lr is -1"),
        (["--holdout", "100000"], 1, "Holding out 100000"),
        (["--from-relu", "missing.safetensors"], 1, "no such file"),
        (["--resume"], 2, "there is no run"),
        (["--device", "warp:9"], 2, "--device is 'warp:9'"),
        (["--model", "vgg11", "--images", "50", "--holdout", "10"], 2, "vgg11"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_trainings_that_cannot_be(
    words: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, code, "train", "--out", str(tmp_path / "run"), *words)


# -- convert ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["trained", "max", "percentile:99", "omega:1.5", "channel", "spike:4:4", "data",
                                    "scaled:0.8:max", "model", "fixed:1", "latency:0.1:false:2"])  # fmt: skip
def test_convert_with_every_method(
    method: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "net.safetensors"
    words = [
        "convert",
        str(trained_run / "stage1.safetensors"),
        "--out",
        str(out),
        "--method",
        method,
        "--images",
        "40",
        "--verbose",
    ]
    assert main(words) == 0
    text, _ = said(capsys)
    assert "become spiking neurons (3)" in text
    assert "clipped at the thresholds" in text
    assert len(load(out).populations) == 3
    assert "there already" in fails(capsys, 2, *words)
    assert main([*words, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--method", "magic"], 2, "'magic' is not known"),
        (["--method", "max", "--images", "0"], 2, "at least 1 image"),
        (["--v0", "1.5"], 2, "v0 is 1.5"),
        (["--method", "max", "--data", "nowhere"], 2, "neither a known set"),
        (["--calibrate", "magic"], 2, "'magic' is not known. Known: channel-bias"),
        (["--calibrate", "step-bias", "--steps", "0"], 2, "steps is 0"),
        (["--calibrate", "step-bias@x"], 2, "'x' is not a number of steps"),
        (["--method", "max/y"], 2, "'y' is not a start potential"),
        (["--steps", "4"], 2, "--steps belongs to --calibrate or to --max-loss"),
        (["--max-loss", "1", "--calibrate", "step-bias"], 2, "leave --calibrate out"),
    ],
    ids=str,
)
def test_conversions_that_cannot_be(
    words: list[str], code: int, message: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "net"
    assert message in fails(capsys, code, "convert", str(trained_run / "stage1.safetensors"), "--out", str(out), *words)
    assert not out.exists()


def test_the_recommended_conversion_and_its_calibration_are_kept(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line to the file, what `info` says of it, and the record of its evaluation."""
    net = tmp_path / "net.safetensors"
    network = str(trained_run / "stage1.safetensors")
    calibrated = ["--calibrate", "step-bias", "start-potential", "--steps", "3", "--images", "40"]
    assert main(["convert", network, "--out", str(net), *calibrated]) == 0
    assert "Calibrated for T = 3 on 40 images: step-bias." in said(capsys)[0]
    assert main(["info", str(net)]) == 0
    text, _ = said(capsys)
    assert "calibrated: step-bias for T = 3 on 40 images" in text
    assert "3 step biases" in text
    run = tmp_path / "run"
    assert main(["evaluate", str(net), "--out", str(run), "--images", "20", "--steps", "4", "--engine", "dense"]) == 0
    (entry,) = records.read(run / records.FILE_NAME)["runs"]
    assert entry["name"] == "trained+step-bias+start-potential"
    assert entry["v0"] == 0.5
    assert [one["steps"] for one in entry["calibrated"]] == [3, 3]
    assert {"wu2024", "bu2022"} <= set(entry["papers"])
    compared = ["compare", network, "--out", str(tmp_path / "all"), "--images", "20", "--steps", "4"]
    names = ["recommended", "max/0.5", "omega:2.3/0.5+step-bias@2"]
    assert main([*compared, "--calibration", "40", "--engine", "dense", "--methods", *names]) == 0
    record = records.read(tmp_path / "all" / records.FILE_NAME)
    assert [run["name"] for run in record["runs"]] == names
    assert [run["v0"] for run in record["runs"]] == [0.5, 0.5, 0.5]
    assert record["runs"][2]["calibrated"][0]["steps"] == 2


def test_names_of_the_zoo_are_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "net.safetensors"
    assert main(["convert", "cnn7-mnist", "--out", str(out)]) == 0
    assert len(load(out).populations) == 3
    assert "Did you mean cnn7-mnist" in fails(capsys, 2, "convert", "cnn7-mnis", "--out", str(tmp_path / "other"))


def test_the_fastest_network_within_a_loss(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "FACTORS", (1.0, 0.5))
    monkeypatch.setattr(sweep, "LAMBDAS", ())
    monkeypatch.setattr(sweep, "OMEGAS", ())
    out = tmp_path / "net.safetensors"
    run = tmp_path / "net.safetensors.sweep"
    network = tmp_path / "network.safetensors"
    network.write_bytes((trained_run / "stage1.safetensors").read_bytes())
    words = ["convert", str(network), "--out", str(out), "--images", "30", "--steps", "6", "--engine", "dense"]
    assert "must not be negative" in fails(capsys, 2, *words, "--max-loss", "-1")
    assert "one piece" in fails(capsys, 2, *words, "--resume")
    assert not run.exists()
    assert main([*words, "--max-loss", "60"]) == 0
    text, error = said(capsys)
    assert "within the loss after" in text
    assert "front (steps, accuracy, setting)" in text
    assert f"is kept in {run}" in error
    assert load(out).populations
    front = records.read(run / "record.json")["front"]
    assert [point["steps"] for point in front] == sorted(point["steps"] for point in front)
    before = out.read_bytes()
    assert "there already" in fails(capsys, 2, *words, "--max-loss", "60")
    out.unlink()
    assert "used before" in fails(capsys, 2, *words, "--max-loss", "60")
    with monkeypatch.context() as patch:  # all is done: only chosen again
        patch.setattr(sweep_parts, "simulate", None)
        assert main([*words, "--max-loss", "60", "--resume"]) == 0
        assert out.read_bytes() == before
    network.write_bytes((trained_run / "stage2.safetensors").read_bytes())
    assert "differs in network_sha256" in fails(capsys, 2, *words, "--max-loss", "60", "--resume")
    assert main([*words, "--max-loss", "60", "--overwrite"]) == 0


def _letters(folder: Path, size: int = 28, classes: str = "ab", bright: str = "b", seed: int = 0) -> Path:
    """Pictures whose class is their brightness."""
    from PIL import Image

    generator = torch.Generator().manual_seed(seed)
    for label in classes:
        (folder / label).mkdir(parents=True)
        for i in range(20):
            pixels = torch.randint(0, 120, (size, size), generator=generator).byte() + (120 if label == bright else 0)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{i}.png")
    return folder


TINY = ["--epochs", "1", "--batch-size", "10", "--holdout", "10", "--lambda", "0.05"]


def test_a_network_of_an_image_folder_converts_without_its_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained thresholds need no data, so the folder need not be there. The images it learned from do not score it."""
    folder = _letters(tmp_path / "letters")
    run, net = tmp_path / "run", tmp_path / "net.safetensors"
    assert main(["train", "--out", str(run), "--data", str(folder), *TINY]) == 0
    assert main(["convert", str(run / "stage2.safetensors"), "--out", str(net)]) == 0
    said(capsys)
    evaluated = ["evaluate", str(net), "--steps", "4", "--engine", "dense", "--out"]
    assert "--data is 'letters'" in fails(capsys, 2, *evaluated, str(tmp_path / "e"))
    message = fails(capsys, 2, *evaluated, str(tmp_path / "e2"), "--data", str(folder))
    assert "they cannot score it" in message
    assert "letters/test/CLASS" in message


def test_folders_with_train_and_test_match_classes_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test folder lacks class a, has colour pictures of another size, and the network's labels all the same."""
    folder = tmp_path / "pets"
    _letters(folder / "train")
    _letters(folder / "val", size=20, classes="b", seed=1)
    run, net = tmp_path / "run", tmp_path / "net.safetensors"
    words = [*TINY, "--epochs", "4", "--lr", "0.02"]
    assert main(["train", "--out", str(run), "--data", str(folder), *words]) == 0
    assert "test images" in said(capsys)[0]
    assert main(["convert", str(run / "stage2.safetensors"), "--out", str(net), "--data", str(folder)]) == 0
    out = tmp_path / "e"
    assert main(["evaluate", str(net), "--out", str(out), "--data", str(folder), "--steps", "4"]) == 0
    record = records.read(out / records.FILE_NAME)
    assert record["data"]["images"] == 20
    assert record["data"]["classes"] == ["a", "b"]
    assert record["ann"]["accuracy"] == 1.0  # with labels by position it would be 0
    _letters(folder / "val2" / "test", classes="bc", seed=2)
    _letters(folder / "val2" / "train", seed=3)
    assert "'c' is not among the classes" in fails(
        capsys, 1, "evaluate", str(net), "--out", str(tmp_path / "f"), "--data", str(folder / "val2")
    )


OWN = """
import torch.nn as nn
def make():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 10 * 10, 2))
def other():
    return nn.Sequential(nn.Linear(3, 2))
def broken():
    raise RuntimeError("no such luck")
nothing = int
"""


def test_a_network_of_ones_own_goes_all_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Convert, evaluate, compare, diagnose, train and predict with --model; what does not fit is named."""
    from safetensors.torch import save_file

    (tmp_path / "my_net.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_net

    pets = tmp_path / "pets"
    _letters(pets / "train", size=12)
    _letters(pets / "test", size=12, seed=1)
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_file(my_net.make().state_dict(), weights)
    own = [str(weights), "--model", "my_net:make", "--data", str(pets)]
    net = tmp_path / "net.safetensors"
    assert main(["convert", *own, "--out", str(net), "--calibrate", "step-bias", "--steps", "2"]) == 0
    assert main(["evaluate", str(net), "--data", str(pets), "--steps", "4", "--out", str(tmp_path / "e")]) == 0
    methods = ["--methods", "recommended", "max", "--steps", "4"]
    assert main(["compare", *own, *methods, "--out", str(tmp_path / "c")]) == 0
    assert main(["diagnose", *own, "--steps", "4", "--images", "10"]) == 0
    assert main(["low-latency", *own, "--epochs", "1", "--holdout", "8", "--out", str(tmp_path / "l")]) == 0
    said(capsys)
    pictures = [str(pets / "test" / name / "0.png") for name in "ab"]
    assert main(["predict", str(net), *pictures, "--steps", "5", "--json"]) == 0
    found = json.loads(said(capsys)[0])
    assert [set(one["scores"]) for one in found] == [{"a", "b"}] * 2
    assert all(len(scores) == 5 for one in found for scores in one["scores"].values())
    assert main(["predict", str(net), *pictures]) == 0
    assert "the answer from step" in said(capsys)[0]
    assert "there is no such file" in fails(capsys, 1, "predict", str(net), str(tmp_path / "none.png"))
    assert "not a readable PNG" in fails(capsys, 1, "predict", str(net), str(weights))
    for factory, code, words in [
        ("my_net:other", 1, "do not fit the network of my_net:other"),
        ("my_net:broken", 2, "RuntimeError: no such luck"),
        ("my_net:absent", 2, "could not be called (AttributeError"),
        ("my_net:nothing", 2, "gave a int, not a torch.nn.Module"),
        ("my_net", 2, "must be package.module:function"),
    ]:
        wrong = [str(weights), "--model", factory, "--data", str(pets), "--out", str(tmp_path / "x.safetensors")]
        assert words in fails(capsys, code, "convert", *wrong)
    assert "name its images with --data" in fails(
        capsys, 2, "convert", str(weights), "--model", "my_net:make", "--out", str(tmp_path / "x.safetensors")
    )
    assert "do not fit" not in fails(capsys, 1, "convert", str(weights), "--out", str(tmp_path / "x.safetensors"))


def test_a_network_at_chance_is_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pets"
    _letters(folder / "train", bright="?")
    _letters(folder / "test", bright="?", seed=1)
    run, net = tmp_path / "run", tmp_path / "net.safetensors"
    assert main(["train", "--out", str(run), "--data", str(folder), *TINY]) == 0
    assert "WARNING: the trained network has" in said(capsys)[0]
    assert main(["convert", str(run / "stage2.safetensors"), "--out", str(net)]) == 0
    words = ["evaluate", str(net), "--data", str(folder), "--steps", "4", "--out", str(tmp_path / "e")]
    assert main(words) == 0
    assert "that is chance" in said(capsys)[0]
    assert "that is chance" in records.read(tmp_path / "e" / records.FILE_NAME)["runs"][0]["note"]


def test_a_conversion_that_costs_accuracy_is_said_aloud(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.safetensors"
    words = ["--method", "scaled:20:max", "--images", "40"]
    assert main(["convert", str(trained_run / "stage1.safetensors"), "--out", str(net), *words]) == 0
    said(capsys)
    assert main(["evaluate", str(net), "--steps", "2", "--out", str(tmp_path / "e")]) == 0
    assert "points below its ANN at T = 2" in said(capsys)[0]


def test_files_that_could_run_programs_are_explained_and_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "model.pt"
    weights.write_bytes(b"x")
    message = fails(capsys, 2, "convert", str(weights), "--out", str(tmp_path / "net.safetensors"))
    assert "save_file(model.state_dict()" in message


# -- evaluate, compare, diagnose, report, watch ----------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["constant", "poisson"])
def test_evaluate_writes_a_record(
    coding: str, spiking_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["evaluate", str(spiking_file), "--out", str(out), "--steps", "6", "--engine", "dense", "--coding", coding]
    assert main([*words, "--images", "25", "--batch-size", "10"]) == 0
    text, _ = said(capsys)
    assert "25 test images of mnist" in text
    record = records.read(out / records.FILE_NAME)
    run = record["runs"][0]
    assert (run["v0"], run["coding"], run["steps"], len(run["accuracy"])) == (0.5, coding, 6, 6)
    assert record["scale"].startswith("reduced: 25 of 60")
    assert "used before" in fails(capsys, 2, *words)
    assert main([*words, "--overwrite", "--images", "5"]) == 0


def test_evaluations_that_cannot_be(
    spiking_file: Path, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluated(path: object, out: str, *words: str) -> tuple[str, ...]:
        return ("evaluate", str(path), "--out", str(tmp_path / out), "--engine", "dense", *words)

    assert "no such file" in fails(capsys, 1, *evaluated(tmp_path / "missing", "a"))
    assert "holds 'ratenorm-network'" in fails(capsys, 1, *evaluated(trained_run / "stage1.safetensors", "b"))
    assert "steps is 0" in fails(capsys, 2, *evaluated(spiking_file, "c", "--steps", "0"))
    foreign = save(chain((1, 28, 28), ("fire", fire())), tmp_path / "foreign", {"spec": "what?"})
    assert "convert it again" in fails(capsys, 1, *evaluated(foreign, "d", "--data", "mnist"))
    assert fails(capsys, 1, *evaluated(foreign, "d2"))
    nameless = save(chain((3,), ("out", Linear(torch.ones(2, 3), None))), tmp_path / "nameless")
    assert fails(capsys, 1, *evaluated(nameless, "e", "--data", "mnist"))
    assert "may lose 100 points" in fails(capsys, 2, *evaluated(spiking_file, "f", "--early-exit", "100"))
    assert "--split test" in fails(capsys, 2, *evaluated(spiking_file, "g", "--early-exit", "0.01", "--split", "train"))


def test_evaluate_says_what_was_chosen_and_what_early_exit_makes_of_it(
    spiking_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ratenorm.simulate.event import costs

    words = ["evaluate", str(spiking_file), "--steps", "6", "--images", "25", "--batch-size", "10"]
    assert main([*words, "--out", str(tmp_path / "a"), "--early-exit", "2"]) == 0
    text, _ = said(capsys)
    assert "Engine: auto; by events in all" in text
    run = records.read(tmp_path / "a" / records.FILE_NAME)["runs"][0]
    assert set(run["choices"].values()) == {0.0}
    exits = run["early_exit"]
    assert exits["allowed_loss"] == 0.02
    assert sum(exits["histogram"]) == 25
    assert f"after {exits['mean_steps']:.1f} of 6 steps on average, {exits['worst_steps']} at worst" in text

    monkeypatch.setattr(costs, "ENTRY", 1e9)
    assert main([*words, "--out", str(tmp_path / "b")]) == 0
    text, _ = said(capsys)
    assert "by convolution:" in text
    assert "(100%)" in text
    assert "Early exit" not in text
    assert main([*words, "--out", str(tmp_path / "c"), "--engine", "dense"]) == 0
    text, _ = said(capsys)
    assert "Engine: dense." in text


def test_compare_resumes_where_it_stopped(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    network = tmp_path / "network.safetensors"
    network.write_bytes((trained_run / "stage1.safetensors").read_bytes())
    words = ["compare", str(network), "--out", str(out), "--methods", "max", "percentile:99",
             "trained", "--v0", "0", "0.5", "--steps", "4", "--images", "20", "--calibration", "40",
             "--engine", "dense"]  # fmt: skip
    assert main(words) == 0
    text, _ = said(capsys)
    record = records.read(out / records.FILE_NAME)
    assert len(record["runs"]) == 6
    assert all(run["name"] in text for run in record["runs"])
    assert main([*words, "--resume"]) == 0
    again = records.read(out / records.FILE_NAME)
    assert again["runs"] == record["runs"]  # to the speed: read and not run again
    network.write_bytes((trained_run / "stage2.safetensors").read_bytes())  # another network in the same place
    assert main([*words, "--resume"]) == 0
    other = records.read(out / records.FILE_NAME)
    thresholds = [[[layer["threshold"] for layer in run["layers"]] for run in r["runs"]] for r in (record, other)]
    assert thresholds[0] != thresholds[1]
    assert "not known" in fails(
        capsys,
        2,
        "compare",
        str(trained_run / "stage1.safetensors"),
        "--out",
        str(tmp_path / "b"),
        "--methods",
        "magic",
    )


def test_diagnose_speaks(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = str(trained_run / "stage1.safetensors")
    words = ["diagnose", network, "--method", "max", "--images", "20", "--steps", "4", "--calibration", "40"]
    assert main(words) == 0
    text, _ = said(capsys)
    assert "20 images, T = 4, accuracy" in text
    assert "slope" in text
    assert "Holding out 0" in fails(capsys, 2, "diagnose", network, "--images", "0")


def test_report_and_watch(
    trained_run: Path, spiking_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["evaluate", str(spiking_file), "--out", str(run), "--steps", "4", "--engine", "dense"]) == 0
    page = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")
    said(capsys)
    assert main(["watch", str(trained_run), "--once"]) == 0
    assert "accuracy" in said(capsys)[0]
    assert main(["report", str(tmp_path / "nothing"), "-o", str(tmp_path / "x.html")]) in (1, 2)
    _, err = said(capsys)
    assert "nothing" in err
    assert "Traceback" not in err


# -- info and data ---------------------------------------------------------------------------------------------------


def test_info_on_every_kind_of_file(
    trained_run: Path, spiking_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["evaluate", str(spiking_file), "--out", str(run), "--steps", "4", "--engine", "dense"]) == 0
    said(capsys)
    for path, words in (
        (trained_run / "stage2.safetensors", ("cnn7 with rate_norm", "thresholds:", "features.0.2")),
        (spiking_file, ("a spiking network of", "populations", "mean fan-out", '"trained"')),
        (trained_run / "stage1.checkpoint.safetensors", ("a checkpoint of stage1, epoch", "values")),
        (run / records.FILE_NAME, ("accuracy (%) at T",)),
        (run, ("accuracy (%) at T",)),
    ):
        assert main(["info", str(path)]) == 0
        text, _ = said(capsys)
        assert all(word in text for word in words), path


@pytest.mark.parametrize(
    ("content", "code"), [(None, 2), (b"", 1), (b"not ours at all", 1), (b"\xff" * 64, 1), (b"[" * 5000, 1)],
    ids=["missing", "empty", "text", "huge header", "brackets"],
)  # fmt: skip
def test_info_on_what_is_not_ours(
    content: bytes | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in fails(capsys, code, "info", str(path))


def test_info_on_a_damaged_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"format": "ratenorm-record"')
    assert fails(capsys, 1, "info", str(path))


def test_data_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "mnist"]) == 0
    assert "mnist" in said(capsys)[0]
    assert "cifar10" in fails(capsys, 1, "data", "check", "cifar10", "--root", str(tmp_path))


# -- how it ends -----------------------------------------------------------------------------------------------------


class Ends:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self) -> None:
        raise self.error


def test_ctrl_c_outside_training_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ratenorm.cli.main.parse", lambda words: Ends(KeyboardInterrupt()))
    assert "stopped by Ctrl-C" in fails(capsys, 130)


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratenorm.cli.main.parse", lambda words: Ends(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["demo"])
