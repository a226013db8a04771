"""Networks that an installation does not carry: cached, downloaded, resumed, checked, or explained."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from local_server import Behaviour
from ratenorm.data.transfer import Patience
from ratenorm.errors import DataError, FileFormatError, UsageError
from ratenorm.io import zoo, zoo_download

IMPATIENT = Patience(timeout=2.0, tries=2, pause=0.01)
CONTENT = zoo.path_of("cnn7-mnist-relu").read_bytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no address."""
    monkeypatch.setenv(zoo_download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(zoo_download.ADDRESS_VARIABLE, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def served(server: tuple[Behaviour, str], cache: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    """A server with the network, whose address is set."""
    behaviour, address = server
    behaviour.content = CONTENT
    monkeypatch.setenv(zoo_download.ADDRESS_VARIABLE, address.rpartition("/")[0])
    return behaviour


def fetch(sha256: str = SHA256) -> Path:
    return zoo_download.fetched("tiny", "tiny.safetensors", len(CONTENT), sha256, progress=False, patience=IMPATIENT)


def test_a_network_is_downloaded_once(served: Behaviour, cache: Path) -> None:
    path = fetch()
    assert path == cache / "tiny.safetensors"
    assert path.read_bytes() == CONTENT
    assert fetch() == path
    assert len(served.requests) == 1
    assert [p.name for p in cache.iterdir()] == ["tiny.safetensors"]


def test_a_cut_download_resumes(served: Behaviour, cache: Path) -> None:
    served.cut_after = [1000]
    assert fetch().read_bytes() == CONTENT
    assert served.requests == [None, "bytes=1000-"]


def test_what_was_cut_for_good_is_kept_and_resumed_by_the_next_run(served: Behaviour, cache: Path) -> None:
    served.cut_after, served.statuses = [1000], []
    served.ranges = True
    half = cache / "tiny.safetensors.part"
    cache.mkdir()
    half.write_bytes(CONTENT[:5000])
    assert fetch().read_bytes() == CONTENT
    assert served.requests[0] == "bytes=5000-"
    assert not half.exists()


def test_other_bytes_are_refused_and_removed(served: Behaviour, cache: Path) -> None:
    served.content = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    with pytest.raises(FileFormatError, match="It is another file, and was removed"):
        fetch()
    assert list(cache.iterdir()) == []


def test_a_full_disk_is_said(served: Behaviour, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zoo_download, "transfer", full)
    with pytest.raises(DataError, match=r"no space is left on its disk\. Fix: free .* or set RATENORM_ZOO_CACHE"):
        fetch()


def test_offline_the_message_says_what_to_fetch(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(zoo_download.ADDRESS_VARIABLE, "http://127.0.0.1:9/zoo/")
    with pytest.raises(DataError, match=r"fetch http://127\.0\.0\.1:9/zoo/tiny\.safetensors on another machine"):
        fetch()


def test_without_an_address_the_message_says_which_to_set(cache: Path) -> None:
    with pytest.raises(DataError, match=r"set RATENORM_ZOO_URL .* or copy tiny\.safetensors .*sha256 "):
        fetch()


def test_an_installation_without_large_networks_downloads_them(
    served: Behaviour, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "zoo_files"
    small.mkdir()
    (small / zoo.INDEX).write_bytes((zoo.folder() / zoo.INDEX).read_bytes())
    monkeypatch.setattr(zoo, "folder", lambda: small)
    model, spec = zoo.load("cnn7-mnist-relu")
    assert spec.model == "cnn7"
    assert model(torch.rand(1, 1, 28, 28)).shape == (1, 10)
    assert (cache / "cnn7-mnist-relu.safetensors").exists()


def test_a_damaged_copy_in_the_cache_is_found(served: Behaviour, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = cache / "empty"
    small.mkdir(parents=True)
    (small / zoo.INDEX).write_bytes((zoo.folder() / zoo.INDEX).read_bytes())
    monkeypatch.setattr(zoo, "folder", lambda: small)
    (cache / "cnn7-mnist-relu.safetensors").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(FileFormatError, match="Remove it"):
        zoo.load("cnn7-mnist-relu")


def test_names_are_listed_by_pattern() -> None:
    assert zoo.list("preact_resnet20-*-s1*") == ["preact_resnet20-cifar10-s1", "preact_resnet20-cifar10-s1-relu"]
    assert zoo.list("nothing*") == []


@pytest.mark.parametrize("address", ["hf://owner", "hf://", "hf://owner/name/file.bin", "hf:///name"])
def test_wrong_addresses_on_the_hub_are_explained(address: str) -> None:
    with pytest.raises(UsageError, match="hf://owner/name"):
        zoo.load(address)


class _Hub(http.server.BaseHTTPRequestHandler):
    """A stand-in for the hub: one file of one repository."""

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, body: bool) -> None:
        if self.path.startswith("/api/"):
            content = json.dumps({"id": "owner/name", "sha": "0" * 40, "siblings": []}).encode()
        elif self.path.endswith("/owner/name/resolve/main/network.safetensors"):
            content = CONTENT
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{SHA256}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    constants = pytest.importorskip("huggingface_hub.constants", reason='needs pip install "ratenorm[hub]"')
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{running.server_address[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield
        running.shutdown()
        thread.join()


def test_a_network_comes_from_the_hub(hub: None) -> None:
    model, spec = zoo.load("hf://owner/name")
    assert spec.model == "cnn7"
    assert sum(p.numel() for p in model.parameters()) > 0


def test_a_file_that_the_hub_does_not_have_is_explained(hub: None) -> None:
    with pytest.raises(DataError, match=r"the hub did not give other\.safetensors"):
        zoo.load("hf://owner/name/other.safetensors")
