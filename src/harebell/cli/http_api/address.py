"""Where the HTTP API of a broker is, and the login for it: from an http URL, or from the AMQP URL of the same broker.

Of the query only `cacertfile` counts, for TLS: the other parameters of an AMQP URL are AMQP's.

Errors never have the URL in them: it may have a password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from harebell.cli.validators import in_utf8
from harebell.errors import InvalidArgument

__all__ = ["Address", "parse_address"]

PORTS: Final = {"http": 15672, "https": 15671, "amqp": 15672, "amqps": 15671}
"""The scheme of a URL, and the port of the HTTP API where the URL does not say it (an AMQP URL never does)."""

FORM: Final = "http://user:password@host:15672"


@dataclass(frozen=True)
class Address:
    """An HTTP API and a login.

    prefix      the path before `/api`, as RabbitMQ's `management.path_prefix`
    cacertfile  of the URL: the file of certificates to trust; None: the system's
    """

    host: str
    port: int
    tls: bool
    user: str
    password: str = field(repr=False)
    prefix: str = ""
    cacertfile: str | None = None

    @property
    def peer(self) -> str:
        """The address in texts: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def parse_address(url: str) -> Address:
    """The address in an http, https, amqp or amqps URL. Without a login in it, guest's.

    An amqp URL is that of a broker whose HTTP API is on the same host, on port 15672 (amqps: 15671). InvalidArgument
    when it is none of these.
    """
    if not in_utf8(url):  # the environment may have any bytes
        raise InvalidArgument("the URL has no UTF-8 form: write other bytes as %XX")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidArgument(
            f"not a URL: write {FORM}, and /, @, # and ? in a password as %2F, %40, %23 and %3F"
        ) from None
    if parts.scheme not in PORTS:
        raise InvalidArgument(f"the URL of the HTTP API begins with http:// or https://: write {FORM}")
    if not parts.hostname:
        raise InvalidArgument(f"the URL names no host: write {FORM}")
    of_http = parts.scheme in ("http", "https")
    default = PORTS[parts.scheme]
    trusted = parse_qs(parts.query).get("cacertfile", [])
    return Address(
        host=unquote(parts.hostname),
        port=(port or default) if of_http else default,
        tls=parts.scheme in ("https", "amqps"),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password or "") if parts.username is not None else "guest",
        prefix=quote(parts.path.rstrip("/").removesuffix("/api"), safe="/%") if of_http else "",
        cacertfile=trusted[-1] if trusted else None,
    )
