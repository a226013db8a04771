"""How many synapses a spike travels over before it reaches the next population or the output.

Between populations everything is affine. With every weight 1 (`Op.paths`), the current of all next neurons, summed, is
a linear function of the spikes; its gradient is the number of paths from each neuron, borders, strides, groups, skips
and all. A synaptic operation is one spike on one path.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import Fire, Input, MaxPool


@torch.inference_mode(mode=False)
@torch.enable_grad()  # the count is a gradient: a caller who switched gradients off must not get zeros
def count_paths(net: SpikingNet) -> Mapping[str, Tensor]:
    """For each population and max-pool, the paths from each of its neurons: float64, the shape of the population."""
    sources: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}
    arrived: list[Tensor] = []
    for node in net.nodes:
        shape = net.shapes[node.name]
        inputs = [values[i] for i in node.inputs]
        if isinstance(node.op, Input):
            values[node.name] = torch.zeros(1, *shape, dtype=torch.float64)
        elif isinstance(node.op, Fire | MaxPool):
            # What arrives here has travelled; what leaves starts anew.
            arrived.append((node.op.paths(*inputs) if isinstance(node.op, MaxPool) else inputs[0]).sum())
            values[node.name] = sources[node.name] = torch.zeros(1, *shape, dtype=torch.float64, requires_grad=True)
        else:
            values[node.name] = node.op.paths(*inputs)
    if net.output not in sources:
        arrived.append(values[net.output].sum())
    total = torch.stack(arrived).sum()
    if not total.requires_grad:
        return {name: torch.zeros_like(s[0]) for name, s in sources.items()}
    grads = torch.autograd.grad(total, list(sources.values()), allow_unused=True)
    return {
        name: torch.zeros_like(s[0]).detach() if g is None else g[0]
        for (name, s), g in zip(sources.items(), grads, strict=True)
    }
