"""Random generators that are a function of their purpose, not of what ran before.

A generator for (seed, epoch, batch) can be made again at any time, which is what makes a resumed run, or a
run split over several processes, see exactly the data of an uninterrupted one.
"""

from __future__ import annotations

import hashlib

import torch


def generator_for(seed: int, *purpose: int | str) -> torch.Generator:
    """A CPU generator that depends on nothing but `seed` and `purpose`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    # 63 bits: manual_seed takes a signed 64-bit integer.
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
