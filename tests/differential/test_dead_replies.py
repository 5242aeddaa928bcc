"""Dead letters to an address for direct replies: those of expired messages, and those of full queues.

RabbitMQ 4.0 is left out: a queue of its crashes after such a letter, sooner or later.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harebell.protocol.v091 import methods as m
from tests.differential.conftest import Pair
from tests.differential.delivery import ASKS, dead_replies, drain
from tests.differential.driver import Step, Until, run
from tests.differential.scripts import SELECT, a, passive, put
from tests.fixtures.rabbitmq import OLDER

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "ttl": (dead_replies(x_message_ttl=1), put("1", headers={"a": 1}), Until("q", 0)),
    "expiration": (dead_replies(), put("1", expiration="1"), Until("q", 0)),
    "ttl 0": (SELECT, dead_replies(x_message_ttl=0), put("1"), a(1, passive())),
    "a message too many": (dead_replies(x_max_length=1), put("1"), put("2"), *drain(2)),
    "no place for a message": (SELECT, dead_replies(x_max_length=0), put("1"), a(1, passive())),
    "a refused publication": (
        SELECT,
        dead_replies(x_max_length=0, x_overflow="reject-publish-dlx"),
        put("1"),
        a(1, passive()),
    ),
}


@pytest.mark.parametrize("version", [OLDER], indirect=True)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dead_letter_is_a_reply(peers: Callable[..., Pair], script: str) -> None:
    steps = (*ASKS[:2], *SCRIPTS[script])
    ours, theirs = peers(steps)
    run(steps, ours, theirs)
    assert ours.trace == theirs.trace
    assert [line.split()[0] for line in ours.trace["b1"]] == [m.BasicConsumeOk.NAME, m.BasicDeliver.NAME]
