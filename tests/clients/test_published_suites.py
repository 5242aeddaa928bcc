"""The tests that py-amqp and kombu publish for a real RabbitMQ, as they are, against the broker.

Left out: what needs TLS, and py-amqp's cases that want basic.publish with immediate to be refused, which RabbitMQ does
and Harebell does not (docs/reference/differences.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.clients.published import sources
from tests.wire import BrokerThread

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "package, suite, choice, least",
    [
        ("amqp", "t/integration/test_rmq.py", "not tls and not False-True and not True-True", 7),
        ("kombu", "t/integration/test_py_amqp.py", "not timeout", 45),
    ],
)
def test_suite(broker: BrokerThread, package: str, suite: str, choice: str, least: int) -> None:
    environment = {**os.environ, "RABBITMQ_HOST": "127.0.0.1", "RABBITMQ_5672_TCP": str(broker.port)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", suite, "-k", choice]
    ran = subprocess.run(
        command, cwd=sources(package), env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= least, ran.stdout
