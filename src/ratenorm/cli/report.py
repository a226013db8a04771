"""`ratenorm report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Report:
    """Build one self-contained HTML page from the records of one or more runs."""

    runs: Annotated[list[Path], tyro.conf.Positional]
    """run folders or record files"""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """HTML file to write"""
    plots: Path | None = None
    """also write every plot as PNG, SVG and PDF into this folder"""
    tables: Path | None = None
    """also write every table as CSV and LaTeX into this folder"""

    def run(self) -> None:
        import sys

        from ratenorm import report
        from ratenorm.io.text import printable

        built = report.build(self.runs, self.out)
        for warning in built.warnings:
            print(f"ratenorm: {printable(str(warning))}", file=sys.stderr)
        print(f"{built.path}: {built.runs} runs from {built.records} records, {built.size / 1e6:.2f} MB")
        if self.plots is not None or self.tables is not None:
            found, _ = report.load(self.runs)
            if self.plots is not None:
                print(f"{self.plots}: {len(report.save_plots(found, self.plots, ('png', 'svg', 'pdf')))} plots")
            if self.tables is not None:
                print(f"{self.tables}: {len(report.save_tables(found, self.tables))} tables")
