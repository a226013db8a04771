"""Optional packages: imported where they are used; where one is missing, the message says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from ratenorm.errors import UsageError

HOW = {
    "nir": 'pip install "ratenorm[nir]"',
    "h5py": 'pip install "ratenorm[nir]"',
    "onnx": 'pip install "ratenorm[onnx]"',
    "onnx2torch": 'pip install "ratenorm[onnx]" && pip install --no-deps onnx2torch',
    "onnxruntime": 'pip install "ratenorm[onnx]"',
    "nirtorch": "pip install --no-deps nirtorch",
    "spikingjelly": "pip install --no-deps spikingjelly==2.0.0 && pip install nir nirtorch h5py loguru tqdm",
    "sinabs": "pip install --no-deps sinabs==3.1.3 && pip install nir nirtorch h5py pbr",
    "snntorch": "pip install --no-deps snntorch==1.0.0 && pip install nir nirtorch h5py",
}


def needed(name: str) -> ModuleType:
    """A package, or the exact command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        missing = (error.name or package).split(".")[0]
        more = "" if missing == package else f" (it misses {missing!r})"
        raise UsageError(
            f"This needs the package {package!r}, which is not installed{more}. Install it: {HOW[package]}"
        ) from error
