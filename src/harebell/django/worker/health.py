"""Whether a worker is well, over HTTP: for probes of what runs it."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["Health", "free_port", "state_of_all"]

PATIENCE: Final = 2.0  # seconds for the answer of one process


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def state_of_all(expected: int, ports: Sequence[int]) -> dict[str, object]:
    """The sums of several worker processes with their health on these ports; `expected` of them have to be well."""
    sums, well = Counter[str](), 0
    for port in ports:
        state = _state_at(port)
        well += bool(state.pop("ok", False))
        sums.update({name: value for name, value in state.items() if isinstance(value, int)})
    return {"ok": well == expected, "processes": len(ports), "well": well, **sums}


def _state_at(port: int) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        state: dict[str, object] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):  # it starts still, or hangs
        return {}
    finally:
        connection.close()
    return state


class Health:
    """Answers GET on a port of 127.0.0.1, or another address: 200 when all is well, else 503, with the state as JSON.

    state  gives it; its key "ok" decides. Called in a thread of the server's.
    """

    def __init__(self, address: str, port: int, state: Callable[[], dict[str, object]]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = state()
                body = json.dumps(found).encode()
                self.send_response(200 if found.get("ok") else 503)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """A probe every second is no news."""

        self._server = http.server.ThreadingHTTPServer((address, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
