"""The application: from a request to its answer, by the table of endpoints.

Rules, in this order:

- A page is for everybody: it has nothing of the broker's.
- A target is a path, a whole URL, or the "*" of OPTIONS.
- A path that no endpoint has is 404, a method that the path has not is 405, both without a login.
- Then the login (401), the other site (403), what the endpoint needs (401), the virtual host (404), and only then the
  body, so that strangers cannot make the broker read.
- A handler's work runs on the broker's slices, in the name of the user, and each slice is a batch: an answer leaves
  when the changes that it reports are in the catalog on the disk.
- Every answer has the headers of HEADERS, those to errors too.
- A handler that fails is 500, and the log has the exception; the client gets no part of it. The audit log has the
  request as it has one that is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import StreamingResponse

from harebell.admin.answers import Answer, Refused, Stream
from harebell.admin.context import Context
from harebell.admin.http.bodies import Bodies, Left, Receive
from harebell.admin.http.endpoint import Endpoint, Needs, check
from harebell.admin.http.paths import BadPath, Tree, split, without_authority
from harebell.admin.http.refusals import refusal_of
from harebell.admin.http.requests import Request, read_query
from harebell.admin.login.gate import Gate, check_site
from harebell.admin.login.users import User
from harebell.broker.audit import Origin
from harebell.broker.slices import Work
from harebell.errors import HarebellError

__all__ = ["App", "Audit", "Pages"]

log = logging.getLogger("harebell.admin")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Pages = Callable[[str, bytes, Mapping[str, str]], Answer | None]
"""Gives the answers to requests for pages, by method, raw path and headers: no login is needed for them."""
Audit = Callable[[Request, Refused | None], None]
"""Notified of each request that may have changed something, with its refusal, or None when it was done."""

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"authorization, cookie, origin"),
)
PIECE_SECONDS: Final = 60.0  # for a client to take a piece of an answer
UNREAD_DIGITS: Final = 5  # of the length of a body that is read to its end though it is not used
CHANGING: Final = frozenset({"PUT", "POST", "PATCH", "DELETE"})
METHODS: Final = ", ".join(sorted({*CHANGING, "GET", "HEAD", "OPTIONS"}))
STORE_FAILED: Final = Refused(503, "store_failed", "the disk refuses what the broker writes")
FAILED: Final = Refused(500, "internal_server_error", "the broker's log says what failed")
NOT_HERE: Final = Refused(404, "Object Not Found", "Not Found")


class App:
    """The ASGI application of one node.

    context     what handlers work with
    endpoints   the table
    gate        logs users in
    audit       notified of changes
    prefix      what the paths of the endpoints begin with
    pages       gives pages beside them
    """

    def __init__(
        self,
        context: Context,
        endpoints: Iterable[Endpoint],
        gate: Gate,
        audit: Audit,
        *,
        prefix: str = "",
        pages: Pages = lambda method, path, headers: None,
    ) -> None:
        self._context, self._node, self._gate, self._audit = context, context.node, gate, audit
        self._pages = pages
        self._tree: Tree[Endpoint] = Tree((each.method, f"{prefix}{each.path}", each) for each in endpoints)
        self._bodies = Bodies()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer: Answer | Stream = await self._answer(scope, receive)
        except Refused as refused:
            answer = refused.answer()
            if _sends_much(scope["headers"]):  # its body was not read, or not to its end
                answer.headers = {**answer.headers, "connection": "close"}
        except Left:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], _shown(scope["raw_path"]))
            answer = FAILED.answer()
        patient = _patient(send)
        try:
            if isinstance(answer, Stream) and scope["method"] == "HEAD":
                await _send_answer(Answer(media=answer.media), patient, head=True)
            elif isinstance(answer, Stream):
                headers = {name.decode(): value.decode() for name, value in HEADERS}
                await StreamingResponse(answer.parts, headers=headers, media_type=answer.media)(scope, receive, patient)
            else:
                await _send_answer(answer, patient, head=scope["method"] == "HEAD")
        except TimeoutError:
            log.warning("%s %s: the client does not take the answer", scope["method"], _shown(scope["raw_path"]))
            scope["state"]["abort"]()
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive) -> Answer | Stream:
        method: str = scope["method"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, authority = without_authority(scope["raw_path"])
        if authority is not None:
            headers["host"] = authority.decode("latin-1")
        if method == "OPTIONS" and path == b"*":  # the server itself
            return Answer(200, headers={"allow": METHODS})
        page = self._pages(method, path, headers)
        if page is not None:
            return page
        endpoint, names = self._find(method, path)
        if endpoint is None:
            return Answer(200, headers={"allow": ", ".join(names)})
        host = scope["client"][0] if scope.get("client") else "127.0.0.1"
        user = User(self._node, "", host)
        if endpoint.needs is not Needs.NOTHING:
            user = await self._gate.enter(headers, host)
        check_site(method, headers, listens=endpoint.listens)
        query = read_query(scope.get("query_string", b""))
        secure = scope.get("scheme") == "https"
        request = Request(self._context, user, method, endpoint.path, names, query, headers, secure)
        if method not in CHANGING:
            return await self._checked(endpoint, request, receive)
        try:
            answer = await self._checked(endpoint, request, receive)
        except Refused as refused:
            self._audit(request, refused)
            raise
        except Left:
            raise
        except Exception:  # a part of the change may be done
            self._audit(request, FAILED)
            raise
        self._audit(request, None)
        return answer

    async def _checked(self, endpoint: Endpoint, request: Request, receive: Receive) -> Answer | Stream:
        """Check what the endpoint needs, read the body, and run the handler. Raises Refused."""
        check(endpoint.needs, request)
        if endpoint.reads:
            request.body = await self._bodies.read(request.headers, receive, endpoint.body)
        return await self._run(endpoint, request)

    def _find(self, method: str, raw_path: bytes) -> tuple[Endpoint | None, Mapping[str, str]]:
        """The endpoint and the names in the path; for OPTIONS none, and the methods. Raises Refused."""
        try:
            segments = split(raw_path)
        except BadPath as error:
            raise NOT_HERE from error
        found = self._tree.find("GET" if method == "HEAD" else method, segments)
        if isinstance(found, tuple):
            return found
        if not found:
            raise NOT_HERE
        allowed = [*sorted(found), *(["HEAD"] if "GET" in found else []), "OPTIONS"]
        if method == "OPTIONS":
            return None, dict.fromkeys(allowed, "")
        raise Refused(
            405, "method_not_allowed", f"{method} is not for this path", headers={"allow": ", ".join(allowed)}
        )

    async def _run(self, endpoint: Endpoint, request: Request) -> Answer | Stream:
        """Call the handler on the broker's slices. Raises Refused."""
        batch = self._node.batch
        answered: asyncio.Future[Answer | Stream] = asyncio.get_running_loop().create_future()
        batch.slices.run(self._work(endpoint, request, answered))
        batch.end()
        answer = await answered
        if batch.failed is not None and request.method in CHANGING:
            raise STORE_FAILED
        return answer

    def _work(self, endpoint: Endpoint, request: Request, answered: asyncio.Future[Answer | Stream]) -> Work:
        """The handler's work; each step is done in the name of the user, and others have their own in between."""
        events = self._node.events
        result: Answer | Stream | None = None
        origin = Origin(request.user.name, request.user.host, "http")
        try:
            events.origin = origin
            done = endpoint.run(request)
            if isinstance(done, Generator):
                while True:
                    try:
                        next(done)
                    except StopIteration as end:
                        result = end.value
                        break
                    events.origin = None
                    yield
                    events.origin = origin
            else:
                result = done
            if not answered.done():
                answered.set_result(result)
        except OSError as error:
            self._node.batch.fail(error)
            _fail(answered, STORE_FAILED)
        except HarebellError as error:
            _fail(answered, refusal_of(error))
        except Exception as error:
            _fail(answered, error)
        finally:
            events.origin = None


