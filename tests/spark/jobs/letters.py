"""Making dead letters."""

from __future__ import annotations

import time

from tests.spark.conftest import Broker

PATIENCE = 60.0  # seconds


def reject(broker: Broker, work: str, dead: str, count: int) -> None:
    """Rejects so many messages of `work`; returns once they are in `dead`: a broker takes its time for that."""
    expected = broker.ready(dead) + count
    broker.reject_all(work, count)
    deadline = time.monotonic() + PATIENCE
    while broker.ready(dead) < expected:
        assert time.monotonic() < deadline, f"{broker.ready(dead)} of {expected} dead letters"
        time.sleep(0.02)
