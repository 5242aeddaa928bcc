"""Every option of the broker in one table: its name, default, allowed values and meaning.

`Limits` and `Config` are the table: a field is an option. Its name gives the flag (`--disk-free-limit`), the variable
(`HAREBELL_DISK_FREE_LIMIT`) and the key of the TOML file (`disk_free_limit`). `load` makes a Config from these: a flag
wins over the variable, the variable over the file, and the file over the default. All three are read by the same rules.

No option is a secret: passwords are in definitions, keys in files of their own, so a configuration may be shown.
The module opens no file but the TOML file.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from harebell.defaults import FRAME_MAX, FRAME_MIN
from harebell.errors import InvalidArgument

__all__ = [
    "ANNOUNCED",
    "DEFAULT_MECHANISMS",
    "OPTIONS",
    "Config",
    "Limits",
    "Option",
    "Settings",
    "config_file",
    "load",
]

# The last RabbitMQ whose global prefetch windows hold for all queues, as they do here. From version 4 on, and for an
# unknown product, Celery sets a prefetch for each consumer: a worker on three queues would hold three times as many.
ANNOUNCED: Final = "RabbitMQ 3.13.7"
DEFAULT_MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL")
PREFIX: Final = "HAREBELL_"
CONFIG_VARIABLE: Final = "HAREBELL_CONFIG"
DIGITS: Final = 4300  # of a number: Python reads no more, and nor does its TOML
CLOSE: Final = 0.7  # from this similarity on, a name counts as a misspelt option; PROT and PORT have 0.75


# -- what an option may be -------------------------------------------------------------------------------------------


class Kind(Protocol):
    """A kind of values. `read` takes a text or a TOML value; its ValueError says what is allowed."""

    def read(self, value: object) -> object: ...


class Text:
    def read(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError("a text")
        if any("\ud800" <= each <= "\udfff" for each in value):  # bytes of an argument that are no UTF-8
            raise ValueError("a text in UTF-8")
        return value


class File:
    """A path; `~` and `~user` at its beginning are home folders."""

    def read(self, value: object) -> Path:
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise ValueError("a path")
        if not str(value).startswith("~"):
            return Path(value)
        try:
            return Path(value).expanduser()
        except RuntimeError:
            text = "a path, and its ~ a user who has a home folder; a file of that name is ./~NAME"
            raise ValueError(text) from None


class Switch:
    YES: Final = ("true", "yes", "on", "1")
    NO: Final = ("false", "no", "off", "0")

    def read(self, value: object) -> bool:
        word = str(value).lower()  # of a bool too
        if isinstance(value, bool | str) and word in (*self.YES, *self.NO):
            return word in self.YES
        raise ValueError("true or false")


class Whole:
    """A whole number; with `unlimited`, the word "unlimited" is allowed too and becomes None."""

    def __init__(self, least: int, most: int | None = None, *, unlimited: bool = False) -> None:
        self._least, self._most, self._unlimited = least, most, unlimited

    def read(self, value: object) -> int | None:
        if self._unlimited and value == "unlimited":
            return None
        number = value
        if isinstance(value, str) and re.fullmatch(rf"-?[0-9]{{1,{DIGITS}}}", value):
            number = int(value)
        if (
            isinstance(number, bool) or not isinstance(number, int)
            or number < self._least or (self._most is not None and number > self._most)
        ):  # fmt: skip
            upto = f"from {self._least} on" if self._most is None else f"from {self._least} to {self._most}"
            raise ValueError(f"a whole number {upto}" + (' or "unlimited"' if self._unlimited else ""))
        return number


UNITS: Final = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


class Size:
    """Bytes: a number, or a text with a unit such as 50MB or 16MiB."""

    LARGEST: Final = 1 << 60  # more than any disk or memory has, and few enough digits for SQLite and C

    def __init__(self, least: int, most: int = LARGEST) -> None:
        self._least, self._most = least, most

    def read(self, value: object) -> int:
        size = value
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", value.strip())
            # A fraction, because a float has no exact value for large sizes, and none at all for 400 digits.
            known = match and match[2] in UNITS and len(match[1]) <= DIGITS
            size = int(Fraction(match[1]) * UNITS[match[2]]) if match and known else None
        if isinstance(size, bool) or not isinstance(size, int) or not self._least <= size <= self._most:
            upto = f"{shown(self._least)} to {shown(self._most)}"
            raise ValueError(f"a size in bytes, or with a unit as in 50MB or 16MiB, {upto}")
        return size


class Watermark:
    """A share of the machine's memory (a float: 0.6 or 60%) or a size (an int)."""

    def read(self, value: object) -> float | int:
        if isinstance(value, str):
            percent = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", value)
            if percent:
                value = float(percent[1]) / 100
            elif re.fullmatch(r"[01]?\.[0-9]+", value):
                value = float(value)
        if isinstance(value, float):
            if 0 < value <= 1:
                return value
        else:
            try:
                return Size(0).read(value)
            except ValueError:
                pass
        raise ValueError("a share of the memory, as 0.6 or 60%, or a size, as 4GiB; 0 for none")


SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _in_seconds(value: object) -> object:
    """The seconds of a text, None for one that is no time; any other value as it is."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h|d|)", value.strip())
    return float(match[1]) * SECONDS[match[2]] if match else None


class WholeSeconds(Whole):
    """A time in whole seconds: a number, or a text with a unit."""

    def read(self, value: object) -> int | None:
        seconds = _in_seconds(value)
        if isinstance(seconds, float) and seconds.is_integer():
            seconds = int(seconds)
        try:
            return super().read(seconds)
        except ValueError as error:
            raise ValueError(f"{error} of seconds, or a time with a unit as in 30s or 1m") from None


class Seconds:
    """A time: a number of seconds, or a text with a unit: ms, s, m, h, d."""

    def read(self, value: object) -> float:
        seconds = _in_seconds(value)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= sys.float_info.max:
            raise ValueError("a time above 0, in seconds or with a unit as in 500ms, 10s or 30m")
        return float(seconds)


class Choice:
    def __init__(self, *values: str) -> None:
        self.values = values

    def read(self, value: object) -> str:
        if value not in self.values:
            raise ValueError("one of " + ", ".join(self.values))
        return str(value)


class Names:
    """Names: a list, or a text with commas. The value has them in upper case."""

    def read(self, value: object) -> tuple[str, ...]:
        given = [value] if isinstance(value, str) else value
        if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
            names = [part.strip().upper() for each in given for part in str(each).split(",")]
            if names and all(names) and "".join(names).isprintable():
                return tuple(names)
        raise ValueError("names with commas between them")


class References:
    """Python objects: a list, or a text with commas, of MODULE:NAME."""

    def read(self, value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, list | tuple) and parts and all(isinstance(part, str) for part in parts):
            names = tuple(str(part).strip() for part in parts)
            if all(re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name) for name in names):
                return names
        raise ValueError("MODULE:NAME, with commas between several")


class Hosts:
    """Addresses or names to listen on: a list, or a text with commas. An IPv6 address may be in brackets."""

    def read(self, value: object) -> tuple[str, ...]:
        given = [value] if isinstance(value, str) else value
        if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
            hosts = [_host(part.strip()) for each in given for part in str(each).split(",")]
            if hosts and all(hosts):
                return tuple(dict.fromkeys(hosts))
        raise ValueError('addresses or names without a port, with commas between them, or "*"')


def _host(text: str) -> str:
    """The host without the brackets that an IPv6 address has in a URL; "" when it is none."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare != text:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            return ""
    return "" if re.search(r"[\s/\[\]]", bare) or not bare.isprintable() else bare


