"""A local server that can misbehave."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest


@dataclass
class Behaviour:
    """What the server does; `requests` collects the Range header of every request."""

    content: bytes = b""
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # bytes sent before the cut, one entry a request
    statuses: list[int] = field(default_factory=list)  # error codes to answer first
    content_range: str | None = None  # a false Content-Range
    send_length: bool = True
    requests: list[str | None] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self) -> None:
        behaviour = self.behaviour
        asked = self.headers.get("Range")
        behaviour.requests.append(asked)
        if behaviour.statuses:
            self.send_error(behaviour.statuses.pop(0))
            return
        start = 0
        if asked and behaviour.ranges:
            start = int(re.match(r"bytes=(\d+)-", asked).group(1))  # type: ignore[union-attr]
            self.send_response(206)
            last = len(behaviour.content) - 1
            default = f"bytes {start}-{last}/{len(behaviour.content)}"
            self.send_header("Content-Range", behaviour.content_range or default)
        else:
            self.send_response(200)
        body = behaviour.content[start:]
        if behaviour.send_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: behaviour.cut_after.pop(0)] if behaviour.cut_after else body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


@pytest.fixture
def server() -> Iterator[tuple[Behaviour, str]]:
    behaviour = Behaviour()
    handler = type("Handler", (_Handler,), {"behaviour": behaviour})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield behaviour, f"http://127.0.0.1:{running.server_address[1]}/tiny.tar.gz"
        running.shutdown()
        thread.join()
