"""Training through time (Rathi et al. 2020): a converted network learns, unrolled over its first T steps.

Conversion makes rates right in the limit. In the first steps spikes also arrive unevenly, and only a training that
sees the steps can correct that. The network starts from its converted weights, so few epochs are enough.

    forward    Eq. 3, exactly as the engines compute it, over T steps
    backward   ds/dm = max(0, 1 - |m - theta| / theta) / theta        a triangle around the threshold

The loss is a mean over t = 1 .. T of the loss of the answer after t steps. A network trained for T = 4 is therefore
trained for T = 1, 2 and 3 too. Each batch is unrolled over T, T / 2 or T / 4 steps, drawn with equal chances: it costs
7 / 12 of a batch of T steps, and early answers count more. Weights, biases and a bias for each step and channel learn;
thresholds stay, because a factor on a threshold is a factor on weights (Theorem 1).
"""

from __future__ import annotations

import contextlib
import math
import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.convert.convert import Calibrated, Conversion
from ratenorm.convert.grid import on_grid
from ratenorm.core.losses import accuracy_loss, teaching_loss
from ratenorm.data import Augment, Batches, ImageSet, Normalisation, from_dataset
from ratenorm.distributed import total, world
from ratenorm.errors import TrainingError, UsageError
from ratenorm.graph.net import Node, SpikingNet, run
from ratenorm.graph.ops import Conv, Fire, Input, Linear, MaxPool
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.memory import available_memory
from ratenorm.train.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer_
from ratenorm.train.loop import first_bad_layer, run_stage
from ratenorm.train.precision import products
from ratenorm.train.stage1 import averaging, hold_out, stage_batches

LARGEST_STEPS = 8
BIAS_SCALE = 0.1  # of the threshold: how far a learning rate of 1 moves a step bias in one batch
VALUE_BYTES = 16  # kept for the backward pass, for each neuron, image and step


