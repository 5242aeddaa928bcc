"""What a broker says against a session, as errors: execution.exception, session.detached, a state that is lost."""

from __future__ import annotations

from typing import Final

from harebell import errors
from harebell.protocol.v010 import commands as c
from harebell.protocol.v010.domains import DetachCode

__all__ = ["closed", "continued", "detached", "exception", "state_lost"]

_REASONS: Final[dict[int, str]] = {
    DetachCode.NORMAL: "the broker has detached it",
    DetachCode.SESSION_BUSY: "another connection has it",
    DetachCode.TRANSPORT_BUSY: "the channel has another session",
    DetachCode.NOT_ATTACHED: "the broker does not have it attached",
    DetachCode.UNKNOWN_IDS: "the broker does not know commands that were named",
}


def exception(name: str, command: c.ExecutionException) -> errors.AmqpError:
    """The error that execution.exception stands for, with a note that names the command that failed."""
    class_code, code = command.class_code or 0, command.command_code or 0
    error = errors.from_reply(command.error_code, command.description or "", class_code, code, "channel")
    cls = c.COMMANDS.get(bytes((class_code, code)))
    what = cls.NAME if cls is not None else "a command"
    which = "" if command.command_id is None else f", command {command.command_id}"
    error.add_note(f"{what}{which} of session '{name}'")
    return error


def detached(name: str, code: int) -> errors.SessionDetached:
    """The error for a code of session.detached."""
    return errors.SessionDetached(f"session '{name}': {_REASONS.get(code, 'detached')}", code)


def closed(name: str) -> errors.ChannelClosed:
    """The reason of a session that this client has left."""
    return errors.ChannelClosed(f"session '{name}' was closed by this client")


def state_lost(name: str, unknown: int, deliveries: int) -> errors.SessionStateLost:
    """The error for a session that the broker does not know any more."""
    said = f"the broker has no state of session '{name}': {_orphaned(unknown, deliveries)}"
    return errors.SessionStateLost(f"{said}; start_over() goes on without them", unknown, deliveries)


def continued(name: str, unknown: int, deliveries: int, why: Exception) -> errors.SessionStateLost:
    """The error for a session that another program has gone on with, by its name."""
    said = f"another program has gone on with session '{name}': {_orphaned(unknown, deliveries)}"
    return errors.SessionStateLost(f"{said}; open another session ({why})", unknown, deliveries)


def _orphaned(unknown: int, deliveries: int) -> str:
    return f"{unknown} commands may or may not have been executed, {deliveries} deliveries come again"
