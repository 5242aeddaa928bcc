"""Finds stream queues: those that a pattern matches, or the partitions of a super-stream.

Rules: AMQP cannot list queues. Harebell is asked over the same connection, by its service amq.stats; a RabbitMQ by
HTTP, which its management plugin answers. The partitions of a super-stream are ordinary stream queues NAME-0, NAME-1,
..., which are looked for one after the other. What is found is given in the order of names, numbers in theirs.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from harebell import errors
from harebell.client.servers import RABBITMQ
from harebell.spark.connection import Link, ask_service, retrying
from harebell.spark.options import SourceOptions
from harebell.spark.options.address import Address

__all__ = ["management", "queue_names"]

LONGEST_ANSWER: Final = 64 << 20  # bytes: a hundred thousand queues are some 40 MB of amq.stats


def queue_names(options: SourceOptions, patience: float | None = None) -> tuple[str, ...]:
    """The stream queues that the options mean, now. Raises NotFound when a pattern or super-stream has none yet.

    patience  seconds for a broker that does not answer; None: retry_timeout
    """
    wanted, seconds = options.stream, options.retry_timeout if patience is None else patience
    if wanted.pattern is not None:
        pattern = wanted.pattern
        names = retrying(lambda: _streams(options), seconds, "asking for the names of queues")
        found = sorted((name for name in names if pattern.fullmatch(name)), key=_natural)
        if not found:
            raise errors.NotFound(f"no stream queue's name matches queuePattern {pattern.pattern!r} yet")
        return tuple(found)
    if wanted.superstream is not None:
        name = wanted.superstream
        return retrying(lambda: _partitions(options, name), seconds, f"looking for partitions of {name}")
    return options.queues


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _streams(options: SourceOptions) -> Iterable[str]:
    """The names of all stream queues of the vhost."""
    if options.stream.management_url is not None:
        queues = management(options.stream.management_url, options.url, "queues", "?columns=name,type,arguments")
        return [queue["name"] for queue in queues if _is_stream(queue)]
    with Link(options.url, options.timeout) as link:
        if link.product == RABBITMQ:
            raise errors.InvalidArgument(
                "option 'queuePattern' needs to list queues, which RabbitMQ does not do over AMQP: give its management "
                "plugin's address, option 'managementUrl' such as http://host:15672, or name the queues"
            )
        statistics = ask_service(link, "amq.stats", b"", options.timeout)
    return [name for name, queue in statistics["queues"].items() if queue["type"] == "stream"]


def _is_stream(queue: dict[str, Any]) -> bool:
    return "stream" in (queue.get("type"), queue.get("arguments", {}).get("x-queue-type"))


def _partitions(options: SourceOptions, name: str) -> tuple[str, ...]:
    found: list[str] = []
    with Link(options.url, options.timeout) as link:
        try:
            while True:
                link.count(f"{name}-{len(found)}")
                found.append(f"{name}-{len(found)}")
        except errors.NotFound as error:
            if not found:
                raise errors.NotFound(
                    f"super-stream '{name}' has no partition '{name}-0': declare its queues {name}-0, {name}-1, ..., "
                    "or name them with option 'queues'"
                ) from error
    return tuple(found)


def management(address: str, url: str | Address, what: str, query: str = "", timeout: float = 30.0) -> Any:
    """What a RabbitMQ's management plugin says of `what` in the vhost of the AMQP URL.

    The login is that of `address`, else that of the AMQP URL. Raises AccessRefused and NotFound as the plugin says, and
    ConnectionLost when there is no answer. InvalidArgument when the address is no URL of HTTP.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.InvalidArgument("the management plugin's URL is http://host:15672 or https://host:15671")
    amqp = (url if isinstance(url, Address) else Address(url)).parameters()[0]
    user, password = amqp.username, amqp.password
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "guest")
    vhost = quote(amqp.vhost, safe="")
    host = parts.netloc.rpartition("@")[2]
    path = f"{parts.path.rstrip('/')}/api/{what.replace('{vhost}', vhost)}"
    if "{vhost}" not in what:
        path += "/" + vhost
    where = urlunsplit((parts.scheme, host, path, query.lstrip("?"), ""))
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(where, headers={"Authorization": f"Basic {token}"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read(LONGEST_ANSWER))
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer, too: since Python 3.14 one that is not closed is warned of
        if error.code in (401, 403):
            raise errors.AccessRefused(
                f"{parts.scheme}://{host} refuses user '{user}' ({error.code}): its management plugin wants the tag "
                "'management'"
            ) from error
        raise errors.NotFound(f"{where} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        raise errors.ConnectionLost(f"{where} cannot be asked: {error}") from error
