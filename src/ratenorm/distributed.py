"""Several processes as one (torchrun): who am I, and sums and maxima over all of us. One process needs none of it.

Every process holds the whole network and sees its slice of every batch; one of them, rank 0, writes files.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ratenorm.errors import UsageError


@dataclass(frozen=True)
class World:
    """This process among all: rank from 0, and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def writer(self) -> bool:
        return self.rank == 0


def restarts() -> int:
    """How often torchrun has started these processes anew, because one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def world() -> World:
    """The processes that work together now; alone if none were started together."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World()


@contextlib.contextmanager
def joined(device: str = "cpu") -> Iterator[World]:
    """Join the processes that torchrun started (gloo on CPUs, nccl on GPUs); does nothing for a process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not dist.is_available():
        yield World()
        return
    try:
        store, rank, size = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
        # torchrun keeps one store over its restarts: without a name of its own, a new attempt finds the dead one's
        # addresses in it
        store = dist.PrefixStore(f"attempt{restarts()}", store)  # type: ignore[attr-defined]
        backend = "nccl" if device.startswith("cuda") else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"Joining {os.environ.get('WORLD_SIZE')} processes: {str(error).splitlines()[0]}. Start them with "
            "torchrun, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        ) from error
    yield world()
    # Not after an error: the others may be waiting for this process, and must see it end. Nobody leaves before all are
    # done, and nothing that still holds the group (DDP) may outlive it: both abort the process now and then.
    wait_for_all()
    gc.collect()
    dist.destroy_process_group()


def total(tensor: Tensor) -> Tensor:
    """The sum over all processes. Whole numbers in float64 or int64 add up exactly, in any order."""
    if world().size == 1:
        return tensor
    result = tensor.clone()
    dist.all_reduce(result)
    return result


class _SumOverProcesses(torch.autograd.Function):
    """y = sum over processes of x; the gradient of a sum is the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        grad: Tensor = grads[0].clone()
        dist.all_reduce(grad)
        return grad


def total_with_gradient(tensor: Tensor) -> Tensor:
    """`total` that gradients flow through. With losses averaged over processes, what every one of them computes from it
    has the gradient a single process would find."""
    if world().size == 1:
        return tensor
    result: Tensor = _SumOverProcesses.apply(tensor)
    return result


def largest(tensor: Tensor) -> Tensor:
    """The maximum over all processes, entry by entry."""
    if world().size == 1:
        return tensor
    result = tensor.clone()
    dist.all_reduce(result, dist.ReduceOp.MAX)
    return result


def gathered(values: Tensor) -> Tensor:
    """The values of all processes one behind the other; each may have a different number of them."""
    here = world()
    if here.size == 1:
        return values
    lengths = torch.zeros(here.size, dtype=torch.int64)
    lengths[here.rank] = values.numel()
    lengths = total(lengths)
    padded = values.new_zeros(int(lengths.max()))
    padded[: values.numel()] = values
    parts = [torch.empty_like(padded) for _ in range(here.size)]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, lengths, strict=True)])


def wait_for_all() -> None:
    """Nobody goes on before everybody is here."""
    if world().size > 1:
        dist.barrier()
