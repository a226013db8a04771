"""Ctrl-C and SIGTERM before a command has begun, while torch is still being loaded: one line, the right code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratenorm.cli import starting

SOURCE = Path(starting.__file__).parents[2]
CONSOLE_SCRIPT = "import sys\nfrom ratenorm.cli.main import main\nsys.exit(main())\n"


def loading_torch(process: subprocess.Popen[str]) -> bool:
    """Whether a process has opened torch's libraries: it has begun to import it, and is far from done."""
    return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    ("number", "later", "program"),
    [(signal.SIGINT, 0.0, "-m"), (signal.SIGINT, 0.3, "script"), (signal.SIGTERM, 0.1, "-m")],
    ids=["Ctrl-C at once", "Ctrl-C a little later", "SIGTERM"],
)
def test_a_signal_while_loading_ends_in_one_line(number: int, later: float, program: str, tmp_path: Path) -> None:
    script = tmp_path / "ratenorm"  # what pip makes of the entry in pyproject.toml
    script.write_text(CONSOLE_SCRIPT)
    words = ["-m", "ratenorm"] if program == "-m" else [str(script)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, *words, "info", str(script)], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 60
        while not loading_torch(process) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(later)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert err == f"ratenorm: stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'} before anything began.\n"


def test_other_programs_keep_their_handlers() -> None:
    code = "import signal; b = signal.getsignal(2), signal.getsignal(15); import ratenorm.cli.main; " \
           "print(b == (signal.getsignal(2), signal.getsignal(15)))"  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.strip() == "True"


def test_handlers_come_back_and_what_is_ignored_stays_ignored() -> None:
    usual = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        starting.guard()
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is starting._leave
        starting.loaded()
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == usual
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup does
        starting.guard()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        starting.loaded()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), usual, strict=True):
            signal.signal(number, handler)
