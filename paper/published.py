"""The paper's own numbers (Ding et al. 2021), to stand beside ours. Fractions, not per cent; loss = ANN - SNN."""

from __future__ import annotations

from typing import Any

# Table 1: (data, network) -> best SNN accuracy and conversion loss of "This work (RNL)".
TABLE_1: dict[tuple[str, str], dict[str, float]] = {
    ("mnist", "cnn7"): {"snn_accuracy": 0.9651, "conversion_loss": 0.0},
    ("mnist", "alexnet"): {"snn_accuracy": 0.9946, "conversion_loss": -0.0004},
    ("cifar10", "vgg16"): {"snn_accuracy": 0.9286, "conversion_loss": -0.0004},
    ("cifar10", "preact_resnet18"): {"snn_accuracy": 0.9345, "conversion_loss": -0.0039},
    ("cifar100", "vgg16"): {"snn_accuracy": 0.7502, "conversion_loss": 0.0054},
    ("cifar100", "preact_resnet18"): {"snn_accuracy": 0.7510, "conversion_loss": -0.0045},
    ("cifar100", "preact_resnet34"): {"snn_accuracy": 0.7291, "conversion_loss": 0.0080},
}

# Table 2: CIFAR-10, accuracy at T; None where the paper has a dash.
TABLE_2_STEPS = (16, 32, 64, 128, 256)
TABLE_2: dict[tuple[str, str], tuple[float | None, ...]] = {
    ("vgg16", "Max Norm"): (0.1007, 0.1000, 0.1217, 0.5037, 0.8185),
    ("preact_resnet18", "Max Norm"): (0.1175, 0.1175, 0.2108, 0.5525, 0.7833),
    ("vgg16", "Robust Norm"): (0.1011, 0.4303, 0.8152, 0.9080, 0.9275),
    ("preact_resnet18", "Robust Norm"): (0.1350, 0.1300, 0.2350, 0.5950, 0.8050),
    ("vgg16", "RMP"): (None, 0.6030, 0.9035, 0.9241, 0.9304),
    ("vgg16", "RNL + RIL"): (0.5790, 0.8540, 0.9115, 0.9251, 0.9295),
    ("preact_resnet18", "RNL + RIL"): (0.4763, 0.8395, 0.9196, 0.9327, 0.9341),
}

# Section 3.3 and 3.4, VGG-16 on CIFAR-10: steps to 90 %, and the ratio of spikes up to there.
HEADLINE: dict[str, float] = {"steps": 52, "max_norm_steps": 446, "speed_up": 8.6, "energy_ratio": 0.265}


def numbers_for(data: str, network: str) -> dict[str, Any]:
    """What the paper says of a network, as the `paper` entry of a record."""
    found: dict[str, Any] = {}
    if (data, network) in TABLE_1:
        found["table 1"] = dict(TABLE_1[data, network])
    if data == "cifar10":
        for (name, method), row in TABLE_2.items():
            if name == network:
                found[f"table 2, {method}"] = {
                    f"accuracy at T = {t}": value
                    for t, value in zip(TABLE_2_STEPS, row, strict=True)
                    if value is not None
                }
    return found
