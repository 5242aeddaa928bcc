"""Sends administration requests for `harebell users`, `vhosts` and `permissions`, and prints the answers.

Rules: a running broker gets the request over AMQP, with the login of the URL, or over its HTTP API, where the URL is
one. Where no broker runs, the command locks the data folder and starts a broker without a port on it. Passwords are
read here and sent as hashes. A request to RabbitMQ over AMQP is refused; the error names the command that does the same
there.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final

from cyclopts import Parameter

from harebell.broker.auth.passwords import SCRYPT
from harebell.broker.auth.users import SCRAM_KEYS, make_user
from harebell.broker.plugins import Plugin
from harebell.cli.administration.over_http import ask_over_http
from harebell.cli.files import why_unread
from harebell.cli.http_api.failures import Missing, RequestFailed, missing
from harebell.cli.http_api.target import CaFile, HttpTarget, connect_to
from harebell.cli.listing import View, show_rows
from harebell.cli.server.options import read_settings
from harebell.cli.server.plugins import load_plugins
from harebell.cli.server_name import server_name
from harebell.cli.terminal.output import in_words, say
from harebell.cli.validators import Seconds, file_name
from harebell.client.blocking import Connection, connect
from harebell.client.messages import Message
from harebell.client.servers import RABBITMQ, product_of
from harebell.client.url import ConnectionParameters, parse_url
from harebell.config import Limits
from harebell.errors import AmqpError, DeadlineExceeded, HarebellError, InvalidArgument, NotFound, Unroutable

__all__ = ["Target", "AsJson", "Password", "Vhost", "View", "ask", "hashes", "say", "show"]

VARIABLES: Final = ("HAREBELL_URL", "HAREBELL_HTTP_URL")  # either may be an http URL
DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"
NOT_FOUND: Final = "not_found"  # the name of reply code 404
MOMENT: Final = 0.25  # seconds
REPLIES: Final = "amq.rabbitmq.reply-to"
RABBITMQCTL: Final[Mapping[str, str]] = {
    "set-password": "change_password",
    "set-tags": "set_user_tags",
    "set-permission": "set_permissions",
    "clear-permission": "clear_permissions",
    "set-topic-permission": "set_topic_permissions",
    "clear-topic-permission": "clear_topic_permissions",
}
"""RabbitMQ's names of the operations that it names differently."""


NAMED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("delete-user", "set-password", "set-tags", "set-user-limits"), "user"),
    **dict.fromkeys(("delete-vhost", "set-vhost-limits"), "vhost"),
}
"""Which kind of object has the name, in the requests with a `name` of an object that there is."""


class Refused(HarebellError):
    """The broker refused the request; the text says why."""


@Parameter(name="*")
@dataclass(frozen=True)
class Target:
    """The broker to administer: the URL of a running one, or the data folder of a stopped one."""

    url: Annotated[
        str | None,
        Parameter(
            help="The broker, with an administrator's login; amqp or http. "
            f"[env: {' or '.join(VARIABLES)}; default: {DEFAULT_URL}]"
        ),
    ] = None
    data: Annotated[Path | None, Parameter(help="The data folder of a broker that does not run, instead of --url.")] = (
        None
    )
    timeout: Annotated[float, Parameter(help="Seconds for the broker to answer.", validator=Seconds())] = 10.0
    ca_file: CaFile = None
    plugins: Annotated[
        str | None,
        Parameter(
            help="Plug-ins of exchanges in a data folder or a file, as `harebell serve` takes them; it has theirs."
        ),
    ] = None

    def load_plugins(self) -> tuple[Plugin, ...]:
        """The plug-ins that are named here, else those of `harebell serve`."""
        settings, _ = read_settings({"plugins": self.plugins})
        return load_plugins(settings.config.plugins or ())


AsJson = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]
Vhost = Annotated[str, Parameter(help="The virtual host.")]
Password = Annotated[
    str | None,
    Parameter(
        validator=file_name, help="File whose first line is the password; -: standard input.", allow_leading_hyphen=True
    ),
]


def ask(target: Target | None, do: str, **fields: object) -> Any:
    """The answer to a request of `harebell.broker.operations.administration`. Fields that are None are left out."""
    target = target or Target()
    request = {"do": do, **{name: value for name, value in fields.items() if value is not None}}
    try:
        return _send(target, request)
    except Missing as error:
        raise _nearest(target, request) or error from error


def _send(target: Target, request: Mapping[str, object]) -> Any:
    if target.data is None:
        url = target.url or next((os.environ[name] for name in VARIABLES if os.environ.get(name)), DEFAULT_URL)
        if url.startswith(("http://", "https://")):
            with connect_to(HttpTarget(url, target.timeout, target.ca_file)) as api:
                return ask_over_http(api, request)
        parameters = parse_url(url)
        if target.ca_file is not None:
            parameters = replace(parameters, cacertfile=str(target.ca_file))
        return _ask_broker(parameters, target.timeout, request)
    if target.url is not None:
        raise InvalidArgument("give either --url, for a broker that runs, or --data, for one that does not")
    return asyncio.run(_ask_folder(target.data, request, target.load_plugins()))


def _nearest(target: Target, request: Mapping[str, object]) -> Missing | None:
    """Missing with the nearest name, for the first object of the request that its list does not have."""
    for noun in ("vhost", "user", "transaction"):
        name = request.get("name" if NAMED.get(str(request["do"])) == noun else noun)
        if not isinstance(name, str):
            continue
        try:
            listed = _send(target, {"do": f"list-{noun}s"})
        except (RequestFailed, Refused):
            return None
        vhost = request.get("vhost") if noun == "transaction" else None
        where = "" if vhost is None else f" in vhost '{vhost}'"
        key = "transaction" if noun == "transaction" else "name"
        known = [each[key] for each in listed if vhost in (None, each.get("vhost"))]
        if name not in known:
            return missing(f"{noun} '{name}'{where}", name, known, f"harebell {noun}s list")
    return None


