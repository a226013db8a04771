"""`ratenorm demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratenorm.cli.options import mode
from ratenorm.simulate.engine_name import EngineName


@dataclass(frozen=True)
class Demo:
    """Train CNN-7 on MNIST in both stages, convert it, run all test images, and show what came out."""

    out: Path = Path("runs/demo")
    """folder for everything the demo makes"""
    steps: int = 256
    """time-steps to simulate"""
    images: int | None = None
    """test images to run (default: all 10,000)"""
    engine: EngineName = "auto"
    """what simulates: auto, dense or event"""
    resume: bool = False
    """resume an earlier demo in the folder"""
    overwrite: bool = False
    """start again in a used folder"""
    json: bool = False
    """print the record as JSON instead of text"""

    def run(self) -> None:
        from ratenorm import report
        from ratenorm.io.files import to_json
        from ratenorm.io.run_folder import RunFolder
        from ratenorm.workflows.demo import DemoConfig, run_demo

        config = DemoConfig(self.steps, self.images, self.engine)
        with RunFolder(self.out, mode(self.resume, self.overwrite)) as folder:
            folder.configure(config.to_json())
            record = run_demo(config, folder)
            plots = report.save_plots([record], folder / "plots")
            built = report.build([folder.path], folder / "report.html")
        if self.json:
            print(to_json(record))
            return
        print(
            f"\nPlots:  {folder.path / 'plots'} ({len(plots)} files)\nReport: {built.path} ({built.size / 1e6:.2f} MB)"
        )
