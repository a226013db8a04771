"""An installation never fails: without a C++ compiler the package works all the same, on the dense engine."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
from builders import tiny_conversion
from ratenorm.simulate.simulate import simulate
from ratenorm.io import zoo
from ratenorm.workflows.doctor import examine
conversion, x = tiny_conversion()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(simulate(conversion.net, x, 2).engine, simulate(conversion.net, x, 2).engine)
print(len(said), said[0].message)
print(len(zoo.names()))
print(next(check for check in examine() if check.name == "engines"))
"""


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built where no C++ compiler is to be found, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    setting = f"--config-settings=build-dir={folder / 'build'}"
    nowhere = {"CXX": str(folder / "no-compiler"), "CC": str(folder / "no-compiler")}
    command = [sys.executable, "-m", "pip", *words, setting, str(ROOT)]
    done = subprocess.run(command, env=os.environ | nowhere, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("ratenorm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_a_wheel_without_a_core_has_all_else(without_compiler: Path) -> None:
    package = without_compiler / "ratenorm"
    assert not list(package.rglob("_core*.so"))
    assert (package / "data/mnist/train-images-idx3-ubyte.xz").exists()
    assert (package / "zoo_files/index.json").exists()
    carried = {p.name: p.stat().st_size for p in package.glob("zoo_files/*.safetensors")}
    small = {p.name: p.stat().st_size for p in (ROOT / "zoo").glob("*.safetensors") if p.stat().st_size < 1_000_000}
    assert carried == small
    assert 0 < sum(carried.values()) <= 5_000_000


def test_it_simulates_on_the_dense_engine_and_says_once_how_to_get_the_other(without_compiler: Path) -> None:
    found = [str(without_compiler), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    command = [sys.executable, "-S", "-c", PROGRAM, str(ROOT / "tests")]  # -S: not the editable installation
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(found)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    engines, said, names, doctor = done.stdout.splitlines()[:4]
    assert engines == "dense dense"
    assert said.startswith("1 The event engine is not available: its compiled core is not installed")
    assert "Install ratenorm again where there is a C++20 compiler" in said
    assert int(names) > 0
    assert doctor.startswith("note  engines: only the dense engine runs here")
