"""Reading a NIR file as plain dictionaries. A file with our seal is read here, once the seal is checked; any other one
is read by a process of its own, because the HDF5 library hangs or dies on some damaged files."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from ratenorm.errors import FileFormatError
from ratenorm.interop.extras import needed
from ratenorm.interop.nir_child import tree_of, with_arrays
from ratenorm.interop.nir_export import SEAL
from ratenorm.io.files import SIZE_LIMIT

SECONDS = 60.0  # that reading a file may take


def read_tree(path: Path) -> dict[str, Any]:
    """The node of a NIR file as nested dictionaries of arrays, numbers and texts; its seal, if it has one, checked."""
    data = _bytes(path)
    h5py = needed("h5py")
    body = unsealed(path, data)
    if body is None:
        return _READER.read(path)
    try:
        return tree_of(io.BytesIO(body), h5py)
    except Exception as error:
        raise _not_nir(path, (str(error).splitlines() or [type(error).__name__])[0][:200]) from error


def unsealed(path: Path, data: bytes) -> bytes | None:
    """The bytes before the seal, None where there is none; FileFormatError where they are not what was sealed."""
    body, seal, digest = data.rpartition(SEAL)
    if not seal:
        return None  # written by others, or by `nir` again
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise FileFormatError(
            f"Reading {path}: its checksum does not match its contents, so the file is damaged. Copy it again, or "
            "export it again."
        )
    return body


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise FileFormatError(f"Reading {path}: it has more than the {SIZE_LIMIT} bytes a NIR file may have.")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileFormatError(f"Reading {path}: there is no such file.") from error
    except OSError as error:
        raise FileFormatError(f"Reading {path}: {error.strerror or error}.") from error


def _not_nir(path: Path, why: str) -> FileFormatError:
    return FileFormatError(
        f"Reading {path}: it is not a NIR file, or it is damaged ({why}). Copy it again, or write it again with the "
        "program that made it."
    )


class _Reader:
    """The process that reads files, started when it is needed and again after a file that it did not survive."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.answers: Queue[str] = Queue()
        self.one_at_a_time = threading.Lock()

    def read(self, path: Path) -> dict[str, Any]:
        import numpy as np

        with self.one_at_a_time, tempfile.TemporaryDirectory() as folder:
            arrays = Path(folder) / "arrays.npz"
            line = self._ask(json.dumps({"file": str(path.resolve()), "arrays": str(arrays)}), path)
            answer = json.loads(line)
            if "error" in answer:
                raise _not_nir(path, answer["error"])
            with np.load(arrays, allow_pickle=False) as kept:
                tree = with_arrays(answer["tree"], kept)
        assert isinstance(tree, dict)
        return tree

    def _ask(self, request: str, path: Path) -> str:
        process = self._started()
        try:
            assert process.stdin is not None
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = self.answers.get(timeout=SECONDS)
        except (Empty, OSError) as error:
            self.stop()
            raise _not_nir(path, f"reading it took more than {SECONDS:g} seconds") from error
        if not line:
            self.stop()
            raise _not_nir(path, "the HDF5 library did not survive it")
        return line

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "ratenorm.interop.nir_child"]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, text=True)
            self.answers = Queue()
            threading.Thread(target=self._listen, args=(self.process, self.answers), daemon=True).start()
        return self.process

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: Queue[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                answers.put(line)
        answers.put("")  # it has ended

    def stop(self) -> None:
        """End the process; the next file starts another one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self.process = None


_READER = _Reader()
atexit.register(_READER.stop)
