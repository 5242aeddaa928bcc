"""Dead letters for threads: why each is there, and that its delivery can be acknowledged from any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell.client.blocking import Connection


@pytest.fixture
def dead(blocking: Connection, name: str) -> Iterator[str]:
    """A dead-letter queue with two messages that were rejected, and one that was put there."""
    with blocking.channel() as channel:
        channel.queue_declare(f"{name}.dead")
        dead_lettering = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
        channel.queue_declare(name, arguments=dead_lettering)
        channel.confirm_select()
        for n in range(2):
            channel.publish(b"%d" % n, "", name)
        for _ in range(2):
            delivery = channel.get(name)
            assert delivery is not None
            delivery.reject()
        while channel.message_count(f"{name}.dead") < 2:
            pass
        channel.publish(b"2", "", f"{name}.dead")
    yield f"{name}.dead"
    with blocking.channel() as channel:
        channel.queue_delete(name)
        channel.queue_delete(f"{name}.dead")


def test_why_each_is_there(blocking: Connection, dead: str, name: str) -> None:
    with blocking.dead_letters(dead, prefetch=5) as letters:
        found = [next(letters) for _ in range(3)]
        assert [letter.delivery.body for letter in found] == [b"0", b"1", b"2"]
        assert [letter.queue for letter in found] == [name, name, found[2].queue]
        found[0].delivery.ack()
        found[1].delivery.ack()
    with blocking.channel() as channel:
        assert channel.message_count(dead) == 1  # the last one went back
    letters = blocking.dead_letters(dead)
    next(letters).delivery.ack()
    letters.close()
    assert list(letters) == []


def test_an_interrupted_block_gives_back(blocking: Connection, dead: str) -> None:
    with pytest.raises(KeyboardInterrupt), blocking.dead_letters(dead) as letters:
        next(letters)
        raise KeyboardInterrupt
    with blocking.channel() as channel:
        while channel.message_count(dead) < 3:
            pass
