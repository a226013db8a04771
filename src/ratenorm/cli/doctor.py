"""`ratenorm doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Doctor:
    """Check the installation, the data sets, the files and the engines, and say what to mend."""

    root: Path | None = None
    """where the data sets lie (default: $RATENORM_DATA or ~/.cache/ratenorm/data)"""
    json: bool = False
    """print JSON instead of lines"""

    def run(self) -> None:
        from dataclasses import asdict

        from ratenorm.errors import RatenormError
        from ratenorm.io.files import to_json
        from ratenorm.workflows.doctor import examine

        checks = examine(None if self.root is None else str(self.root))
        print(to_json([asdict(c) for c in checks]) if self.json else "\n".join(str(check) for check in checks))
        if bad := [check.name for check in checks if check.state == "bad"]:
            raise RatenormError(f"doctor: to be mended: {', '.join(bad)}.")
