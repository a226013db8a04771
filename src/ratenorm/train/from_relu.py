"""Where stage 1 starts: from the weights of the same network trained with ReLU."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.losses import ceiling_for_omega
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers
from ratenorm.data import Batches
from ratenorm.errors import TrainingError, UsageError
from ratenorm.train.loop import evaluating, fitted


def start_from_relu_(model: nn.Module, relu: nn.Module, batches: Batches, omega: float | None = None) -> None:
    """Give a Rate-Norm network the weights of the same network trained with ReLU, and start its maxima from observed
    ones.

    The layers hand on activations (z of Eq. 6) instead of rates, which keeps the scale the weights were trained for: on
    `batches`, the network computes what the ReLU network does. With an Omega the maxima start lower, where the ReLU
    network's activations have that Omega (mean over the batches; the maximum where it is smaller even there), and stay
    there, frozen: Theorem 2 gives all layers about the same bound, and the weights learn with what does not fit below.
    """
    if omega is not None and not 1.0 < omega < math.inf:
        raise UsageError(
            f"Starting from a ReLU network: Omega is {omega}; it must be above 1, where all neurons saturate."
        )
    layers = dict(rate_norm_layers(model))
    if not layers:
        raise TrainingError("Starting from a ReLU network: the network has no Rate Norm layer. Build it with RateNorm.")
    own = {name for name in model.state_dict() if name.rpartition(".")[0] in layers}
    try:
        model.load_state_dict({**relu.state_dict(), **{name: model.state_dict()[name] for name in own}})
    except RuntimeError as error:
        raise TrainingError(
            "Starting from a ReLU network: its weights do not fit. Both must be the same network; "
            f"{str(error).splitlines()[-1].strip()}"
        ) from error
    seen: dict[str, list[float]] = {name: [] for name in layers}

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[name].append(float(inputs[0].amax()) if omega is None else ceiling_for_omega(inputs[0], omega))

        return hook

    for layer in layers.values():
        layer.output = "activation"
        layer.running_max.fill_(torch.finfo(torch.float32).max)  # no ceiling while looking
    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        with evaluating(model):
            _uncapped(layers)
            for images, _ in batches:
                model(fitted(images, model))
    finally:
        for handle in handles:
            handle.remove()
        for layer in layers.values():
            layer.__dict__.pop("forward", None)
    for name, layer in layers.items():
        found = [value for value in seen[name] if value > 0.0] or [0.0]
        if omega is None:
            layer.running_max.fill_(max(found))
            continue
        if found == [0.0]:
            raise TrainingError(f"Starting from a ReLU network: its layer {name} never fires, so it has no Omega.")
        layer.running_max.fill_(sum(found) / len(found))
        layer.freeze_()


def _uncapped(layers: dict[str, RateNorm]) -> None:
    """While maxima are observed the layers are plain ReLU: a huge ceiling would lose precision in x / theta * theta."""
    for layer in layers.values():
        layer.__dict__["forward"] = torch.relu
