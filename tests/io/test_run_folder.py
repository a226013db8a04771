"""Run folders: one run each, locked while at work, never overwritten by accident."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratenorm.errors import RatenormError, UsageError
from ratenorm.io.files import is_sealed, opened_line
from ratenorm.io.run_folder import CONFIG, LOCK, METRICS, RunFolder, go_on


def used(path: Path, config: dict | None = None) -> Path:
    with RunFolder(path) as folder:
        folder.configure(config or {"lr": 0.1, "data": {"name": "mnist"}})
        folder.log({"loss": 1.0})
    return path


def test_a_new_folder_is_made_with_its_parents_and_left_unlocked(tmp_path: Path) -> None:
    path = used(tmp_path / "deep" / "run")
    assert sorted(f.name for f in path.iterdir()) == [CONFIG, METRICS]
    assert json.loads((path / CONFIG).read_text()) == {"lr": 0.1, "data": {"name": "mnist"}}


def test_an_empty_folder_is_as_good_as_new(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        assert (folder / "x") == tmp_path / "x"


def test_a_used_folder_is_refused_untouched(tmp_path: Path) -> None:
    path = used(tmp_path / "run")
    before = {f.name: f.read_bytes() for f in path.iterdir()}
    with pytest.raises(UsageError, match=r"used before.*--resume.*--overwrite"):
        RunFolder(path)
    assert {f.name: f.read_bytes() for f in path.iterdir()} == before


def test_overwriting_starts_from_nothing(tmp_path: Path) -> None:
    path = used(tmp_path / "run")
    (path / "plots").mkdir()
    (path / "plots" / "a.png").write_bytes(b"x")
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (path / "link").symlink_to(tmp_path / "elsewhere")
    with RunFolder(path, "overwrite") as folder:
        assert [f.name for f in folder.path.iterdir()] == [LOCK]
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"


def test_overwriting_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"no config\.json.*left alone"):
        RunFolder(tmp_path, "overwrite")
    assert (tmp_path / "thesis.tex").exists()


def test_overwriting_nothing_is_a_new_run(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "new", "overwrite") as folder:
        assert folder.path.is_dir()


@pytest.mark.parametrize("make", [False, True], ids=["missing", "empty"])
def test_resuming_nothing_is_refused_and_makes_nothing(tmp_path: Path, make: bool) -> None:
    path = tmp_path / "run"
    if make:
        path.mkdir()
    with pytest.raises(UsageError, match="there is no run in it"):
        RunFolder(path, "resume")
    assert path.exists() == make


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="it is a file"):
        RunFolder(tmp_path / "file")


def test_resuming_with_the_same_configuration(tmp_path: Path) -> None:
    path = used(tmp_path / "run", {"steps": (1, 2), "data": {"name": "mnist"}})
    with RunFolder(path, "resume") as folder:
        folder.configure({"steps": [1, 2], "data": {"name": "mnist"}})


def test_an_option_that_a_run_did_not_know_and_that_is_none_changes_nothing(tmp_path: Path) -> None:
    path = used(tmp_path / "run", {"data": {"name": "mnist", "old": None}, "tried": [{"lr": 0.1}]})
    with RunFolder(path, "resume") as folder:
        folder.configure({"data": {"name": "mnist", "new": None}, "tried": [{"lr": 0.1, "new": None}], "new": None})
        with pytest.raises(UsageError, match="differs in data, tried"):
            folder.configure({"data": {"name": None}, "tried": [{"lr": None}]})


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"lr": 0.2, "data": {"name": "mnist"}}, "lr"),
        ({"lr": 0.1, "data": {"name": "cifar10"}}, "data"),
        ({"lr": 0.1}, "data"),
        ({"lr": 0.1, "data": {"name": "mnist"}, "seed": 1}, "seed"),
    ],
)
def test_resuming_with_another_configuration_is_refused_by_name(tmp_path: Path, config: dict, changed: str) -> None:
    path = used(tmp_path / "run")
    with RunFolder(path, "resume") as folder, pytest.raises(UsageError, match=f"differs in {changed}"):
        folder.configure(config)


@pytest.mark.parametrize("damage", ["", "{", "\0", "[1, 2]"])
def test_a_damaged_configuration_is_refused(tmp_path: Path, damage: str) -> None:
    path = used(tmp_path / "run")
    (path / CONFIG).write_text(damage)
    with RunFolder(path, "resume") as folder, pytest.raises(UsageError, match="damaged"):
        folder.configure({"lr": 0.1})


def test_a_folder_in_which_another_process_works_is_refused_by_its_number(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ratenorm.io.run_folder import RunFolder\nwith RunFolder(sys.argv[1]) as f:\n"
        "    f.configure({})\n    print('ready', flush=True)\n    sys.stdin.read()\n"
    )
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        for mode in ("resume", "overwrite"):
            with pytest.raises(UsageError, match=f"process {other.pid} is at work in it"):
                RunFolder(path, mode)
        assert (path / CONFIG).exists()
        other.stdin.close()
        assert other.wait() == 0
    with RunFolder(path, "resume"):
        pass


def test_the_lock_of_a_killed_process_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("4194304")
    with RunFolder(tmp_path) as folder:
        assert (folder / LOCK).read_text() == str(os.getpid())


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: root may write anywhere."""

    def refuse(*args: object, **options: object) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("ratenorm.io.run_folder.os.open", refuse)
    with pytest.raises(UsageError, match=r"Permission denied.*can be written"):
        RunFolder(tmp_path / "run")