def _fail(answered: asyncio.Future[Answer | Stream], error: Exception) -> None:
    if not answered.done():
        answered.set_exception(error)


def _sends_much(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the request has a body that is not worth reading when the request is refused."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and len(value) > UNREAD_DIGITS):
            return True
    return False


def _shown(raw_path: bytes) -> str:
    return raw_path[:200].decode("ascii", "backslashreplace")


def _head(status: int, media: str | None, extra: Iterable[tuple[str, str]], size: int | None) -> dict[str, Any]:
    headers = [*HEADERS]
    if media is not None:
        headers.append((b"content-type", media.encode()))
    if size is not None and status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        headers.append((b"content-length", str(size).encode()))
    own = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in extra]
    names = {name for name, _ in own}
    headers = [header for header in headers if header[0] not in names] + own
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _send_answer(answer: Answer, send: Send, *, head: bool) -> None:
    await send(_head(answer.status, answer.media, answer.headers.items(), answer.size))
    pieces = () if head else answer.pieces
    for number, piece in enumerate(pieces, 1):
        await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})
        await asyncio.sleep(0)  # hundreds of pieces, which a fast client takes at once, must not keep the loop
    if not pieces:
        await send({"type": "http.response.body", "body": b""})


def _patient(send: Send) -> Send:
    """`send`, but no piece may take longer than PIECE_SECONDS. TimeoutError."""

    async def patient(message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(PIECE_SECONDS):
            await send(message)

    return patient
