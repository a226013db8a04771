"""TensorBoard as a second place for the metrics of a training (the extra `ratenorm[tensorboard]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratenorm.errors import UsageError

NOT_FIGURES = ("epoch", "epochs", "step", "stage")


class TensorBoard:
    """Writes each line of metrics as scalars, named by stage: `stage1/accuracy` over epochs."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError('--tensorboard needs an extra: pip install "ratenorm[tensorboard]".') from error
        self._writer: Any = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write one line of metrics."""
        for name, value in entry.items():
            if name not in NOT_FIGURES and isinstance(value, int | float):
                self._writer.add_scalar(f"{entry.get('stage', 'run')}/{name}", value, int(entry.get("epoch", 0)))
        self._writer.flush()
