"""Answer as soon as the answer is settled, and stop simulating the image.

An image is settled once the confidence of its mean output reaches a threshold. The threshold is fitted on held-out
images for a requested loss of accuracy: of all thresholds that keep the accuracy there, the one with the fewest steps.
"""

from __future__ import annotations

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
CANDIDATES = 512  # thresholds tried by the fit
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
    """When to stop: once `criterion` reaches `threshold`, fitted for an accuracy at most `allowed_loss` lower."""

    criterion: Criterion
    threshold: float
    allowed_loss: float

    def exit_steps(self, logits: Tensor) -> Tensor:
        """[B] the step (from 1) at which each image of logits [T, B, classes] answers: T if it never settles."""
        return _exit_steps(confidence(logits, self.criterion).cummax(0).values, self.threshold)


def fit_early_exit(
    logits: Tensor, labels: Tensor, *, criterion: Criterion = "margin", allowed_loss: float = 0.0
) -> EarlyExit:
    """The threshold with the fewest steps whose accuracy is within `allowed_loss` (a fraction) of that of all steps.

    `logits` [T, B, classes] of held-out images, never of those the result is reported on.
    """
    if not 0.0 <= allowed_loss < 1.0:
        raise UsageError(f"Fitting early exit: allowed_loss is {allowed_loss}; it is a fraction, 0 <= loss < 1.")
    if logits.ndim != 3 or logits.shape[1] != len(labels) or len(labels) == 0:
        raise DataError(
            f"Fitting early exit: the logits have shape {tuple(logits.shape)} for {len(labels)} labels; they must be "
            f"[steps, images, classes] with one label an image, and at least one image."
        )
    sure = confidence(logits, criterion).cummax(0).values  # settled once, settled for good
    right = (logits.argmax(-1) == labels.to(logits.device)).double()  # [T, B]
    needed = float(right[-1].mean()) - allowed_loss
    ranks = torch.linspace(0, 1, CANDIDATES, dtype=torch.float64)
    seen = sure.flatten().sort().values
    candidates = seen[(ranks * (len(seen) - 1)).long()].unique()
    best = float(torch.nextafter(seen[-1], seen.new_tensor(torch.inf)))  # surer than any of these images: all steps
    fewest = float(len(logits))
    for threshold in candidates.tolist():
        steps = _exit_steps(sure, threshold)
        accuracy = float(right.gather(0, (steps - 1).unsqueeze(0)).mean())
        mean = float(steps.double().mean())
        if accuracy >= needed and mean < fewest:
            best, fewest = threshold, mean
    return EarlyExit(criterion, best, allowed_loss)


def _exit_steps(sure: Tensor, threshold: float) -> Tensor:
    """From running maxima of the confidence, [T, B]."""
    return ((sure < threshold).sum(0) + 1).clamp(max=len(sure))


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
    done = 0
    while done < steps and len(images):
        size = min(chunk, steps - done)
        logits = simulation.advance(size).cpu()
        reached = confidence(logits, rule.criterion) >= rule.threshold  # [size, n]
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
        """What a record keeps under `early_exit` (docs/records.md)."""
        return {
            "criterion": self.rule.criterion,
            "threshold": self.rule.threshold,
            "allowed_loss": self.rule.allowed_loss,
            "accuracy": self.accuracy(labels),
            "mean_steps": self.mean_steps,
            "worst_steps": self.worst_steps,
            "histogram": self.histogram.tolist(),
        }

    def __str__(self) -> str:
        return (
            f"{len(self.logits)} images answered after {self.mean_steps:.1f} of {self.steps} steps on average, "
            f"{self.worst_steps} at most ({self.rule.criterion} >= {self.rule.threshold:.4g})"
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
