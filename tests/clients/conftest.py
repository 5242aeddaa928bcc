from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.wire import BrokerThread

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel


@pytest.fixture(scope="module", autouse=True)
def no_litter() -> Iterator[None]:
    """Sockets that a library left to the garbage collector do not trouble the tests of the next one."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def channel(broker: BrokerThread) -> Iterator[BlockingChannel]:
    """A channel of pika."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(broker.broker.url))
    yield connection.channel()
    if connection.is_open:
        connection.close()
