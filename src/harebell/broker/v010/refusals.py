"""The broker's errors in AMQP 0-10's words: execution.exception for a session, a close code for a connection."""

from __future__ import annotations

from typing import Final

from harebell.errors import AmqpError
from harebell.protocol.v010 import Command, commands as c
from harebell.protocol.v010.domains import CloseCode, ErrorCode

__all__ = ["close_code", "exception"]

_CODES: Final[dict[int, int]] = {
    311: ErrorCode.RESOURCE_LIMIT_EXCEEDED,
    312: ErrorCode.NOT_FOUND,
    313: ErrorCode.NOT_FOUND,
    320: ErrorCode.INTERNAL_ERROR,
    402: ErrorCode.NOT_FOUND,
    501: ErrorCode.COMMAND_INVALID,
    502: ErrorCode.COMMAND_INVALID,
    504: ErrorCode.ILLEGAL_STATE,
    505: ErrorCode.ILLEGAL_STATE,
}  # the other reply codes are error codes too
_KNOWN: Final = frozenset(map(int, ErrorCode))


def exception(error: AmqpError, number: int | None, command: Command | None) -> c.ExecutionException:
    """The exception for an error; `number` is the command's, where there is one."""
    code = error.reply_code
    if code not in _KNOWN:
        code = _CODES.get(code, ErrorCode.INTERNAL_ERROR)
    class_code, command_code = error.class_id or None, error.method_id or None
    if command is not None:
        class_code, command_code = command.KEY[0], command.KEY[1]
    return c.ExecutionException(code, number, class_code, command_code, None, error.reply_text)


def close_code(error: AmqpError) -> int:
    """The code of connection.close for an error."""
    if error.reply_code in (CloseCode.CONNECTION_FORCED, CloseCode.INVALID_PATH):
        return error.reply_code
    framing = error.reply_code in (501, 502, 503, 504, 505)
    return CloseCode.FRAMING_ERROR if framing else CloseCode.CONNECTION_FORCED
