"""Every exception that Harebell raises, in one tree, and the registry of AMQP reply codes.

    HarebellError
    ├── AmqpError                    carries reply_code, reply_text, scope, class_id, method_id
    │   ├── ChannelError             the peer closes one channel, or refuses a method on it
    │   │   ├── ContentTooLarge      311
    │   │   ├── NoRoute              312
    │   │   ├── NoConsumers          313
    │   │   ├── AccessRefused        403
    │   │   ├── NotFound             404
    │   │   ├── ResourceLocked       405
    │   │   ├── PreconditionFailed   406
    │   │   ├── ResourceDeleted      408 (AMQP 0-10 alone has this one and the next three)
    │   │   ├── IllegalState         409
    │   │   ├── IllegalArgument      531
    │   │   ├── WrongArgument        542 (the specification's INVALID_ARGUMENT)
    │   │   └── PluginFailed         a plug-in of the broker failed: 541, but the channel alone closes
    │   └── ConnectionError          the peer closes or refuses the whole connection
    │       ├── ConnectionForced     320
    │       ├── InvalidPath          402
    │       ├── FrameError           501
    │       ├── SyntaxError          502
    │       ├── CommandInvalid       503
    │       ├── ChannelMisused       504 (the specification's CHANNEL_ERROR)
    │       ├── UnexpectedFrame      505
    │       ├── ResourceError        506
    │       ├── NotAllowed           530
    │       ├── NotImplemented       540
    │       └── InternalError        541
    ├── RemoteProtocolError          the peer broke the protocol; reply_code and scope say how to answer
    ├── LocalProtocolError           the caller asked the engine for something the protocol forbids now
    ├── ConnectionLost               the transport ended without connection.close
    ├── ChannelClosed                a call on a channel that is closed
    ├── ConsumerCancelled            the broker ended a consumer (its queue was deleted)
    ├── HandlerFailed                a handler failed again and again; its consumer has ended
    ├── Nacked                       the broker refused a publication
    │   └── PublishOrphaned          no answer came to a publication: it may or may not have arrived
    │       └── ConfirmTimeout       none came within the caller's timeout (also a DeadlineExceeded)
    ├── PublishesFailed              some of many publications failed, each with its own error
    ├── AcknowledgeOrphans           some acknowledged deliveries came on a connection that is lost
    ├── TransactionLost              the channel was lost during a transaction
    │   └── CommitTimeout            no answer to its commit within the caller's timeout (also a DeadlineExceeded)
    ├── TransactionRolledBack        a distributed transaction was rolled back by the broker itself
    ├── TransactionMixed             a part of a distributed transaction is committed, and a part is not
    ├── SessionDetached              the broker has detached a session of AMQP 0-10, or refuses to attach it
    ├── SessionStateLost             the broker no longer has the state of a session of AMQP 0-10
    ├── RecoveryGaveUp               no new connection could be made within `give_up_after`
    ├── Unroutable                   a mandatory publication reached no queue; carries what was returned
    ├── DeadlineExceeded             no answer within the caller's timeout (also a TimeoutError)
    │   ├── ConfirmTimeout           the one above
    │   └── CommitTimeout            the one above
    ├── InvalidArgument              a value that the API cannot take (also a ValueError)
    ├── UndecodableBody              a body that its codec cannot read
    ├── RemoteError                  the handler at the other end of a remote call failed
    ├── DataLoss                     requested messages no longer exist
    ├── ArchiveIncomplete            some of several queues could not be archived to their end
    ├── SpoolError                   the folder of drained messages cannot be written, or has a damaged file
    ├── QueueNotReady                the queue exists, but the broker cannot serve it yet; try again
    ├── ShovelEnded                  a shovel has stopped; `__cause__` is the error
    ├── MissingDependency            a program or optional package is not installed; the text says how to get it
    └── ServerUnavailable            a server of the test kit is not installed or did not start

The same classes serve both sides: the broker raises `NotFound("no queue 'q' in vhost '/'")` and answers
404 with that text; the client receives the 404 and raises `NotFound` with the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

Scope = Literal["channel", "connection"]
"""What an error with a reply code closes."""

MAX_REPLY_TEXT: Final = 255
"""Bytes of a reply text, which is a shortstr; RabbitMQ cuts longer texts and ends them with "..."."""


class HarebellError(Exception):
    """The root: `except HarebellError` catches everything that Harebell raises on purpose.

    Every error can be copied and pickled, whatever its constructor takes, so that a process pool hands it on.

    failures  of a call that published many: the error of each one that was not confirmed, by its position from 0
    sent      of such a call that ended early: how many it had written; the others were never sent
    """

    failures: Mapping[int, HarebellError] = MappingProxyType({})
    sent: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[HarebellError], args: tuple[Any, ...], attributes: dict[str, Any]) -> HarebellError:
    """The copy of an error, made without its constructor."""
    error = cls.__new__(cls, *args)
    error.args = args  # an OSError whose class has a constructor leaves that to it
    error.__dict__.update(attributes)
    return error


class AmqpError(HarebellError):
    """An error with a reply code: the broker raises it to refuse a method, the client when the broker refused one.

    Arguments: the detail text without the code's name; the class and method id of the failing method
    (0 and 0 when there is none). `reply_text` is the text on the wire: "NOT_FOUND - no queue 'q' in vhost '/'".
    """

    reply_code: ClassVar[int] = 541
    reply_name: ClassVar[str] = "INTERNAL_ERROR"
    scope: ClassVar[Scope] = "connection"

    def __init__(self, detail: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.class_id = class_id
        self.method_id = method_id

    @property
    def reply_text(self) -> str:
        return clip_reply_text(f"{self.reply_name} - {self.detail}")

    def __str__(self) -> str:
        return f"{self.reply_code} {self.reply_text}"


def clip_reply_text(text: str) -> str:
    """The text as it fits into a shortstr: at most 255 bytes of UTF-8, "..." in place of what was cut."""
    try:
        raw = text.encode("utf-8", "surrogateescape")  # a peer's name need not be UTF-8; its bytes stay
    except UnicodeEncodeError:  # a program's own text: no bytes have such a form
        raw = text.encode("utf-8", "backslashreplace")
        text = raw.decode()
    if len(raw) <= MAX_REPLY_TEXT:
        return text
    return raw[: MAX_REPLY_TEXT - 3].decode(errors="ignore") + "..."


class ChannelError(AmqpError):
    scope = "channel"


class ContentTooLarge(ChannelError):
    reply_code, reply_name = 311, "CONTENT_TOO_LARGE"


class NoRoute(ChannelError):
    reply_code, reply_name = 312, "NO_ROUTE"


class NoConsumers(ChannelError):
    reply_code, reply_name = 313, "NO_CONSUMERS"


class AccessRefused(ChannelError):
    reply_code, reply_name = 403, "ACCESS_REFUSED"


class NotFound(ChannelError):
    reply_code, reply_name = 404, "NOT_FOUND"


class ResourceLocked(ChannelError):
    reply_code, reply_name = 405, "RESOURCE_LOCKED"


class PreconditionFailed(ChannelError):
    reply_code, reply_name = 406, "PRECONDITION_FAILED"


class ResourceDeleted(ChannelError):
    reply_code, reply_name = 408, "RESOURCE_DELETED"


class IllegalState(ChannelError):
    reply_code, reply_name = 409, "ILLEGAL_STATE"


class IllegalArgument(ChannelError):
    reply_code, reply_name = 531, "ILLEGAL_ARGUMENT"


class WrongArgument(ChannelError):
    reply_code, reply_name = 542, "INVALID_ARGUMENT"


class PluginFailed(ChannelError):
    reply_code, reply_name = 541, "INTERNAL_ERROR"


class ConnectionError(AmqpError):  # noqa: A001  the field's own word; always used qualified
    scope = "connection"


class ConnectionForced(ConnectionError):
    reply_code, reply_name = 320, "CONNECTION_FORCED"


class InvalidPath(ConnectionError):
    reply_code, reply_name = 402, "INVALID_PATH"


class FrameError(ConnectionError):
    reply_code, reply_name = 501, "FRAME_ERROR"


class SyntaxError(ConnectionError):  # noqa: A001  the specification's name of 502
    reply_code, reply_name = 502, "SYNTAX_ERROR"


class CommandInvalid(ConnectionError):
    reply_code, reply_name = 503, "COMMAND_INVALID"


class ChannelMisused(ConnectionError):
    reply_code, reply_name = 504, "CHANNEL_ERROR"


class UnexpectedFrame(ConnectionError):
    reply_code, reply_name = 505, "UNEXPECTED_FRAME"


class ResourceError(ConnectionError):
    reply_code, reply_name = 506, "RESOURCE_ERROR"


class NotAllowed(ConnectionError):
    reply_code, reply_name = 530, "NOT_ALLOWED"


class NotImplemented(ConnectionError):  # noqa: A001  the specification's name of 540
    reply_code, reply_name = 540, "NOT_IMPLEMENTED"


class InternalError(ConnectionError):
    reply_code, reply_name = 541, "INTERNAL_ERROR"


REPLY_CODES: Final[dict[int, type[AmqpError]]] = {
    cls.reply_code: cls
    for base in (ChannelError, ConnectionError)
    for cls in base.__subclasses__()
    if cls is not PluginFailed  # 541 is InternalError's, unless it closes a channel
}
"""The class of each reply code."""


def from_reply(code: int, text: str, class_id: int = 0, method_id: int = 0, scope: Scope = "connection") -> AmqpError:
    """The exception for a received close: its class follows the code, its detail is the text.

    A code outside the registry becomes a plain ChannelError or ConnectionError, by `scope`, with the peer's number
    and text. A 403 that closes the connection (a refused login) is an AccessRefused too.
    """
    cls = REPLY_CODES.get(code)
    if cls is InternalError and scope == "channel":
        cls = PluginFailed
    if cls is None:
        unknown: AmqpError = (ChannelError if scope == "channel" else ConnectionError)(text, class_id, method_id)
        unknown.reply_code = code  # type: ignore[misc]  # the peer's own number, on this instance only
        unknown.reply_name = "UNKNOWN"  # type: ignore[misc]
        return unknown
    prefix = f"{cls.reply_name} - "
    return cls(text.removeprefix(prefix), class_id, method_id)


class RemoteProtocolError(HarebellError):
    """The peer broke the protocol. `reply_code`, `reply_text` and `scope` are the answer to send to it.

    In AMQP 0-10 a code such as 503 ends a session, not the connection: there `scope` is given ("channel"), and
    otherwise it is that of the code in AMQP 0-9-1.
    """

    def __init__(
        self,
        cls: type[AmqpError],
        detail: str,
        class_id: int = 0,
        method_id: int = 0,
        channel: int = 0,
        scope: Scope | None = None,
    ) -> None:
        super().__init__(detail)
        self.answer = cls(detail, class_id, method_id)
        self.channel = channel
        self.scope: Scope = scope or cls.scope

    @property
    def reply_code(self) -> int:
        return self.answer.reply_code

    @property
    def reply_text(self) -> str:
        return self.answer.reply_text

    def __str__(self) -> str:
        return str(self.answer)


class LocalProtocolError(HarebellError):
    """The caller asked for something that the protocol forbids in this state; nothing was sent."""


class ConnectionLost(HarebellError):
    """The transport ended without connection.close, or was never reached; the text names the peer."""


class ChannelClosed(HarebellError):
    """A call on a channel or connection that is already closed; `__cause__` is the reason of the close, when known."""


class ConsumerCancelled(HarebellError):
    """The broker ended a consumer with basic.cancel: its queue was deleted, or has moved. Or its program is ending, and
    no thread can call its handler any more."""


class HandlerFailed(HarebellError):
    """A handler failed as often in a row as its consumer allows, and the consumer has ended; `__cause__` is the error
    of the last failure."""


class Nacked(HarebellError):
    """The broker answered a publication with basic.nack; `publish_tags` are the refused ones."""

    def __init__(self, message: str, publish_tags: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.publish_tags = publish_tags


class PublishOrphaned(Nacked):
    """No answer will come to these publications, which were written: each may or may not have arrived.

    publish_tags  every publication of the call that was not accepted: refused and orphaned ones
    orphaned      those of them that are orphaned

    `__cause__` is what ended their channel, where that is known.
    """

    def __init__(self, message: str, publish_tags: tuple[int, ...] = (), orphaned: tuple[int, ...] = ()) -> None:
        super().__init__(message, publish_tags)
        self.orphaned = orphaned or publish_tags


class PublishesFailed(HarebellError):
    """Some of many publications failed, each with an error of its own; the broker confirmed the others.

    failures  position -> error; positions count from 0, in the order of publishing
    """

    failures: dict[int, HarebellError]

    def __init__(self, message: str, failures: dict[int, HarebellError]) -> None:
        super().__init__(message)
        self.failures = failures


class AcknowledgeOrphans(HarebellError):
    """Some of the deliveries came on a connection that is lost: the broker delivers them again.

    first, last                  the lowest and the highest public tag among them
    success_first, success_last  the same of the deliveries whose acknowledgement was sent; 0 when there are none
    orphan_count, success_count  how many of each
    """

    def __init__(
        self,
        first: int,
        last: int,
        success_first: int = 0,
        success_last: int = 0,
        orphan_count: int = 1,
        success_count: int = 0,
    ) -> None:
        super().__init__(first, last, success_first, success_last, orphan_count, success_count)
        self.first = first
        self.last = last
        self.success_first = success_first
        self.success_last = success_last
        self.orphan_count = orphan_count
        self.success_count = success_count

    def __str__(self) -> str:
        acked = f" ({self.success_first} - {self.success_last})" if self.success_count else ""
        return (
            f"{self.orphan_count} tags orphaned ({self.first} - {self.last}), "
            f"{self.success_count} tags successfully acknowledged{acked}"
        )


class TransactionLost(HarebellError):
    """The channel was lost or closed during the transaction, which had no effect unless its commit was under way."""


class TransactionRolledBack(HarebellError):
    """A branch of a distributed transaction was rolled back: its session has failed or ended, or its time was over."""


class TransactionMixed(HarebellError):
    """A part of a distributed transaction is committed, and a part is not: a queue has refused a message."""


class SessionDetached(HarebellError):
    """The broker has detached a session of AMQP 0-10, or refuses to attach it.

    code  of session.detached: 1 another connection has the session, 3 not attached, 4 unknown ids; 0 for no reason
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class SessionStateLost(HarebellError):
    """The broker no longer has the state of a session of AMQP 0-10: it expired, or the broker was restarted.

    unknown     how many commands were sent and may or may not have been executed
    deliveries  how many deliveries were not settled: the broker delivers them again
    """

    def __init__(self, message: str, unknown: int = 0, deliveries: int = 0) -> None:
        super().__init__(message)
        self.unknown = unknown
        self.deliveries = deliveries


