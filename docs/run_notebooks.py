"""Run the notebooks of the site, one after the other: `python docs/run_notebooks.py [--write] [NAME …]`.

A cell that raises ends it with exit code 1. `--write` keeps the outputs in the notebooks, as the site shows them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).parent / "tutorials"
LONGEST = 120  # seconds a cell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all without any")
    parser.add_argument("--write", action="store_true", help="keep the outputs")
    given = parser.parse_args()
    for path in sorted(HERE.glob("*.ipynb")):
        if given.names and not any(name in path.name for name in given.names):
            continue
        notebook = nbformat.read(path, as_version=4)
        began = time.monotonic()
        try:
            NotebookClient(notebook, timeout=LONGEST, resources={"metadata": {"path": str(HERE)}}).execute()
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 1
        print(f"{path.name}: {time.monotonic() - began:.0f} s", flush=True)
        if given.write:
            for cell in notebook.cells:
                cell.metadata.pop("execution", None)
            nbformat.write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
