"""Where to connect and how: amqp:// and amqps:// URLs as RabbitMQ's URI specification, made into a frozen record.

    amqp://user:password@host:port/vhost?heartbeat=30&connection_timeout=5000

Every part but the scheme may be missing. Parts are percent-decoded one by one. No path is the vhost "/", and so is
"/%2F". The path "/" alone is "/" too: the specification reads it as a vhost with an empty name, which no broker has,
and people write `amqp://localhost/`. A query parameter that is not known is refused: a misspelt `verify` must not leave
off what it was to switch on.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from harebell import errors
from harebell.client.seconds import check_seconds
from harebell.defaults import FRAME_MAX, FRAME_MIN
from harebell.protocol.v091.codec import MISFITS
from harebell.protocol.v091.fields import write_table

__all__ = ["ConnectionParameters", "hosts_of", "parameters_of", "parse_url"]

DEFAULT_PORTS: Final = {"amqp": 5672, "amqps": 5671}
DEFAULT_TIMEOUT: Final = 30.0  # seconds
DEFAULT_HEARTBEAT: Final = 60  # seconds, what RabbitMQ proposes
MAX_USHORT: Final = 65_535

Mechanism = Literal["PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS"]
MECHANISMS: Final[dict[str, Mechanism]] = {
    "PLAIN": "PLAIN",
    "AMQPLAIN": "AMQPLAIN",
    "EXTERNAL": "EXTERNAL",
    "ANONYMOUS": "ANONYMOUS",
}
QUERY_KEYS: Final = (
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "channel_max",
    "connection_name",
    "connection_timeout",
    "frame_max",
    "heartbeat",
    "keyfile",
    "password",
    "server_name_indication",
    "verify",
)
TLS_KEYS: Final = frozenset(("cacertfile", "certfile", "keyfile", "password", "server_name_indication", "verify"))


@dataclass(frozen=True, slots=True)
class ConnectionParameters:
    """Everything that a connection needs to know before it is made.

    timeout      seconds for connecting, and for each call that does not say otherwise
    heartbeat    seconds asked for; the broker's is taken when it asks for fewer, or when this is 0
    frame_max    bytes asked for; 0 is no limit of ours
    channel_max  highest channel number asked for; 0 is no limit of ours
    mechanisms   SASL mechanisms in order of preference
    name         of the connection, as the broker shows it (`connection_name` in a URL and on the wire); "" is none
    tls          True for amqps; the files and switches below are for it
    verify       check the broker's certificate and name (the default; `verify=verify_none` in a URL switches it off)
    client_properties  what the client says about itself beside, or in place of, its product, version and platform
    locale       of the broker's texts; brokers have en_US
    """

    host: str = "localhost"
    port: int = 5672
    vhost: str = "/"
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    timeout: float = DEFAULT_TIMEOUT
    heartbeat: int = DEFAULT_HEARTBEAT
    frame_max: int = FRAME_MAX
    channel_max: int = 2047
    mechanisms: tuple[Mechanism, ...] = ("PLAIN", "AMQPLAIN")
    name: str = ""
    tls: bool = False
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None
    context: ssl.SSLContext | None = field(default=None, repr=False)
    client_properties: Mapping[str, object] = field(default_factory=dict)
    locale: str = "en_US"

    @property
    def peer(self) -> str:
        """The address as error texts show it: without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{self.username}@{host}:{self.port}/{self.vhost.lstrip('/')}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """A TLS context made from these parameters; None for amqp. InvalidArgument when a file cannot be used."""
        if not self.tls:
            return None
        if self.context is not None:
            return self.context
        try:
            context = ssl.create_default_context(cafile=self.cacertfile)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certfile is not None:
                context.load_cert_chain(self.certfile, self.keyfile, self.keyfile_password)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(f) for f in (self.cacertfile, self.certfile, self.keyfile) if f is not None)
            raise errors.InvalidArgument(f"TLS files {files or '(system defaults)'} cannot be used: {error}") from error
        return context


