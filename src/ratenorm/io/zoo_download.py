"""Networks of the zoo that an installation does not carry: found in a cache, or downloaded into it.

RATENORM_ZOO_CACHE    where they are kept (default: ~/.cache/ratenorm/zoo)
RATENORM_ZOO_URL      the address of a copy of the repository's folder `zoo/`
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from ratenorm.data.extract import is_no_space
from ratenorm.data.sets import ArchiveSpec
from ratenorm.data.transfer import Patience, transfer
from ratenorm.errors import DataError, FileFormatError, UsageError

CACHE_VARIABLE, ADDRESS_VARIABLE = "RATENORM_ZOO_CACHE", "RATENORM_ZOO_URL"
HUB = "hf://"
HUB_FILE = "network.safetensors"  # the file of a hub repository, unless its address names another


def cache() -> Path:
    """The folder of downloaded networks."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "ratenorm" / "zoo")


def fetched(
    name: str, file: str, size: int, sha256: str, *, progress: bool | None = None, patience: Patience | None = None
) -> Path:
    """The file of a network in the cache; it is downloaded if it is not there. A cut download resumes.

    Args:
        name: The network, for messages.
        file: Its file name in the zoo.
        size: Its size in bytes.
        sha256: Its checksum; a file with another one is refused and removed.
        progress: Show a bar; None shows one on a terminal only.
        patience: How long to wait for the server.

    Returns:
        The path of the verified file.

    Raises:
        DataError: If no address is set, the server does not answer, or the disk is full.
        FileFormatError: If what was downloaded has another checksum.
    """
    target = cache() / file
    if target.is_file():
        return target
    base = os.environ.get(ADDRESS_VARIABLE, "").rstrip("/")
    where = f"{file} ({size / 1e6:.1f} MB, sha256 {sha256})"
    if not base:
        raise DataError(
            f"Loading {name!r} from the zoo: this installation does not carry it, and no address to download it from "
            f"is set. Fix: set {ADDRESS_VARIABLE} to the address of a copy of the repository's folder zoo/, or copy "
            f"{where} from a clone of the repository to {target}."
        )
    address, part = f"{base}/{file}", target.with_name(f"{file}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        transfer(ArchiveSpec(address, size, sha256), address, part, patience or Patience(), progress)
        found = hashlib.sha256(part.read_bytes()).hexdigest()
        if found != sha256:
            part.unlink()
            raise FileFormatError(
                f"Loading {name!r} from the zoo: {address} has sha256 {found}, the index says {sha256}. It is another "
                f"file, and was removed. Fix: check {ADDRESS_VARIABLE}, or copy {where} to {target}."
            )
        part.replace(target)
    except DataError as error:
        raise DataError(
            f"Loading {name!r} from the zoo: {error} Without a network: fetch {address} on another machine and copy it "
            f"to {target}."
        ) from error
    except OSError as error:
        why = "no space is left on its disk" if is_no_space(error) else str(error)
        raise DataError(
            f"Loading {name!r} from the zoo: writing {target} failed: {why}. Fix: free {size / 1e6:.0f} MB, or set "
            f"{CACHE_VARIABLE} to another folder. What was downloaded is kept, and resumed."
        ) from error
    return target


def from_hub(address: str) -> Path:
    """The file of a network on the Hugging Face hub: `hf://owner/name` or `hf://owner/name/FILE.safetensors`."""
    owner, _, rest = address.removeprefix(HUB).partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name or (file and not file.endswith(".safetensors")):
        raise UsageError(
            f"Loading {address!r}: an address on the hub is hf://owner/name, or hf://owner/name/FILE.safetensors."
        )
    hub: Any
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise UsageError(f'Loading {address!r} needs an extra: pip install "ratenorm[hub]".') from error
    try:
        return Path(hub.hf_hub_download(f"{owner}/{name}", file or HUB_FILE, library_name="ratenorm"))
    except Exception as error:  # the hub's client has its own errors, and those of its transport
        raise DataError(
            f"Loading {address!r}: the hub did not give {file or HUB_FILE} ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'}). Fix: check the name and the network."
        ) from error
