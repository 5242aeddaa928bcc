"""On PYTHONPATH of programs that say port 5672: they reach the port in HAREBELL_TEST_PORT, and stay as they are.

Some ask for an event loop before there is one, which Python makes for them until 3.13; from 3.14 on, this does.
"""

import asyncio
import os
import socket
import sys
from typing import Any

_port, _connect = int(os.environ["HAREBELL_TEST_PORT"]), socket.socket.connect


def _redirected(self: socket.socket, address: Any) -> None:
    return _connect(self, (address[0], _port, *address[2:]) if address[1] == 5672 else address)


socket.socket.connect = _redirected  # type: ignore[method-assign, assignment]

if sys.version_info >= (3, 14):
    asyncio.set_event_loop(asyncio.new_event_loop())
