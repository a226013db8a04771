"""`cite`: BibTeX of the methods that made a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratenorm.convert.convert import Conversion
from ratenorm.errors import UsageError
from ratenorm.records.papers import bibtex

SOFTWARE = "ding2021"  # what this package implements first of all


def cite(made: Conversion | Mapping[str, Any]) -> str:
    """BibTeX of the papers whose methods were used: thresholds, start potential, calibrations.

    Args:
        made: A conversion, or a record (`ratenorm.records.read`): all of its runs.

    Returns:
        BibTeX, ready for a file.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> conversion = rn.convert(model, "max", example=torch.rand(1, 4), calibration=torch.rand(64, 4), v0=0.5)
        >>> [line for line in rn.cite(conversion).splitlines() if line.startswith("@")]
        ['@inproceedings{ding2021,', '@article{rueckauer2017,', '@inproceedings{bu2022,']
    """
    if isinstance(made, Conversion):
        keys = [SOFTWARE, *made.method.papers, *(["bu2022"] if made.v0 == 0.5 else [])]
        keys += [key for one in made.calibrated for key in one.papers]
    elif isinstance(made, Mapping) and isinstance(made.get("runs"), list):
        keys = [SOFTWARE, *(str(key) for run in made["runs"] for key in run.get("papers", ()))]
        keys += ["yik2025"] if any(run.get("neurobench") for run in made["runs"]) else []
    else:
        raise UsageError(
            f"Citing: expected a Conversion or a record, got {type(made).__name__}. A network alone does not say how "
            "it was made: give what rn.convert returned, or ratenorm.records.read(file)."
        )
    return bibtex(keys)