def parse_url(
    url: str,
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
) -> ConnectionParameters:
    """The parameters in an amqp:// or amqps:// URL.

    timeout    seconds; wins over the URL's connection_timeout, which is milliseconds as in RabbitMQ's clients
    heartbeat  seconds; wins over the URL's
    context    a TLS context of the caller's own, instead of one made from the URL; amqps only

    InvalidArgument for another scheme, an unknown query parameter or a value out of range; the text names it.
    """
    try:
        url.encode()
    except UnicodeEncodeError:  # bytes of argv or of the environment; the text may have a password
        raise errors.InvalidArgument("the URL has no UTF-8 form: write other bytes as %XX") from None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # urllib's text is not passed on: a '/' in the password makes it quote a part of the password as the port.
        raise errors.InvalidArgument(
            "not a URL: write amqp://user:password@host:port/vhost, the port as a number up to 65535, and "
            "/, @, # and ? in a password as %2F, %40, %23 and %3F"
        ) from None
    if port == 0:
        raise errors.InvalidArgument("the URL's port is 0: give the broker's, or leave it out for the scheme's own")
    if parts.scheme not in DEFAULT_PORTS:
        raise errors.InvalidArgument(
            f"the URL's scheme is {parts.scheme!r}, known are amqp and amqps: amqp://user:password@host:port/vhost"
        )
    if parts.fragment:
        raise errors.InvalidArgument("an AMQP URL has no fragment: write # as %23")
    tls = parts.scheme == "amqps"
    query = _query(parts.query, tls)
    if context is not None and not tls:
        raise errors.InvalidArgument("a TLS context was given for an amqp:// URL: use amqps://")
    mechanisms: tuple[Mechanism, ...] = ("PLAIN", "AMQPLAIN")
    if "auth_mechanism" in query:
        mechanisms = tuple(_mechanism(name) for name in query["auth_mechanism"].split(","))
    elif tls and "certfile" in query and parts.username is None:
        mechanisms = ("EXTERNAL", "PLAIN", "AMQPLAIN")
    if timeout is None:
        timeout = _number(query, "connection_timeout", 0, 2**31, int(DEFAULT_TIMEOUT * 1000)) / 1000 or DEFAULT_TIMEOUT
    path = parts.path
    if path.count("/") > 1:
        raise errors.InvalidArgument("the vhost has an unescaped slash: write it as %2F")
    return ConnectionParameters(
        host=unquote(parts.hostname or "localhost"),
        port=port or DEFAULT_PORTS[parts.scheme],
        vhost=unquote(path[1:]) or "/",
        username=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest" if parts.username is None else "",
        timeout=_positive(timeout),
        heartbeat=_heartbeat(
            _number(query, "heartbeat", 0, MAX_USHORT, DEFAULT_HEARTBEAT) if heartbeat is None else heartbeat
        ),
        frame_max=_frame_max(query),
        channel_max=_number(query, "channel_max", 0, MAX_USHORT, 2047),
        mechanisms=mechanisms,
        name=query.get("connection_name", ""),
        tls=tls,
        cacertfile=query.get("cacertfile"),
        certfile=query.get("certfile"),
        keyfile=query.get("keyfile"),
        keyfile_password=query.get("password"),
        verify=_verify(query),
        server_name=query.get("server_name_indication"),
        context=context,
    )


def parameters_of(
    url: str | ConnectionParameters,
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
) -> ConnectionParameters:
    """The parameters of a URL, or the given ones with what is given beside them put in. InvalidArgument."""
    if isinstance(url, str):
        return parse_url(url, timeout=timeout, heartbeat=heartbeat, context=context)
    if context is not None and not url.tls:
        raise errors.InvalidArgument("a TLS context was given for a connection without TLS: set tls=True, or use amqps")
    return replace(
        url,
        timeout=_positive(url.timeout if timeout is None else timeout),
        heartbeat=_heartbeat(url.heartbeat if heartbeat is None else heartbeat),
        context=url.context if context is None else context,
    )


