"""The checksum of a record: a digit changed on a disk or on the way is found, and not drawn.

It is a sha256 over the content (every key but the checksum itself) as canonical JSON, so that spaces and the order of
keys are free, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratenorm.errors import FileFormatError
from ratenorm.io.files import digest_of

KEY = "sha256"
SINCE = 2  # the first version whose records carry one


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its checksum."""
    bare = {key: value for key, value in content.items() if key != KEY}
    return {**bare, KEY: digest_of(bare)}


def opened(record: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content without the checksum, which must be right wherever there is one, and be there since version 2."""
    bare = {key: value for key, value in record.items() if key != KEY}
    if KEY not in record and bare["version"] < SINCE:
        return bare
    if record.get(KEY) != digest_of(bare):
        found = "its checksum does not match its content" if KEY in record else f'it has no checksum ("{KEY}")'
        raise FileFormatError(
            f"{path} was damaged or changed after it was written: {found}. Copy it again from where it is whole, "
            "or write it again by repeating the experiment."
        )
    return bare
