"""Look inside one answer: pick an image, see when its answer settled and which layers were late."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from ratenorm.records import Record
from ratenorm.report import measures, plots
from ratenorm.report.plots.inside import NEURONS_SHOWN, window
from ratenorm.report.words import several


def look_inside_html(records: Sequence[Record], figure: Callable[[plots.Plot, str], str]) -> str:
    """Radio buttons choose the image, so that choosing works without a script; empty where there are none."""
    shown = plots.example_plots(records)
    if not shown:
        return ""
    total = sum(len(record.get("examples") or []) for record in records)
    more = f'<p class="note">The first {len(shown)} of {total} images are shown.</p>' if total > len(shown) else ""
    several_runs = len({example["run"] for _, example, _ in shown}) > 1
    inputs = labels = panels = ""
    for i, (record, example, plot) in enumerate(shown):
        checked = " checked" if i == 0 else ""
        inputs += f'<input type="radio" name="example" id="pick-{i}"{checked}>'
        name = escape(_name(record, example, several_runs))
        labels += f'<label for="pick-{i}">{_image(example)}<span>{name}</span></label>'
        panels += f'<div class="panel" data-example="{i}">{_panel(record, example, plot, figure)}</div>'
    choices = f'{inputs}<div class="choices">{labels}</div>'
    return f'{more}<div class="picker">{choices}<div class="panels">{panels}</div></div>'


def _panel(record: Record, example: dict[str, Any], plot: plots.Plot, figure: Callable[[plots.Plot, str], str]) -> str:
    classes = record["data"]["classes"]
    caption = (
        f"Run “{example['run']}”. Above: mean output of each class so far. Below: spikes of up to "
        f"{NEURONS_SHOWN} neurons a layer over the first {several(window(example), 'step')}. Black line: the "
        f"answer settled. Triangle: from here on K of the layer stays below {measures.K_SETTLED:g}."
    )
    slider = (
        '<div class="explore" hidden><label>Scores at step <input type="range" min="1" step="1"> '
        '<output></output></label><div class="bars"></div></div>'
    )
    return (
        f'<div class="story">{_image(example)}<p>{escape(_story(example, classes))}</p></div>'
        f"{figure(plot, escape(caption))}{slider}"
    )


def _story(example: dict[str, Any], classes: Sequence[str]) -> str:
    """What happened to this image, in words."""
    scores = example["scores"]
    answer = max(range(len(classes)), key=lambda c: (scores[-1][c], -c))
    right = "right" if answer == example["label"] else f"wrong: it is “{classes[example['label']]}”"
    settled = example["settled"]
    when = f"settled at step {settled}" if settled else f"never settled in {several(len(scores), 'step')}"
    sentences = [f"The answer “{classes[answer]}” is {right}. It {when}."]
    first = max(range(len(classes)), key=lambda c: (scores[0][c], -c))
    if first != answer:
        sentences.append(f"At step 1 the network said “{classes[first]}”.")
    silent = [layer["name"] for layer in example["layers"] if layer["first_spike"] is None]
    if silent:
        sentences.append(f"Without a spike among the neurons recorded: {', '.join(silent)}.")
    return " ".join([*sentences, _late_layers(example)])


def _late_layers(example: dict[str, Any]) -> str:
    """Layers whose rates were still wrong when the answer settled."""
    moment = example["settled"] or len(example["scores"])
    late = []
    for layer in example["layers"]:
        settled = measures.layer_settled(layer["k"])
        if settled is None:
            late.append(f"{layer['name']} (not within the {several(len(layer['k']), 'step')})")
        elif settled > moment:
            late.append(f"{layer['name']} (step {settled})")
    if not late:
        return f"Every layer had K below {measures.K_SETTLED:g} by then."
    names = ", ".join(late)
    return f"Later than the answer, by the step from which K stays below {measures.K_SETTLED:g}: {names}."


def _name(record: Record, example: dict[str, Any], with_run: bool) -> str:
    name = f"#{example['index']}, “{record['data']['classes'][example['label']]}”"
    return f"{name}, {example['run']}" if with_run else name


def _image(example: dict[str, Any]) -> str:
    from PIL import Image  # only reports with examples need it

    pixels = np.asarray(example["image"], dtype=np.float64).round().astype(np.uint8)  # [H, W] or [H, W, 3]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png", optimize=True)
    code = base64.b64encode(buffer.getvalue()).decode("ascii")
    height, width = pixels.shape[:2]
    size = f'width="{width}" height="{height}"'
    return f'<img alt="image {example["index"]}" {size} src="data:image/png;base64,{code}">'