def shown(value: object) -> str:
    """A value as a text that `load` reads as the same value."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int() if value >= 1024:
            unit = max((unit for unit in UNITS if value % UNITS[unit] == 0), key=lambda each: UNITS[each])
            return f"{value // UNITS[unit]}{unit}" if UNITS[unit] >= 1000 else str(value)
        case float():
            return format(Decimal(repr(value)), "f").removesuffix(".0")  # all digits, and no exponent
        case Path() if str(value).startswith("~"):
            return f"./{value}"
        case tuple():
            return ",".join(value)
    return str(value)


# -- the table -------------------------------------------------------------------------------------------------------


def option(default: object, kind: Kind, about: str, *, live: bool = False) -> Any:
    """A field that is an option. `live`: SIGHUP applies a new value; any other option needs a restart."""
    return field(default=default, metadata={"kind": kind, "about": about, "live": live})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on what clients may use. A connection has the values of the time at which it was opened."""

    memory_high_watermark: float | int = option(
        0.6, Watermark(), "Block publishers while the process uses more memory than this: a share of the machine's "
        "memory, or a size; 0 for never.", live=True,
    )  # fmt: skip
    disk_free_limit: int = option(
        50_000_000, Size(0), "Block publishers while the disk of the data folder has less free space than this; 0 for "
        "never.", live=True,
    )  # fmt: skip
    max_connections: int | None = option(
        None, Whole(0, unlimited=True), "Largest number of open connections, all virtual hosts together.", live=True
    )
    channel_max: int = option(
        2047, Whole(1, 65_535), "Largest number of channels per connection; stops a client that leaks them.", live=True
    )
    max_consumers_per_channel: int | None = option(
        None, Whole(0, unlimited=True), "Largest number of consumers per channel.", live=True
    )
    max_message_size: int = option(
        16 << 20, Size(1, 512 << 20), "Largest message body; the broker has a body in memory as a whole.", live=True
    )
    frame_max: int = option(
        FRAME_MAX,
        Size(FRAME_MIN, 16 << 20),
        "Largest frame; a table of arguments or headers must fit one frame.",
        live=True,
    )
    heartbeat: int = option(
        60,
        WholeSeconds(0, 65_535),
        "Whole seconds between heartbeats that the broker proposes to clients; 0 for none.",
        live=True,
    )
    handshake_timeout: float = option(
        10.0, Seconds(), "Time within which a client must log in and open a virtual host.", live=True
    )
    announce: str = option(
        ANNOUNCED, Text(), "Product and version that clients are told in server-properties; some choose by them what "
        "they do. `Harebell` says what it is.", live=True,
    )  # fmt: skip
    channel_flow: bool = option(
        True, Switch(), "Stop deliveries for channel.flow(active=false), as the specification says; off: answer 540, "
        "as RabbitMQ does.", live=True,
    )  # fmt: skip
    consumer_timeout: float = option(
        1800.0, Seconds(), "Time within which a consumer must acknowledge a delivery, unless its queue sets another.",
        live=True,
    )  # fmt: skip
    session_timeout: float = option(
        3600.0, Seconds(), "Longest time that a session of AMQP 0-10 outlives its connection.", live=True
    )
    max_sessions: int | None = option(
        10_000, Whole(0, unlimited=True), "Largest number of AMQP 0-10 sessions that outlive their connections, of all "
        "users; further ones get no timeout; 0 for none.", live=True,
    )  # fmt: skip
    max_sessions_per_user: int | None = option(
        1000, Whole(0, unlimited=True), "Largest number of AMQP 0-10 sessions of one user that outlive their "
        "connections.", live=True,
    )  # fmt: skip
    session_memory: int = option(
        256 << 20, Size(0), "Largest memory of all AMQP 0-10 sessions without a connection, half of it for one user; "
        "a session beyond it ends with its connection.", live=True,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Limits):
    """All options. `sources` of Settings says where each came from."""

    host: tuple[str, ...] = option(
        ("localhost",), Hosts(), "Addresses to listen on, with commas between them: `localhost` is 127.0.0.1 and ::1, "
        "`*` all of the machine's, IPv4 and IPv6.",
    )  # fmt: skip
    port: int = option(5672, Whole(0, 65_535), "TCP port; 0 takes a free one.")
    data: Path | None = option(
        None, File(), "Folder of the stored data. Default: $XDG_DATA_HOME/harebell or ~/.local/share/harebell."
    )
    sync: bool = option(True, Switch(), "Confirm a publication or a declaration only after it is synced to disk.")
    definitions: Path | None = option(
        None, File(), "RabbitMQ definitions file (JSON) to import at the start: virtual hosts, users, queues..."
    )
    events: bool = option(False, Switch(), "Publish the broker's events to the exchange amq.rabbitmq.event.")
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", Choice("debug", "info", "warning", "error"), "Lowest level of messages to log.", live=True
    )
    mechanisms: tuple[str, ...] = option(
        DEFAULT_MECHANISMS, Names(), "SASL mechanisms to offer; the broker offers ANONYMOUS only when it is listed."
    )
    anonymous_user: str = option("guest", Text(), "User that the mechanism ANONYMOUS logs in.")
    plugins: tuple[str, ...] | None = option(
        None, References(), "Plug-ins, as MODULE:NAME with commas between them: harebell.broker.Plugin objects, with "
        "exchange types and services. Modules are found in the working directory too.",
    )  # fmt: skip
    management: bool = option(
        True, Switch(), "Serve the HTTP API, in the shapes of RabbitMQ's management plug-in, and metrics. It needs the "
        "extra `admin`.",
    )  # fmt: skip
    management_host: tuple[str, ...] | None = option(
        None, Hosts(), "Addresses that the HTTP API listens on. Default: those of the broker (`host`)."
    )
    management_port: int = option(15672, Whole(0, 65_535), "TCP port of the HTTP API; 0 takes a free one.")
    management_tls_port: int = option(
        15671, Whole(0, 65_535), "TCP port of the HTTP API with TLS, where there is a certificate (`tls_cert`)."
    )
    tls_cert: Path | None = option(
        None,
        File(),
        "Certificate with its chain, in PEM; turns on TLS (amqps). SIGHUP reads it again.",
    )
    tls_key: Path | None = option(None, File(), "Key of the certificate. Default: in the certificate's file.")
    tls_port: int = option(5671, Whole(0, 65_535), "TCP port for TLS; 0 takes a free one.")
    tls_only: bool = option(False, Switch(), "Open no port without TLS.")
    tls_ca: Path | None = option(None, File(), "Authorities that sign client certificates.")
    tls_verify: Literal["none", "optional", "required"] = option(
        "none", Choice("none", "optional", "required"), "Whether clients may or must show a certificate."
    )
    tls_min_version: Literal["1.2", "1.3"] = option("1.2", Choice("1.2", "1.3"), "Lowest version of TLS.")
    tls_user: Literal["distinguished_name", "common_name"] = option(
        "distinguished_name", Choice("distinguished_name", "common_name"),
        "Part of a client's certificate that EXTERNAL takes as the user name.",
    )  # fmt: skip


