"""The documents: their code runs, their examples are true, their sentences can be read."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import ratenorm

HERE = Path(__file__).parents[1]
DOCS = HERE / "docs"
PAGES = [HERE / "README.md", DOCS / "start.md", *sorted((DOCS / "how-to").glob("*.md"))]
SOURCE = Path(ratenorm.__file__).parent
LONGEST = 30  # words of a sentence
ADVISED_AGAINST = ("anew", "so many", "by hand", "in words", "goes on", "go on")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def label(path: Path) -> str:
    return str(path.relative_to(HERE))


def blocks(path: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=label)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    names = module.__dict__
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, code in enumerate(blocks(page, "python"), 1):
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)
    for expected in blocks(page, "text"):
        assert expected in printed.getvalue()


def with_examples() -> list[str]:
    files = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    return [".".join(("ratenorm", *path.relative_to(SOURCE).with_suffix("").parts)) for path in files]


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_of_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def paragraphs(page: Path) -> Iterator[str]:
    """The prose of a page: no code, no tables, no headings; each item of a list is a paragraph."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d\.) )", text):
        line = " ".join(part.split())
        if line and not part.startswith(("    ", "\n    ", "|", "#", "```", "!", "{{", "[")) and "|---" not in line:
            yield line


def sentences(page: Path) -> Iterator[str]:
    for paragraph in paragraphs(page):
        yield from re.split(r"(?<=[.!?:;])\s+", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_sentences_are_short(page: Path) -> None:
    found = list(sentences(page))
    assert found
    assert not [one for one in found if len(one.split()) > LONGEST]


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(DOCS.glob("*.md")), *sorted((DOCS / "concepts").glob("*.md"))], ids=label
)
def test_pages_avoid_the_words_that_design_advises_against(page: Path) -> None:
    text = page.read_text(encoding="utf-8").lower()
    assert not [word for word in ADVISED_AGAINST if re.search(rf"\b{word}\b", text)]


def test_the_readme_is_short() -> None:
    assert len((HERE / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