def test_strays_of_a_killed_run_are_swept(tmp_path: Path) -> None:
    path = used(tmp_path / "run")
    (path / ".stage1.part-1234").write_bytes(b"half")
    with RunFolder(path, "resume"):
        assert not list(path.glob(".*part*"))


def test_metrics_are_lines_and_can_be_rewound(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        assert folder.logged == 0
        folder.rewind(0)
        folder.log({"epoch": 1})
        at = folder.logged
        folder.log({"epoch": 2})
        folder.rewind(at)
        folder.log({"epoch": 3})
        lines = (folder / METRICS).read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 3]


def test_a_line_of_metrics_carries_a_checksum_and_a_run_that_began_without_goes_on_without(tmp_path: Path) -> None:
    for name, first in (("new", ""), ("old", '{"epoch":0}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / CONFIG).write_text("{}")
        if first:
            (tmp_path / name / METRICS).write_text(first)
        with RunFolder(tmp_path / name, "resume") as folder:
            for epoch in range(1, 4):
                folder.log({"epoch": epoch, "loss": 0.5})
        log = (tmp_path / name / METRICS).read_bytes()
        assert is_sealed(log) == (not first)
        lines = log.splitlines()
        assert [opened_line(line, is_sealed(log))["epoch"] for line in lines][-3:] == [1, 2, 3]
        if not first:
            for line in lines:
                for changed in (
                    line.replace(b"0.5", b"0.6"),
                    line.replace(b"check", b"cheek"),
                    b"[1]",
                    b"{",
                    b"[" * 99999,
                ):
                    with pytest.raises(ValueError):
                        opened_line(changed, sealed=True)


def test_a_full_disk_while_logging_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunFolder(tmp_path / "run") as folder:
        monkeypatch.setattr("builtins.open", refuse)
        with pytest.raises(RatenormError, match="No space left"):
            folder.log({"loss": 1.0})


def test_an_experiment_that_is_given_again_goes_on(tmp_path: Path) -> None:
    with go_on(tmp_path / "run") as folder:
        assert folder.mode == "new"
        folder.configure({"a": 1})
    with go_on(tmp_path / "run") as folder:
        assert folder.mode == "resume"
        with pytest.raises(UsageError, match="differs in a"):
            folder.configure({"a": 2})
