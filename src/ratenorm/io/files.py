"""Files that are never half written and never silently wrong.

`write_atomic` goes through a temporary file in the same folder, synced, renamed over the old one, with the folder
synced:
at every moment the path holds the old file in full or the new one in full. Tensors are kept as safetensors, which
runs no code on loading, with one JSON text as metadata and a sha256 over everything.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratenorm.errors import FileFormatError, StorageError

if TYPE_CHECKING:  # records are written where there is no torch
    from torch import Tensor

SIZE_LIMIT = 4 * 2**30  # bytes; refuse before anything is allocated
HEADER_LIMIT = 2**24  # bytes of JSON before the tensors
TENSOR_LIMIT = 2**14  # tensors of a file; the deepest network of the zoo has some hundred
CHECK, CHECK_DIGITS = "check", 16  # of a line of a log
_KEY = "ratenorm"  # the one metadata entry, so that equal contents give equal bytes
_PART = ".part-"
_NOT_OURS = (ValueError, KeyError, TypeError, RuntimeError, OverflowError, AttributeError)  # RecursionError too


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file so that it is, at every moment, either the old one or the new one in full."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}{_PART}{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            f"Writing {path}: {error.strerror or error}. What was there before is untouched. Make room "
            "or give a folder that can be written."
        ) from error
    finally:  # also where a signal came in between
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def regular(path: str | os.PathLike[str]) -> Iterator[tuple[io.BufferedReader, int]]:
    """A regular file opened for reading, and its size. A pipe, on which one could wait for ever, or a device such as
    /dev/zero, which has no end, is an `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        yield file, found.st_size


def read_small(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file; `OSError` where it is none, or has more bytes than the limit."""
    with regular(path) as (file, size):
        data = b"" if size > limit else file.read(limit + 1)
        if size > limit or len(data) > limit:
            raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", os.fspath(path))
        return data


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a file that only we write: a link in its place, which leads elsewhere, is an `OSError`.

    Without that whoever may write to a run folder could let us overwrite any file of ours.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "it is a link or no regular file", os.fspath(path))
    return descriptor


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out before any work, and not after it, that a file cannot be written."""
    path = Path(path)
    if path.is_dir():
        raise StorageError(f"Writing {path}: it is a folder. Give the name of a file.")
    probe = path.with_name(f".{path.name}{_PART}{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(probe, "xb"):
            pass
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"Writing {path}: {error.strerror or error}. Give a name in a folder that can be written."
        ) from error


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_stray(path: Path) -> bool:
    """Whether a file is one that `write_atomic` had not finished."""
    return path.name.startswith(".") and _PART in path.name and path.is_file()


def sweep(folder: Path) -> list[Path]:
    """Remove temporary files that a killed process left behind."""
    strays = [f for f in folder.rglob(f".*{_PART}*") if is_stray(f)]
    for stray in strays:
        stray.unlink(missing_ok=True)
    return strays


def sweep_of(path: Path, seconds: float = 0.0) -> list[Path]:
    """Remove what killed writers of one file left beside it, where it is older than `seconds`.

    For folders that several commands write to at once: without an age, only for a file that nobody else writes.
    """
    strays = [f for f in path.parent.glob(f".{path.name}{_PART}*") if is_stray(f)]
    old = [f for f in strays if time.time() - f.stat().st_mtime >= seconds]
    for stray in old:
        stray.unlink(missing_ok=True)
    return old


def to_json(value: Any) -> str:
    """JSON that is the same for the same content."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def digest_of(content: Any) -> str:
    """sha256 of JSON content; spaces and the order of keys do not matter."""
    return hashlib.sha256(to_json(content).encode()).hexdigest()


def sealed_line(entry: Mapping[str, Any]) -> str:
    """One line of a log, with a checksum of its own: a log is appended to and has no end to put one."""
    return to_json({**entry, CHECK: digest_of(entry)[:CHECK_DIGITS]})


def is_sealed(log: bytes) -> bool:
    """Whether lines of a log carry checksums: all of them do, or none."""
    return f'"{CHECK}":'.encode() in log


def opened_line(line: bytes, sealed: bool) -> dict[str, Any]:
    """The entry of one line; ValueError where it is damaged, as far as can be told."""
    try:
        entry = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    check = entry.pop(CHECK, None)
    if sealed and check != digest_of(entry)[:CHECK_DIGITS]:
        raise ValueError("its checksum does not match")
    return entry


_HINTS = {
    "ratenorm-network": " It is a network before conversion: convert it first, with `ratenorm convert`.",
    "ratenorm-spiking-net": " It is a spiking network already: run it with `ratenorm evaluate`, or give the network it "
    "was converted from.",
}


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> Path:
    """Tensors and what describes them, as one safetensors file with a checksum. `content` needs `format` and
    `version`.
    """
    from safetensors.torch import save

    # cloned: tensors that share memory (one p for all layers) are written once each
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    text = to_json(content)
    metadata = to_json({"content": text, "sha256": _digest(plain, text)})
    return write_atomic(path, save(plain, {_KEY: metadata}))


def read_tensors(
    path: str | os.PathLike[str], kind: str, version: int, oldest: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the content of a file written by `write_tensors`, checked before it is believed.

    Versions from the `oldest` on are read; without it only `version`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = Path(path)
    data = _read(path, kind)
    try:
        length = int.from_bytes(data[:8], "little")
        if length > HEADER_LIMIT:
            raise ValueError(f"its header has {length:,} bytes, {HEADER_LIMIT:,} are allowed")
        header = json.loads(data[8 : 8 + length])
        if len(header) > TENSOR_LIMIT:
            raise ValueError(f"it holds {len(header):,} tensors, {TENSOR_LIMIT:,} are allowed")
        tensors = load(data)
        if _KEY not in (header.get("__metadata__") or {}) and not any(key.startswith(_KEY) for key in header):
            raise FileFormatError(
                f"Reading {path}: it is not a {kind} file: it holds weights, and does not say which network they "
                "belong to. For a network of your own give its module as well: --model package.module:function on the "
                "command line; in Python `model.load_state_dict` and `ratenorm.convert(model, ...)`."
            )
        outer = json.loads(header["__metadata__"][_KEY])
        text, expected = outer["content"], outer["sha256"]
        content = json.loads(text)
        found_kind, found_version = content["format"], content["version"]
        found_digest = _digest(tensors, text)
    except (SafetensorError, *_NOT_OURS) as error:
        raise FileFormatError(
            f"Reading {path}: it is not a {kind} file, or it is damaged ({_short(error)}). Copy it again, "
            "or write it anew."
        ) from error
    if found_kind != kind:
        raise FileFormatError(
            f"Reading {path}: it holds {found_kind!r}, {kind!r} was expected.{_HINTS.get(found_kind, '')}"
        )
    if type(found_version) is not int or not (version if oldest is None else oldest) <= found_version <= version:
        known = f"version {version}" if oldest is None else f"versions {oldest} to {version}"
        raise FileFormatError(
            f"Reading {path}: it has version {found_version!r} of the {kind} format, this ratenorm reads {known}. Read "
            "it with the ratenorm that wrote it "
            f"({content.get('ratenorm', 'unknown')}), or write it anew."
        )
    if found_digest != expected:
        raise FileFormatError(
            f"Reading {path}: its checksum does not match its contents, so the file is damaged. "
            "Copy it again, or write it anew."
        )
    return tensors, content


def _read(path: Path, kind: str) -> bytes:
    try:
        with regular(path) as (file, size):
            if size > SIZE_LIMIT:
                raise FileFormatError(f"Reading {path}: {size} bytes are more than the {SIZE_LIMIT} a {kind} may have.")
            return file.read(size)
    except FileNotFoundError as error:
        raise FileFormatError(f"Reading {path}: there is no such file.") from error
    except OSError as error:
        raise FileFormatError(f"Reading {path}: {error.strerror or error}.") from error


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
