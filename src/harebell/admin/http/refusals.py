"""The answers to errors of the broker: RabbitMQ's status codes, words and texts for each kind."""

from __future__ import annotations

from harebell.admin.answers import BAD_REQUEST, Refused
from harebell.errors import (
    AccessRefused,
    AmqpError,
    HarebellError,
    InternalError,
    InvalidArgument,
    NotFound,
    NotImplemented as NotImplemented540,
    PluginFailed,
)

__all__ = ["refusal_of"]


def refusal_of(error: HarebellError) -> Refused:
    """The refusal for an error that a handler raised."""
    text = error.detail if isinstance(error, AmqpError) else str(error)
    match error:
        case AccessRefused():
            return Refused(401, "not_authorised", f"{error.reply_name} - {text}")
        case NotFound():
            return Refused(404, "not_found", text)
        case NotImplemented540():
            return Refused(400, BAD_REQUEST, f"{error.reply_name} - {text}")
        case InternalError() | PluginFailed():
            return Refused(500, "internal_server_error", text)
        case AmqpError() | InvalidArgument():
            return Refused(400, BAD_REQUEST, text)
    return Refused(500, "internal_server_error", text)
