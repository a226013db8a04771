"""One self-contained HTML file: no request when opened; the same records give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from ratenorm.records import Record
from ratenorm.report import measures, sections, summary
from ratenorm.report.sections import Section
from ratenorm.report.words import several

# The page may use what is in it and nothing else; the browser holds it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(records: Sequence[Record], warnings: Sequence[str], trainings: Sequence[sections.Training] = ()) -> str:
    """The report of these records; `warnings` are printed before everything else."""
    runs = measures.runs_of(records)
    made = sections.all_sections(records, runs, trainings)
    title = records[0]["title"] if len(records) == 1 else f"{several(len(runs), 'run')} from {len(records)} records"
    assets = files("ratenorm.report") / "assets"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{assets.joinpath('page.css').read_text('utf-8')}</style></head><body>",
            _navigation(made),
            f'<main id="top">{_header(records, runs, title)}{_warnings(warnings)}',
            *(_section(section) for section in made),
            "<footer>Made by ratenorm from the records named above. The file is complete in itself.</footer></main>",
            f'<script type="application/json" id="data">{_data(records, runs)}</script>',
            f"<script>{assets.joinpath('page.js').read_text('utf-8')}</script></body></html>",
        ]
    )


def _navigation(made: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{section.slug}">{escape(section.title)}</a></li>' for section in made)
    return f'<nav aria-label="Contents"><a class="brand" href="#top">ratenorm</a><ol>{links}</ol></nav>'


def _header(records: Sequence[Record], runs: Sequence[measures.Run], title: str) -> str:
    facts = list(dict.fromkeys(fact for record in records for fact in _facts(record)))
    chips = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    tiles = "".join(
        f"<div><dd>{escape(tile.figure)}</dd><dt>{escape(tile.meaning)}</dt></div>" for tile in summary.tiles(runs)
    )
    return (
        f'<header><ul class="chips">{chips}</ul><h1>{escape(title)}</h1>'
        f'<p class="lead">{escape(summary.headline(runs))}</p>'
        + (f'<dl class="tiles">{tiles}</dl>' if tiles else "")
        + "</header>"
    )


def _facts(record: Record) -> list[str]:
    data = record["data"]
    facts = [
        record["kind"],
        record["ann"]["name"],
        f"{data['name']}, {several(data['images'], data['split'] + ' image')}",
    ]
    return facts if record["scale"] == "full" else [*facts, record["scale"]]


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<aside class="warnings"><h2>Not everything could be shown</h2><ul>{items}</ul></aside>'


def _section(section: Section) -> str:
    return f'<section id="{section.slug}"><h2>{escape(section.title)}</h2>{section.body}</section>'


def _data(records: Sequence[Record], runs: Sequence[measures.Run]) -> str:
    """What the sliders read: figures already visible on the page, at every step."""
    data = {"runs": sections.slider_runs(runs), "examples": sections.slider_examples(records)}
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # no text of a record can end the script element
