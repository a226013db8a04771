"""`ratenorm compare`: any set of methods on one network in one run, one record, one table."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ratenorm import records
from ratenorm.calibrators.recipe import Recipe, parse_recipe
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.errors import UsageError
from ratenorm.io.files import to_json
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import EngineName
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.convert import CALIBRATION_IMAGES
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.evaluate import coding_of, watched_evaluation
from ratenorm.workflows.fingerprint import of_graph, of_images, of_tensors
from ratenorm.workflows.own_network import load_any
from ratenorm.workflows.record import ann_entry, make_record, run_entry, scale_of
from ratenorm.workflows.resume import remembered
from ratenorm.workflows.train import test_accuracy


@dataclass(frozen=True)
class CompareConfig:
    network: str
    methods: tuple[str, ...]
    data: DataConfig = field(default_factory=DataConfig)
    v0: tuple[float, ...] = (0.0,)
    steps: int = 128
    images: int | None = None
    calibration: int = 1000
    engine: EngineName = "auto"
    coding: str = "constant"
    seed: int = 0
    batch_size: int = 200
    model: str | None = None  # the user's own network: package.module:function

    def to_json(self) -> dict[str, Any]:
        own = asdict(self) | {"data": self.data.to_json()}
        return {name: value for name, value in own.items() if name != "model" or value is not None}


def compare(config: CompareConfig, folder: RunFolder) -> dict[str, Any]:
    """Run every method with every start potential; what is done already (on resume) is read and not run again."""
    began = time.monotonic()
    recipes = [parse_recipe(text) for text in config.methods]
    model, spec = load_any(config.network, config.model, config.data)
    data = config.data.of(spec)
    graph, report = lower(model, torch.zeros(1, *spec.input_shape))
    analog = fold(graph)
    images = None
    few = None
    if any(recipe.needs_data for recipe in recipes):
        given = calibration_images(data, spec, config.calibration, config.seed)
        images, few = Calibration(given), Calibration(given[:CALIBRATION_IMAGES])
    available = data.test()
    if images is not None and not data.split_by_folder:
        raise UsageError(
            f"Comparing on the folder {config.data.folder}: methods would be calibrated on the images that score them. "
            "Sort it into train/CLASS and test/CLASS."
        )
    test = available if config.images is None else available.subset(range(min(config.images, len(available))))
    ann = ann_entry(spec.model, analog, test_accuracy(model, spec, test), None)
    coding = coding_of(config.coding, config.seed, spec)

    def so_far(runs: list[dict[str, Any]]) -> dict[str, Any]:
        return make_record(
            "compare",
            f"{spec.model} on {test.name}: {len(recipes)} methods",
            config.to_json(),
            seed=config.seed,
            seconds=time.monotonic() - began,
            data={"name": test.name, "split": "test", "images": len(test), "classes": list(test.classes)},
            ann=ann,
            runs=runs,
            scale=scale_of(len(test), len(available), "test images"),
        )

    # another network or other images in the same place are not answered with what was found before
    computed_from = {"network": of_graph(analog), "images": of_images(test)}
    computed_from |= {} if images is None else {"calibration": of_tensors(*images)}
    runs: list[dict[str, Any]] = []
    for recipe in recipes:
        for v0 in (recipe.v0,) if recipe.v0 is not None else config.v0:
            name = recipe.text if len(config.v0) == 1 or recipe.v0 is not None else f"{recipe.text}, v(0) = {v0:g} θ"

            def one(name: str = name, recipe: Recipe = recipe, v0: float = v0) -> dict[str, Any]:
                own = recipe if recipe.method is None else replace(recipe, v0=v0)
                made = own.apply(analog, images, report, calibration_images=few)
                result = watched_evaluation(
                    name, made.net, test, spec, config.steps, config.engine, coding, 1000, config.batch_size, folder
                )
                calibrated = [c.to_json() for c in made.calibrated]
                return run_entry(name, spec.model, made.net, made.method, made.v0, result, coding, calibrated)

            runs.append(remembered(folder, to_json({"run": name, **computed_from}), one))
            records.write(folder / records.FILE_NAME, so_far(runs))  # what is done can be looked at already
    return so_far(runs)
