"""`adapt`: a copy of a network with its activations replaced by ones that spiking neurons compute.

An integrate-and-fire neuron fires at a rate between 0 and 1, so it computes a clip from below and above. Activations
close to ReLU are replaced by it; a few epochs of fine-tuning then bring the accuracy back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from ratenorm import notebook
from ratenorm.arguments import check_kind
from ratenorm.convert.copying import unwrapped
from ratenorm.convert.lower import inspect
from ratenorm.convert.support import Entry, SupportReport
from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import UsageError

Kind = Literal["relu", "rate_norm"]

# What becomes ReLU, and how far it is from it.
NEAR: dict[type[nn.Module], str] = {
    nn.LeakyReLU: "differs for negative inputs, by the slope",
    nn.PReLU: "differs for negative inputs, by the slope",
    nn.RReLU: "differs for negative inputs, by the slope",
    nn.ELU: "differs for negative inputs, by at most alpha",
    nn.CELU: "differs for negative inputs, by at most alpha",
    nn.SELU: "differs for negative inputs, and by a factor of 1.05 for positive ones",
    nn.SiLU: "differs most around 0, by at most 0.28",
    nn.GELU: "differs most around 0, by at most 0.17",
    nn.Mish: "differs most around 0, by at most 0.31",
    nn.Hardswish: "differs most around 0, by at most 0.38",
    nn.Softplus: "differs most around 0, by at most 0.7 / beta",
}
ADVICE = (
    "Fine-tune the network for 2 to 5 epochs with a tenth of the learning rate it was trained with, then convert it."
)


@dataclass(frozen=True)
class Change:
    """One replaced activation."""

    name: str
    before: str
    after: str
    difference: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}; {self.difference}"


@dataclass(frozen=True)
class Adaptation:
    """What `adapt` returns.

    Args:
        model: The adapted copy.
        changes: What was replaced.
        report: What conversion will do with the copy; None where no example was given.
    """

    model: nn.Module
    changes: tuple[Change, ...]
    report: SupportReport | None

    @property
    def obstacles(self) -> tuple[Entry, ...]:
        """What still cannot be converted."""
        return () if self.report is None else self.report.of("unsupported")

    def __str__(self) -> str:
        lines = [f"replaced ({len(self.changes)}):", *(f"    {change}" for change in self.changes)]
        if not self.changes:
            lines = ["replaced nothing: no activation of the network has to change."]
        if self.obstacles:
            lines += [f"still in the way ({len(self.obstacles)}):", *(f"    {entry}" for entry in self.obstacles)]
        if self.changes:
            lines.append(ADVICE)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Adaptation({len(self.changes)} replaced, {len(self.obstacles)} obstacles left)"

    def _repr_html_(self) -> str:
        rows = [(c.name, c.before, c.after, c.difference) for c in self.changes]
        rows += [(e.name, e.what, "cannot be converted", e.remedy) for e in self.obstacles]
        return notebook.table(repr(self), ("part", "before", "after", "difference or fix"), rows)


def adapt(model: nn.Module, example: Tensor | None = None, to: Kind = "relu") -> Adaptation:
    """Replace activations that have a near equivalent among those that spiking neurons compute.

    Replaced are modules: LeakyReLU, PReLU, RReLU, ELU, CELU, SELU, SiLU, GELU, Mish, Hardswish, Softplus, and Hardtanh
    with a negative lower end. Functions called in `forward`, such as `F.silu`, cannot be replaced from outside.

    Args:
        model: The network. It is not changed.
        example: A batch of images. With it the result also says what still cannot be converted.
        to: "relu", or "rate_norm" for Rate Norm layers, which learn a ceiling while the network is fine-tuned.

    Returns:
        The adapted copy, what was replaced, and what is left.

    Raises:
        UsageError: If the model is not a module, or `to` is neither of the two.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU(), torch.nn.Linear(8, 2))
        >>> adapted = rn.adapt(model, torch.rand(1, 4))
        >>> adapted.changes[0].before, adapted.changes[0].after, len(adapted.obstacles)
        ('SiLU', 'ReLU', 0)
    """
    check_kind("Adapting a network", "the model", model, nn.Module, "a torch.nn.Module")
    if to not in ("relu", "rate_norm"):
        raise UsageError(f"Adapting a network: to is {to!r}, it must be 'relu' or 'rate_norm'.")
    adapted = copy.deepcopy(unwrapped(model))
    changes: list[Change] = []
    for path, module in list(adapted.named_modules()):
        found = _replacement(module, to)
        if found is None:
            continue
        new, difference = found
        changes.append(Change(path or "the network", type(module).__name__, _name(new), difference))
        if not path:
            adapted = new
            continue
        parent, _, name = path.rpartition(".")
        setattr(adapted.get_submodule(parent), name, new.train(module.training))
    report = None if example is None else inspect(adapted, example)
    return Adaptation(adapted, tuple(changes), report)


def _replacement(module: nn.Module, to: Kind) -> tuple[nn.Module, str] | None:
    """What an activation becomes, and how far that is from it."""
    make: Callable[[], Any] = nn.ReLU if to == "relu" else lambda: RateNorm(output="activation")
    if type(module) in NEAR:
        return make(), NEAR[type(module)]
    if isinstance(module, nn.Hardtanh) and type(module) is nn.Hardtanh and module.min_val < 0 < module.max_val:
        return nn.Hardtanh(0.0, module.max_val), "differs for negative inputs"
    return None


def _name(module: nn.Module) -> str:
    return repr(module) if isinstance(module, nn.Hardtanh) else type(module).__name__
