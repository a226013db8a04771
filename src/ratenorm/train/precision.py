"""Products of a training in bfloat16 where the processor is made for it: half the time of float32 in a convolution.

Weights, their gradients, sums and losses stay float32; rounded is only what convolutions and matrices multiply and what
passes between layers. Where the processor would have to emulate bfloat16 all stays float32, which is then faster.
"""

from __future__ import annotations

import contextlib

import torch

_CPU_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # names of x86 and of ARM


def has_bfloat16(device: torch.device) -> bool:
    """The device multiplies bfloat16 faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    found = torch.cpu.get_capabilities()
    return any(bool(found.get(name)) for name in _CPU_FEATURES)


def products(bfloat16: bool, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """While the block lasts, products are taken in bfloat16 if that is asked for and worth it."""
    if bfloat16 and has_bfloat16(device):
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
