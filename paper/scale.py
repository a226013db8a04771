"""How much of an experiment to run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paper.presets import Preset

CALIBRATION = 1000


@dataclass(frozen=True)
class Scale:
    """All of an experiment, or a short run that proves the preset on a subset."""

    train_images: int | None = None
    test_images: int | None = None
    epochs: int | None = None
    steps: int | None = None

    @property
    def full(self) -> bool:
        return self == Scale()

    @property
    def calibration(self) -> int:
        """Training images that the methods without training look at."""
        return min(CALIBRATION, self.test_images or CALIBRATION)

    def of(self, preset: Preset) -> Preset:
        if self.full:
            return preset
        epochs = preset.relu.epochs if self.epochs is None else self.epochs
        tune = preset.rnl.epochs if self.epochs is None else min(self.epochs, preset.rnl.epochs)
        holdout = preset.relu.holdout if self.train_images is None else max(50, self.train_images // 10)
        few = preset.ril.images if self.train_images is None else max(1, self.train_images // 4)
        return replace(
            preset,
            relu=replace(preset.relu, epochs=epochs, holdout=holdout),
            rnl=replace(preset.rnl, epochs=tune, holdout=holdout),
            ril=replace(preset.ril, holdout=holdout, images=few),
            lams=preset.lams[:1],  # that there is a choice is proof enough
            steps=self.steps or preset.steps,
        )

    def __str__(self) -> str:
        if self.full:
            return "full"
        cut = [f"{v:,} {k.replace('_', ' ')}" for k, v in vars(self).items() if v is not None]
        return f"reduced: {', '.join(cut)}"


SHORT = Scale(train_images=2000, test_images=200, epochs=1, steps=64)
