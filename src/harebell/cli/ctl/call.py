"""One call of harebellctl: arguments, options, the broker; and how it can fail, with the exit statuses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from harebell.cli.ctl.formats import show_rows
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Missing, RequestFailed
from harebell.cli.terminal.output import say, say_json

__all__ = [
    "NO_SUCH_OBJECT", "NO_SUCH_USER", "SOFTWARE", "UNAVAILABLE", "USAGE", "Call", "Failed", "WrongUsage", "exists",
    "json_of", "need_vhost",
]  # fmt: skip

USAGE: Final = 64
NO_SUCH_OBJECT: Final = 65
NO_SUCH_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70


class Failed(RequestFailed):
    """The command failed; the texts are lines after `title`, and the status is that of rabbitmqctl."""

    def __init__(self, text: str, status: int = UNAVAILABLE, *more: str, title: str = "Error:") -> None:
        self.lines = tuple(filter(None, (title, text, *more)))
        super().__init__("\n".join(self.lines))
        self.status = status


class WrongUsage(RequestFailed):
    """A command, an argument or an option that does not exist."""

    exit_status: ClassVar[int] = USAGE


@dataclass(frozen=True)
class Call:
    """A command's arguments, its options by name, and the broker."""

    api: HttpApi
    command: str
    arguments: Sequence[str]
    options: Mapping[str, Any]

    @property
    def vhost(self) -> str:
        return str(self.options["vhost"])

    @property
    def machine(self) -> bool:
        """Whether the output is for a program alone: JSON or CSV."""
        return self.options["formatter"] in ("json", "csv")

    def banner(self, text: str) -> None:
        """Print what the command does, unless it is to be quiet."""
        if not (self.options["quiet"] or self.options["silent"] or self.machine):
            say(text)

    def result(self, text: str, **facts: object) -> int:
        """Print what came out, which is no banner: also when it is to be quiet. Returns 0.

        In JSON it is these facts; without facts, a message.
        """
        if self.options["formatter"] == "json":
            return say_json(facts or {"message": text})
        return say(text)

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> int:
        headers = not (self.options["silent"] or self.options["no_table_headers"])
        show_rows(columns, rows, self.options["formatter"], headers=headers)
        return 0

    def node(self) -> str:
        return str(self.api.get("overview")["node"])

    def listeners(self) -> list[dict[str, Any]]:
        """What the broker listens on: objects with ip_address, port, protocol, node."""
        return list(self.api.get("overview")["listeners"])


def exists(call: Call, *path: str) -> bool:
    """Whether the HTTP API has an object at the path."""
    try:
        call.api.get(*path)
    except Missing:
        return False
    return True


def need_vhost(call: Call) -> None:
    """Raise Failed unless the virtual host of the call exists."""
    if not exists(call, "vhosts", call.vhost):
        raise Failed(f"Virtual host '{call.vhost}' does not exist", NO_SUCH_OBJECT, title="")


def json_of(text: str) -> Any:
    """The value that an argument has as JSON. Raises Failed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Failed("JSON decoding error. Reason: badarg") from None
