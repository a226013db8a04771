"""The rules of the house, read from the sources: who may import whom, and what loads when."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ratenorm

SOURCE = Path(ratenorm.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

FREE = {"errors", "notebook", "arguments", "contexts"}  # these import nothing of ours but errors
# What each room of the package may import of ours, besides itself and these.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "notebook": set(),
    "arguments": set(),
    "contexts": set(),
    "_version": set(),
    "core": set(),
    "models": {"core"},
    "data": {"core"},
    "graph": {"core"},
    "distributed": set(),
    "io": {"graph", "models", "core", "data", "_version"},
    "convert": {"core", "data", "graph", "distributed"},
    "simulate": {"core", "data", "graph", "distributed"},
    "train": {"core", "data", "models", "io", "distributed", "_version", "convert", "simulate", "graph"},
    "records": {"io"},
    "report": {"records", "io"},
    "calibrators": {"data", "convert", "simulate", "graph", "core", "distributed"},
    "interop": {"convert", "simulate", "graph", "core", "io", "records", "_version"},
    "diagnose": {"convert", "simulate", "graph", "core"},
}
ANYTHING_BUT: dict[str, set[str]] = {"workflows": {"cli", "report"}, "cli": set()}
PACKAGE_ITSELF = {"__init__", "__main__"}


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[str]:
    """Every module that is imported anywhere in a file, inside functions and TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" if module == "ratenorm" else module for alias in node.names)


def rooms_imported(file: Path) -> set[str]:
    found = {name.split(".")[1] for name in imports(file) if name.startswith("ratenorm.")}
    return found - {room_of(file), *FREE}


def label(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def test_every_room_has_a_rule() -> None:
    assert {room_of(file) for file in FILES} <= MAY_IMPORT.keys() | ANYTHING_BUT.keys() | PACKAGE_ITSELF


def test_imports_keep_to_the_rules() -> None:
    """One claim, one test, whatever the number of files; every file that breaks it is named."""
    broken: dict[str, set[str]] = {}
    for file in FILES:
        room, found = room_of(file), rooms_imported(file)
        if room in MAY_IMPORT:
            broken[label(file)] = found - MAY_IMPORT[room]
        elif room in ANYTHING_BUT:
            broken[label(file)] = found & ANYTHING_BUT[room]
    assert {name: rooms for name, rooms in broken.items() if rooms} == {}


def test_core_and_the_free_rooms_import_nothing_of_ours_but_errors() -> None:
    for file in FILES:
        room = room_of(file)
        if room in ("core", *FREE):
            ours = [name for name in imports(file) if name.startswith("ratenorm")]
            allowed = ("ratenorm.errors", "ratenorm.core") if room == "core" else ("ratenorm.errors",)
            assert all(name.startswith(allowed) for name in ours), file
            assert not (room == "errors" and ours)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, ratenorm\n"
        "heavy = ('torch', 'numpy', 'matplotlib', 'nir', 'h5py', 'onnx', 'onnxruntime', 'PIL', 'tyro', 'torchvision')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_nothing_is_pickled() -> None:
    for file in FILES:
        assert not {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"} & {
            n.split(".")[0] for n in imports(file)
        }
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, file


def test_nothing_is_left_for_later() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not [word for word in ("TODO", "FIXME", "NotImplementedError") if word in text], file


def test_the_public_names_exist_and_type_checkers_see_the_same() -> None:
    assert all(hasattr(ratenorm, name) for name in ratenorm.__all__)
    assert sorted(ratenorm.__all__) == sorted(set(ratenorm.__all__))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ratenorm.nothing
    importlib.import_module("ratenorm.convert.convert")  # a subpackage does not take the place of its function
    assert callable(ratenorm.convert)
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    imported = {a.asname: n.module for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert set(imported) == set(ratenorm.__all__)
    assert {n: m for n, m in imported.items() if n in ratenorm._WHERE} == ratenorm._WHERE
