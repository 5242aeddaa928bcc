from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.wire import BrokerThread


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
