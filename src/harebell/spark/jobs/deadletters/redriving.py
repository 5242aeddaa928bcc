"""Sends a selection of a queue's dead letters back to where they came from, each once; the others stay.

    plan = plan_of(selection(dead_letters(rows), reason="rejected"), Target())
    with Ledger(path) as ledger:
        done = redrive(url, "work.dead", plan, ledger)

Rules: the queue is gone through with a consumer that holds what it does not want and gives it back at the end. A
message that is wanted is noted in the ledger, published with mandatory and a confirm, noted as confirmed, and only then
acknowledged. So nothing is lost, whatever is killed; a run after a killed one does not publish again what was
confirmed; at most one window of messages, those that were begun and not confirmed, may arrive twice: they carry
`x-redriven-id`, and the second copy `x-redriven-again`. What is returned or refused stays in the queue.

A redriven message is as it was published, without its history (x-death and what belongs to it), with `x-redriven`
(how often), `x-redriven-from` (the queue) and `x-redriven-id` (16 bytes in hexadecimal). Its `user_id` becomes the
header `x-redriven-user-id`: a broker refuses one that is not the publisher's own. Its expiration does not come back:
the broker took it away, so that the letter does not die of it again. Times are seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.client.url import parse_url
from harebell.errors import AmqpError, ConnectionLost, InvalidArgument, NotFound
from harebell.protocol.v091 import FieldValue, Properties
from harebell.protocol.v091.splice import DELIVERY_COUNTS
from harebell.spark.file_names import file_name
from harebell.spark.jobs.deadletters.ledger import Ledger
from harebell.spark.jobs.message_identity import digest
from harebell.spark.jobs.natural_order import natural
from harebell.spark.jobs.peek import Held, give_back, no_progress
from harebell.user_folders import user_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from harebell.client.blocking import Channel, Connection
    from harebell.client.messages import Delivery

__all__ = [
    "Place", "Plan", "Redriven", "Target", "default_ledger", "plan_of", "redrive", "redriven_message", "selection",
]  # fmt: skip

WINDOW: Final = 500  # messages begun and not confirmed at most: what may arrive twice
ENDS: Final = [f"x-{end}-death-{what}" for end in ("first", "last") for what in ("reason", "queue", "exchange")]
HISTORY: Final = frozenset(("x-death", *ENDS, *DELIVERY_COUNTS))
LONGEST_NAME: Final = 200  # characters of a quoted name that are a file's name as they are; it may have 255 bytes

Place = tuple[str, str]
"""An exchange and a routing key."""


def no_step(name: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of redriven messages.

    to            "exchange": to the exchange and with the key of before the first death, so every queue bound there
                  gets them again; "queue": straight into the queue of the first death, and no other
    exchange, key instead of what `to` says, each where given
    """

    to: Literal["exchange", "queue"] = "exchange"
    exchange: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to redrive: digest -> (place, how many equal ones), and how many were left out because of too many tries
    (`spent`) or because nothing says where they came from (`homeless`)."""

    chosen: Mapping[bytes, tuple[Place, int]]
    spent: int = 0
    homeless: int = 0

    @property
    def messages(self) -> int:
        return sum(count for _, count in self.chosen.values())

    def places(self) -> dict[Place, int]:
        """How many messages go to each place, most first."""
        counts: Counter[Place] = Counter()
        for place, count in self.chosen.values():
            counts[place] += count
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], *map(natural, entry[0]))))


@dataclass(slots=True)
class Redriven:
    """The result of a run. Messages other than `confirmed`, `repeated` (part of these) and `already` are in the queue.

    confirmed  published, and gone from the queue
    repeated   of these: an earlier run was killed while it published them, so they may be there twice
    already    published by an earlier run; now gone from the queue too
    refused    text of the refusal -> messages; they stayed
    missing    chosen, and not found in the queue any more
    left       messages gone through that were not chosen; the run ends when all that were chosen are done
    """

    confirmed: int = 0
    repeated: int = 0
    already: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    left: int = field(default=0, compare=False)  # varies by chance: a run ends when all chosen messages are done


def selection(
    dead: DataFrame, *, where: str | None = None, reason: str | None = None, queue: str | None = None
) -> DataFrame:
    """The dead letters that died for this reason and in this queue (the same death), and that `where`, a condition of
    Spark SQL over the columns of `dead_letters`, is true for. Raises InvalidArgument when it is no condition."""
    from harebell.spark.jobs.conditions import filtered

    asked = [(name, value) for name, value in (("reason", reason), ("queue", queue)) if value is not None]
    if asked:
        same = " AND ".join(f"d.{name} = {_literal(value)}" for name, value in asked)
        dead = dead.where(f"exists(deaths, d -> {same})")
    return dead if where is None else filtered(dead, where)


def _literal(text: str) -> str:
    """A Spark SQL string literal. Backslashes are escapes in it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def plan_of(
    chosen: DataFrame, target: Target | None = None, *, limit: int | None = None, max_redrives: int = 3
) -> Plan:
    """The plan for these dead letters, which have the columns of a `peek`: oldest in the queue first, `limit` at most.

    Messages that were redriven `max_redrives` times already are left out: something is wrong with them, not with luck.
    """
    places: dict[bytes, tuple[Place, int]] = {}
    spent = homeless = taken = 0
    columns = chosen.select("digest", "first_exchange", "first_queue", "first_key", "redriven", "position")
    for row in columns.orderBy("position").toLocalIterator():
        place = destination(target or Target(), row.first_exchange, row.first_queue, row.first_key)
        if row.redriven >= max_redrives:
            spent += 1
        elif place is None:
            homeless += 1
        elif limit is None or taken < limit:
            mark = bytes(row.digest)
            places[mark] = place, places.get(mark, (place, 0))[1] + 1
            taken += 1
    return Plan(places, spent, homeless)


