"""A request that waits for its reply, which replies answer it, and the error that it gets when none comes."""

from __future__ import annotations

import copy
from typing import Final

from harebell import errors
from harebell.client.messages import Delivery
from harebell.protocol.v091 import methods as m

__all__ = ["REPLIES", "Reply", "Slot", "closed", "copy_of", "was_answer"]

Reply = m.Method | Delivery

REPLIES: Final[dict[type[m.Method], tuple[type[m.Method], ...]]] = {
    **m.REPLIES,
    m.BasicRecover: (m.BasicRecoverOk,),
}

# What has no answer: the end of the channel alone reports a refusal.
_UNANSWERED: Final = frozenset(
    (method.CLASS_ID, method.METHOD_ID) for method in (m.BasicPublish, m.BasicAck, m.BasicNack, m.BasicReject)
) | {(0, 0)}


def was_answer(error: errors.ChannelError) -> bool:
    """Whether a broker closed a channel with this as the answer to a call, which has raised it."""
    return (error.class_id, error.method_id) not in _UNANSWERED


def copy_of(error: errors.HarebellError) -> errors.HarebellError:
    """The same error as another object: one raised in two places would mix up their tracebacks."""
    copied: errors.HarebellError
    if isinstance(error, errors.RemoteProtocolError):
        answer, channel = error.answer, error.channel
        copied = errors.RemoteProtocolError(type(answer), answer.detail, answer.class_id, answer.method_id, channel)
    else:
        copied = copy.copy(error)
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    return copied


def closed(what: str, reason: errors.HarebellError) -> errors.HarebellError:
    """The error of a call on something that has ended: ChannelClosed, or the misuse that is the reason."""
    if isinstance(reason, errors.LocalProtocolError):
        return copy_of(reason)
    error = errors.ChannelClosed(f"{what} is closed: {reason}")
    error.__cause__ = reason
    return error


class Slot:
    """One request that waits for its reply."""

    __slots__ = ("abandoned", "done", "error", "reply", "request")

    def __init__(self, request: m.Method) -> None:
        self.request = request
        self.reply: Reply | None = None
        self.error: errors.HarebellError | None = None
        self.done = False
        self.abandoned = False

    def resolve(self, reply: Reply) -> None:
        self.reply = reply
        self.done = True

    def fail(self, error: errors.HarebellError) -> None:
        self.error = error
        self.done = True
