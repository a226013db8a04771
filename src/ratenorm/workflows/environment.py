"""Where a figure was measured: versions and hardware, for every record."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy
import torch

from ratenorm._version import __version__


def versions() -> dict[str, str]:
    return {
        "ratenorm": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def hardware() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "device": "cpu",
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
