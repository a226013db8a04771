"""`--config FILE`: options of a command from a TOML file, and `ratenorm init`, which writes one with comments.

A file holds what the command line would: `lr = 0.1` is `--lr 0.1`. Tables only group options. What stands on the
command line counts more than what stands in the file.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ratenorm.errors import UsageError

LIMIT = 2**20  # bytes of a configuration file
NOT_IN_A_FILE = ("resume", "overwrite")  # what to do with a used folder is said each time


@dataclass(frozen=True)
class Option:
    """One option of a command: its name in a file, its default, its help text, and the group it stands in."""

    name: str
    default: Any
    text: str
    group: str


def options_of(kind: type) -> Iterator[Option]:
    """The options of a command that have a flag."""
    yield from _options(kind, "")


def _options(kind: Any, group: str) -> Iterator[Option]:
    hints, texts = get_type_hints(kind, include_extras=True), _texts(kind)
    for field in fields(kind):
        hint = hints[field.name]
        extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        bare = get_args(hint)[0] if extras else hint
        if is_dataclass(bare):
            yield from _options(bare, field.name)
            continue
        if any("POSITIONAL" in str(extra).upper() for extra in extras):
            continue
        named = [extra.name for extra in extras if getattr(extra, "name", None)]
        default = None if field.default is MISSING else field.default
        yield Option(named[0] if named else field.name, default, texts.get(field.name, ""), group)


def _texts(kind: type) -> dict[str, str]:
    """The texts of the fields of a class: under them, or in the `Args` of its docstring."""
    body: Any = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    found = {}
    for name, text in re.findall(r"^ {8}(\w+): (.+(?:\n {12}.+)*)", kind.__doc__ or "", re.MULTILINE):
        found[name] = " ".join(text.split())
    for one, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[one.target.id] = " ".join(str(after.value.value).split())  # type: ignore[union-attr]
    return found


def expanded(command: str, kind: type, arguments: Sequence[str]) -> list[str]:
    """The words of a command line with those of its configuration file before them."""
    words, files = [], []
    rest = iter(arguments)
    for word in rest:
        if word == "--config":
            files.append(next(rest, ""))
        elif word.startswith("--config="):
            files.append(word.partition("=")[2])
        else:
            words.append(word)
    if not files:
        return words
    if len(files) > 1 or not files[0]:
        raise UsageError("--config takes one file, such as --config train.toml.")
    return [*_words(command, kind, Path(files[0])), *words]


def _words(command: str, kind: type, file: Path) -> list[str]:
    known = {option.name.replace("-", "_"): option for option in options_of(kind)}
    words: list[str] = []
    for key, value in _flat(_read(file)).items():
        name = key.replace("-", "_")
        if name not in known or name in NOT_IN_A_FILE:
            close = difflib.get_close_matches(name, known, 2)
            meant = f" Did you mean {' or '.join(close)}?" if close else f" `ratenorm {command} --help` names them."
            what = "stands on the command line only" if name in NOT_IN_A_FILE else f"is no option of `{command}`"
            raise UsageError(f"Reading {file}: {key!r} {what}.{'' if name in NOT_IN_A_FILE else meant}")
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if value is not known[name].default:
                words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        elif isinstance(value, int | float | str):
            words += [f"--{flag}", str(value)]
        else:
            raise UsageError(f"Reading {file}: {key} is {value!r}. A number, text, true, false or a list is allowed.")
    return words


def _read(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():
            raise UsageError(f"Reading {file}: there is no such file. `ratenorm init {file}` writes one.")
        if file.stat().st_size > LIMIT:
            raise UsageError(f"Reading {file}: it has more than {LIMIT} bytes, so it is no configuration file.")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Reading {file}: it is not TOML ({error}).") from error
    except OSError as error:
        raise UsageError(f"Reading {file}: {error.strerror or error}.") from error


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    """The options of a file, without the tables they stand in."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _flat(value) if isinstance(value, dict) else {key: value}
    return found


def template(command: str, kind: type) -> str:
    """A configuration file with every option as a comment, at its default."""
    lines = [
        f"# Options of `ratenorm {command}`. Remove the # before a line to set it; then run",
        f"#     ratenorm {command} --config THIS_FILE",
        "# An option on the command line counts more than one in this file.",
    ]
    group = ""
    for option in sorted(options_of(kind), key=lambda o: o.group != ""):
        if option.name in NOT_IN_A_FILE:
            continue
        if option.group != group:
            group = option.group
            lines += ["", f"[{group}]"]
        lines += ["", *textwrap.wrap(option.text, 100, initial_indent="# ", subsequent_indent="# ")]
        lines.append(f"# {option.name.replace('-', '_')} = {_toml(option.default)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def main_options(command: str, kind: type, arguments: Sequence[str]) -> list[str]:
    """`expanded`, as the parser of commands needs it: an explanation and exit code 2 where the file is wrong."""
    try:
        return expanded(command, kind, arguments)
    except UsageError as error:
        print(f"ratenorm {command}: {error}", file=sys.stderr)
        raise SystemExit(2) from error
