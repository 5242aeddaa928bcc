"""One call of harebellctl: arguments, options, the broker; and how it can fail, with the exit statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from harebell.cli.ctl.formats import show_rows
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import RequestFailed
from harebell.cli.terminal.output import say

__all__ = ["NO_SUCH_USER", "SOFTWARE", "UNAVAILABLE", "USAGE", "Call", "Failed", "WrongUsage"]

USAGE: Final = 64
NO_SUCH_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70


class Failed(RequestFailed):
    """The command failed; the text is printed after `title`, and the status is that of rabbitmqctl."""

    def __init__(self, text: str, status: int = UNAVAILABLE, *, title: str = "Error:\n") -> None:
        super().__init__(f"{title}{text}")
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

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> int:
        headers = not (self.options["silent"] or self.options["no_table_headers"])
        show_rows(columns, rows, self.options["formatter"], headers=headers)
        return 0

    def node(self) -> str:
        return str(self.api.get("overview")["node"])
