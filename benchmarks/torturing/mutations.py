"""Mutated files for every reader, read in a child with little memory, an alarm clock and a guard against execution."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ratenorm.errors import RatenormError
from torturing.forks import child, wait
from torturing.readers import MAKERS, Reader

ROOM = 512 * 2**20  # bytes that a reader may allocate beyond what it starts with
PATIENCE = 10.0  # seconds a reader may take
NUMBERS = (b"0", b"-1", b"1", b"2", b"99999999999", b"18446744073709551615", b"1e999", b"-0.5", b"1" * 5000)
EXECUTION = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class", "marshal.load")


class Hang(BaseException):
    """The reader took too long."""


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One of a dozen ways in which a file goes bad, or is made bad."""
    changed = bytearray(data)
    at, other = rng.randrange(len(data)), rng.randrange(len(data))
    length = rng.choice((1, 2, 4, 8, 64, 1024))
    match rng.randrange(12):
        case 0 | 1:
            for _ in range(rng.choice((1, 1, 1, 2, 8))):
                changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            changed[at] = rng.randrange(256)
        case 3:
            del changed[at:]
        case 4:
            changed += rng.randbytes(length)
        case 5:
            changed[at : at + length], changed[other : other + length] = data[other:][:length], data[at:][:length]
        case 6:
            changed[at : at + length] = bytes(length)
        case 7:
            del changed[at : at + length]
        case 8:
            changed[at:at] = rng.randbytes(length)
        case 9:  # the first bytes say how long the header is, or what the file is
            changed[:8] = rng.choice(
                (rng.randbytes(8), bytes(8), b"\xff" * 8, rng.randrange(2**40).to_bytes(8, "little"))
            )
        case 10:
            numbers = list(re.finditer(rb"\d+", data[:200_000]))
            if numbers:
                one = rng.choice(numbers)
                changed[one.start() : one.end()] = rng.choice(NUMBERS)
        case _:
            start = data[:2000]
            changed[:0] = start[: rng.randrange(1, len(start))]
    return bytes(changed)


def fuzz(count: int, seed: int, names: tuple[str, ...] = tuple(MAKERS), say: Callable[[str], None] = print) -> Any:
    """`count` mutants for each reader; counts of how each ended."""
    found: dict[str, Any] = {}
    for name in names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            reader = MAKERS[name](Path(folder))
            expected = reader.read()
            counts = _in_child(lambda tally, r=reader, e=expected: _read_all(r, e, count, seed, tally), Path(folder))
        found[name] = {**counts, "seconds": round(time.monotonic() - began, 1)}
        say(f"  {name}: {found[name]}")
    return found


def _in_child(work: Callable[[Path], None], folder: Path) -> dict[str, Any]:
    """Run `work` in a guarded child, which leaves its counts in a file. A child that dies is a crash."""
    tally = folder / "tally.json"

    def guarded() -> int:
        _guard(folder)
        work(tally)
        return 0

    with child(guarded) as number:
        end = wait(number, 3600)
    counts: dict[str, Any] = json.loads(tally.read_text()) if tally.exists() else {}
    return {**counts, "crashes": counts.get("crashes", 0) + (end.code != 0)}


def _guard(folder: Path) -> None:
    """Limit memory, wake up who hangs, and end the process should anything be executed or written elsewhere."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    allowed = (os.fsencode(folder), b"/dev/null")

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EXECUTION:
            os._exit(3)
        written = event == "open" and isinstance(arguments[0], str | bytes) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if written and not os.fsencode(arguments[0]).startswith(allowed):
            os._exit(4)

    signal.signal(signal.SIGALRM, stop)
    sys.addaudithook(watch)


def _read_all(reader: Reader, expected: Any, count: int, seed: int, tally: Path) -> None:
    rng = random.Random(f"{seed} {reader.name}")
    original = reader.file.read_bytes()
    counts: Counter[str] = Counter()
    worst: dict[str, str] = {}
    for _ in range(count):
        reader.file.write_bytes(mutate(original, rng))
        outcome, detail = read_once(reader.read, expected)
        if outcome == "accepted changed" and not reader.pinned:
            outcome = "accepted changed, no checksum"
        counts[outcome] += 1
        if outcome not in ("same", "refused"):
            worst.setdefault(outcome, detail)
    names = ("same", "refused", "accepted changed", "other errors", "hangs", "out of memory")
    tally.write_text(json.dumps({"mutants": count, **dict.fromkeys(names, 0), **counts, "examples": worst}))


def read_once(read: Callable[[], Any], expected: Any) -> tuple[str, str]:
    """How reading ended, in one of a few words, and a detail."""
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        content = read()
    except RatenormError as error:
        return "refused", str(error)
    except MemoryError:
        return "out of memory", ""
    except Hang:
        return "hangs", ""
    except Exception as error:
        return "other errors", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return ("same", "") if content == expected else ("accepted changed", str(content)[:200])
