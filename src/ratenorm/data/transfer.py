"""One file over HTTP into a .part file: resumed where it stopped, retried when the connection is cut."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from ratenorm.data.sets import ArchiveSpec
from ratenorm.errors import DataError, UsageError

CHUNK = 2**18
_CUT = (TimeoutError, ConnectionError, http.client.HTTPException)


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server.

    timeout: seconds without a byte; tries: in a row that brought nothing; pause: seconds before the second
    try, doubled each time.
    """

    timeout: float = 30.0
    tries: int = 5
    pause: float = 1.0


class _CutError(Exception):
    """The connection ended before the file did; what has arrived is in the .part file."""


def transfer(archive: ArchiveSpec, url: str, part: Path, patience: Patience, progress: bool | None = None) -> None:
    """Download `url` until `part` has `archive.size` bytes; what arrived stays there, whatever happens."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"Downloading {url}: only http:// and https:// addresses are allowed.")
    if _size(part) > archive.size:
        part.unlink()  # longer than the file can be: nothing in it can be trusted
    failures = 0
    with tqdm(
        total=archive.size,
        initial=_size(part),
        unit="B",
        unit_scale=True,
        desc=archive.name,
        # None: a bar on a terminal, nothing in a log file.
        disable=None if progress is None else not progress,
    ) as bar:
        while (before := _size(part)) < archive.size:
            try:
                _append(archive, url, part, patience.timeout, bar)
                cause = "the server closed the connection"
            except _CutError as error:
                cause = str(error)
            failures = 0 if _size(part) > before else failures + 1
            if failures >= patience.tries:
                raise DataError(
                    f"Downloading {url}: the connection failed {failures} times in a row ({cause}); "
                    f"{_size(part)} of {archive.size} bytes are kept in {part}. Fix: run the same command "
                    f"again later, it resumes there; or pass another address with --url."
                )
            if failures and _size(part) < archive.size:
                time.sleep(patience.pause * 2 ** (failures - 1))


def _append(archive: ArchiveSpec, url: str, part: Path, timeout: float, bar: Any) -> None:
    """One request: ask for what is missing, write what comes."""
    start = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ratenorm", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            start = _first_byte(response, start, url)
            _check_length(response, archive, start, url)
            # A server that ignores Range sends the file from its beginning: so do we start over.
            bar.n = start
            bar.refresh()
            with part.open("r+b" if part.exists() else "wb") as out:
                out.seek(start)
                out.truncate()
                _copy(response, out, archive.size - start, bar)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (408, 425, 429) or error.code >= 500:
            raise _CutError(f"HTTP {error.code} {error.reason}") from error
        raise DataError(
            f"Downloading {url}: the server answered {error.code} {error.reason}. Fix: check the address; "
            f"another one can be passed with --url."
        ) from error
    except urllib.error.URLError as error:
        raise _CutError(str(error.reason)) from error
    except _CUT as error:
        raise _CutError(f"{type(error).__name__}: {error}") from error


def _first_byte(response: Any, asked: int, url: str) -> int:
    """Where in the file the body of this response begins."""
    if not asked or response.status != 206:
        return 0
    content_range = response.headers.get("Content-Range", "")
    match = re.match(r"bytes (\d+)-", content_range)
    if match is None or int(match.group(1)) > asked:
        raise DataError(
            f"Downloading {url}: bytes from {asked} on were asked for, the server sent {content_range!r}. "
            f"Fix: pass another address with --url."
        )
    return int(match.group(1))


def _check_length(response: Any, archive: ArchiveSpec, start: int, url: str) -> None:
    """Refuse at once a file of another size: an error page, a login page, another version."""
    length = response.headers.get("Content-Length")
    if length is not None and length.isdigit() and start + int(length) != archive.size:
        raise DataError(
            f"Downloading {url}: {archive.name} has {archive.size} bytes, the server offers "
            f"{start + int(length)}: this is another file. Fix: check the address (and whether the network "
            f"asks for a login)."
        )


def _copy(response: Any, out: Any, left: int, bar: Any) -> None:
    """Copy at most `left` bytes; a body without Content-Length cannot fill the disk."""
    while left and (block := response.read(min(CHUNK, left))):
        out.write(block)
        left -= len(block)
        bar.update(len(block))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
