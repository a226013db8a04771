"""Kept machine code belongs to the files it was compiled from: all of them."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import pytest

pytest.importorskip("numba")

import numba

from ratenorm.engines.event import compiled


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A folder with two files that stands for the engine's."""
    for name in ("compiled.py", "kernel.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    compiled._stamp.cache_clear()
    yield tmp_path
    compiled._stamp.cache_clear()


def test_a_change_in_any_file_of_the_engine_makes_kept_code_stale(engine: Path) -> None:
    before = compiled._stamp()
    assert [name for name, _, _ in before] == ["compiled.py", "kernel.py"]
    (engine / "kernel.py").write_text("x = 100\n")
    compiled._stamp.cache_clear()
    assert compiled._stamp() != before


def test_every_compiled_function_carries_the_stamp() -> None:
    from ratenorm.engines.event.scatter import scatter
    from ratenorm.engines.event.turns import follow

    for function in (follow, scatter):
        assert function._cache._cache_file._source_stamp == compiled._stamp()


def test_code_kept_by_another_version_is_replaced_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index names a class that is gone; that must neither be said nor stay so."""

    @compiled.compiled
    def doubled(x: int) -> int:
        return 2 * x

    index = Path(doubled._cache._cache_file._index_path)
    index.parent.mkdir(exist_ok=True)
    gone = b"cratenorm.engines.event.fire\nNoLongerThere\n."
    index.write_bytes(pickle.dumps(numba.__version__, protocol=-1) + gone)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert doubled(21) == 42
        assert gone not in index.read_bytes()
    finally:
        for file in index.parent.glob(f"{index.stem}*"):
            file.unlink()
