"""`ratenorm train`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode, network_file

if TYPE_CHECKING:
    from ratenorm.data import Augment
    from ratenorm.workflows.train import TrainConfig


@dataclass(frozen=True)
class Images:
    """How training images are varied, and how long the steps are."""

    shift: int | None = None
    """augmentation: shift by up to this many pixels (default: what suits the set)"""
    flip: Literal["none", "random", "alternating"] | None = None
    """augmentation: mirror left-right (default: what suits the set)"""
    peak: float = 0.25
    """fraction of stage 1 at which the learning rate peaks"""
    weight_decay: float = 5e-4
    """of the weights, not of BatchNorm and biases"""
    label_smoothing: float = 0.0
    """of the cross entropy"""
    ema: float = 0.0
    """decay for each batch of the averaged weights that become the result; 0: no average"""


@dataclass(frozen=True)
class Paper:
    """The method of the paper: Rate Norm layers, and stage 2 for their shared p'."""

    activation: Literal["rate_norm", "relu"] = "rate_norm"
    """rate_norm for the paper's method, relu for a network to start from or to compare with"""
    stage2: bool = True
    """train p' after the weights (--no-stage2: do not)"""
    stage2_epochs: int = 1
    """epochs of stage 2"""
    lam: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """weight of the Rate Inference Loss in stage 2, 0.5 in the paper (default: chosen on held-out images among 0.02,
    0.1, 0.5 and no stage 2)"""
    per_layer: bool = False
    """stage 2: after the shared p', one p' for each layer"""
    output: Literal["rate", "activation"] = "rate"
    """what Rate Norm layers hand on: the rate (the paper), or the activation, which trains better without BatchNorm"""


@dataclass(frozen=True)
class Experimental:
    """Beyond the paper; names and defaults may change."""

    levels: int | None = None
    """quantise Rate Norm layers to this many levels and train their thresholds with the weights; no stage 2 (default:
    no quantisation)"""
    from_relu: Path | None = None
    """start stage 1 from this network, trained with --activation relu"""
    omega: float | None = None
    """with --from-relu: hold the maxima where its layers have this Omega (default: they run, as in the paper)"""
    teacher: float | None = None
    """with --from-relu: share of the loss of stage 1 that asks for that network's answers (default: labels alone)"""
    weights_lambda: float | None = None
    """weight of the Rate Inference Loss in stage 1, on the weights; use it with --omega, or running maxima undo most
    of it (default: accuracy alone, as in the paper)"""
    energy: float | None = None
    """weight of the mean firing rate in stage 1, on the weights: fewer spikes, less energy"""
    bias_penalty: float | None = None
    """weight of the mean squared bias, in thresholds, in stage 1: deep networks answer sooner"""
    cut_rates_at: int | None = None
    """stage 1 learns with the rates that this many steps, or more, will give (default: of the limit, as in the
    paper)"""
    refresh_batchnorm_at: int | None = None
    """after stage 1, recompute BatchNorm's statistics from the rates after this many steps: with --ema or
    --cut-rates-at those of the training are stale"""


@dataclass(frozen=True)
class Train:
    """Train a network: stage 1 for accuracy (weights), stage 2 for latency (one shared p')."""

    out: Path
    """run folder: checkpoints, metrics, trained networks"""
    model: str = "cnn7"
    """cnn7, alexnet, vgg11/13/16/19, preact_resnet18/20/34"""
    data: str = "mnist"
    """mnist, cifar10, cifar100, or an image folder with one subfolder for each class, or with train/ and test/"""
    size: int | None = None
    """resize the pictures of an image folder to this many pixels a side"""
    root: Path | None = None
    """where the data set lies (default: $RATENORM_DATA or ~/.cache/ratenorm/data)"""
    epochs: int = 30
    """epochs of stage 1"""
    batch_size: int = 128
    """images in a batch"""
    lr: float = 0.1
    """learning rate of stage 1 at its peak"""
    holdout: float = 0.1
    """training images held out to choose by: a share below 1, or a number"""
    images: int | None = None
    """train on this many images only (reduced scale)"""
    bfloat16: bool = False
    """multiply in bfloat16 where the processor has it: about half the time"""
    seed: int = 0
    """for weights, batches and augmentation"""
    device: str = "cpu"
    """cpu, cuda, cuda:0, …; under torchrun each process takes the GPU of its LOCAL_RANK"""
    resume: bool = False
    """resume the run in the folder where it stopped"""
    overwrite: bool = False
    """start again in a used folder"""
    tensorboard: bool = False
    """write the metrics for TensorBoard too, into OUT/tensorboard"""
    json: bool = False
    """print the record as JSON instead of text"""
    training: Images = field(default_factory=Images)
    paper: Paper = field(default_factory=Paper)
    experimental: Experimental = field(default_factory=Experimental)

    def run(self) -> None:
        from ratenorm import records
        from ratenorm.distributed import joined, wait_for_all
        from ratenorm.io.files import to_json
        from ratenorm.io.run_folder import open_shared
        from ratenorm.io.tensorboard import TensorBoard
        from ratenorm.workflows.train import train_in_folder

        config = self._config()
        with joined(self.device) as here:
            how = mode(self.resume, self.overwrite)
            with open_shared(self.out, how, here.writer, wait_for_all) as folder:
                folder.configure(config.to_json())
                if self.tensorboard and here.writer:
                    folder.sinks.append(TensorBoard(folder / "tensorboard"))
                outcome = train_in_folder(config, folder, self.device)
            if here.writer:
                print(to_json(records.read(self.out / records.FILE_NAME)) if self.json else outcome)

    def _config(self) -> TrainConfig:
        from ratenorm.train.config import Stage1, Stage2
        from ratenorm.workflows.train import TrainConfig

        paper, extra = self.paper, self.experimental
        stage1 = Stage1(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            peak=self.training.peak,
            weight_decay=self.training.weight_decay,
            label_smoothing=self.training.label_smoothing,
            ema=self.training.ema,
            holdout=self.holdout,
            augment=self._augment(),
            seed=self.seed,
            teacher=extra.teacher,
            lam=extra.weights_lambda,
            energy=extra.energy,
            rest=extra.bias_penalty,
            steps=extra.cut_rates_at,
            settle=extra.refresh_batchnorm_at,
            bfloat16=self.bfloat16,
        )
        stage2 = Stage2(
            epochs=paper.stage2_epochs,
            batch_size=self.batch_size,
            lam=paper.lam,
            per_layer=paper.per_layer,
            holdout=self.holdout,
            seed=self.seed,
        )
        return TrainConfig(
            self.model,
            paper.activation,
            data_config(self.data, self.root, self.size),
            stage1,
            stage2 if paper.stage2 and paper.activation == "rate_norm" and extra.levels is None else None,
            None if extra.from_relu is None else str(network_file(extra.from_relu)),
            self.images,
            paper.output,
            extra.omega,
            extra.levels,
        )

    def _augment(self) -> Augment:
        from ratenorm.data import AUGMENTS, Augment

        usual = AUGMENTS.get(self.data, Augment())
        return Augment(
            usual.shift if self.training.shift is None else self.training.shift,
            usual.padding,
            usual.flip if self.training.flip is None else self.training.flip,
            usual.cutout,
        )
