"""A reproduction that begins with what the zoo has: networks that lie in the repository need not be trained again.

Beside each of its networks the zoo keeps how it was made (`NAME.json`): the configuration of the training, how long it
took, the choice of stage 2. A network is taken only where that is the very training that would have to be run, and only
where none has been begun. The folder then holds what a training would have left, bit for bit: reproductions keep their
networks in the precision of the zoo.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratenorm.core.rate_norm import set_p_
from ratenorm.errors import FileFormatError
from ratenorm.io import zoo
from ratenorm.io.files import to_json, write_atomic
from ratenorm.io.networks import load_network, save_network
from ratenorm.io.run_folder import go_on
from ratenorm.workflows.choose_lambda import CHOICE_FILE

_PLACES = {"from_relu", "root", "checkpoint_minutes"}  # where things lay, which does not change what was trained


def write_origin(name: str, folder: Path, config: Mapping[str, Any], seconds: float, choice: Any = None) -> Path:
    """How a network was made, beside it."""
    content = {"config": _plain(config), "seconds": seconds, "choice": choice}
    return write_atomic(folder / f"{name}.json", (to_json(content) + "\n").encode())


def has(name: str, folder: Path, config: Mapping[str, Any]) -> bool:
    """The zoo has a network of that name that was trained just so."""
    return _origin(name, folder, config) is not None


def take_relu(name: str, folder: Path, config: Mapping[str, Any], file: Path) -> bool:
    """Put the zoo's network where a training would leave it; whether that was done."""
    if file.parent.exists() or (origin := _origin(name, folder, config)) is None:
        return False
    data = zoo.path_of(name, folder).read_bytes()
    _leave(file, data, config, origin)
    return True


def take_rate_norm(name: str, folder: Path, config: Mapping[str, Any], rnl: Path, ril: Path) -> bool:
    """The same for the network with Rate Norm layers: at p = 1, and with the p that stage 2 found."""
    if rnl.parent.exists() or ril.parent.exists() or (origin := _origin(name, folder, config)) is None:
        return False
    chosen = zoo.path_of(name, folder)
    model, spec = load_network(chosen)
    set_p_(model, 1.0)
    save_network(rnl, model, spec, half=True)
    _leave(rnl, rnl.read_bytes(), config, origin)
    with go_on(ril.parent) as run:
        run.configure({"network": hashlib.sha256(rnl.read_bytes()).hexdigest()})
        write_atomic(ril, chosen.read_bytes())
        write_atomic(run / CHOICE_FILE, (to_json(origin["choice"]) + "\n").encode())
    return True


def _leave(file: Path, data: bytes, config: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    with go_on(file.parent) as run:
        run.configure(dict(config))
        run.log({"stage": "stage1", "seconds": origin["seconds"]})
        write_atomic(file, data)


def _origin(name: str, folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, FileFormatError):
        if name in zoo.entries(folder):
            origin: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            if origin["config"] == _plain(config):
                return origin
    return None


def _plain(config: Any) -> Any:
    """A configuration as JSON gives it back, without the paths in it."""
    return _without(json.loads(to_json(config)))


def _without(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without(inner) for key, inner in value.items() if key not in _PLACES}