class Option:
    """One option. `name` is also its key in the TOML file; `about` has the values of a choice."""

    __slots__ = ("about", "default", "kind", "live", "name")

    def __init__(self, name: str, default: object, kind: Kind, about: str, live: bool) -> None:
        if isinstance(kind, Choice):
            about += f" One of {', '.join(f'`{each}`' for each in kind.values)}."
        self.name, self.default, self.kind, self.about, self.live = name, default, kind, about, live

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        return isinstance(self.kind, Switch)

    @property
    def is_list(self) -> bool:
        """Whether its flag may be given several times."""
        return isinstance(self.kind, Hosts)

    @property
    def default_text(self) -> str | None:
        """The default as a text that may be given; None where the default is to give nothing."""
        text = self.shown(self.default)
        return None if self.default is None and text == "none" else text

    def shown(self, value: object) -> str:
        """A value as a text. A whole number is plain, without the unit of a size, and None is "unlimited"."""
        if isinstance(self.kind, Watermark) and value == 1.0 and isinstance(value, float):
            return "100%"  # 1 is a size, of one byte
        if isinstance(self.kind, Whole):
            return "unlimited" if value is None else str(value)
        return shown(value)


def _options() -> tuple[Option, ...]:
    """All options: those of Config first, because users look for these, then the limits."""
    limits = {each.name for each in fields(Limits)}
    ordered = sorted(fields(Config), key=lambda each: each.name in limits)
    return tuple(Option(each.name, each.default, **each.metadata) for each in ordered)


