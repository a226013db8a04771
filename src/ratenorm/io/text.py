"""Texts of files that others wrote, for places that would obey them: terminals and spreadsheets."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction of writing, half a surrogate pair, separators of lines


def printable(text: str) -> str:
    r"""The text with everything that a terminal would obey written out, so that a file's name cannot move the cursor.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in _KEPT or unicodedata.category(c) not in _HIDDEN else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def cell(text: str) -> str:
    """The text for a cell of a CSV file: a spreadsheet takes what begins with =, +, - or @ for a formula.

    Example:
        >>> cell("=1+1"), cell("-0.5")
        ("'=1+1", '-0.5')
    """
    if not text.lstrip().startswith(("=", "+", "-", "@")) and not text.startswith(("\t", "\r", "\n")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
