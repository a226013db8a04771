"""Answer as soon as the answer is settled, and stop simulating the image.

An image is settled once the confidence of its mean output reaches the threshold of the step. The thresholds are fitted
on held-out images for a requested loss of accuracy, with every fixed number of steps among the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.errors import DataError, UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.simulate.simulate import EngineName, start

Criterion = Literal["margin", "entropy"]
CRITERIA: tuple[Criterion, ...] = ("margin", "entropy")
EPSILONS = (-0.02, 0.0, *(0.001 * 1.3**i for i in range(21)), 0.25, 0.4, 1.0)  # losses tried by the fit
GROUPS = 50  # of images, by confidence, to estimate the loss from
CHUNK = 4  # steps between two looks at who is settled; the answer is that of the very step all the same


def confidence(logits: Tensor, criterion: Criterion) -> Tensor:
    """How sure a mean output [..., classes] is: the larger the surer.

    `margin` is the lead of the largest output over the next; `entropy` the negative entropy of their softmax.
    """
    if criterion not in CRITERIA:
        raise UsageError(f"Early exit: the criterion is {criterion!r}; it must be one of {', '.join(CRITERIA)}.")
    if logits.shape[-1] < 2:
        raise UsageError(f"Early exit: the output has {logits.shape[-1]} value; an answer needs at least two classes.")
    if criterion == "margin":
        best = logits.topk(2, dim=-1).values
        return best[..., 0] - best[..., 1]
    logs = logits.log_softmax(-1)
    return (logs.exp() * logs).sum(-1)


@dataclass(frozen=True)
class EarlyExit:
    """When to stop: at the first step whose confidence reaches the threshold of that step.

    A mean over one step is noisier than a mean over a hundred, so each step has a threshold of its own. Minus infinity
    answers there at the latest, infinity never answers there. Steps after the last threshold do not run.

    Args:
        criterion: "margin" or "entropy", see `confidence`.
        thresholds: One for each step. A single number for all steps is `EarlyExit.constant`.
        allowed_loss: The share of accuracy that the rule was allowed to lose where it was fitted.
        fixed_steps: The fewest steps for all images alike with the same allowed loss, where it was fitted.
    """

    criterion: Criterion
    thresholds: tuple[float, ...]
    allowed_loss: float = 0.0
    fixed_steps: int | None = None

    @classmethod
    def constant(cls, criterion: Criterion, threshold: float, steps: int) -> EarlyExit:
        """The same threshold at every step."""
        return cls(criterion, (threshold,) * (steps - 1) + (-math.inf,))

    @classmethod
    def fixed(cls, steps: int) -> EarlyExit:
        """Every image answers after `steps` steps."""
        return cls("margin", (math.inf,) * (steps - 1) + (-math.inf,))

    @property
    def steps(self) -> int:
        """The last step at which an image can answer."""
        return next((t for t, at in enumerate(self.thresholds, 1) if at == -math.inf), len(self.thresholds))

    def reached(self, logits: Tensor, first: int = 1) -> Tensor:
        """[T, B] whether the mean outputs [T, B, classes] of the steps from `first` on are settled."""
        sure = confidence(logits, self.criterion)
        limits = [self.thresholds[t] if t < len(self.thresholds) else -math.inf for t in _range(first, len(logits))]
        return sure >= sure.new_tensor(limits).unsqueeze(1)

    def exit_steps(self, logits: Tensor) -> Tensor:
        """[B] the step (from 1) at which each image of logits [T, B, classes] answers: T if it never settles."""
        return _first(self.reached(logits))


def _range(first: int, count: int) -> range:
    return range(first - 1, first - 1 + count)


def _first(reached: Tensor) -> Tensor:
    """[B] the first step from 1 that is reached, of [T, B]; the last where none is."""
    return torch.where(reached.any(0), reached.int().argmax(0) + 1, len(reached))


def fit_early_exit(
    logits: Tensor, labels: Tensor, *, criterion: Criterion = "margin", allowed_loss: float = 0.0
) -> EarlyExit:
    """The rule with the fewest steps whose accuracy is within `allowed_loss` of that of all steps.

    For each step t and last step L, the accuracy lost by answering at t instead of L falls with the confidence; it is
    estimated from the images as a monotone function. Answering where it is at most epsilon gives a threshold for each
    step. Every epsilon and L is tried, and every fixed number of steps: on these images no fixed T with the required
    accuracy takes fewer steps than the rule. With 100 images or more, a rule must also keep the accuracy where it is
    fitted on one half of them and scored on the other.

    Args:
        logits: Mean outputs [T, B, classes] of held-out images, never of those the result is reported on.
        labels: Their classes, [B].
        criterion: What measures confidence.
        allowed_loss: The share of accuracy that may be lost, 0 <= loss < 1.

    Returns:
        The rule; `fixed_steps` is the best fixed T, to compare with.

    Raises:
        UsageError: If `allowed_loss` or the criterion is out of range.
        DataError: If logits and labels do not fit.

    Example:
        >>> labels = torch.tensor([0, 1, 2])
        >>> fit_early_exit(torch.eye(3).expand(5, 3, 3), labels).exit_steps(torch.eye(3).expand(5, 3, 3)).tolist()
        [1, 1, 1]
    """
    if not 0.0 <= allowed_loss < 1.0:
        raise UsageError(f"Fitting early exit: allowed_loss is {allowed_loss}; it is a fraction, 0 <= loss < 1.")
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
        raise DataError(
            f"Fitting early exit: logits are a {type(logits).__name__} and labels a {type(labels).__name__}; both must "
            "be tensors. Use `torch.as_tensor`."
        )
    if logits.ndim != 3 or logits.shape[1] != len(labels) or len(labels) == 0:
        raise DataError(
            f"Fitting early exit: the logits have shape {tuple(logits.shape)} for {len(labels)} labels; they must be "
            f"[steps, images, classes] with one label for each image, and at least one image."
        )
    sure = confidence(logits, criterion)
    right = (logits.argmax(-1) == labels.to(logits.device)).double()  # [T, B]
    by_step = right.mean(1)
    needed = float(by_step[-1]) - allowed_loss
    fixed = 1 + int((by_step >= needed).int().argmax())
    best, fewest = (math.inf,) * (fixed - 1) + (-math.inf,), float(fixed)
    for last in _last_steps(len(logits)):
        if float(by_step[last - 1]) < needed:
            continue
        rules = _Rules(sure[:last], right[:last])
        for epsilon in EPSILONS:
            rule, mean, accuracy = rules.at(epsilon, fewest)
            if mean < fewest and accuracy >= needed:
                best, fewest = rule, mean
    return EarlyExit(criterion, best, allowed_loss, fixed)


class _Rules:
    """The rules whose last step is that of the given outputs, one for each loss epsilon that a step may cost.

    A rule that is scored on the images it was fitted on looks better than it is. So its accuracy is the smaller one of
    two: on these images, and of two rules that are each fitted on one half of them and scored on the other.
    """

    def __init__(self, sure: Tensor, right: Tensor) -> None:
        self._sure, self._right = sure, right
        count = sure.shape[1]
        everything = torch.arange(count, device=sure.device)
        halves = [everything[0::2], everything[1::2]] if count >= 2 * GROUPS else []
        self._fitted = [(self._losses(everything), everything)]
        self._fitted += [(self._losses(one), other) for one, other in zip(halves, reversed(halves), strict=True)]

    def _losses(self, images: Tensor) -> list[_Loss]:
        gain = self._right[-1, images] - self._right[:, images]
        return [_Loss.of(self._sure[t, images], gain[t]) for t in range(len(gain) - 1)]

    def at(self, epsilon: float, fewest: float) -> tuple[tuple[float, ...], float, float]:
        """Thresholds, mean steps and accuracy; a rule that takes more than the `fewest` steps is not scored."""
        found: list[tuple[tuple[float, ...], float, float]] = []
        for losses, images in self._fitted:
            rule = (*(loss.threshold(epsilon) for loss in losses), -math.inf)
            settled = _first(self._sure[:, images] >= self._sure.new_tensor(rule).unsqueeze(1))
            right = float(self._right[:, images].gather(0, (settled - 1).unsqueeze(0)).sum())
            found.append((rule, float(settled.double().mean()), right))
            if found[0][1] >= fewest:
                break
        (rule, mean, own), others, count = found[0], found[1:], self._sure.shape[1]
        return rule, mean, min(own, sum(right for _, _, right in others) if others else own) / count


def _last_steps(steps: int) -> list[int]:
    """Last steps to try: all up to 16, then about ten for each doubling."""
    found = list(range(1, min(steps, 16) + 1))
    while found[-1] < steps:
        found.append(min(steps, max(found[-1] + 1, round(found[-1] * 1.07))))
    return found


@dataclass(frozen=True)
class _Loss:
    """The accuracy lost by answering now, falling with confidence: `values` from the confidences `edges` on."""

    edges: list[float]
    values: list[float]

    @classmethod
    def of(cls, sure: Tensor, gain: Tensor) -> _Loss:
        """Isotonic regression (pool adjacent violators) of the gain from waiting, over groups of equal size."""
        order = sure.argsort()
        size = max(1, -(-len(order) // GROUPS))
        edges, means, counts = [], [], []
        for group in order.split(size):
            edges.append(float(sure[group[0]]))
            means.append(float(gain[group].mean()))
            counts.append(len(group))
            while len(means) > 1 and means[-1] >= means[-2]:
                total = counts[-1] + counts[-2]
                means[-2:] = [(means[-1] * counts[-1] + means[-2] * counts[-2]) / total]
                counts[-2:] = [total]
                edges.pop()
        return cls(edges, means)

    def threshold(self, epsilon: float) -> float:
        """The lowest confidence from which on at most `epsilon` is lost."""
        return next((at for at, value in zip(self.edges, self.values, strict=True) if value <= epsilon), math.inf)


@dataclass(frozen=True)
class Settled:
    """Some steps of a run with early exit: the images still running at their start, and which of them settled."""

    step: int  # the last of these steps, from 1
    images: Tensor  # [n] positions in the batch
    logits: Tensor  # [steps, n, classes] mean outputs
    settled_at: Tensor  # [n] the step at which each settled, 0 for not yet


def stream_early_exit(
    net: SpikingNet,
    x: Tensor,
    steps: int,
    rule: EarlyExit,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    first_image: int = 0,
    chunk: int = CHUNK,
) -> Iterator[Settled]:
    """Simulate, yielding outputs every `chunk` steps and dropping images once they are settled.

    At the last step every image still running counts as settled.
    """
    if steps < 1 or chunk < 1:
        raise UsageError(f"Simulating with early exit: steps is {steps} and chunk {chunk}; both must be at least 1.")
    simulation = start(net, x, engine, coding, first_image=first_image)
    images = torch.arange(len(x))
    steps = min(steps, rule.steps)
    done = 0
    while done < steps and len(images):
        size = min(chunk, steps - done)
        logits = simulation.advance(size).cpu()
        reached = rule.reached(logits, done + 1)  # [size, n]
        first = torch.where(reached.any(0), done + 1 + reached.int().argmax(0), 0)
        done += size
        settled = torch.where((first == 0) & (done == steps), steps, first)
        yield Settled(done, images, logits, settled)
        running = (settled == 0).nonzero()[:, 0]
        if len(running) < len(images):
            images = images[running]
            if len(running):
                simulation.keep(running.tolist())


@dataclass(frozen=True)
class EarlyExitResult:
    """The answers of a batch, each given as soon as it was settled."""

    rule: EarlyExit
    steps: int  # T, the most an image may take
    logits: Tensor  # [B, classes] mean output at the step of the answer
    answered_at: Tensor  # [B] that step, from 1

    @property
    def mean_steps(self) -> float:
        return float(self.answered_at.double().mean())

    @property
    def worst_steps(self) -> int:
        return int(self.answered_at.max())

    @property
    def histogram(self) -> Tensor:
        """[T] images that answered at step t."""
        return torch.bincount(self.answered_at - 1, minlength=self.steps)

    def accuracy(self, labels: Tensor) -> float:
        return float((self.logits.argmax(-1) == labels.cpu()).double().mean())

    def to_record(self, labels: Tensor) -> dict[str, Any]:
        """What a record keeps under `early_exit` (docs/records.md). A step without a threshold never answers."""
        return {
            "criterion": self.rule.criterion,
            "thresholds": [t if math.isfinite(t) else None for t in self.rule.thresholds[: self.rule.steps - 1]],
            "last_step": self.rule.steps,
            "fixed_steps": self.rule.fixed_steps,
            "allowed_loss": self.rule.allowed_loss,
            "accuracy": self.accuracy(labels),
            "mean_steps": self.mean_steps,
            "worst_steps": self.worst_steps,
            "histogram": self.histogram.tolist(),
        }

    def __str__(self) -> str:
        return (
            f"{len(self.logits)} images answered after {self.mean_steps:.1f} of {self.steps} steps on average, "
            f"{self.worst_steps} at most (by {self.rule.criterion})"
        )


def simulate_early_exit(
    net: SpikingNet,
    x: Tensor,
    steps: int,
    rule: EarlyExit,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    first_image: int = 0,
    chunk: int = CHUNK,
) -> EarlyExitResult:
    """Run a batch until every image has settled, or for `steps` steps."""
    answers: Tensor | None = None
    answered_at = torch.zeros(len(x), dtype=torch.int64)
    options: dict[str, Any] = {"engine": engine, "coding": coding, "first_image": first_image, "chunk": chunk}
    for part in stream_early_exit(net, x, steps, rule, **options):
        if answers is None:
            answers = part.logits.new_zeros(len(x), part.logits.shape[-1])
        now = part.settled_at.nonzero()[:, 0]
        first = part.step - len(part.logits) + 1
        answers[part.images[now]] = part.logits[part.settled_at[now] - first, now]
        answered_at[part.images[now]] = part.settled_at[now]
    assert answers is not None  # there is at least one step
    return EarlyExitResult(rule, steps, answers, answered_at)


def settle_afterwards(rule: EarlyExit, logits: Tensor) -> EarlyExitResult:
    """What early exit would have answered, from the outputs [T, B, classes] of a run over all steps."""
    at = rule.exit_steps(logits)
    chosen = logits[at - 1, torch.arange(logits.shape[1])]
    return EarlyExitResult(rule, len(logits), chosen.cpu(), at.cpu())
