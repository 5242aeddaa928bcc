"""The options of commands that use the HTTP API: which broker, and how long to wait for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.address import parse_address
from harebell.cli.http_api.client import HttpApi
from harebell.cli.validators import Seconds

__all__ = ["CaFile", "HttpTarget", "connect_to"]

DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
VARIABLES: Final = ("HAREBELL_HTTP_URL", "HAREBELL_URL")

CaFile = Annotated[
    Path | None, Parameter(help="For TLS: a file of certificates to trust. [default: `cacertfile` of the URL]")
]


@Parameter(name="*")
@dataclass(frozen=True)
class HttpTarget:
    """The broker whose HTTP API is used."""

    url: Annotated[
        str | None,
        Parameter(
            help="The HTTP API, with a login; an amqp URL means port 15672 of its host. "
            f"[env: {' or '.join(VARIABLES)}; default: {DEFAULT_URL}]"
        ),
    ] = None
    timeout: Annotated[float, Parameter(help="Seconds for the broker to answer.", validator=Seconds())] = 10.0
    ca_file: CaFile = None


def connect_to(target: HttpTarget | None) -> HttpApi:
    """The HTTP API that the options name, else that of the environment. Close it, or use it in a `with`."""
    target = target or HttpTarget()
    url = target.url or next((os.environ[name] for name in VARIABLES if os.environ.get(name)), DEFAULT_URL)
    return HttpApi(parse_address(url), timeout=target.timeout, ca_file=target.ca_file)
