"""A few hundred mutated NIR files; benchmarks/mutated_nir.py makes 20,000."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ratenorm.workflows.fingerprint import of_graph

pytest.importorskip("nir", reason="NIR files need the packages nir and h5py (ratenorm[nir])")


@pytest.mark.parametrize("kind", ["sealed", "resaved", "foreign"])
@pytest.mark.filterwarnings("ignore")
def test_no_mutated_file_crashes_or_gives_a_wrong_network(kind: str, tmp_path: Path) -> None:
    from benchmarks.mutated_nir import edited, judged, mutated, originals

    files, net = originals(tmp_path)
    fingerprint, path = of_graph(net), tmp_path / "mutated.nir"
    verdicts = set()
    for number in range(80):
        dice = random.Random(f"tests {number}")
        if kind != "sealed" and number % 2:
            edited(tmp_path / f"{kind}.nir", path, dice)
        else:
            path.write_bytes(mutated(files[kind], dice))
        verdicts.add(judged(path, kind, fingerprint))
    assert not [verdict for verdict in verdicts if "WRONG" in verdict]
    assert "refused" in verdicts