def destination(target: Target, exchange: str | None, queue: str | None, key: str | None) -> Place | None:
    """The destination of a message published to `exchange` with `key` that first died in `queue`; None: not known."""
    if target.to == "queue" or exchange == "":
        exchange, key = (None if queue is None else ""), queue
    if target.exchange is not None:
        exchange = target.exchange
    if target.key is not None:
        key = target.key
    return None if exchange is None or key is None else (exchange, key)


def default_ledger(url: str, queue: str) -> Path:
    """$XDG_STATE_HOME/harebell/redrive/<host>_<port>/<vhost>/<queue>.ledger"""
    where = parse_url(url)
    state = user_folder("state", "the ledger", "name a file with --state")
    names = (f"{where.host}_{where.port}", file_name(where.vhost), f"{file_name(queue)}.ledger")
    return state.joinpath("redrive", *names)


def redriven_message(delivery: Delivery, place: Place, queue: str, mark: bytes, *, again: bool) -> Message:
    """The message to publish, as the module says. CC goes along only to the exchange that the message came from."""
    old = delivery.properties
    headers: dict[str, FieldValue] = {name: value for name, value in (old.headers or {}).items() if name not in HISTORY}
    if place[0] == "" or place[0] != (old.headers or {}).get("x-first-death-exchange", place[0]):
        headers.pop("CC", None)
    tried = headers.get("x-redriven")
    headers["x-redriven"] = (tried if isinstance(tried, int) and not isinstance(tried, bool) else 0) + 1
    headers["x-redriven-from"] = queue
    headers["x-redriven-id"] = mark.hex()
    if again:
        headers["x-redriven-again"] = True
    if old.user_id is not None:
        headers["x-redriven-user-id"] = old.user_id
    kept = {name: getattr(old, name) for name in Properties.__slots__ if name not in ("headers", "user_id")}
    return Message(delivery.body, properties=Properties(headers=headers, **kept))


def redrive(
    url: str, queue: str, plan: Plan, ledger: Ledger, *, window: int = WINDOW,
    progress: Callable[[int], None] = no_progress, timeout: float = 30.0, step: Callable[[str], None] = no_step,
) -> Redriven:  # fmt: skip
    """Redrive the messages of the plan. Tests may crash in `step`, called with begun, published, confirmed, acked.

    Raises InvalidArgument, before anything is moved, when an exchange of the plan does not exist; the connection's
    error when it is lost: run it again then, with the same ledger.
    """
    with connect(url, timeout=timeout, recovery=None) as connection:
        check_exchanges(connection, plan)
        return _Run(connection, queue, plan, ledger, window, progress, timeout, step).run()


def check_exchanges(connection: Connection, plan: Plan) -> None:
    """Raises InvalidArgument when an exchange of the plan does not exist. To publish to it would close the channel."""
    counts: Counter[str] = Counter()
    for (exchange, _), count in plan.places().items():
        counts[exchange] += count
    for exchange in sorted(counts.keys() - {""}):
        try:
            connection.channel().exchange_declare(exchange, passive=True)
        except NotFound as error:
            raise InvalidArgument(
                f"{counts[exchange]:,} of the chosen messages would go to exchange '{exchange}', which does not exist: "
                "say where to (--to queue, --to-exchange), or choose others"
            ) from error


