"""The trained networks of a preset and seed: where they lie, and how they come to lie there - trained, or taken from
the zoo.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paper.from_zoo import has, take_rate_norm, take_relu
from paper.presets import HELD_OUT, Preset
from paper.scale import Scale
from ratenorm.io.files import is_sealed, opened_line, to_json
from ratenorm.io.run_folder import CONFIG, METRICS, go_on
from ratenorm.train.choice import Rule
from ratenorm.workflows.choose_lambda import choose_stage2
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.train import STAGE1_FILE, STAGE2_FILE, TrainConfig, train_network

RULE = Rule(HELD_OUT)  # by which lambda is chosen
SOURCE = "from_relu_sha256"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Networks:
    """All that one network and seed depend on. What `zoo` has is not trained again; None: train all."""

    whole: Preset  # before it is scaled down
    seed: int
    work: Path
    scale: Scale
    root: str | None = None  # of the data
    zoo: Path | None = None

    @property
    def preset(self) -> Preset:
        return self.scale.of(self.whole)

    @property
    def label(self) -> str:
        """The name of the record and of its folder."""
        return f"{self.whole.name}-s{self.seed}{'' if self.scale.full else '-short'}"

    @property
    def zoo_name(self) -> str:
        """Of the network with Rate Norm layers."""
        return self.whole.name if self.scale.full and self.seed == 0 else self.label

    @property
    def zoo_relu(self) -> str:
        """Of the network with ReLU, which may be another preset's."""
        return f"{self.of_base.zoo_name}-relu"

    @property
    def of_base(self) -> Networks:
        """Those whose ReLU network these go on from: their own, or another preset's."""
        base = self.whole.base or self.whole.name
        return replace(self, whole=replace(self.whole, name=base, base=""))

    @property
    def data(self) -> DataConfig:
        return DataConfig(self.whole.data, self.root)

    @property
    def path(self) -> Path:
        return self.work / self.label

    @property
    def relu(self) -> Path:
        """The network trained with ReLU."""
        return self.path / "relu" / STAGE1_FILE

    @property
    def rnl(self) -> Path:
        """The network with Rate Norm layers at p = 1."""
        return self.path / "rnl" / STAGE1_FILE

    @property
    def ril(self) -> Path:
        """The same with the p that stage 2 found, for the chosen lambda."""
        return self.path / "ril" / STAGE2_FILE

    def train(self, say: Say) -> dict[str, Any]:
        """The ReLU network, its continuation with Rate Norm layers, and stage 2 for every lambda tried; returns the
        choice."""
        self.train_relu(say)
        config = self._training(self.relu)
        wanted = _as_begun(self.rnl.parent, config)
        if self.zoo is not None and take_rate_norm(self.zoo_name, self.zoo, wanted, self.rnl, self.ril):
            say(f"  the zoo has {self.zoo_name}: not trained again")
        _train(config, self.rnl.parent)
        rule = replace(RULE, steps=min(RULE.steps, self.preset.steps))
        return choose_stage2(self.rnl, config, self.preset.stage2_candidates(self.seed), self.ril.parent, rule, say)

    def train_relu(self, say: Say) -> None:
        """The ReLU network alone."""
        config = self._training(None)
        if self.zoo is not None and take_relu(self.zoo_relu, self.zoo, config.to_json(), self.relu):
            say(f"  the zoo has {self.zoo_relu}: not trained again")
        _train(config, self.relu.parent)

    @property
    def relu_in_zoo(self) -> bool:
        return self.zoo is not None and has(self.zoo_relu, self.zoo, self._training(None).to_json())

    @property
    def in_zoo(self) -> bool:
        """Nothing has to be trained: the zoo has the ReLU network, and the one that went on from it."""
        if self.zoo is None or not self.relu_in_zoo:
            return False
        config = self._training(self.zoo / f"{self.zoo_relu}.safetensors")
        return has(self.zoo_name, self.zoo, _as_begun(self.zoo / self.zoo_name, config))

    @property
    def seconds(self) -> dict[str, float]:
        """How long the trainings took."""
        return {part: trained_seconds(self.path / part) for part in ("relu", "rnl")}

    def _training(self, start: Path | None) -> TrainConfig:
        """Stage 1 with ReLU, or, from the network in `start`, with Rate Norm."""
        stage1 = self.preset.relu if start is None else self.preset.rnl
        return TrainConfig(
            self.whole.model,
            "relu" if start is None else "rate_norm",
            self.data,
            replace(stage1, seed=self.seed),
            None,
            None if start is None else str(start),
            self.scale.train_images,
            omega=None if start is None else self.preset.omega,
            half=True,
        )


def trained_seconds(folder: Path) -> float:
    """How long a training took, over all the sessions it was cut into."""
    seconds: dict[str, float] = {}
    for line in (folder / METRICS).read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a damaged line: the next one tells as much
            entry = opened_line(line, is_sealed(line))
            seconds[entry["stage"]] = float(entry["seconds"])
    return sum(seconds.values())


def _train(config: TrainConfig, path: Path) -> None:
    with go_on(path) as folder:
        folder.configure(_as_begun(path, config))
        train_network(config, folder)


def _as_begun(path: Path, config: TrainConfig) -> dict[str, Any]:
    """The configuration with the paths of when the training began: folders and data may have been moved since. The
    network to start from is known by its content; trainings begun before that was kept are taken at their word.
    """
    own = json.loads(to_json(config.to_json()))
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        begun = dict(json.loads((path / CONFIG).read_text(encoding="utf-8")))
    with contextlib.suppress(TypeError, KeyError):
        own["data"]["root"] = begun["data"]["root"]
    if config.from_relu is None:
        return dict(own)
    with contextlib.suppress(TypeError, KeyError):
        if Path(begun["from_relu"]).parts[-2:] == Path(config.from_relu).parts[-2:]:
            own["from_relu"] = begun["from_relu"]
    if not begun or SOURCE in begun:
        own[SOURCE] = hashlib.sha256(Path(config.from_relu).read_bytes()).hexdigest()
    return dict(own)
