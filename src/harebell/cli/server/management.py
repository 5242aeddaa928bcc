"""The HTTP API that `harebell serve` starts beside the broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from harebell.broker import Broker
from harebell.broker.net.listening import ListenError
from harebell.cli.server.listening import Unusable, explain_listening
from harebell.config import Settings

if TYPE_CHECKING:
    from harebell.admin import Management

__all__ = ["start_management"]

log = logging.getLogger("harebell.serve")

OPTIONS: Final = ("management", "management_host", "management_port", "management_tls_port")


async def start_management(settings: Settings, broker: Broker) -> Management | None:
    """The API of a started broker; None when it is switched off.

    Where no option asks for it, it is left out when its packages are not installed, or another program has its port,
    and the log says so. Where one does, these raise Unusable.
    """
    config = settings.config
    if not config.management:
        return None
    asked = any(settings.sources[name] != "default" for name in OPTIONS)
    try:
        from harebell.admin import Management
    except ImportError as error:
        text = f"no HTTP API: {error.name} is not installed: pip install 'harebell[admin]', or give --no-management"
        if asked:
            raise Unusable(text) from error
        log.warning("%s", text)
        return None
    management = Management(
        broker,
        config.management_host or config.host,
        None if config.tls_only else config.management_port,
        tls_port=None if broker.tls is None else config.management_tls_port,
    )
    try:
        await management.start()
    except ListenError as error:
        option = "management-tls-port" if error.port == config.management_tls_port else "management-port"
        own = {"--port": broker.port, "--tls-port": None if broker.tls is None else broker.tls_port}
        text = explain_listening(error, f"--{option}", {flag: port for flag, port in own.items() if port is not None})
        if asked:
            raise Unusable(text) from error
        log.warning("no HTTP API: %s; --no-management does without it", text)
        return None
    log.info("web console and HTTP API at %s", management.url)
    return management
