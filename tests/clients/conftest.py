from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire import BrokerThread


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker
