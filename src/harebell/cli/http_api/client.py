"""Requests to the HTTP API of one broker, over one connection that is made again when it was lost.

    api = HttpApi(parse_address("http://guest:guest@127.0.0.1:15672"), timeout=10)
    api.get("queues", "/", "orders")

Rules: parts of a path are names, quoted here. What a broker or a network answers becomes a RequestFailed whose text
names the broker and the next thing to try; no text has a password.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from harebell.cli.http_api.address import Address
from harebell.cli.http_api.failures import Denied, Missing, NoAnswer, RequestFailed
from harebell.client.transport.dialling import NO_TLS
from harebell.errors import InvalidArgument

__all__ = ["HttpApi"]

MOST_BYTES: Final = 256 << 20  # of an answer: a list of 100,000 queues has half of it
START: Final = (
    "start one with `harebell serve`, or name another with --url http://user:password@host:15672"
    " (RabbitMQ needs `rabbitmq-plugins enable rabbitmq_management`)"
)


class HttpApi:
    """One broker's HTTP API. Not for several threads at a time.

    timeout  seconds for each step of a request
    ca_file  certificates to trust, in place of the address's and of the system's
    """

    def __init__(self, address: Address, *, timeout: float = 10.0, ca_file: Path | None = None) -> None:
        self.address, self.ca_file = address, ca_file
        self._timeout, self._context = timeout, _context(ca_file or address.cacertfile) if address.tls else None
        self._connection: HTTPConnection | None = None
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        self._headers = {"authorization": f"Basic {login}", "accept": "application/json, */*;q=0.5"}
        self._product: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request makes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, *path: str, **query: object) -> Any:
        """The JSON behind a path. Raises RequestFailed."""
        return self.request("GET", path, query=query)

    def put(self, *path: str, body: object) -> None:
        """Set the object behind a path. Raises RequestFailed."""
        self.request("PUT", path, body=body)

    def post(self, *path: str, body: object) -> Any:
        """The JSON of the answer; None where there is none. Raises RequestFailed."""
        return self.request("POST", path, body=body)

    def delete(
        self, *path: str, query: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Delete the object behind a path. Raises RequestFailed."""
        self.request("DELETE", path, query=query, headers=headers)

    def product(self) -> str:
        """The server's name: "RabbitMQ" for any that does not say another one."""
        if self._product is None:
            self._product = str(self.get("overview").get("product_name") or "RabbitMQ")
        return self._product

    def need_harebell(self, what: str, instead: str) -> None:
        """Raise RequestFailed where the server is RabbitMQ, which cannot do `what`; `instead` is the advice."""
        product = self.product()
        if product != "Harebell":
            raise RequestFailed(f"{product} at {self.address.peer} cannot {what}: {instead}")

    def request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of an answer; None where it has no body. Raises RequestFailed, and InvalidArgument for no name."""
        if "" in path:  # a path that ends with / is that of the list
            raise InvalidArgument(f"a name is empty: /api/{path[0]} has nothing of that name")
        target = f"{self.address.prefix}/api/" + "/".join(quote(part, safe="") for part in path)
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        if wanted:
            target += "?" + urlencode(wanted)
        raw = None if body is None else json.dumps(body).encode()
        status, answer = self._exchange(method, target, raw, {**self._headers, **(headers or {})})
        if status < 300:
            return self._decoded(answer)
        raise self._failure(status, answer, path)

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if body is not None:
            headers = {**headers, "content-type": "application/json"}
        again = self._connection is not None  # a broker may have closed an idle connection: that is no failure
        while True:
            if self._connection is None:
                self._connection = self._dial()
            try:
                self._connection.request(method, target, body, dict(headers))
                response = self._connection.getresponse()
                answer = response.read(MOST_BYTES + 1)
            except (RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self.close()
                if again and method == "GET":
                    again = False
                    continue
                raise NoAnswer(f"{self.address.peer} closed the connection without an answer: {START}") from error
            except (HTTPException, OSError, UnicodeError) as error:  # the last for a host that DNS could not have
                self.close()
                raise self._no_answer(error) from error
            if len(answer) > MOST_BYTES:
                self.close()
                raise RequestFailed(f"the answer has more than {MOST_BYTES >> 20} MiB: ask for one virtual host")
            return response.status, answer

    def _dial(self) -> HTTPConnection:
        address = self.address
        if self._context is not None:
            return HTTPSConnection(address.host, address.port, timeout=self._timeout, context=self._context)
        return HTTPConnection(address.host, address.port, timeout=self._timeout)

    def _no_answer(self, error: Exception) -> NoAnswer:
        peer = self.address.peer
        match error:
            case TimeoutError():
                return NoAnswer(f"{peer} did not answer within {self._timeout:g} seconds: --timeout gives it more")
            case ssl.SSLCertVerificationError():
                why = error.verify_message
                return NoAnswer(f"{peer} cannot be trusted ({why}): --ca-file names the certificates to trust")
            case ssl.SSLError() if error.reason in NO_TLS or isinstance(error, ssl.SSLEOFError):
                return NoAnswer(f"{peer} answers without TLS: no TLS on this port? use http://")
            case ssl.SSLError():
                return NoAnswer(f"TLS with {peer} fails: {error.reason or error}")
            case HTTPException():
                return NoAnswer(f"{peer} does not speak HTTP: the HTTP API has a port of its own, by default 15672")
        reason = getattr(error, "strerror", None) or str(error)
        return NoAnswer(f"no HTTP API answers at {peer} ({reason}): {START}")

    def _decoded(self, answer: bytes) -> Any:
        if not answer:
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise NoAnswer(f"{self.address.peer} has no HTTP API of a broker: its answer is no JSON") from None

    def _failure(self, status: int, answer: bytes, path: tuple[str, ...]) -> RequestFailed:
        try:
            said = json.loads(answer)
            reason = " ".join(str(said.get("reason") or said.get("error") or "").split())
        except (ValueError, RecursionError, AttributeError):
            reason = ""
        peer, user = self.address.peer, self.address.user
        if status in (401, 403):
            return Denied(f"{peer} refuses user '{user}': {reason or 'the login failed'}{_remedy(reason)}")
        if status == 404:
            return Missing(reason if reason not in ("", "Not Found") else f"{peer} has no {'/'.join(path)}")
        if status == 429:
            return Denied(f"{peer} takes no login now: {reason}")
        return RequestFailed(reason or f"{peer} answers with status {status}")


def _remedy(reason: str) -> str:
    if reason in ("", "Login failed"):
        return "; is the password in --url, HAREBELL_HTTP_URL or HAREBELL_URL right?"
    if "ACCESS_REFUSED" in reason and " refused for user " not in reason:
        return ""  # it is refused to every user, and the reason says why: a name with a reserved prefix
    if "ACCESS_REFUSED" in reason or "access" in reason:
        return "; `harebell permissions set` gives permissions"
    return "; an administrator gives rights with `harebell users set-tags`"


def _context(ca_file: Path | str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"the certificates in {ca_file} cannot be used: {error}") from error