def _ask_broker(url: ConnectionParameters, timeout: float, request: Mapping[str, object]) -> Any:
    ends = monotonic() + timeout
    connection = connect(url, timeout=timeout, recovery=None)
    try:
        server, peer = server_name(connection.server_properties), connection.parameters.peer
        if product_of(connection.server_properties) == RABBITMQ:
            do = str(request["do"])
            command = RABBITMQCTL.get(do, do.replace("-", "_"))
            raise Refused(
                f"{server} at {peer} is not administered over AMQP: use `rabbitmqctl {command}` there, "
                "or give the URL of its HTTP API"
            )
        try:
            answer = _exchange(connection, request, ends)
        except NotFound as error:
            raise Refused(f"{server} at {peer} cannot be administered over AMQP: {error}") from error
        except DeadlineExceeded as error:
            raise Refused(f"no answer came within {timeout:g} seconds: whether it was done is not known") from error
    finally:
        connection.close(timeout=_left(ends))
    if isinstance(answer, dict) and "error" in answer:
        kind = Missing if answer["error"] == NOT_FOUND else Refused
        raise kind(answer["reason"].partition(" - ")[2] or answer["reason"])
    return answer


def _exchange(connection: Connection, request: Mapping[str, object], ends: float) -> Any:
    """The answer."""
    channel = connection.channel(timeout=_left(ends))
    channel.confirm_select(timeout=_left(ends))
    body = json.dumps(request).encode()
    with channel.consume(REPLIES, no_ack=True, timeout=_left(ends)) as replies:
        try:
            message = Message(body, reply_to=REPLIES)
            channel.publish(message, "amq.system", "amq.administer", mandatory=True, timeout=_left(ends))
        except Unroutable:
            raise NotFound("it has no service amq.administer") from None
        except DeadlineExceeded as error:
            alarm = connection.blocked
            connection.close(timeout=_left(ends))  # what follows a publication that waits would wait behind it
            if alarm is None:
                raise
            raise Refused(
                f"{connection.parameters.peer} takes no publications now ({alarm}), and over AMQP a request is one: "
                "give the URL of its HTTP API, --url http://...; whether it will be done is not known"
            ) from error
        arrived = replies.receive(1, timeout=_left(ends))
    if not arrived:
        raise DeadlineExceeded("no answer")
    return json.loads(arrived[0].body)


def _left(ends: float) -> float:
    """The seconds until then, and a moment at least: a broker that answers at once has time to."""
    return max(MOMENT, ends - monotonic())


async def _ask_folder(folder: Path, request: Mapping[str, object], plugins: Sequence[Plugin]) -> Any:
    from harebell.broker.net.server import Broker
    from harebell.broker.node import CATALOG
    from harebell.broker.operations.administration import administer

    if not (folder / CATALOG).is_file():
        raise Refused(f"{folder} is no data folder of a broker: `harebell serve --data {folder}` makes one")
    limits = Limits(memory_high_watermark=0, disk_free_limit=0)  # nobody publishes: an alarm would be noise
    broker = Broker(port=None, data=folder, plugins=plugins, limits=limits)
    try:
        async with broker:
            answer = administer(broker.node, dict(request))
            broker.node.save()
            return answer
    except BlockingIOError:
        raise Refused(f"{folder} is in use by a broker that runs: ask that one, with --url") from None
    except OSError as error:
        raise Refused(f"{folder} cannot be used: {in_words(error).removeprefix(f'{folder}: ')}") from error
    except NotFound as error:
        raise Missing(error.detail) from error
    except AmqpError as error:
        raise Refused(error.detail) from error


def hashes(name: str, password_file: str | None, algorithm: str | None, *, scram: bool) -> dict[str, object]:
    """The fields of a request that describe a password; prompts for the password unless a file has it."""
    user = make_user(name, _read_password(name, password_file), (), algorithm or SCRYPT, scram=scram)
    return {
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "scram_sha_256": user.extra.get(SCRAM_KEYS),
    }


def _read_password(name: str, file: str | None) -> str:
    if file is not None:
        try:
            if file == "-":
                return _line(sys.stdin.readline(), "standard input")
            return _line(Path(file).read_text(encoding="utf-8"), file)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"--password-file {file} cannot be read: {why_unread(error)}") from error
    if not _at_terminal():
        raise InvalidArgument("there is no terminal to ask for a password: give --password-file FILE, or - for a pipe")
    password = _asked(f"Password of {name}: ")
    if password != _asked("The same again: "):
        raise InvalidArgument("that was not the same twice: nothing was changed")
    return password


def _asked(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise InvalidArgument(
            "no password was typed: nothing was changed; --password-file names a file of it"
        ) from None
    except UnicodeDecodeError:
        raise InvalidArgument("what was typed has no UTF-8 form: nothing was changed") from None


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _line(text: str, where: str) -> str:
    line = text.partition("\n")[0].removesuffix("\r")
    if not line:
        raise InvalidArgument(f"there is no password in {where}: its first line is empty")
    return line


def show(fetch: Callable[[], Sequence[Mapping[str, Any]]], columns: Sequence[str], view: View | None) -> int:
    """Print the records that `fetch` returns: these fields as a table, or as the view says."""
    return show_rows(fetch, columns, view)
