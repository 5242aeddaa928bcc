"""On PYTHONPATH of programs that say port 5672: they reach the port in HAREBELL_TEST_PORT, and stay as they are."""

import os
import socket

_port, _connect = int(os.environ["HAREBELL_TEST_PORT"]), socket.socket.connect


def _redirected(self, address):
    return _connect(self, (address[0], _port, *address[2:]) if address[1] == 5672 else address)


socket.socket.connect = _redirected
