"""Which numbers a prefetch may be, wherever one is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import harebell
from harebell import errors

WRONG = [65536, -1, 1.5, "3", True, [5], float("inf")]
USES: dict[str, Callable[[harebell.Connection, harebell.Channel, Any], Any]] = {
    "channel.consume": lambda connection, channel, given: channel.consume("q", prefetch=given),
    "qos": lambda connection, channel, given: channel.qos(prefetch_count=given),
    "deliveries": lambda connection, channel, given: connection.deliveries("q", prefetch=given),
    "consume": lambda connection, channel, given: connection.consume("q", print, prefetch=given),
    "serve": lambda connection, channel, given: connection.serve("q", print, prefetch=given),
    "dead_letters": lambda connection, channel, given: connection.dead_letters("q", prefetch=given),
    "stream": lambda connection, channel, given: connection.stream("q", prefetch=given),
}


@pytest.mark.parametrize("given", WRONG, ids=repr)
@pytest.mark.parametrize("use", USES)
async def test_what_is_no_prefetch_is_refused(harebell_url: str, use: str, given: Any) -> None:
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        with pytest.raises(errors.InvalidArgument, match=r"prefetch.* is .*: a whole number from [01] to 65535"):
            started = USES[use](connection, channel, given)
            if use == "qos":
                await started
