"""The second half of the pipeline in Python: an evaluation becomes a record; `build_report` makes a page of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratenorm.arguments import check_kind
from ratenorm.convert.convert import Conversion
from ratenorm.core.coding import Coding
from ratenorm.errors import UsageError
from ratenorm.simulate.evaluate import Evaluation
from ratenorm.workflows.record import CLIPPED, ann_entry, make_record, run_entry


def record(
    conversions: Conversion | Mapping[str, Conversion],
    evaluations: Evaluation | Mapping[str, Evaluation],
    *,
    title: str = "spiking network",
    data: str = "images",
    classes: Sequence[str] = (),
    ann_accuracy: float | None = None,
    coding: Coding | None = None,
) -> dict[str, Any]:
    """What `evaluate` found, as a record: the form that tables, plots and reports read.

    Args:
        conversions: What `convert` returned, or several conversions of one network by name.
        evaluations: What `evaluate` returned for it, or for each of them.
        title: A line for people.
        data: The name of the images.
        classes: Names of the classes.
        ann_accuracy: Of the network before conversion on the same images. Without it, the accuracy of the network
            clipped at the thresholds stands there.
        coding: How the images entered, where it was not as a constant current.

    Returns:
        The record, for `build_report` or `ratenorm.records.write`.

    Raises:
        UsageError: If a name has a conversion and no evaluation, or the reverse.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x, y = torch.rand(64, 4), torch.zeros(64, dtype=torch.long)
        >>> conversion = rn.convert(model, example=x[:1], calibration=x)
        >>> found = rn.record(conversion, rn.evaluate(conversion, [(x, y)], steps=4), title="a small network")
        >>> found["runs"][0]["steps"]
        4
    """
    made = conversions if isinstance(conversions, Mapping) else {"spiking": conversions}
    found = evaluations if isinstance(evaluations, Mapping) else {"spiking": evaluations}
    if made.keys() != found.keys() or not made:
        raise UsageError(
            f"Making a record: there are conversions named {sorted(made)} and evaluations named {sorted(found)}. Give "
            "one evaluation for each conversion, under the same name."
        )
    for name in made:
        check_kind("Making a record", f"conversion {name!r}", made[name], Conversion, "what `convert` returned")
        check_kind("Making a record", f"evaluation {name!r}", found[name], Evaluation, "what `evaluate` returned")
    first, result = next(iter(made.values())), next(iter(found.values()))
    accuracy = result.analog_accuracy if ann_accuracy is None else ann_accuracy
    runs = [
        run_entry(name, title, one.net, one.method, one.v0, found[name], coding, [c.to_json() for c in one.calibrated])
        for name, one in made.items()
    ]
    return make_record(
        "evaluate",
        title,
        {},
        seed=0,
        seconds=sum(one.seconds for one in found.values()),
        data={"name": data, "split": "test", "images": result.images, "classes": list(classes)},
        ann=ann_entry(title if ann_accuracy is not None else f"{title}{CLIPPED}", first.analog, accuracy, None),
        runs=runs,
    )
