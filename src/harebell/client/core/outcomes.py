"""What a publication that was not confirmed is told: its error, and whose fault the end of its channel was.

A broker that closes a channel because of a publication does not say which one: its answer names the method and, in its
text, the exchange. Of the publications without an answer those that fit are suspects. A single suspect was refused by
its own fault. Where there are several, one of them was refused, those before it were processed and those after it were
not, and nothing tells them apart; so each of them, like every other one without an answer, may or may not have arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.messages import Returned
from harebell.protocol.v091 import methods as m

__all__ = [
    "Failures", "address_of", "blames_publishing", "cut_by", "fits", "late", "may_be_about", "nacked",
    "names_an_exchange", "orphaned", "suspects", "unroutable",
]  # fmt: skip

_EXCHANGE: Final = re.compile(r"exchange '(.*)' in vhost '", re.DOTALL)
_TOPIC: Final = re.compile(r"topic '(.*)' in exchange '", re.DOTALL)
_NO_CONSUMERS: Final = errors.NoConsumers.reply_code


# -- errors ------------------------------------------------------------------------------------------------------------


def address_of(exchange: str, routing_key: str) -> str:
    """An address as error texts name it."""
    return f"exchange {exchange!r} with routing key {routing_key!r}"


def nacked(publish_tag: int, address: str) -> errors.Nacked:
    return errors.Nacked(f"the broker refused publication {publish_tag} to {address}", (publish_tag,))


def unroutable(publish_tag: int, address: str, returned: Returned) -> errors.Unroutable:
    answer = f"{returned.reply_code} {returned.reply_text}"
    if returned.reply_code == _NO_CONSUMERS:
        text = f"publication {publish_tag} to {address} met no consumer that was ready ({answer})"
    else:
        text = (
            f"publication {publish_tag} to {address} reached no queue ({answer}): bind a queue to it, or publish "
            "without mandatory"
        )
    return errors.Unroutable(text, returned)


def orphaned(publish_tag: int, address: str, reason: errors.HarebellError) -> errors.PublishOrphaned:
    """The error of a publication that was written and gets no answer, because of this."""
    error = errors.PublishOrphaned(
        f"{cut_by(reason)} before the answer to publication {publish_tag} to {address}: it may or may not have arrived "
        f"({reason})",
        (publish_tag,),
    )
    error.__cause__ = copy_of(reason)
    return error


def late(publish_tag: int, why: str) -> errors.ConfirmTimeout:
    """The error of a publication that was written and has no answer when its caller's time is over."""
    return errors.ConfirmTimeout(f"{why}; it may or may not arrive", (publish_tag,))


def cut_by(reason: errors.HarebellError) -> str:
    """What has ended a channel, as the beginning of a sentence."""
    if isinstance(reason, errors.ConnectionLost | errors.ConnectionError | errors.RecoveryGaveUp):
        return "the connection was lost"
    if isinstance(reason, errors.ChannelError | errors.ChannelClosed):
        return "the channel was closed"
    return "an earlier attempt was cut off"


# -- whose fault -------------------------------------------------------------------------------------------------------


def blames_publishing(reason: errors.HarebellError) -> bool:
    """Whether the broker gave a publication as its reason."""
    return isinstance(reason, errors.AmqpError) and (reason.class_id, reason.method_id) == (
        m.BasicPublish.CLASS_ID,
        m.BasicPublish.METHOD_ID,
    )


def may_be_about(reason: errors.HarebellError, exchange: str, routing_key: str) -> bool:
    """Whether the broker may have ended the channel or the connection because of a publication to this address."""
    if isinstance(reason, errors.ConnectionError):  # a broken rule; its method is not always said
        return not isinstance(reason, errors.ConnectionForced)
    return blames_publishing(reason) and fits(reason, exchange, routing_key)


def fits(reason: errors.HarebellError, exchange: str, routing_key: str) -> bool:
    """Whether a publication to this address may be the one that is blamed. A text that names no address fits all."""
    text = reason.detail if isinstance(reason, errors.AmqpError) else ""
    named = _EXCHANGE.search(text)
    if named is not None and named[1] != exchange:
        return False
    topic = _TOPIC.search(text)
    return topic is None or topic[1] == routing_key


def names_an_exchange(reason: errors.HarebellError) -> bool:
    return isinstance(reason, errors.AmqpError) and _EXCHANGE.search(reason.detail) is not None


def suspects(
    reason: errors.HarebellError, publications: Iterable[int], runs: Iterable[tuple[int, bytes]]
) -> Iterator[int]:
    """Those of the publications that may be blamed.

    publications  their numbers, ascending
    runs          (first number, method frame), ascending: each is the frame of all numbers up to the next run
    """
    following = iter(runs)
    after = next(following, None)
    may_be = False
    for number in publications:
        while after is not None and after[0] <= number:
            method = m.BasicPublish.decode(after[1][7:-1])
            may_be = fits(reason, method.exchange, method.routing_key)
            after = next(following, None)
        if may_be:
            yield number


# -- many at once ------------------------------------------------------------------------------------------------------


class Failures(Mapping[int, errors.HarebellError]):
    """The errors of publications that were published by one call, by position; each is made when it is asked for.

    nacked, orphaned, late  positions; `late` are those that their caller no longer waits for
    returned          what came back, by position; None where there were too many to keep
    refused           the broker's error, by position
    reason            what has left those without an answer
    """

    def __init__(
        self,
        nacked: Iterable[int] = (),
        orphaned: Iterable[int] = (),
        late: Iterable[int] = (),
        returned: Mapping[int, Returned | None] | None = None,
        refused: Mapping[int, errors.HarebellError] | None = None,
        reason: errors.HarebellError | None = None,
    ) -> None:
        self.nacked = frozenset(nacked)
        self.orphaned = frozenset(orphaned)
        self.late = frozenset(late)
        self.returned = dict(returned or {})
        self.refused = dict(refused or {})
        self.reason = reason

    def __getitem__(self, position: int) -> errors.HarebellError:
        if position in self.refused:
            return copy_of(self.refused[position])
        if position in self.late:
            return late(position, f"no answer to publication {position} came in time")
        if position in self.orphaned:
            what = "it was cut" if self.reason is None else cut_by(self.reason)
            text = f"{what} before the answer to publication {position}: it may or may not have arrived"
            error = errors.PublishOrphaned(text)
            error.__cause__ = self.reason
            return error
        if position in self.nacked:
            return errors.Nacked(f"the broker refused publication {position}")
        returned = self.returned[position]
        answer = "" if returned is None else f" ({returned.reply_code} {returned.reply_text})"
        return errors.Unroutable(f"publication {position} came back{answer}", returned)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self.nacked, *self.orphaned, *self.late, *self.returned, *self.refused}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return (
            f"Failures({len(self.nacked)} nacked, {len(self.orphaned) + len(self.late)} orphaned, "
            f"{len(self.returned)} returned, "
            f"{len(self.refused)} refused)"
        )