class RecoveryGaveUp(HarebellError):
    """No new connection could be made within `give_up_after`; `__cause__` is the error of the last attempt."""


class Unroutable(HarebellError):
    """A mandatory publication reached no queue; `returned` is the message that the broker returned."""

    def __init__(self, message: str, returned: object = None) -> None:
        super().__init__(message)
        self.returned = returned


class DeadlineExceeded(HarebellError, TimeoutError):
    """No answer came within the caller's timeout; the broker may still do what the call asked for."""


class ConfirmTimeout(PublishOrphaned, DeadlineExceeded):
    """No answer to these publications came within the caller's timeout: each may or may not arrive."""


class CommitTimeout(TransactionLost, DeadlineExceeded):
    """No answer to the commit came within the caller's timeout: the transaction takes effect whole, or not at all."""


class InvalidArgument(HarebellError, ValueError):
    """A value that the API cannot take; the text names the value, what is allowed, and the next thing to try."""


class UndecodableBody(HarebellError):
    """A body that its codec cannot decode; the text says what the codec expected and what it found."""


class RemoteError(HarebellError):
    """The handler at the other end of a remote call failed; `kind` is the class of its error, the text its text."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DataLoss(HarebellError):
    """Requested messages no longer exist, because of retention or because the queue was deleted and declared again."""


class ArchiveIncomplete(HarebellError):
    """Some of several queues could not be archived to their end; `archived` is the result of all of them."""

    def __init__(self, text: str, archived: object) -> None:
        super().__init__(text)
        self.archived = archived


class SpoolError(HarebellError):
    """The folder of drained messages cannot be written or read; the text names the place and what to do."""


class QueueNotReady(HarebellError):
    """The queue exists, but the broker cannot serve it yet: it has just started, or the queue's leader moves."""


class ShovelEnded(HarebellError):
    """A shovel has stopped; the text says at which end it failed and why, `__cause__` is the error."""


class MissingDependency(HarebellError):
    """A required program or optional package is not installed; the text says how to get it."""


class ServerUnavailable(HarebellError):
    """A server of the test kit is not installed or did not start; the text says which."""