@dataclass(frozen=True)
class ThroughTime:
    """Settings of a training through time.

    Args:
        steps: T, the number of steps to train for: 1 to 8. Batches are unrolled over T, T / 2 or T / 4 of them.
        epochs: Passes over the training images.
        batch_size: Images in a batch.
        lr: Learning rate of Adam at its peak, as a share of each layer's root mean square weight.
        warmup: Share of the training during which the learning rate rises; it then falls to zero.
        teacher: Share of the loss that asks for the answers of the network before conversion; the labels have the rest.
        label_smoothing: Of the cross entropy.
        holdout: Training images held out to measure accuracy: a share below 1, or a number.
        augment: How training images are varied.
        bfloat16: Multiply in bfloat16 where the processor has it.
        seed: Of batches and augmentation.
        checkpoint_minutes: Time between two checkpoints.
    """

    steps: int = 8
    epochs: int = 2
    batch_size: int = 64
    lr: float = 1e-3
    warmup: float = 0.1
    teacher: float = 0.5
    label_smoothing: float = 0.0
    holdout: float = 0.1
    augment: Augment = field(default_factory=Augment)
    bfloat16: bool = True
    seed: int = 0
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        allowed: list[tuple[str, Any, bool, str]] = [
            ("steps", self.steps, 1 <= self.steps <= LARGEST_STEPS, f"a whole number from 1 to {LARGEST_STEPS}"),
            ("epochs", self.epochs, self.epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("lr", self.lr, 0 < self.lr <= 1, "in (0, 1], a share of each layer's weights"),
            ("warmup", self.warmup, 0 <= self.warmup < 1, "in [0, 1)"),
            ("teacher", self.teacher, 0 <= self.teacher <= 1, "in [0, 1]"),
            ("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "in [0, 1)"),
        ]
        for name, value, fine, what in allowed:
            if not fine:
                raise UsageError(f"Training through time: {name} is {value}; it must be {what}.")

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        return asdict(self)


class _Spikes(torch.autograd.Function):
    """Eq. 3 over all steps at once: currents [T, B, …] and a bias for each step [T, C, …] to spikes [T, B, …].

    The potential is kept in float32. Spikes are 0 or 1, so any type of the currents holds them exactly.
    """

    @staticmethod
    def forward(ctx: Any, current: Tensor, bias: Tensor, start: Tensor, threshold: Tensor) -> Tensor:
        potential = (start + bias[0]).expand(current.shape[1:]).contiguous()
        spikes = torch.empty_like(current)
        slopes = torch.empty_like(current, dtype=torch.bfloat16)
        for t, now in enumerate(current):
            if t > 0:
                potential += bias[t]
            potential += now
            fired = potential >= threshold
            spikes[t] = fired
            slopes[t] = potential.div(threshold).sub_(1.0).abs_().neg_().add_(1.0).clamp_min_(0.0)
            potential -= fired * threshold
        ctx.save_for_backward(slopes, threshold)
        ctx.bias_shape = bias.shape
        return spikes

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None]:
        slopes, threshold = ctx.saved_tensors
        (grad,) = grads
        result = torch.empty_like(grad)
        of_bias = torch.empty(ctx.bias_shape)
        later = torch.zeros(grad.shape[1:])  # the gradient of the potential that the step leaves
        for t in range(len(slopes) - 1, -1, -1):
            later.lerp_(grad[t].float() / threshold, slopes[t].float())
            result[t] = later
            of_bias[t] = later.sum_to_size(ctx.bias_shape[1:])
        return result, of_bias, None, None


def _exact_where(static: bool, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """What does not change with time is computed once, in float32.

    A constant current that is rounded to bfloat16 moves the spikes of all pixels of a plain background at once.
    """
    return torch.autocast(device.type, enabled=False) if static else contextlib.nullcontext()


class Unrolled(nn.Module):
    """A spiking network over its first steps, with weights that learn."""

    def __init__(self, net: SpikingNet, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps
        self.values = nn.ParameterDict()
        self.scales: dict[str, float] = {}  # how far a learning rate of 1 moves a value in one batch
        for i, node in enumerate(net.nodes):
            if isinstance(node.op, Conv | Linear):
                for name, tensor in node.op.tensors().items():
                    self._add(f"{i}/{name}", tensor, float(tensor.square().mean().sqrt()))
            elif isinstance(node.op, Fire):
                scale = BIAS_SCALE * float(node.op.threshold.mean())
                self._add(f"{i}/step_bias", self._rows(node, steps), scale)

    def _add(self, key: str, tensor: Tensor, scale: float) -> None:
        self.values[key] = nn.Parameter(tensor.detach().clone())
        self.scales[key] = max(scale, 1e-12)

    def _rows(self, node: Node, steps: int) -> Tensor:
        """A bias for each step and channel, beginning with what the population has."""
        assert isinstance(node.op, Fire)
        shape = self.net.shapes[node.name]
        rows = torch.zeros(steps, shape[0], *[1] * (len(shape) - 1))
        for t in range(steps):
            if (known := node.op.bias_at(t + 1)) is not None:
                rows[t] = known
        return rows

    def forward(self, images: Tensor, steps: int | None = None) -> Tensor:
        """The mean output after each of the first steps (None: all that are trained), [T, B, classes]."""
        steps, batch, net = self.steps if steps is None else steps, len(images), self.net
        values: dict[str, Tensor] = {}
        for i, node in enumerate(net.nodes):
            inputs = [values[name] for name in node.inputs]
            if isinstance(node.op, Input):
                value = images
            elif isinstance(node.op, Fire):
                current = inputs[0]
                still = node.inputs[0] in net.static
                shape = (steps, batch, *current.shape[1:])
                current = current.expand(shape) if still else current.view(shape)
                bias = self.values[f"{i}/step_bias"][:steps]
                value = _Spikes.apply(current, bias, node.op.start, node.op.threshold).flatten(0, 1)
            else:
                if any(name in net.static for name in node.inputs) and node.name not in net.static:
                    inputs = [
                        v.repeat(steps, *[1] * (v.ndim - 1)) if name in net.static else v
                        for name, v in zip(node.inputs, inputs, strict=True)
                    ]
                own = {k: self.values[f"{i}/{k}"] for k in node.op.tensors() if f"{i}/{k}" in self.values}
                op = replace(node.op, **own) if own else node.op
                with _exact_where(node.name in net.static, images.device):
                    value = op(*inputs)
            values[node.name] = value
            for name in node.inputs:
                if net.last_use[name] == node.name and name != net.output:
                    values.pop(name, None)
        out = values[net.output].float().reshape(steps, batch, -1)
        elapsed = torch.arange(1, steps + 1, device=out.device, dtype=out.dtype)
        return out.cumsum(0) / elapsed.view(-1, 1, 1)

    @torch.no_grad()
    def trained(self) -> SpikingNet:
        """The network with what was learned, on its grid. After the last step no step bias is added."""
        nodes: list[Node] = []
        for i, node in enumerate(self.net.nodes):
            own = {k.partition("/")[2]: v.detach().clone() for k, v in self.values.items() if k.startswith(f"{i}/")}
            if "step_bias" in own:
                own["step_bias"] = torch.cat([own["step_bias"], torch.zeros_like(own["step_bias"][:1])])
            nodes.append(replace(node, op=replace(node.op, **own)) if own else node)
        return on_grid(replace(self.net, nodes=tuple(nodes)))


def unrolled_steps(config: ThroughTime, step: int) -> int:
    """Over how many steps a batch is unrolled: the same in every process and after every resume."""
    choices = sorted({max(1, config.steps // part) for part in (1, 2, 4)})
    return random.Random(f"{config.seed}/{step}").choice(choices)


class _Stage:
    """What the training loop needs."""

    name = "through-time"

    def __init__(
        self, model: Unrolled, teacher: Any, train: Batches, held_out: Batches | None, config: ThroughTime
    ) -> None:
        self.model, self.teacher, self.batches, self.held_out, self.config = model, teacher, train, held_out, config
        self.epochs = config.epochs
        self.last = config.epochs * len(train)
        self.forward: nn.Module = averaging(model) if world().size > 1 else model
        groups = [{"params": [value], "scale": model.scales[key]} for key, value in model.values.items()]
        self.optimizer = torch.optim.Adam(groups, lr=config.lr, betas=(0.9, 0.99))

    def _rate(self, step: int) -> float:
        """Rises during the warm-up, then falls to zero along a cosine."""
        done, up = (step + 1) / (self.last + 1), self.config.warmup
        if done < up:
            return self.config.lr * done / up
        return self.config.lr * 0.5 * (1.0 + math.cos(math.pi * (done - up) / (1.0 - up)))

    def step(self, images: Tensor, labels: Tensor, step: int) -> dict[str, float]:
        rate = self._rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        with products(self.config.bfloat16, images.device):
            answers = self.forward(images, unrolled_steps(self.config, step))
        known = None
        if self.config.teacher > 0:
            with torch.no_grad(), products(self.config.bfloat16, images.device):
                known = self.teacher(images).float()
        loss = torch.zeros(())
        for answer in answers:
            own = accuracy_loss(answer, labels, self.config.label_smoothing)
            loss = loss + (own if known is None else torch.lerp(own, teaching_loss(known, answer), self.config.teacher))
        loss = loss / len(answers)
        value = float(total(loss.detach())) / world().size
        if not math.isfinite(value):
            return {"loss": value}
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        largest = float(nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None]))
        if not math.isfinite(largest):
            return {"loss": value, "gradient": largest}
        self.optimizer.step()
        return {"loss": value, "lr": rate}

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        if self.held_out is None:
            return {}
        found = accuracy_by_step(self.model, self.held_out)
        return {"accuracy": found[-1], **{f"accuracy_at_{t}": a for t, a in enumerate(found, 1)}}

    def state(self) -> dict[str, Tensor]:
        model = {f"model/{k}": v for k, v in self.model.state_dict().items()}
        return {**model, **optimizer_tensors(self.optimizer)}

    def restore_(self, checkpoint: Checkpoint) -> None:
        self.model.load_state_dict(checkpoint.part("model/"))
        restore_optimizer_(self.optimizer, checkpoint.part("optimizer/"))

    def suspect(self, images: Tensor) -> str:
        return first_bad_layer(self.model, images)


@torch.no_grad()
def accuracy_by_step(model: Unrolled, batches: Batches) -> list[float]:
    """The share of images answered right after each step, over the images of all processes."""
    counted = torch.zeros(model.steps + 1, dtype=torch.int64)
    for images, labels in batches:
        if len(images):
            right = (model(images).argmax(-1) == labels).sum(1)
            counted += torch.cat([right, torch.tensor([len(labels)])])
    numbers = [int(n) for n in total(counted)]
    return [n / numbers[-1] for n in numbers[:-1]]


def train_through_time(
    conversion: Conversion,
    data: ImageSet | Any,
    config: ThroughTime | None = None,
    *,
    held_out: ImageSet | None = None,
    normalise: Normalisation | None = None,
    run_folder: RunFolder | None = None,
    show: bool = True,
) -> tuple[Conversion, list[dict[str, Any]]]:
    """Train a converted network through its first steps.

    Args:
        conversion: What `convert` or `calibrate` returned; it is not changed.
        data: Training images with labels, or any data set of them; some are held out to measure accuracy.
        config: The settings.
        held_out: Images to measure accuracy on, in place of those that `config.holdout` takes from `data`.
        normalise: What the network's images are normalised by.
        run_folder: Where checkpoints and metrics are kept; a training that was stopped resumes there.
        show: Show a progress bar.

    Returns:
        The trained conversion, and one entry of figures for each epoch.

    Raises:
        UsageError: If the network has a max-pool on spikes or signed spikes.
        TrainingError: If it does not fit into memory, or diverges.
    """
    config = ThroughTime() if config is None else config
    check_trainable(conversion.net)
    check_memory(conversion.net, config)
    if held_out is None:
        train, held_out = hold_out(data, config.holdout, config.seed)
    else:
        train = from_dataset(data)
    batches, checks = stage_batches(train, held_out, config.batch_size, config.seed, normalise, config.augment)
    model = Unrolled(conversion.net, config.steps)
    stage = _Stage(model, lambda images: run(conversion.analog, images), batches, checks, config)
    at = run_stage(stage, run_folder, config.checkpoint_minutes, show=show)
    settings = {k: v for k, v in config.to_json().items() if k not in ("steps", "checkpoint_minutes")}
    done = Calibrated({"method": _Stage.name, **settings}, ("rathi2020",), config.steps, len(train))
    return replace(conversion, net=model.trained(), calibrated=(*conversion.calibrated, done)), at.history


def check_trainable(net: SpikingNet) -> None:
    """Refuse what cannot be trained through time, before any work."""
    for node in net.nodes:
        if isinstance(node.op, MaxPool) and node.name not in net.static:
            raise UsageError(
                f"Training through time: {node.name!r} is a max-pool on spikes, which has no gradient here. Convert "
                "with max_pool='average', or train the network with average pooling."
            )
        if isinstance(node.op, Fire) and node.op.signed:
            raise UsageError(
                f"Training through time: population {node.name!r} sends signed spikes, which it does not train. Use "
                "the plain neuron."
            )


def memory_needed(net: SpikingNet, config: ThroughTime) -> int:
    """Bytes for one batch, forward and backward."""
    neurons = sum(net.neurons.values())
    return VALUE_BYTES * neurons * config.steps * config.batch_size + 16 * net.parameters


def check_memory(net: SpikingNet, config: ThroughTime) -> None:
    """Refuse a batch that cannot fit."""
    need, free = memory_needed(net, config), available_memory()
    if free is not None and need > free:
        raise TrainingError(
            f"Training through {config.steps} steps with {config.batch_size} images a batch: this takes about "
            f"{need / 2**20:,.0f} MB, and {free / 2**20:,.0f} MB are free. Use a smaller batch_size or fewer steps."
        )
