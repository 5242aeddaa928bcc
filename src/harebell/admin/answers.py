"""Answers to requests: status, headers, and a body in one or several pieces, most of them JSON.

Errors have the form of RabbitMQ's HTTP API: {"error": a word, "reason": a text}.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

__all__ = ["BAD_REQUEST", "Answer", "Refused", "Stream", "bad_request", "encode", "no_vhost", "not_found", "to_json"]

JSON: Final = "application/json"

_NO_HEADERS: Final[Mapping[str, str]] = {}


def _plain(value: object) -> object:
    """The value of a number or a text of a narrower type, as tables of AMQP have them."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: object) -> bytes:
    """The value as JSON, in UTF-8. What is no Unicode text (a lone surrogate) is replaced by "?".

    Values of AMQP's tables are converted before (`broker.operations.definitions.json_table`).
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # a name that a client sent in other bytes than UTF-8
        return _encoder.encode(_valid(value))


def _valid(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_valid(name): _valid(each) for name, each in value.items()}
        case list() | tuple():
            return [_valid(each) for each in value]
    return value


class Answer:
    """The answer to a request. `pieces` are the body; `media` its type, None for an answer without one."""

    __slots__ = ("headers", "media", "pieces", "status")

    def __init__(
        self,
        status: int = 200,
        pieces: Sequence[bytes] = (),
        *,
        media: str | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self.status, self.pieces, self.media, self.headers = status, pieces, media, headers

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.pieces))


class Stream:
    """An answer without an end: `parts` are sent as they come, until the client leaves."""

    __slots__ = ("media", "parts")

    def __init__(self, parts: AsyncIterator[bytes], media: str) -> None:
        self.parts, self.media = parts, media


class Refused(Exception):
    """A request that is refused; the client gets the status, the word `error`, and `reason`: a text or a list.

    `bare`: the answer has no body, as RabbitMQ's to a request without credentials.
    """

    def __init__(
        self,
        status: int,
        error: str,
        reason: str | Sequence[object],
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        bare: bool = False,
    ) -> None:
        super().__init__(f"{status} {error}: {reason}")
        self.status, self.error, self.reason, self.headers, self.bare = status, error, reason, headers, bare

    @property
    def text(self) -> str:
        """The reason as a text."""
        return self.reason if isinstance(self.reason, str) else encode(self.reason).decode()

    def answer(self) -> Answer:
        if self.bare:
            return Answer(self.status, headers=self.headers)
        body = encode({"error": self.error, "reason": self.reason})
        return Answer(self.status, (body,), media=JSON, headers=self.headers)


BAD_REQUEST: Final = "bad_request"


def bad_request(reason: str | Sequence[object]) -> Refused:
    return Refused(400, BAD_REQUEST, reason)


def not_found() -> Refused:
    """RabbitMQ's words for any object that does not exist, or that the user must not see."""
    return Refused(404, "Object Not Found", "Not Found")


def no_vhost(method: str) -> Refused:
    """RabbitMQ's words for a virtual host that does not exist: others when something was to be made in it."""
    return not_found() if method in ("GET", "DELETE") else Refused(404, "not_found", "vhost_not_found")


def to_json(value: object, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
    """The value as JSON."""
    return Answer(status, (encode(value),), media=JSON, headers=headers)


def joined(parts: Iterable[bytes]) -> bytes:
    """Encoded values as the items of a JSON list, without its brackets."""
    return b",".join(parts)
