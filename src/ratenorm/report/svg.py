"""A matplotlib figure as a small, byte-stable SVG that follows the colours of the page it is put into."""

from __future__ import annotations

import html
import io
import re

from matplotlib.figure import Figure

from ratenorm.report import style

_VARIABLES = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.RULE: "var(--rule)",
    style.SURFACE: "var(--surface)",
    **{hue: f"var(--series-{i})" for i, hue in enumerate(style.SERIES)},
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def raw_svg(figure: Figure) -> str:
    """The figure as a plain SVG file: no date, no program version, ids that depend on the content alone."""
    buffer = io.StringIO()
    with style.styled():
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=False)
    return buffer.getvalue()


def inline_svg(figure: Figure, slug: str, alt: str) -> str:
    """The figure as an `<svg>` element; `slug` keeps its ids apart from those of other plots."""
    text = raw_svg(figure)
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = _scope_ids(body, slug)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m.group(), m.group()), body)
    body = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), body)
    body = re.sub(r"(font(?:-size)?: ?[\d.]+px)[^;\"]*", r"\1", body).replace("font: ", "font-size: ")
    body = re.sub(r"font-family:[^;\"]*;?", "", body)
    body = re.sub(r"\s*\n\s*", "\n", body).strip()
    body = re.sub(r" ?\n ?(?=[LMCQz])", "", body)
    return (
        f'<svg viewBox="{box.group(1)}" role="img" aria-label="{html.escape(alt, quote=True)}">{body}</svg>'
    )


def _scope_ids(body: str, slug: str) -> str:
    """Drop ids nothing refers to, and prefix the rest: one page holds many plots."""
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', body))
    body = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{slug}-{m.group(1)}"' if m.group(1) in used else "", body
    )
    body = re.sub(r"url\(#([\w.-]+)\)", rf"url(#{slug}-\1)", body)
    return re.sub(r'xlink:href="#([\w.-]+)"', rf'href="#{slug}-\1"', body)
