"""Configuration files: what `init` writes is read again, and every mistake is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ratenorm.cli.commands import command_class, parsed
from ratenorm.cli.config_file import options_of, template
from ratenorm.cli.main import main


def read(tmp_path: Path, text: str, *words: str, command: str = "train") -> Any:
    file = tmp_path / "options.toml"
    file.write_text(text)
    return parsed(command, ["--config", str(file), *words])


@pytest.mark.parametrize("command", ["train", "low-latency", "evaluate", "compare"])
def test_init_writes_every_option_with_its_meaning(tmp_path: Path, command: str) -> None:
    assert main(["init", str(tmp_path / "a.toml"), "--command", command]) == 0
    lines = (tmp_path / "a.toml").read_text().splitlines()
    for option in options_of(command_class(command)):
        if option.name in ("resume", "overwrite"):
            continue
        assert option.text, option.name
        assert any(line.startswith(f"# {option.name.replace('-', '_')} =") for line in lines), option.name


def test_what_init_writes_is_toml_and_changes_nothing_when_its_defaults_are_set(tmp_path: Path) -> None:
    text = template("train", command_class("train"))
    assert tomllib.loads(text) == {"training": {}, "paper": {}, "experimental": {}}
    defaults = [
        line[2:] if line.startswith("# ") and " = " in line and not line.endswith("= ") else line
        for line in text.splitlines()
    ]
    known = {option.name for option in options_of(command_class("train"))}
    chosen = [line if line.startswith("[") or line.split(" = ")[0] in known else "" for line in defaults]
    assert read(tmp_path, "\n".join(chosen), "--out", "a") == parsed("train", ["--out", "a"])


def test_the_command_line_counts_more_than_the_file(tmp_path: Path) -> None:
    text = 'out = "a"\nepochs = 3\n[paper]\nlambda = 0.5\nstage2 = false\n[training]\nflip = "none"\n'
    command = read(tmp_path, text, "--epochs", "7")
    assert (str(command.out), command.epochs, command.paper.lam, command.paper.stage2) == ("a", 7, 0.5, False)
    assert command.training.flip == "none"


def test_lists_are_read(tmp_path: Path) -> None:
    command = read(tmp_path, 'out = "a"\nmethods = ["max", "omega:2"]\n', "net.safetensors", command="compare")
    assert command.methods == ("max", "omega:2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch = 3", "'epoch' is no option of `train`. Did you mean epochs"),
        ("epochs = ", "it is not TOML"),
        ("resume = true", "'resume' stands on the command line only"),
        ("epochs = 2020-01-01", "A number, text, true, false or a list is allowed"),
        ("epochs = 'many'", "many"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    assert main(["train", "--config", str(tmp_path / "a.toml"), "--out", str(tmp_path / "b")]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "b").exists()


def test_files_that_are_missing_or_no_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(tmp_path), "--out", "b"]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert main(["train", "--config"]) == 2
    assert "--config takes one file" in capsys.readouterr().err
    (tmp_path / "a.toml").write_text("")
    assert main(["init", str(tmp_path / "a.toml")]) == 2
    assert "it exists already" in capsys.readouterr().err
