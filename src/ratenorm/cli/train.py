"""`ratenorm train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode

if TYPE_CHECKING:
    from ratenorm.data import Augment


@dataclass(frozen=True)
class Train:
    """Train a network: stage 1 for accuracy (weights), stage 2 for latency (one shared p')."""

    out: Path
    """run folder: checkpoints, metrics, trained networks"""
    model: str = "cnn7"
    """cnn7, alexnet, vgg11/13/16/19, preact_resnet18/20/34"""
    data: str = "mnist"
    """mnist, cifar10, cifar100, or an image folder with one subfolder a class"""
    size: int | None = None
    """resize the pictures of an image folder to so many pixels a side"""
    root: Path | None = None
    """where the data set lies (default: $RATENORM_DATA or ~/.cache/ratenorm/data)"""
    activation: Literal["rate_norm", "relu"] = "rate_norm"
    """rate_norm for the paper's method, relu for a network to start from or to compare with"""
    epochs: int = 30
    """epochs of stage 1"""
    batch_size: int = 128
    """images in a batch"""
    lr: float = 0.1
    """learning rate of stage 1 at its peak"""
    peak: float = 0.25
    """fraction of stage 1 at which the learning rate peaks"""
    weight_decay: float = 5e-4
    """of the weights, not of BatchNorm and biases"""
    label_smoothing: float = 0.0
    """of the cross entropy"""
    ema: float = 0.0
    """decay a step of the averaged weights that become the result; 0: no average"""
    holdout: int = 5000
    """training images held out to choose by"""
    shift: int | None = None
    """augmentation: shift by up to so many pixels (default: what suits the set)"""
    flip: Literal["none", "random", "alternating"] | None = None
    """augmentation: mirror left-right (default: what suits the set)"""
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
    levels: int | None = None
    """quantise Rate Norm layers to so many levels and train their thresholds with the weights; no stage 2 (None, as in
    the paper: no quantisation)"""
    from_relu: Path | None = None
    """start stage 1 from this network, trained with --activation relu"""
    omega: float | None = None
    """with --from-relu: hold the maxima where its layers have this Omega (None, as in the paper: they run)"""
    teacher: float | None = None
    """with --from-relu: share of the loss of stage 1 that asks for that network's answers (None: labels alone)"""
    weights_lambda: float | None = None
    """weight of the Rate Inference Loss in stage 1, on the weights; with --omega, or maxima that run undo most of it
    (None, as in the paper: accuracy alone)"""
    energy: float | None = None
    """weight of the mean firing rate in stage 1, on the weights: fewer spikes, less energy (None: spikes are free)"""
    rest: float | None = None
    """weight of the current at rest in stage 1, on the weights: deep networks answer sooner (None: biases are free)"""
    early: int | None = None
    """stage 1 learns with the rates that so many steps, or more, will give (None, as in the paper: of the limit)"""
    settle: int | None = None
    """after stage 1, take BatchNorm's statistics anew, of the rates after so many steps: with --ema and --early the
    training's own are of other weights and other rates (None: leave them)"""
    images: int | None = None
    """train on so many images only (reduced scale)"""
    bfloat16: bool = False
    """multiply in bfloat16 where the processor has it: about half the time"""
    seed: int = 0
    """for weights, batches and augmentation"""
    device: str = "cpu"
    """cpu, cuda, cuda:0, …; under torchrun each process takes the GPU of its LOCAL_RANK"""
    resume: bool = False
    """go on where an earlier run in the folder stopped"""
    overwrite: bool = False
    """start anew in a used folder"""

    def run(self) -> None:
        from ratenorm.distributed import joined, wait_for_all
        from ratenorm.io.run_folder import open_shared
        from ratenorm.train.config import Stage1, Stage2
        from ratenorm.workflows.train import TrainConfig, train_in_folder

        stage1 = Stage1(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            peak=self.peak,
            weight_decay=self.weight_decay,
            label_smoothing=self.label_smoothing,
            ema=self.ema,
            holdout=self.holdout,
            augment=self._augment(),
            seed=self.seed,
            teacher=self.teacher,
            lam=self.weights_lambda,
            energy=self.energy,
            rest=self.rest,
            steps=self.early,
            settle=self.settle,
            bfloat16=self.bfloat16,
        )
        stage2 = Stage2(
            epochs=self.stage2_epochs,
            batch_size=self.batch_size,
            lam=self.lam,
            per_layer=self.per_layer,
            holdout=self.holdout,
            seed=self.seed,
        )
        config = TrainConfig(
            self.model,
            self.activation,
            data_config(self.data, self.root, self.size),
            stage1,
            stage2 if self.stage2 and self.activation == "rate_norm" and self.levels is None else None,
            None if self.from_relu is None else str(self.from_relu),
            self.images,
            self.output,
            self.omega,
            self.levels,
        )
        with joined(self.device) as here:
            how = mode(self.resume, self.overwrite)
            with open_shared(self.out, how, here.writer, wait_for_all) as folder:
                folder.configure(config.to_json())
                outcome = train_in_folder(config, folder, self.device)
            if here.writer:
                print(outcome)

    def _augment(self) -> Augment:
        from ratenorm.data import AUGMENTS, Augment

        usual = AUGMENTS.get(self.data, Augment())
        return Augment(
            usual.shift if self.shift is None else self.shift,
            usual.padding,
            usual.flip if self.flip is None else self.flip,
            usual.cutout,
        )
