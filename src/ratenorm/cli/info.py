"""`ratenorm info`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Info:
    """Say what is in a file: network, spiking network, checkpoint or record."""

    file: Annotated[Path, tyro.conf.Positional]
    """a file that ratenorm wrote"""
    json: bool = False
    """print JSON instead of text: a record whole, of other files the same lines"""

    def run(self) -> None:
        from ratenorm import records
        from ratenorm.io.files import to_json
        from ratenorm.workflows.describe import describe

        text = describe(self.file)
        if not self.json:
            print(text)
            return
        record = self.file / records.FILE_NAME if self.file.is_dir() else self.file
        is_record = record.suffix == ".json"
        print(to_json(records.read(record) if is_record else {"file": str(record), "about": text.splitlines()}))