class _Run:
    """One pass over the queue."""

    def __init__(
        self, connection: Connection, queue: str, plan: Plan, ledger: Ledger, window: int,
        progress: Callable[[int], None], timeout: float, step: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._consuming: Channel = connection.channel()
        self._publishing: Channel = connection.channel()
        self._publishing.confirm_select()
        self._confirmations = self._publishing.confirmations()
        self._queue = queue
        self._wanted = {mark: (place, count) for mark, (place, count) in plan.chosen.items()}
        self._outstanding = plan.messages
        self._ledger = ledger
        self._window = window
        self._progress = progress
        self._step = step
        self._held = Held(self._consuming, queue, timeout)
        self._chunk: list[tuple[Delivery, bytes, Place, bool]] = []
        self.done = Redriven()

    def run(self) -> Redriven:
        done = self.done
        ready = self._consuming.message_count(self._queue)
        for batch in self._held.batches(ready):
            for delivery in batch:
                self._one(delivery)
            if not self._outstanding and not self._ledger.outstanding:
                break  # all chosen messages are found: the rest of the queue need not be read
        else:
            self._publish()
            self._ledger.finish()
        self._publish()
        done.missing = self._outstanding
        give_back(self._connection, self._consuming, self._queue, ready - done.confirmed - done.already)
        return done

    def _one(self, delivery: Delivery) -> None:
        mark = digest(delivery)
        if delivery.redelivered and self._ledger.was_redriven(
            mark, identified=delivery.properties.message_id is not None
        ):
            # Its plan counts on it too; whether it was chosen this time makes no difference.
            self._take(mark)
            self._ack([delivery])
            self._ledger.note("settled", [mark])
            self.done.already += 1
        elif (place := self._take(mark)) is not None:
            self._chunk.append((delivery, mark, place, self._ledger.was_begun(mark)))
            if len(self._chunk) == self._window:
                self._publish()
        else:
            self.done.left += 1

    def _take(self, mark: bytes) -> Place | None:
        """The destination of a message, which is counted off; None when it was not chosen."""
        place, count = self._wanted.get(mark, (None, 0))
        if place is None or not count:
            return None
        self._wanted[mark] = place, count - 1
        self._outstanding -= 1
        return place

    def _publish(self) -> None:
        """Note the chunk as begun, publish it, await confirms, note these, acknowledge, and note that too."""
        chunk, self._chunk = self._chunk, []
        if not chunk:
            return
        self._ledger.note("begun", (mark for _, mark, _, _ in chunk))
        self._step("begun")
        refused = self._confirmed(
            Publication(redriven_message(delivery, place, self._queue, mark, again=again), *place, mandatory=True)
            for delivery, mark, place, again in chunk
        )
        self._step("published")
        through = [entry for position, entry in enumerate(chunk) if position not in refused]
        self._ledger.note("confirmed", (mark for _, mark, _, _ in through))
        self._ledger.note("failed", (chunk[position][1] for position in refused))
        self._step("confirmed")
        self._ack([delivery for delivery, *_ in through])
        self._step("acked")
        self._consuming.message_count(
            self._queue
        )  # the answer means that the broker has processed the acknowledgements before it
        self._ledger.note("settled", (mark for _, mark, _, _ in through))
        self.done.confirmed += len(through)
        self.done.repeated += sum(again for *_, again in through)
        for text in refused.values():
            self.done.refused[text] = self.done.refused.get(text, 0) + 1
        self._progress(self.done.confirmed)

    def _confirmed(self, publications: Iterable[Publication]) -> dict[int, str]:
        """Publish all and wait for every confirm or return; returns position -> reason of those not confirmed."""
        positions: dict[int, int] = {}
        places: list[Place] = []
        for position, each in enumerate(publications):
            tag = self._publishing.send(each.message, each.exchange, each.routing_key, mandatory=bool(each.mandatory))
            positions[tag] = position
            places.append((each.exchange, each.routing_key))
        refused = {}
        while positions:
            answer = next(self._confirmations, None)
            if answer is not None and isinstance(answer.error, AmqpError):
                raise answer.error
            if answer is None or answer.orphaned:
                raise ConnectionLost("the connection was lost while messages were published: run it again")
            position = positions.pop(answer.publish_tag)
            exchange, key = places[position]
            if answer.returned is not None:
                refused[position] = f"no queue for key '{key}' of exchange '{exchange}'"
            elif not answer.acked:
                refused[position] = f"refused by the broker (key '{key}' of exchange '{exchange}')"
        return refused

    def _ack(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._consuming.ack(delivery.delivery_tag)
            self._held.settled(delivery)
