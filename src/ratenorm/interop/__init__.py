"""Exchange with others: NIR files, other simulators, ONNX, tables for hardware, limits of chips.

Nothing here is loaded by `import ratenorm`; the packages it needs are extras: `pip install "ratenorm[nir]"`.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "check": "ratenorm.interop.checking",
    "chip_fit": "ratenorm.interop.chips",
    "compare": "ratenorm.interop.checking",
    "export_nir": "ratenorm.interop.nir_export",
    "export_tables": "ratenorm.interop.tables",
    "import_nir": "ratenorm.interop.nir_import",
    "load_onnx": "ratenorm.interop.onnx_import",
    "sinabs": "ratenorm.interop.to_sinabs",
    "snntorch": "ratenorm.interop.to_snntorch",
    "spikingjelly": "ratenorm.interop.to_spikingjelly",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ratenorm.interop' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
