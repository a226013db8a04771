"""Unpack a downloaded archive by an allow-list: known names, known sizes, ordinary files, nothing else.

Only names from the set's own list are ever used to make a path, so no archive can write elsewhere. An archive
that holds a link, a device or a path that leads outside is refused as a whole: it is not what was asked for.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from ratenorm.data.files import CHECKSUMS
from ratenorm.data.sets import FileSpec, SetSpec
from ratenorm.errors import DataError

SLACK = 4 * 2**20
"""Unpacked bytes allowed beyond the files themselves: tar headers, padding, a read-me."""
CHUNK = 2**20


class _TooMuchError(Exception):
    """The archive unpacks to more than the set can have."""


class _Bounded:
    """A stream that refuses to give more than `limit` bytes, whatever the archive claims about itself."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise _TooMuchError
        return content


def extract(spec: SetSpec, archive: Path, target: Path) -> None:
    """Unpack the files of `spec` from a .tar.gz into the empty folder `target`, and note their checksums."""
    doing = f"Unpacking {archive.name} for {spec.name}"
    limit = sum(file.limit for file in spec.files) + SLACK
    checksums: dict[str, str] = {}
    try:
        with gzip.open(archive) as packed:
            stream = _Bounded(cast(BinaryIO, packed), limit)
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|") as tar:
                for member in tar:
                    file = _wanted(spec, member, doing)
                    if file is not None and file.name in checksums:
                        raise DataError(f"{doing}: the archive holds {file.name} twice.")
                    if file is not None:
                        checksums[file.name] = _write(tar, member, target / file.name)
            while stream.read(CHUNK):  # to the very end, where gzip keeps its own checksum
                pass
    except _TooMuchError as error:
        raise DataError(f"{doing}: it unpacks to more than the {limit} bytes this set can have.") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{doing}: the archive is truncated or damaged ({error}).") from error
    if missing := [file.name for file in spec.files if file.name not in checksums]:
        raise DataError(f"{doing}: the archive lacks {', '.join(missing)}.")
    lines = [f"{checksum}  {name}\n" for name, checksum in sorted(checksums.items())]
    (target / CHECKSUMS).write_text("".join(lines), encoding="ascii")


def _wanted(spec: SetSpec, member: tarfile.TarInfo, doing: str) -> FileSpec | None:
    """The file of the set this member is; None for a folder and for files not needed (a read-me)."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise DataError(f"{doing}: the member {member.name!r} leads outside the folder; the archive is refused.")
    if member.isdir():
        return None
    if not member.isreg():
        raise DataError(
            f"{doing}: the member {member.name!r} is a link or a device, only ordinary files are allowed; "
            f"the archive is refused."
        )
    file = next((file for file in spec.files if path == PurePosixPath(spec.folder, file.name)), None)
    if file is None:
        return None
    if member.size > file.limit or (file.size is not None and member.size != file.size):
        allowed = f"{file.size} bytes were" if file.size is not None else f"at most {file.limit} bytes were"
        raise DataError(f"{doing}: {allowed} expected for {member.name!r}, found {member.size}.")
    return file


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    """Copy one member to `path`, which must not exist, and return its sha256."""
    digest = hashlib.sha256()
    source = cast(IO[bytes], tar.extractfile(member))  # None only for what is not an ordinary file
    with path.open("xb") as out:
        while block := source.read(CHUNK):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def is_no_space(error: OSError) -> bool:
    """Whether the disk (or the user's quota) is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
