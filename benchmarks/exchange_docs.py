"""Write the tables of docs/export.md from the result files: python benchmarks/exchange_docs.py [--check]"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "export.md"


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def readers() -> str:
    """One row for each network and simulator."""
    found = result("exchange")
    lines = [
        "| network | simulator | images x steps | spikes | with the adapter | as imported |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        with_adapter, plain = row["with_adapter"], row["as_imported"]
        if "error" in plain:
            bare = plain["error"]
        else:
            bare = f"{100 * plain['different'] / plain['compared']:.1f} % differ ({plain['images']} images)"
        equal = "every spike equal" if not with_adapter["different"] else f"{with_adapter['different']:,} differ"
        equal += ", outputs too" if with_adapter["outputs_equal"] else ""
        lines.append(
            f"| {row['network']} | {with_adapter['simulator']} | {row['images']} x {row['steps']} | "
            f"{with_adapter['spikes']:,} | {equal} | {bare} |"
        )
    trips = sum(row["round_trip"] for row in found["rows"])
    return "\n".join(
        [*lines, "", f"Round trip (same fingerprint after export and import): {trips} of {len(found['rows'])}."]
    )


def fronts() -> str:
    """How many networks came out the same by each way, and what became of the others."""
    found = result("front_ends")
    lines = []
    for way in ("torch.export", "onnx"):
        equal = [r for r in found["rows"] if r[way].get("different_counts") == 0 and r[way].get("outputs_equal")]
        differ = [r["network"] for r in found["rows"] if r[way].get("different_counts")]
        refused = [r["network"] for r in found["rows"] if "error" in r[way]]
        lines.append(
            f"- {way}: {len(equal)} of {len(found['rows'])} networks give every spike count and output that torch.fx "
            f"gives ({found['images']} images, T = {found['steps']}). Other counts: {', '.join(differ) or 'none'}. "
            f"Refused: {', '.join(refused) or 'none'}."
        )
    return "\n".join(lines)


def mutations() -> str:
    """What became of the mutated files."""
    found = result("mutated_nir")
    lines = [f"{found['files']:,} mutated files (seed {found['seed']}), {found['wrong']} of them wrong:", ""]
    lines += [f"- {verdict}: {count:,}" for verdict, count in found["verdicts"].items()]
    return "\n".join(lines)


def neurobench() -> str:
    """Our metrics beside the package's."""
    found = result("neurobench")
    lines = ["| metric | ratenorm | neurobench |", "|---|---|---|"]
    lines += [f"| {name} | {ours:,.6g} | {theirs:,.6g} |" for name, (ours, theirs) in found["ours_and_theirs"].items()]
    about = f"neurobench {found['versions']['neurobench']}, {found['images']} images, T = {found['steps']}."
    return "\n".join([*lines, "", about])


SECTIONS: dict[str, Callable[[], str]] = {
    "readers": readers,
    "fronts": fronts,
    "mutations": mutations,
    "neurobench": neurobench,
}


def page(text: str) -> str:
    """The page with its generated parts renewed."""
    for name, make in SECTIONS.items():
        begin, end = f"<!-- {name}: written by benchmarks/exchange_docs.py -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + make() + "\n" + end + rest.partition(end)[2]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    args = parser.parse_args()
    text = PAGE.read_text("utf-8")
    if args.check:
        raise SystemExit(0 if page(text) == text else "docs/export.md is not what the result files say")
    PAGE.write_text(page(text), "utf-8")


if __name__ == "__main__":
    main()
