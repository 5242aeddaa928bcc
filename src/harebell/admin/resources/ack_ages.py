"""Consumers with the ages of their unacknowledged deliveries, the oldest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from harebell.admin.answers import Answer
from harebell.admin.history.ack_ages import NOTHING, Ages
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.shapes.ack_ages import ack_ages
from harebell.broker.clients import Subscription
from harebell.routing.steps import Steps

__all__ = ["list_all", "list_of_vhost"]

STEP: Final = 64  # channels in one step, unless they have unacknowledged deliveries


class _Row(NamedTuple):
    consumer: Subscription
    ages: Ages


QUICK: Final[Mapping[str, Callable[[_Row], Any]]] = {
    "consumer_tag": lambda it: it.consumer.tag,
    "prefetch_count": lambda it: it.consumer.prefetch,
    "messages_unacknowledged": lambda it: it.ages.count,
    "oldest_age": lambda it: it.ages.oldest,
    "median_age": lambda it: it.ages.percentile(50),
    "p90_age": lambda it: it.ages.percentile(90),
    "p99_age": lambda it: it.ages.percentile(99),
}


def list_all(request: Request) -> Steps[Answer]:
    return (yield from _listed(request, {vhost.name for vhost in request.user.seen()}))


def list_of_vhost(request: Request) -> Steps[Answer]:
    return (yield from _listed(request, {request.vhost().name}))


def _listed(request: Request, vhosts: set[str]) -> Steps[Answer]:
    """The consumers in these virtual hosts. As in the list of consumers, those of other users are among them."""
    context = request.context
    listing: Listing[_Row] = Listing(
        shape=lambda it: ack_ages(context, it.consumer, it.ages),
        order=lambda it: (
            -(-1 if it.ages.oldest is None else it.ages.oldest),
            it.consumer.channel.connection.vhost.name,
            it.consumer.queue.name,
            it.consumer.tag,
        ),
        name=lambda it: it.consumer.tag,
        quick=QUICK,
    )
    return (yield from listing.answer(request, (yield from _rows(request, vhosts))))


def _rows(request: Request, vhosts: set[str]) -> Steps[list[_Row]]:
    all_ages, found, looked_at = request.context.sampler.ages, list[_Row](), 0
    for connection in tuple(request.node.connections):
        if connection.vhost.name not in vhosts:
            continue
        for channel in tuple(connection.channels.values()):
            if channel.consumers:
                ages = yield from all_ages.of(channel)
                found += [_Row(each, ages.get(each, NOTHING)) for each in channel.consumers.values()]
            looked_at += 1
            if not looked_at % STEP:
                yield
    return found
