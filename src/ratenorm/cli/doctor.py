"""`ratenorm doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Doctor:
    """Check the installation, the data sets, the files and the engines, and say what to mend."""

    root: Path | None = None
    """where the data sets lie (default: $RATENORM_DATA or ~/.cache/ratenorm/data)"""

    def run(self) -> None:
        from ratenorm.errors import RatenormError
        from ratenorm.workflows.doctor import examine

        checks = examine(None if self.root is None else str(self.root))
        print("\n".join(str(check) for check in checks))
        if bad := [check.name for check in checks if check.state == "bad"]:
            raise RatenormError(f"doctor: to be mended: {', '.join(bad)}.")
