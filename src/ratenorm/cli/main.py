"""`ratenorm`: the entry point."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from ratenorm._version import __version__
from ratenorm.cli.commands import COMMANDS, Command, manual, parsed
from ratenorm.cli.starting import guard, loaded
from ratenorm.errors import RatenormError
from ratenorm.io.text import printable


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt no `except Exception` may swallow it."""


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Within it SIGTERM unwinds the stack as Ctrl-C does, so that locks and temporary files are cleaned up.

    Not under torchrun: a process that waits for another one in a collective would not hear it.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if not alone or threading.current_thread() is not threading.main_thread():  # elsewhere Python takes no handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Commands that other versions had: what to run instead.
MOVED = {
    ("reproduce",): "`python -m paper` in a clone of the repository (the same options; `make reproduce` runs all)",
    ("zoo", "add"): "`python -m paper.zoo_entries` in a clone of the repository (the same options)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if arguments is None:
        guard()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments in (["--version"], ["-V"]):
        print(f"ratenorm {__version__}")
        return 0
    if arguments in (["--help"], ["-h"]):
        print(manual())
        return 0
    for words, place in MOVED.items():
        if tuple(arguments[: len(words)]) == words:
            print(f"ratenorm: `ratenorm {' '.join(words)}` has moved. Use {place}.", file=sys.stderr)
            return 2
    return run(lambda: parse(arguments))


def run(parse: Callable[[], Command]) -> int:
    """Parse and run a command; what goes wrong becomes one paragraph and an exit code."""
    try:
        command = parse()
        with contextlib.suppress(ImportError):  # `doctor` says what is missing
            import torch  # noqa: F401 (takes seconds; a signal meanwhile leaves at once)
        loaded()
        with _terminating():
            command.run()
    except SystemExit as stop:  # --help, or a typo that the parser has explained
        return int(stop.code or 0)
    except RatenormError as error:
        print(f"ratenorm: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("ratenorm: stopped by Ctrl-C.", file=sys.stderr)
        return 130
    except Terminated:
        resumes = "the same command resumes, with --resume where there is one"
        print(f"ratenorm: stopped by SIGTERM. What was finished is kept; {resumes}.", file=sys.stderr)
        return 143
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def parse(arguments: Sequence[str]) -> Command:
    """The command that the words name. Leaves by SystemExit (2) with an explanation where they name none."""
    if not arguments:
        print(f"{manual()}\n\nratenorm: no command was given.", file=sys.stderr)
        raise SystemExit(2)
    name, *rest = arguments
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, 2)
        meant = f"Did you mean {' or '.join(close)}?" if close else "`ratenorm --help` lists the commands."
        print(f"ratenorm: {name!r} is not a command. {meant}", file=sys.stderr)
        raise SystemExit(2)
    return parsed(name, rest)


if __name__ == "__main__":
    sys.exit(main())
