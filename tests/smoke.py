"""What a fresh installation of a wheel must do, without a compiler: `python tests/smoke.py`."""

from __future__ import annotations

import torch
from torch import nn

import ratenorm
from ratenorm.simulate.event import available


def main() -> None:
    if (missing := available.missing()) is not None:
        raise SystemExit(f"The event engine's {missing}.")
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 40, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(40, 40, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(640, 3)).eval()
    images = torch.rand(3, 3, 8, 8)
    net = ratenorm.convert(model, ratenorm.MaxNorm(), example=images[:1], calibration=images).net
    dense, event = (ratenorm.simulate(net, images, 32, engine=name) for name in ("dense", "event"))
    if not torch.equal(dense.logits, event.logits) or float(event.synaptic_ops.sum()) == 0.0:
        raise SystemExit("The event engine and the dense engine differ.")
    if not ratenorm.zoo.names():
        raise SystemExit("The wheel has no networks.")
    print(f"ratenorm {ratenorm.__version__}: engines agree, instruction sets {available.instruction_sets()}")


if __name__ == "__main__":
    main()
