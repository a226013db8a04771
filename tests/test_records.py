"""Records: strict to read, whole or not at all when written."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm import records
from ratenorm.errors import DataError, FileFormatError, StorageError, UsageError

_spec = importlib.util.spec_from_file_location(
    "synthetic_for_records", Path(__file__).parent / "report" / "synthetic.py"
)
assert _spec is not None
assert _spec.loader is not None
_synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_synthetic)
_SMALL = _synthetic.make_record(steps=4, methods=2, layers=2, examples=1, side=4)


@pytest.fixture
def record() -> dict[str, Any]:
    return copy.deepcopy(_SMALL)


def _put(record: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    place: Any = record
    for key in parents:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value


def _write_raw(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_a_record_survives_writing_and_reading(record: dict[str, Any], tmp_path: Path) -> None:
    path = records.write(tmp_path / "new" / "run" / "record.json", record)
    first = records.read(path)
    assert first["title"] == record["title"]
    assert first["runs"][0]["accuracy"] == pytest.approx(record["runs"][0]["accuracy"], rel=1e-6)
    before = path.read_bytes()
    records.write(path, first)
    assert path.read_bytes() == before
    assert before.endswith(b"}\n")
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_keys_are_sorted_and_floats_have_seven_digits(record: dict[str, Any], tmp_path: Path) -> None:
    record["seconds"] = 1 / 3
    record["title"] = "v(0) = θ/2"
    text = records.write(tmp_path / "record.json", record).read_text("utf-8")
    assert '"seconds":0.3333333,' in text
    assert "θ/2" in text
    keys = list(json.loads(text))
    assert keys == sorted(keys)


@settings(max_examples=40, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_is_close_and_done_once(value: float) -> None:
    once = records._rounded(value, "x")
    assert once == records._rounded(once, "x")
    assert math.isclose(once, value, rel_tol=1e-6, abs_tol=1e-307) or abs(value) > 1e308


def test_new_files_get_the_permissions_of_the_umask(record: dict[str, Any], tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        path = records.write(tmp_path / "record.json", record)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_the_old_record_and_no_litter(
    record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = records.write(tmp_path / "record.json", record)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        records.write(path, {**record, "title": "another"})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(float("nan"), "null"), (float("inf"), "null"), ({1: 2}, "not a text"), (object(), "plain Python")],
)
def test_what_json_cannot_hold_is_named(record: dict[str, Any], tmp_path: Path, value: Any, words: str) -> None:
    record["config"] = {"deep": [value]}
    with pytest.raises(FileFormatError, match=rf"config\.deep\[0\].*{words}"):
        records.write(tmp_path / "record.json", record)
    assert not (tmp_path / "record.json").exists()


BROKEN = [
    ("data", ..., r'"data" is missing'),
    ("ann/macs", "many", r'"ann.macs" is a text, not a number'),
    ("ann/accuracy", 1.5, r'"ann.accuracy" is 1.5'),
    ("seed", None, r'"seed" is a null'),
    ("title", ..., r'"title" is missing'),
    ("runs", ..., r'"runs" is missing'),
    ("runs", {}, r'"runs" is a object, not a list'),
    ("runs/0/steps", 0, r'"runs\[0\].steps" is 0; it is at least 1'),
    ("runs/0/steps", True, r'"runs\[0\].steps" is a truth value'),
    ("runs/0/accuracy", [0.1], r'"runs\[0\].accuracy" has 1 entries for 4 steps'),
    ("runs/1/name", "Max Norm", r"unique"),
    ("runs/0/layers/1/k", [1, 2, 3, -4], r'"runs\[0\].layers\[1\].k\[3\]" is -4'),
    ("runs/0/layers/0/rate_histogram/edges", [0, 1], r"has 2 entries, not 21"),
    ("runs/1/early_exit/worst_steps", 9, r"worst_steps.* is 9 of 4 steps"),
    ("examples/0/run", "nobody", r"no run of this record"),
    ("examples/0/scores/2", [1.0], r"has 1 entries for 10 classes"),
    ("examples/0/label", 10, r"10 classes"),
    ("examples/0/image/0", [1], r"rows of different lengths"),
    ("examples/0/image", [[1, [1, 2, 3]]], r"mixes grey and coloured"),
    ("examples/0/image", [[256]], r"is 256"),
    ("diagnosis/run", "nobody", r'"diagnosis.run" is \'nobody\''),
    ("front/0/accuracy", 2, r'"front\[0\].accuracy" is 2'),
    ("paper", 3, r'"paper" is a whole number'),
]


@pytest.mark.parametrize(("path", "value", "words"), BROKEN, ids=[f"{p}={v!r:.12}" for p, v, _ in BROKEN])
def test_a_broken_key_is_named_with_its_file(
    record: dict[str, Any], tmp_path: Path, path: str, value: Any, words: str
) -> None:
    _put(record, path, value)
    file = _write_raw(tmp_path / "broken.json", record)
    with pytest.raises(FileFormatError, match=words) as caught:
        records.read(file)
    assert "broken.json" in str(caught.value)
    with pytest.raises(FileFormatError, match=words):
        records.write(tmp_path / "out.json", record)


def test_unknown_keys_and_null_for_optional_parts_pass(record: dict[str, Any], tmp_path: Path) -> None:
    record.update(novelty={"a": 1}, examples=None, diagnosis=None, front=None)
    record["runs"][0]["layers"][0].update(omega=None, k=[None, 1, 1, 0])
    assert records.read(records.write(tmp_path / "record.json", record))["novelty"] == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "damaged or not JSON"),
        ('{"format": "ratenorm-rec', "damaged or not JSON"),
        ("[1]", "holds a list"),
        ("{}", '"format" is None'),
        ('{"format": "other"}', "'other'"),
        ('{"format": "ratenorm-record", "version": "1"}', "whole number"),
        ('{"a": NaN}', "NaN is not allowed"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1, "a": 2}', "appears twice"),
        ("[" * 100_000, "damaged"),
        ('{"a": "\\ud800"}', "damaged"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    for reader in (records.read, records.salvage):
        with pytest.raises(FileFormatError, match=words):
            reader(path)


def test_half_a_surrogate_pair_is_not_written(record: dict[str, Any], tmp_path: Path) -> None:
    record["title"] = "\ud800"
    with pytest.raises(FileFormatError, match="not Unicode"):
        records.write(tmp_path / "record.json", record)


def test_other_versions_say_who_wrote_them(record: dict[str, Any], tmp_path: Path) -> None:
    older = _write_raw(tmp_path / "older.json", {**record, "version": 0, "versions": {"ratenorm": "0.0.3"}})
    with pytest.raises(FileFormatError, match=r"by ratenorm 0\.0\.3 in the older record version 0"):
        records.read(older)
    newer = _write_raw(tmp_path / "newer.json", {**record, "version": 3, "versions": None})
    with pytest.raises(FileFormatError, match=r"newer record version 3.*update ratenorm"):
        records.read(newer)


def _leaves(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The place of every figure, text and key."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, *path, key)
    else:
        yield path


def _other(value: Any) -> Any:
    """A value that the schema cannot tell from the right one, where there is such a value."""
    if isinstance(value, bool) or value is None:
        return not value
    return value + "x" if isinstance(value, str) else value + 1 if isinstance(value, int) else value * 0.5 + 1e-7


def test_any_changed_figure_or_text_is_found(record: dict[str, Any], tmp_path: Path) -> None:
    path = records.write(tmp_path / "record.json", record)
    whole = json.loads(path.read_text("utf-8"))
    places = list(_leaves(whole))
    assert len(places) > 300
    for place in places:
        changed = copy.deepcopy(whole)
        spot = changed
        for key in place[:-1]:
            spot = spot[key]
        spot[place[-1]] = _other(spot[place[-1]])
        _write_raw(path, changed)
        for reader in (records.read, records.salvage):
            with pytest.raises(FileFormatError, match=r"record\.json"):
                reader(path)


def test_a_wrong_checksum_is_said_with_what_to_do(record: dict[str, Any], tmp_path: Path) -> None:
    path = records.write(tmp_path / "record.json", record)
    whole = json.loads(path.read_text("utf-8"))
    message = r"record\.json was damaged or changed .*%s.*Copy it again .*repeating the experiment"
    for change, words in (
        ({**whole, "seconds": whole["seconds"] + 1}, "does not match"),
        ({**whole, "version": 1}, "does not match"),  # no way around it by calling the record older
        ({key: value for key, value in whole.items() if key != "sha256"}, "has no checksum"),
    ):
        with pytest.raises(FileFormatError, match=message % words):
            records.read(_write_raw(path, change))


def test_spaces_and_the_order_of_keys_are_free(record: dict[str, Any], tmp_path: Path) -> None:
    path = records.write(tmp_path / "record.json", record)
    content = records.read(path)
    whole = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(dict(reversed(whole.items())), indent=3))
    assert records.read(path) == content
    assert "sha256" not in content  # it is the file's, not the experiment's


def test_a_record_of_version_1_has_no_checksum_and_is_written_again_with_one(
    record: dict[str, Any], tmp_path: Path
) -> None:
    old = _write_raw(tmp_path / "old.json", {**record, "version": 1})
    content = records.read(old)
    assert content["version"] == records.VERSION
    assert json.loads(records.write(tmp_path / "new.json", content).read_text())["version"] == records.VERSION
    assert records.read(tmp_path / "new.json")["runs"] == records._rounded(content["runs"], "")


_RESULTS = Path(__file__).parents[1] / "paper" / "results"
_KEPT = [p for p in _RESULTS.rglob("*.json") if b'"ratenorm-record"' in p.read_bytes()]


@pytest.mark.parametrize("path", sorted(_KEPT), ids=lambda p: p.name)
def test_every_record_in_the_repository_is_read(path: Path) -> None:
    assert records.read(path)["data"]["images"] > 0


def test_records_are_kept_in_the_repository() -> None:
    assert _KEPT


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SIZE_LIMIT", 10)
    path = tmp_path / "record.json"
    path.write_text(" " * 11)
    with pytest.raises(FileFormatError, match="11 bytes"):
        records.read(path)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="could not be read"):
        records.read(tmp_path / "none.json")


def test_find_is_stable_and_gives_each_file_once(tmp_path: Path) -> None:
    for name in ("b", "a", "a/nested", "c/deep"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "record.json").write_text("{}")
    found = records.find([tmp_path / "b", tmp_path, tmp_path / "b" / "record.json"])
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "b/record.json", "a/nested/record.json", "a/record.json", "c/deep/record.json",
    ]  # fmt: skip
    assert records.find([tmp_path / "a"]) == [tmp_path / "a" / "record.json"]


def test_find_says_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no record\.json"):
        records.find([tmp_path])
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        records.find([tmp_path / "gone"])


def test_salvage_keeps_the_sound_and_names_the_rest(record: dict[str, Any], tmp_path: Path) -> None:
    del record["hardware"]
    record["title"] = 3
    record["runs"][0]["accuracy"] = [0.5]
    record["front"] = "broken"
    kept, problems = records.salvage(_write_raw(tmp_path / "record.json", record))
    assert [run["name"] for run in kept["runs"]] == [record["runs"][1]["name"]]
    assert kept["hardware"] == {}
    assert kept["title"] == tmp_path.name
    assert "front" not in kept
    # The diagnosis belonged to the run that had to go.
    assert "diagnosis" not in kept
    assert len(problems) == 5
    assert all("record.json" in problem and "left out" in problem for problem in problems)
    sound, none = records.salvage(records.write(tmp_path / "good.json", _SMALL))
    assert none == []
    assert sound == records.read(tmp_path / "good.json")


def test_salvage_of_runs_that_are_no_list(record: dict[str, Any], tmp_path: Path) -> None:
    record["runs"] = None
    kept, problems = records.salvage(_write_raw(tmp_path / "record.json", record))
    assert kept["runs"] == []
    assert any('"runs" is a null' in problem for problem in problems)


def test_salvage_needs_a_data_set_and_a_network(record: dict[str, Any], tmp_path: Path) -> None:
    del record["ann"]
    with pytest.raises(FileFormatError, match='"ann" is missing'):
        records.salvage(_write_raw(tmp_path / "record.json", record))


def test_importing_records_and_report_loads_no_drawing_library() -> None:
    code = (
        "import sys, ratenorm.records, ratenorm.report; "
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
