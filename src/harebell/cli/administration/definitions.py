"""`harebell definitions`: the definitions of a broker, out into a file of RabbitMQ's form and in from one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harebell.cli.administration.requests import Target, ask
from harebell.cli.files import why_unread, write_file
from harebell.cli.terminal.output import say, say_json
from harebell.cli.validators import file_name
from harebell.errors import InvalidArgument
from harebell.routing.definitions import parse_definitions

__all__ = ["export", "import_"]

OneVhost = Annotated[str | None, Parameter(help="Only this virtual host's part, without users and permissions.")]


def export(
    file: Annotated[
        str,
        Parameter(
            validator=file_name,
            help="The file to write, readable for you alone; -: standard output.",
            allow_leading_hyphen=True,
        ),
    ] = "-",
    *,
    vhost: OneVhost = None,
    target: Target | None = None,
) -> int:
    """Write a broker's definitions: all but messages. They have the hashes of passwords."""
    document = ask(target, "export-definitions", vhost=vhost)
    if file == "-":
        return say_json(document, indent=1)
    try:
        write_file(file, json.dumps(document, indent=1, ensure_ascii=False) + "\n", private=True)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}") from error
    return say(f"{file} has the definitions: {_counted(document)}")


def import_(
    file: Annotated[
        str, Parameter(validator=file_name, help="The file; -: standard input.", allow_leading_hyphen=True)
    ],
    *,
    vhost: Annotated[
        str | None, Parameter(help="Put exchanges, queues, bindings, policies and parameters there, and nothing else.")
    ] = None,
    target: Target | None = None,
) -> int:
    """Apply a definitions file, whole or not at all. Nothing is deleted.

    Prints remarks on what was left out. Over the HTTP API the broker's log alone has them.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read: {why_unread(error)}") from error
    try:
        parse_definitions(text, vhost=vhost)  # a file with errors is refused here, before anything is sent
    except InvalidArgument as error:
        raise InvalidArgument(f"definitions file {file}: {error}") from None
    document = json.loads(text)
    for remark in ask(target, "import-definitions", definitions=document, vhost=vhost):
        say(f"remark: {remark}", sys.stderr)
    return say(f"the definitions are imported: {_counted(document)}")


def _counted(document: dict[str, object]) -> str:
    sections = ("vhosts", "users", "policies", "exchanges", "queues", "bindings")
    counts = [f"{len(listed)} {name}" for name in sections if isinstance(listed := document.get(name), list) and listed]
    return ", ".join(counts) or "nothing"