def hosts_of(
    url: object,
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    client_properties: Mapping[str, object] | None = None,
    locale: str | None = None,
    write: Callable[[dict[str, Any]], object] = write_table,
) -> list[ConnectionParameters]:
    """The parameters of one URL or of several; what else is given wins over them. InvalidArgument says why not.

    write  gives client properties the dialect's form
    """
    urls = [url] if isinstance(url, str | ConnectionParameters) or not isinstance(url, Iterable) else list(url)
    if not urls:
        raise errors.InvalidArgument("no URL was given: connect() needs at least one host")
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise errors.InvalidArgument(
            f"context is {context!r}: a TLS context is needed, as ssl.create_default_context()"
        )
    if locale is not None and not isinstance(locale, str):
        raise errors.InvalidArgument(f"locale is {locale!r}: text is needed, as en_US")
    hosts: list[ConnectionParameters] = []
    for one in urls:
        if not isinstance(one, str | ConnectionParameters):
            hint = " (is a setting or an environment variable missing?)" if one is None else ""
            raise errors.InvalidArgument(
                f"the URL is {one!r}{hint}: give text such as amqp://user:password@host/vhost, or a list of it"
            )
        host = parameters_of(one, timeout=timeout, heartbeat=heartbeat, context=context)
        properties = host.client_properties if client_properties is None else client_properties
        hosts.append(replace(host, client_properties=_checked(properties, write), locale=locale or host.locale))
    return hosts


def _checked(properties: Mapping[str, object], write: Callable[[dict[str, Any]], object]) -> Mapping[str, object]:
    if not isinstance(properties, Mapping):
        raise errors.InvalidArgument(f"client_properties is {properties!r}: a dictionary by name is needed")
    try:
        write(dict(properties))
    except (errors.LocalProtocolError, *MISFITS) as error:
        raise errors.InvalidArgument(f"client_properties do not fit the wire: {error}") from None
    return properties


def _query(text: str, tls: bool) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError:
        raise errors.InvalidArgument("the URL's query is malformed: it takes name=value pairs with & between") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in QUERY_KEYS:
            raise errors.InvalidArgument(
                f"the URL's query parameter {name!r} is not known; known are {', '.join(QUERY_KEYS)}"
            )
        if name in query:
            raise errors.InvalidArgument(f"the URL's query parameter {name!r} is given twice")
        if name in TLS_KEYS and not tls:
            raise errors.InvalidArgument(f"the URL's query parameter {name!r} is for TLS: use amqps:// with it")
        query[name] = value
    return query


def _number(query: dict[str, str], name: str, least: int, most: int, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise errors.InvalidArgument(f"{name}={text!r} in the URL: a whole number from {least} to {most} is needed")
    return int(text)


def _frame_max(query: dict[str, str]) -> int:
    value = _number(query, "frame_max", 0, 2**32 - 1, FRAME_MAX)
    if 0 < value < FRAME_MIN:
        raise errors.InvalidArgument(f"frame_max={value} in the URL: the least that the protocol allows is {FRAME_MIN}")
    return value


def _verify(query: dict[str, str]) -> bool:
    value = query.get("verify", "verify_peer")
    if value not in ("verify_peer", "verify_none"):
        raise errors.InvalidArgument(f"verify={value!r} in the URL: verify_peer or verify_none is needed")
    return value == "verify_peer"


def _mechanism(name: str) -> Mechanism:
    known = MECHANISMS.get(name.strip().upper())
    if known is None:
        raise errors.InvalidArgument(f"auth_mechanism={name!r} in the URL: known are {', '.join(MECHANISMS)}")
    return known


def _heartbeat(given: object) -> int:
    seconds = int(given) if isinstance(given, Integral) and not isinstance(given, bool) else -1
    if not 0 <= seconds <= MAX_USHORT:
        raise errors.InvalidArgument(
            f"heartbeat is {given!r}: a whole number of seconds from 0 to {MAX_USHORT} is needed; 0 takes the broker's"
        )
    return seconds


def _positive(timeout: float) -> float:
    if not (seconds := check_seconds(timeout)):
        raise errors.InvalidArgument(f"timeout is {timeout!r}: a number of seconds above 0 is needed")
    return seconds
