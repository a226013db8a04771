"""What is finished stays finished: evaluations go on where they were stopped, folders are never shared by accident."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ratenorm.cli import main as command_line
from ratenorm.data import ImageSet
from ratenorm.errors import UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import sealed_line
from ratenorm.io.networks import NetworkSpec
from ratenorm.io.run_folder import LOCK, RunFolder, holds_a_run, open_shared
from ratenorm.simulate.evaluate import Evaluation
from ratenorm.train.interrupt import Interrupted
from ratenorm.train.stage1 import _AccuracyStage, train_accuracy
from ratenorm.workflows import evaluate as evaluation
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.partial_sums import PartialSums
from torturing.subjects import STAGE1, bands, small_network, small_spiking_net

SPEC = NetworkSpec("small", channels=1, size=(8, 8), mean=(0.3,), std=(0.5,))


def run(folder: RunFolder | None, net: SpikingNet | None = None, images: ImageSet | None = None) -> Evaluation:
    return watched_evaluation(
        "small", net or small_spiking_net(), images or bands(), SPEC, 6, "dense", None, 20, 10, folder
    )


def figures(result: Evaluation) -> str:
    result.seconds = 0.0
    return repr(result)


def stopping(after: int, patch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> list[int]:
    """A signal during the given batch; gives the list of batches that were run."""
    plain, seen = evaluation.parts, []

    def parts(*arguments: object) -> object:
        for part in plain(*arguments):  # type: ignore[arg-type]
            seen.append(part.first_image // 10)
            if len(seen) == after:
                signal.raise_signal(number)
            yield part

    patch.setattr(evaluation, "parts", parts)
    return seen


@pytest.mark.parametrize("after", [1, 3, 6])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_evaluation_ends_as_an_unbroken_one(after: int, number: int, tmp_path: Path) -> None:
    whole = figures(run(None))
    with RunFolder(tmp_path) as folder:
        folder.configure({})
        with pytest.MonkeyPatch.context() as patch:
            stopping(after, patch, number)
            with pytest.raises(
                Interrupted, match=f"stopped after {10 * after} images.*Continue with --resume"
            ) as caught:
                run(folder)
        assert caught.value.exit_code == 128 + number
        with pytest.MonkeyPatch.context() as patch:
            seen = stopping(-1, patch)
            assert figures(run(folder)) == whole
        assert seen == list(range(after, 6))  # and not one batch again
        assert not list((tmp_path / "parts").iterdir())


def test_sums_are_kept_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratenorm.workflows.partial_sums.SECONDS", 0.0)
    monkeypatch.setattr(PartialSums.__init__, "__defaults__", (0.0,))
    saved: list[int] = []
    plain = PartialSums.save
    monkeypatch.setattr(PartialSums, "save", lambda self, sums, n: saved.append(n) or plain(self, sums, n))
    with RunFolder(tmp_path) as folder:
        run(folder)
    assert saved == [1, 2, 3, 4, 5, 6]


def other_net() -> SpikingNet:
    return small_spiking_net().map_tensors(lambda t: t * 1.25)


@pytest.mark.parametrize(
    "change",
    [lambda f: run(f, other_net()), lambda f: run(f, None, bands(59)), lambda f: run(f, None, bands(60, seed=1))],
    ids=["another network", "fewer images", "other images"],
)
def test_sums_of_something_else_are_not_used(change: Callable[[RunFolder], Evaluation], tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder, pytest.MonkeyPatch.context() as patch:
        stopping(2, patch)
        with pytest.raises(Interrupted):
            run(folder)
        patch.undo()
        seen = stopping(-1, patch)
        change(folder)
        assert seen[0] == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_damaged_sums_are_computed_anew(damage: bytes, tmp_path: Path) -> None:
    whole = figures(run(None))
    with RunFolder(tmp_path) as folder, pytest.MonkeyPatch.context() as patch:
        stopping(2, patch)
        with pytest.raises(Interrupted):
            run(folder)
        patch.undo()
        file = next((tmp_path / "parts").iterdir())
        file.write_bytes(damage)
        assert figures(run(folder)) == whole


def test_without_a_folder_nothing_is_saved() -> None:
    with pytest.MonkeyPatch.context() as patch:
        stopping(1, patch)
        with pytest.raises(Interrupted, match="nothing was saved"):
            run(None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_every_command_ends_with_the_right_code(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Working:
        def run(self) -> None:
            signal.raise_signal(number)

    monkeypatch.setattr(command_line, "parse", lambda words: Working())
    before = signal.getsignal(signal.SIGTERM)
    assert command_line.main(["anything"]) == code
    assert signal.getsignal(signal.SIGTERM) == before
    err = capsys.readouterr().err
    assert err.startswith("ratenorm: stopped by")
    assert "Traceback" not in err


def test_a_lock_that_was_removed_while_it_was_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, tries = RunFolder._try_lock, []

    def unlucky(self: RunFolder) -> int:
        lock = plain(self)
        tries.append(lock)
        if len(tries) == 1:  # the run before removes its file now, and another one may make a new one
            (tmp_path / LOCK).unlink()
        return lock

    monkeypatch.setattr(RunFolder, "_try_lock", unlucky)
    with RunFolder(tmp_path) as folder:
        assert len(tries) == 2
        assert (tmp_path / LOCK).read_text() == str(os.getpid())
        with pytest.raises(UsageError, match=f"process {os.getpid()} is at work in it"):
            RunFolder(tmp_path)
        assert folder.path == tmp_path
    assert not (tmp_path / LOCK).exists()


def test_the_strays_of_a_killed_start_are_no_run(tmp_path: Path) -> None:
    (tmp_path / ".config.json.part-0a1b2c3d").write_text("{")
    (tmp_path / LOCK).write_text("1")
    assert not holds_a_run(tmp_path)
    with RunFolder(tmp_path) as folder:
        folder.configure({})
    assert holds_a_run(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["config.json"]


@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_restarted_by_torchrun_a_run_goes_on(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    for expected in ("new", "resume"):
        with open_shared(tmp_path, mode, True, lambda: None) as folder:  # type: ignore[arg-type]
            assert folder.mode == expected
            folder.configure({"lr": 0.5})
            folder.log({"loss": 1.0})
    assert folder.logged == 2 * len(sealed_line({"loss": 1.0}) + "\n")


def test_a_stage_that_never_came_to_a_checkpoint_repeats_no_metrics(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with RunFolder(tmp_path) as folder, pytest.MonkeyPatch.context() as patch:
        # killed between writing the first line of metrics and the checkpoint behind it
        plain = folder.log
        patch.setattr(folder, "log", lambda entry: (plain(entry), (_ for _ in ()).throw(KeyboardInterrupt())))
        patch.setattr(_AccuracyStage, "end_of_epoch", lambda self, epoch: {})
        slow = {**vars(STAGE1), "checkpoint_minutes": 60.0}
        with pytest.raises(KeyboardInterrupt):
            train_accuracy(small_network(), bands(), type(STAGE1)(**slow), run=folder, show=False)
        patch.undo()
        assert folder.logged > 0
        train_accuracy(small_network(), bands(), type(STAGE1)(**slow), run=folder, show=False)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STAGE1.epochs
