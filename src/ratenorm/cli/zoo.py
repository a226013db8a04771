"""`ratenorm zoo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Zoo:
    """List the trained networks; the checksums of those that are here are verified."""

    action: Annotated[Literal["list"], tyro.conf.Positional] = "list"
    """list: what there is"""
    pattern: Annotated[str, tyro.conf.Positional] = "*"
    """only names that match, such as '*cifar10*'"""
    folder: Path | None = None
    """folder of the zoo (default: the one of this installation)"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> None:
        from dataclasses import asdict
        from fnmatch import fnmatchcase

        from ratenorm.io import zoo, zoo_download
        from ratenorm.io.files import to_json

        folder = zoo.folder() if self.folder is None else self.folder
        known = {name: e for name, e in sorted(zoo.entries(folder).items()) if fnmatchcase(name, self.pattern)}
        if self.json:
            print(to_json([asdict(entry) for entry in known.values()]))
            return
        if not known:
            what = "is empty" if self.pattern == "*" else f"has no network whose name matches {self.pattern!r}"
            print(f"The zoo in {folder} {what}.")
        for name, entry in known.items():
            here = (folder / entry.file).exists() or (
                self.folder is None and (zoo_download.cache() / entry.file).exists()
            )
            place = zoo.path_of(name, self.folder) if here else "downloaded when it is first used"
            print(
                f"{name:<32} {entry.kind:<8} {100 * entry.accuracy:6.2f} % of {entry.data:<9} "
                f"{entry.bytes / 1e6:6.2f} MB  {place}"
            )
