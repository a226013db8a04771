"""The Rate Inference Loss and the losses of the two stages of training.

| paper                         | here                | equation     |
|-------------------------------|---------------------|--------------|
| Omega = |r|_1 / |r|_2^2       | omega               | Theorem 2    |
| mean_l Omega_l                | rate_inference_loss | Eq. 9        |
| L(r*_L, y)                    | accuracy_loss       | Eq. 12, stage 1 |
| 1 - cos(r*_L, r'_L) + lam RIL | latency_loss        | Eq. 13, stage 2 |
| (beyond the paper)            | teaching_loss       | Hinton et al. 2015 |
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 2.0  # of a teacher's answers: what it holds of the wrong classes is to be heard


def omega(rates: Tensor) -> Tensor:
    """Omega = |r|_1 / |r|_2^2 over all rates of a layer and a batch.

    Taken over the whole batch it is mean(r) / mean(r^2): it depends on the distribution of the rates alone, not on the
    batch size or the width of the layer. A layer in which nothing fires has no Omega; infinity says that it never
    answers.
    """
    return omega_of_sums(rates.abs().sum(), rates.square().sum())


def omega_of_sums(total: Tensor, power: Tensor) -> Tensor:
    """Omega from |r|_1 and |r|_2^2, wherever these were summed."""
    return torch.where(power > 0, total / power.clamp_min(torch.finfo(power.dtype).tiny), torch.inf)


def ceiling_for_omega(x: Tensor, omega: float, counts: Tensor | None = None) -> float:
    """A ceiling theta below which rates clip(x, 0, theta) / theta have that Omega; the maximum of x where Omega is no
    larger there. With `counts`, x[i] stands for that many values.

    Towards theta = 0 every active neuron saturates and Omega is 1. So it is below on one end of the interval and above
    on the other, and stays so while that is halved; 24 times, as many as a float32 has digits.
    """
    active = x.detach() > 0.0
    x, counts = x.detach()[active], None if counts is None else counts[active].double()

    def omega_below(ceiling: float) -> float:
        rates = (x / ceiling).clamp_max(1.0)
        weigh = (lambda r: r.sum(dtype=torch.float64)) if counts is None else (lambda r: (r * counts).sum())
        return float(omega_of_sums(weigh(rates), weigh(rates.square())))

    if not len(x):
        return 0.0
    low, high = 0.0, float(x.amax())
    if omega_below(high) <= omega:
        return high
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if omega_below(middle) < omega else (low, middle)
    return high


def rate_inference_loss(omegas: Iterable[Tensor]) -> Tensor:
    """The mean of Omega over the layers, the term that Eq. 9 multiplies by lambda."""
    return torch.stack(list(omegas)).mean()


def accuracy_loss(output: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Stage 1: cross entropy of the Rate-Norm network at p = 1."""
    return F.cross_entropy(output, labels, label_smoothing=label_smoothing)


def teaching_loss(teacher: Tensor, student: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """How far the student's answers are from the teacher's: the divergence of their softened distributions (Hinton et
    al. 2015), times temperature^2, so that its gradient has the size of that of the cross entropy at any temperature.
    """
    known, learned = (F.log_softmax(output / temperature, dim=1) for output in (teacher, student))
    return temperature**2 * F.kl_div(learned, known, reduction="batchmean", log_target=True)


def latency_loss(teacher: Tensor, student: Tensor, omegas: Iterable[Tensor], lam: float) -> Tensor:
    """Stage 2 (Eq. 13): stay parallel to the output at p = 1, and lower the mean Omega."""
    similarity = F.cosine_similarity(teacher.flatten(1), student.flatten(1), dim=1).mean()
    return 1.0 - similarity + lam * rate_inference_loss(omegas)