OPTIONS: Final[Mapping[str, Option]] = {each.name: each for each in _options()}


# -- where values come from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration and where each value came from: a flag, a variable, the file's path, or "default".

    `remarks` are lines for the log: variables that look like a misspelt option.
    """

    config: Config
    sources: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def config_file(given: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The TOML file to read: `given`, else that of HAREBELL_CONFIG, else the user's own if it exists, else None."""
    named = given or environ.get(CONFIG_VARIABLE)
    if named:
        try:
            return File().read(named)
        except ValueError as error:
            place = "--config" if given else CONFIG_VARIABLE
            raise InvalidArgument(f"{place} must be {error}; it is {str(named)!r}") from None
    folder = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: programs ignore a relative path in the variable.
    try:
        base = Path(folder) if folder.startswith("/") else Path("~/.config").expanduser()
    except RuntimeError:  # a user without a home folder
        return None
    path = base / "harebell" / "harebell.toml"
    return path if path.is_file() else None


def load(flags: Mapping[str, object], environ: Mapping[str, str] = os.environ, file: Path | None = None) -> Settings:
    """The configuration from flags (by option name; None is not given), environment variables and the TOML file.

    Raises InvalidArgument, which names the place, the option and what is allowed: for an unknown key, an invalid value,
    options that contradict each other, and a file that cannot be read or is not TOML.
    """
    keys = _read_file(file) if file is not None else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, each in OPTIONS.items():
        if flags.get(name) is not None:
            source, place, value = each.flag, each.flag, flags[name]
        elif environ.get(each.variable):
            source, place, value = each.variable, each.variable, environ[each.variable]
        elif name in keys:
            source, place, value = str(file), f"{file}: {name}", keys[name]
        else:
            sources[name] = "default"
            continue
        try:
            values[name] = each.kind.read(value)
        except ValueError as error:
            raise InvalidArgument(f"{place} must be {error}; it is {value!r}") from None
        sources[name] = source
    config = Config(**values)
    _check(config)
    return Settings(config, sources, _remarks(environ))


def _read_file(path: Path) -> dict[str, object]:
    try:
        keys = tomllib.loads(path.read_text("utf-8-sig"))  # editors of Windows begin a file with a mark
    except OSError as error:
        raise InvalidArgument(f"configuration file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError or UnicodeDecodeError
        raise InvalidArgument(f"configuration file {path} is not TOML: {error}") from error
    for key in keys:
        if key not in OPTIONS:
            near = difflib.get_close_matches(key.replace("-", "_"), OPTIONS, 1)
            hint = f"did you mean {near[0]}?" if near else "`harebell config` lists them"
            raise InvalidArgument(f"{path}: there is no option {key}; {hint}")
    return keys


def _remarks(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {each.variable.removeprefix(PREFIX) for each in OPTIONS.values()}
    found = []
    for name in sorted(environ):
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in known or name == CONFIG_VARIABLE:
            continue
        # Names are compared without the prefix: with it, any two short names would be similar.
        near = difflib.get_close_matches(rest, known, 1, CLOSE)
        if near:
            found.append(f"the variable {name} is no option; did you mean {PREFIX}{near[0]}?")
    return tuple(found)


def _check(config: Config) -> None:
    """Raise InvalidArgument for options that contradict each other."""
    if config.tls_cert is None:
        for name in ("tls_key", "tls_ca", "tls_only", "tls_verify"):
            if getattr(config, name) != OPTIONS[name].default:
                raise InvalidArgument(f"{name} needs TLS, and that needs a certificate: give one with --tls-cert")
    if config.tls_verify != "none" and config.tls_ca is None:
        verify = f"tls_verify '{config.tls_verify}'"
        raise InvalidArgument(f"{verify} needs the authorities of the clients' certificates: give them with --tls-ca")
