"""`ratenorm data get`: the official archive, checked, unpacked, moved into place in one step.

    download to ROOT/<archive>.part  ->  sha256  ->  unpack to ROOT/.<set>-XXXX  ->  rename to ROOT/<folder>

Nothing that was there is overwritten or deleted: a complete set is left alone, a damaged one is renamed to
<folder>.damaged-N first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from ratenorm.data.datasets import verify
from ratenorm.data.extract import extract, is_no_space
from ratenorm.data.files import check_files
from ratenorm.data.sets import ArchiveSpec, SetSpec, data_root, find_spec
from ratenorm.data.transfer import Patience, transfer
from ratenorm.errors import DataError

SPACE_MARGIN = 16 * 2**20


def get(
    name: str,
    root: str | os.PathLike[str] | None = None,
    url: str | None = None,
    *,
    progress: bool | None = None,
    patience: Patience | None = None,
) -> Path:
    """Download a known set into the data root and return its folder; does nothing where it is complete.

    `url` is another address of the same archive: the checksum must still match. A cut download is resumed.
    `progress`: True or False, None for a bar on a terminal only.
    """
    spec = find_spec(name)
    if spec.archive is None:  # MNIST: part of the package
        status = verify(name)
        if not status.complete:
            raise DataError(f"Checking the embedded {name}: {status}\nFix: reinstall the package.")
        return status.folder
    return fetch(spec, spec.archive, data_root(root), url, progress=progress, patience=patience)


def fetch(
    spec: SetSpec,
    archive: ArchiveSpec,
    root: Path,
    url: str | None = None,
    *,
    progress: bool | None = None,
    patience: Patience | None = None,
) -> Path:
    """`get` for any set: `spec` and `archive` say what to expect."""
    target = root / spec.folder
    if check_files(spec, root).complete:
        return target
    part = root / f"{archive.name}.part"
    address = url or archive.url
    try:
        root.mkdir(parents=True, exist_ok=True)
        _check_space(spec, archive, root, part)
        transfer(archive, address, part, patience or Patience(), progress)
        _check_archive(archive, address, part)
        _install(spec, part, target)
        part.unlink()
    except OSError as error:
        if is_no_space(error):
            raise DataError(
                f"Getting {spec.name}: no space left on the disk of {root}; what was downloaded is kept in "
                f"{part}. Fix: free about {_need(spec, archive, part)} bytes, or choose another folder with "
                f"--root, and run the same command again."
            ) from error
        raise DataError(
            f"Getting {spec.name}: writing under {root} failed ({error}). Fix: make the folder writable, or "
            f"choose another one with --root."
        ) from error
    return target


def _need(spec: SetSpec, archive: ArchiveSpec, part: Path) -> int:
    """Bytes still to be written: the rest of the archive, and all it unpacks to."""
    have = part.stat().st_size if part.exists() else 0
    return max(archive.size - have, 0) + sum(file.limit for file in spec.files)


def _check_space(spec: SetSpec, archive: ArchiveSpec, root: Path, part: Path) -> None:
    need = _need(spec, archive, part) + SPACE_MARGIN
    free = shutil.disk_usage(root).free
    if free < need:
        raise DataError(
            f"Getting {spec.name}: no space on the disk of {root}: {need} bytes are needed (archive and "
            f"unpacked files), {free} are free. Fix: free some space, or choose another folder with --root."
        )


def _check_archive(archive: ArchiveSpec, address: str, part: Path) -> None:
    """Refuse wrong bytes, and set them aside so that the next run starts afresh."""
    with part.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found == archive.sha256:
        return
    aside = _free_name(part.with_name(f"{archive.name}.wrong"))
    part.rename(aside)
    raise DataError(
        f"Downloading {address}: sha256 {archive.sha256} was expected, found {found}: these are not the "
        f"official bytes. They are set aside in {aside}. Fix: run the same command again; if it happens "
        f"twice, pass another address with --url."
    )


def _install(spec: SetSpec, part: Path, target: Path) -> None:
    """Unpack beside the target and rename: the set is there as a whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{spec.name}-", dir=target.parent))
    try:
        extract(spec, part, fresh)
        fresh.chmod(0o755)  # mkdtemp makes it private; a data set may be shared
        if target.exists():
            target.rename(_free_name(target.with_name(f"{target.name}.damaged")))
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # still there only if something failed


def _free_name(path: Path) -> Path:
    """`path`-1, `path`-2, ...: the first that does not exist."""
    number = 1
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate
