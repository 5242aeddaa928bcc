"""A broker with its HTTP API in a thread, and a client of the API that knows no more than HTTP."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from harebell.admin import Management
from harebell.broker import Tls
from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.broker.auth.throttle import Level
from harebell.broker.auth.users import make_user
from harebell.broker.node import Node
from harebell.routing.definitions import Permission
from tests.wire import PATIENCE, BrokerThread

ALL = ".*"
FOLDER = Path(__file__).parents[1] / "client" / "tls"
CERTIFICATE, KEY = FOLDER / "certificate.pem", FOLDER / "key.pem"
TLS = Tls(CERTIFICATE, KEY)


class Reply(NamedTuple):
    """An answer: status, headers by name in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])


class Api:
    """A user of an HTTP API on this machine; `password` is the user's name unless another one is given."""

    def __init__(self, port: int, user: str = "guest", password: str | None = None) -> None:
        self.port, self.user = port, user
        credentials = f"{user}:{user if password is None else password}".encode()
        self.authorization = "Basic " + base64.b64encode(credentials).decode()

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, login: bool = True
    ) -> Reply:
        """The answer. A body that is neither bytes nor text is sent as JSON."""
        sent = dict(headers or {})
        if login:
            sent.setdefault("authorization", self.authorization)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None:
            sent.setdefault("content-type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            received = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, received, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON behind a path."""
        reply = self("GET", path)
        assert reply.status == 200, reply
        return reply.json

    def put(self, path: str, body: Any = None) -> int:
        return self("PUT", path, {} if body is None else body).status


class ApiThread(BrokerThread):
    """A BrokerThread with its API; failed logins make nobody wait."""

    management: Management
    http_port = 0
    """The port to listen on; 0 takes a free one."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.management = Management(self.broker, port=self.http_port)
        try:
            self.wait_for(self.management.start())
        except BaseException:
            super().__exit__()
            raise
        self.run(lambda: relax(self.broker.node))
        self.management.context.counts.factor = 0  # each answer has what was done before it was asked for
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait_for(self.management.stop())
        finally:
            super().__exit__()

    def wait_for(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    @property
    def api_port(self) -> int:
        assert self.management.port is not None
        return self.management.port

    def api(self, user: str = "guest", password: str | None = None) -> Api:
        return Api(self.api_port, user, password)

    def sample(self, times: int = 1) -> None:
        """Let so many intervals of the sampler pass."""
        for _ in range(times):
            self.run(self.management.context.sampler.sample_now)

    def add_user(self, name: str, *tags: str, vhosts: tuple[str, ...] = ()) -> Api:
        """A user with these tags, and all permissions in these virtual hosts."""

        def add() -> None:
            users = self.broker.node.users
            users.put(make_user(name, name, tags, RABBITMQ_SHA256))
            for vhost in vhosts:
                users.set_permission(Permission(vhost, name, ALL, ALL, ALL))
            self.broker.node.save()

        self.run(add)
        return self.api(name)


def relax(node: Node) -> None:
    node.logins.throttle.user = node.logins.throttle.address = Level(1_000_000, (1,))


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
