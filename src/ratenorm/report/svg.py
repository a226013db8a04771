"""A matplotlib figure as a small, byte-stable SVG that follows the colours of the page it is put into."""

from __future__ import annotations

import html
import io
import re
import warnings

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


def raw_svg(figure: Figure, prefix: str = "id-") -> str:
    """The figure as a plain SVG file: no date, no program version, no address of this run."""
    buffer = io.StringIO()
    with style.styled(), warnings.catch_warnings():
        # The browser has the letters DejaVu lacks: in an SVG a missing glyph is no loss.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=False)
    return _numbered_ids(buffer.getvalue(), prefix)


def inline_svg(figure: Figure, slug: str, alt: str) -> str:
    """The figure as an `<svg>` element; `slug` keeps its ids apart from those of other plots."""
    text = raw_svg(figure, prefix=f"{slug}-")
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m.group(), m.group()), body)
    body = re.sub(r"<[^>]*>", _short_numbers, body)  # within tags only: a tick label of 0.001 stays what it is
    body = re.sub(r"(font(?:-size)?: ?[\d.]+px)[^;\"]*", r"\1", body).replace("font: ", "font-size: ")
    body = re.sub(r"font-family:[^;\"]*;?", "", body)
    body = re.sub(r"\s*\n\s*", "\n", body).strip()
    body = re.sub(r" ?\n ?(?=[LMCQz])", "", body)
    return f'<svg viewBox="{box.group(1)}" role="img" aria-label="{html.escape(alt, quote=True)}">{body}</svg>'


def _short_numbers(tag: re.Match[str]) -> str:
    """Coordinates of a tag with two digits."""
    return re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), tag.group())


def _numbered_ids(text: str, prefix: str) -> str:
    """Number the ids that are referred to, in order, and drop the rest.

    matplotlib derives some of them from memory addresses, which would change the file from run to run; and one page
    holds many plots, whose ids must not meet.
    """
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', text))
    order = dict.fromkeys(name for name in re.findall(r' id="([^"]+)"', text) if name in used)
    numbers = {name: f"{prefix}{i}" for i, name in enumerate(order)}
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{numbers[m[1]]}"' if m[1] in numbers else "", text)
    return re.sub(r'(url\(#|href="#)([\w.-]+)', lambda m: m[1] + numbers[m[2]], text)
