"""Whether a worker is well, over HTTP: for probes of what runs it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable

__all__ = ["Health"]


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
