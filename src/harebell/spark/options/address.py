"""Where the broker is and how to log in: what the options url, urlFile, urlEnv, passwordFile and the TLS files say.

Rules: an Address travels in plans and task closures, so what it shows (`str`, `repr`) has no password, and a secret
that was given by file or environment is not in it at all: it is read where and when a connection is made, on the driver
and on each executor. A file that changes (a rotated password) counts from the next connection on. Paths and variables
are those of the machine that connects. This module opens no connection; of the client it knows the URL only.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from harebell.client.url import ConnectionParameters, parse_url
from harebell.errors import InvalidArgument

__all__ = ["DEFAULT_URL", "HIDDEN_NAMES", "OPTIONS", "Address", "address"]

DEFAULT_URL: Final = "amqp://guest:guest@localhost:5672/"
OPTIONS: Final = ("url", "urlFile", "urlEnv", "passwordFile", "cacertFile", "certFile", "keyFile")

# A comma inside a URL (a password may have one) is followed by no scheme.
_BETWEEN: Final = re.compile(r"\s*,\s*(?=amqps?://)")
_SCHEMES: Final = ("amqp://", "amqps://")
HIDDEN_NAMES: Final = re.compile("(?i)secret|password|token|access[.]?key|credential")
"""The default of Spark's spark.redaction.regex: what it hides of settings on its web page and in its event log."""


@dataclass(frozen=True, slots=True)
class Address:
    """One broker, or several hosts of one, tried in turn. One of `url`, `url_file` and `url_env` is set."""

    url: str | None = field(default=None, repr=False)  # with commas: several
    url_file: str | None = None
    url_env: str | None = None
    password_file: str | None = None
    cacert_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __str__(self) -> str:
        return ", ".join(parameters.peer for parameters in self.parameters())

    @property
    def vhost(self) -> str:
        """The virtual host that the URL names ("/" when it names none)."""
        return self.parameters()[0].vhost

    def parameters(self, timeout: float | None = None) -> list[ConnectionParameters]:
        """What the client needs, one for each host, secrets included: read now, not to be kept or shown.

        Raises InvalidArgument when a file or variable is missing on this machine, a URL cannot be understood, the
        hosts differ in their virtual host, a password is given twice or a TLS file for a URL without TLS.
        """
        hosts = self._hosts(timeout)
        if self.password_file is not None:
            password = _read(self.password_file, "passwordFile")
            hosts = [replace(host, password=password) for host in hosts]
        return hosts

    def _hosts(self, timeout: float | None = None) -> list[ConnectionParameters]:
        """`parameters` without the password of `password_file`."""
        hosts = [parse_url(url, timeout=timeout) for url in _BETWEEN.split(self._text())]
        if len({host.vhost for host in hosts}) > 1:
            names = ", ".join(sorted({host.vhost for host in hosts}))
            raise InvalidArgument(f"the hosts of one broker have one virtual host, but the URLs name {names}")
        files = {"cacertFile": self.cacert_file, "certFile": self.cert_file, "keyFile": self.key_file}
        for name, value in files.items():
            if value is not None and not all(host.tls for host in hosts):
                raise InvalidArgument(f"option '{name}' is for TLS: use amqps:// with it")
        return [
            replace(
                host,
                cacertfile=self.cacert_file or host.cacertfile,
                certfile=self.cert_file or host.certfile,
                keyfile=self.key_file or host.keyfile,
            )
            for host in hosts
        ]

    def _text(self) -> str:
        if self.url_file is not None:
            text, source = _read(self.url_file, "urlFile"), f"the file of option 'urlFile' ({self.url_file})"
        elif self.url_env is not None:
            text, source = os.environ.get(self.url_env, ""), f"the variable of option 'urlEnv' ({self.url_env})"
            if not text:
                raise InvalidArgument(
                    f"the environment variable {self.url_env} of option 'urlEnv' is not set on {platform.node()}; "
                    f"for executors {_how_to_set(self.url_env)}"
                )
        else:
            text, source = self.url or DEFAULT_URL, "option 'url'"
        text = text.strip()
        if any(not url.startswith(_SCHEMES) for url in _BETWEEN.split(text)):
            raise InvalidArgument(f"{source} must start with amqp:// or amqps://, for example {DEFAULT_URL}")
        if self.password_file is not None and any(_has_password(url) for url in _BETWEEN.split(text)):
            raise InvalidArgument("give the password once: in the URL or by option 'passwordFile'")
        return text


def address(given: Mapping[str, str]) -> Address:
    """The address that checked options (lower-cased names) describe; $HAREBELL_URL and then the default when none does.

    Raises InvalidArgument. What is named by file or variable is not read here: it may exist on the executors only.
    """
    named = [name for name in ("url", "urlFile", "urlEnv") if name.lower() in given]
    if len(named) > 1:
        raise InvalidArgument(f"give the broker once: as option {' or '.join(named)}")
    url = None
    if not named or named == ["url"]:
        url = given.get("url") or os.environ.get("HAREBELL_URL") or DEFAULT_URL
    found = Address(
        url=url,
        url_file=given.get("urlfile"),
        url_env=given.get("urlenv"),
        password_file=given.get("passwordfile"),
        cacert_file=given.get("cacertfile"),
        cert_file=given.get("certfile"),
        key_file=given.get("keyfile"),
    )
    if url is not None:
        found._hosts()  # a mistake in the text shows here, where it was written
    if found.key_file is not None and found.cert_file is None:
        raise InvalidArgument("option 'keyFile' is the key of a certificate: give 'certFile' too")
    return found


def _how_to_set(variable: str) -> str:
    """How executors get the variable so that Spark's web page and event log do not show it."""
    if HIDDEN_NAMES.search(variable):
        return f"set spark.executorEnv.{variable} or the variable of their machines"
    return (
        "set the variable of their machines, or call it such as "
        f"{variable}_SECRET and set spark.executorEnv.{variable}_SECRET: Spark hides settings with 'secret' in the name"
    )


def _has_password(url: str) -> bool:
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    return bool(at) and ":" in user


def _read(path: str, option: str) -> str:
    try:
        text = Path(path).read_text().strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        text = f"the file {path} of option '{option}' cannot be read on {platform.node()}: {why}"
        raise InvalidArgument(text) from error
    if not text:
        raise InvalidArgument(f"the file {path} of option '{option}' is empty on {platform.node()}")
    return text
