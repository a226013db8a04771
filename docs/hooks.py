"""What the site takes from the repository: tables of records, help texts, and other pages.

A line `{{ few_steps vgg16-cifar10-relu }}`, `{{ help evaluate }}` or `{{ page paper/results/README.md }}` is replaced
when the site is built. So no figure is copied into a page.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
STEPS = ("1", "2", "4", "8", "16", "32")
LINE = re.compile(r"^\{\{ (\w+)(?: ([^}]*?))? \}\}$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """Replace the lines that ask for something."""
    makers = {
        "few_steps": few_steps,
        "help": help_text,
        "page": another_page,
        "commands": commands,
        "low_latency": low_latency,
    }
    return LINE.sub(lambda found: makers[found[1]](found[2] or "", page), markdown)


def on_post_build(config: Any, **others: Any) -> None:
    """The playground and the picture of the start page lie beside the pages."""
    site = Path(config["site_dir"])
    figures = HERE / "paper" / "results" / "figures"
    shutil.copy(figures / "fig6b.svg", site / "accuracy.svg")
    shutil.copytree(figures, site / "figures", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.json"))


def few_steps(network: str, page: Any) -> str:
    """Losses of every conversion of a network, from benchmarks/results/few_steps.json."""
    rows = json.loads((HERE / "benchmarks" / "results" / "few_steps.json").read_text())["rows"]
    rows = [row for row in rows if row["network"] == network and not row["test"]]
    if not rows:
        return f"`{network}` was not measured yet."
    lines = [
        f"`{network}`: {rows[0]['images']:,} held-out training images, ANN {100 * rows[0]['ann']:.2f} %. The columns "
        "are points lost after T steps. Other work ran on the machine, so the seconds are upper bounds.",
        "",
        f"| conversion | seconds | {' | '.join(STEPS)} |",
        f"|---|---|{'---|' * len(STEPS)}",
    ]
    best = {t: min(row["ann"] - row["accuracy"][t] for row in rows) for t in STEPS}
    for row in rows:
        losses = []
        for t in STEPS:
            loss = row["ann"] - row["accuracy"][t]
            losses.append(f"**{100 * loss:.2f}**" if loss == best[t] else f"{100 * loss:.2f}")
        lines.append(f"| `{row['conversion']}` | {row['seconds']:.0f} | {' | '.join(losses)} |")
    return "\n".join(lines)


def low_latency(name: str, page: Any) -> str:
    """Accuracy of a spiking network of the zoo on all test images, from its record, beside its ReLU network's."""
    record = json.loads((HERE / "zoo" / f"{name}.json").read_text())
    index = json.loads((HERE / "zoo" / "index.json").read_text())["networks"]
    relu = next(e["accuracy"] for e in index if e["name"] == f"{name.removesuffix('-low-latency')}-relu")
    run = record["runs"][0]
    found = [run["accuracy"][int(t) - 1] for t in STEPS]
    lines = [
        f"`{name}`: {record['data']['images']:,} test images, asked once; the ReLU network has {100 * relu:.2f} %.",
        "",
        f"| after T steps | {' | '.join(STEPS)} |",
        f"|---|{'---|' * len(STEPS)}",
        f"| accuracy, % | {' | '.join(format(100 * a, '.2f') for a in found)} |",
        f"| points lost | {' | '.join(format(100 * (relu - a), '.2f') for a in found)} |",
    ]
    return "\n".join(lines)


def help_text(command: str, page: Any) -> str:
    """What `ratenorm COMMAND --help` prints."""
    from ratenorm.cli.main import main

    os.environ["COLUMNS"] = "100"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*command.split(), "--help"])
    return f"```text\n{printed.getvalue().strip()}\n```"


def commands(_: str, page: Any) -> str:
    """The help texts of all commands."""
    from ratenorm.cli.commands import COMMANDS

    return "\n\n".join(f"## {name}\n\n{help_text(name, page)}" for name in COMMANDS)


def another_page(path: str, page: Any) -> str:
    """A page of the repository; its links to files that the site does not have become plain text."""
    text = (HERE / path).read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!http|#)(?:\./)?figures/", "](figures/", text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!http|#|figures/)[^)]+\)", r"\1", text)
