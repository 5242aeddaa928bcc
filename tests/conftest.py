"""What every test has: fixtures live in tests/fixtures, one concern a file, and are named here."""

from __future__ import annotations

import os
import signal

# A shell has what it starts in the background ignore SIGINT, which is handed on to every process that is made here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A broker that a test starts as a process has no HTTP API unless the test asks: all of them would want one port.
os.environ.setdefault("HAREBELL_MANAGEMENT", "no")

pytest_plugins = [
    "tests.fixtures.builds",
    "tests.fixtures.long",
    "tests.fixtures.measured",
    "tests.fixtures.order",
    "tests.fixtures.postgres",
    "tests.fixtures.profiles",
    "tests.fixtures.rabbitmq",
    "tests.fixtures.spark",
    "tests.fixtures.workers",
]
