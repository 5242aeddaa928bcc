"""Encodes the rows of a DataFrame for the wire: bodies, properties, addresses, in parts of about a megabyte.

Rules: columns are turned one by one, never rows; a column that is missing, and an option for it, cost nothing per row.
The options exchange and routingKey are for all rows, whatever their columns say; an option for a property fills in
where the column is null. What cannot be a message is refused with the name of its column, by `check_columns` before the
job starts where the type says so, else when the row comes. Rows that were read (`copies`) say where they were published
before, and do not go there again unless that is asked for. Properties are encoded for AMQP 0-9-1, or, for `sessions`,
as headers of AMQP 0-10. This module opens no connection.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from harebell.errors import InvalidArgument, LocalProtocolError
from harebell.protocol.v091.bulk import encode_property_columns
from harebell.protocol.v091.fields import write_table
from harebell.spark.options import SinkOptions
from harebell.spark.schema import HEADERS_MAP, PROPERTY_COLUMNS, TIMESTAMP_NUMBER, headers_from_json, unsigned
from harebell.spark.sink.copies import OF_A_READ, CopyGuard, check_copy, is_copy, without_strangers

if TYPE_CHECKING:
    import pyarrow as pa

    from harebell.protocol.v091 import Table

__all__ = ["RowEncoder", "Part", "check_columns"]

T = TypeVar("T")

PERSISTENT: Final = 2
TRANSIENT_MODE: Final = 1
PART_ROWS: Final = 1000  # encoded and written at once
PART_BYTES: Final = 1 << 20  # of rows on average; a row of more is a part of its own
PART_SECONDS: Final = 0.2  # of a rate limit: it is kept part by part
BODIES: Final = ("body", "value")
ALTERNATE: Final = "alternate_exchange"
COPIES: Final = ("CC", "BCC")  # headers with further routing keys
DEDUPLICATION: Final = "x-deduplication-header"  # the name that Harebell and RabbitMQ's plugin go by
KNOWN: Final = (*BODIES, "exchange", "routing_key", ALTERNATE, *PROPERTY_COLUMNS, TIMESTAMP_NUMBER, HEADERS_MAP)
_RENAMED: Final = {"value": "body", HEADERS_MAP: "headers"}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidArgument when the DataFrame's columns cannot become messages; the text names what can."""
    names = schema.fieldNames()
    for field in schema.fields:
        name, kind = field.name, field.dataType
        if name in OF_A_READ:
            continue
        if name not in KNOWN:
            raise InvalidArgument(f"format 'amqp' cannot write column '{name}'; it writes: {', '.join(KNOWN)}")
        if not _fits(name, kind):
            raise InvalidArgument(f"column '{name}' cannot be {kind.simpleString()} in format 'amqp'")
    if "headers" in names and HEADERS_MAP in names:
        raise InvalidArgument(f"a message's headers come from one column: 'headers' or '{HEADERS_MAP}', not both")
    if sum(name in names for name in BODIES) != 1:
        raise InvalidArgument("a message needs exactly one of the columns 'body' and 'value' (binary or string)")
    for name, option, spelled in (
        ("exchange", options.exchange, "exchange"),
        ("routing_key", options.routing_key, "routingKey"),
    ):
        if name not in names and option is None:
            raise InvalidArgument(f"where to publish? give option '{spelled}' or a column '{name}'")
    check_copy(names, options)
    if options.ids == "column" and "message_id" not in names:
        raise InvalidArgument("option 'ids' is 'column' but there is no column 'message_id'")
    if "alternate" in (options.on_unroutable, options.on_nack):
        if ALTERNATE not in names and options.alternate_exchange is None:
            raise InvalidArgument(f"alternate: where to? give option 'alternateExchange' or a column '{ALTERNATE}'")
    elif ALTERNATE in names:
        raise InvalidArgument(f"column '{ALTERNATE}' needs onUnroutable=alternate or onNack=alternate")
    if "headers" in options.properties:
        table = headers_from_json(str(options.properties["headers"]))
        if options.exactly_once == "sessions":
            _check_copies(table)


def _fits(name: str, kind: DataType) -> bool:
    if name in BODIES:
        return isinstance(kind, BinaryType | StringType)
    if name in ("headers", HEADERS_MAP) and isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if name == HEADERS_MAP:
        return False
    if name in ("delivery_mode", "priority"):
        return isinstance(kind, ByteType | ShortType | IntegerType | LongType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if name == TIMESTAMP_NUMBER:
        return isinstance(kind, LongType)
    return isinstance(kind, StringType)


class Part:
    """Messages that are published together, each identified by its place.

    bodies, properties   of each; properties are flags and values as the wire has them, or headers of AMQP 0-10
    exchange, routing_key  one for all, or one for each
    alternate            where those go that are not wanted there; None where there is no such place
    diverted             they are on their way to that place
    since                when the broker refused them first, on the monotonic clock; None when it has not
    """

    __slots__ = ("alternate", "bodies", "diverted", "exchange", "properties", "routing_key", "since")

    def __init__(
        self,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        exchange: str | Sequence[str],
        routing_key: str | Sequence[str],
        alternate: str | Sequence[str | None] | None = None,
        diverted: bool = False,
        since: float | None = None,
    ) -> None:
        self.bodies = bodies
        self.properties = properties
        self.exchange = exchange
        self.routing_key = routing_key
        self.alternate = alternate
        self.diverted = diverted
        self.since = since

    def __len__(self) -> int:
        return len(self.bodies)

    def only(self, places: Sequence[int]) -> Part:
        """Those at these places, in this order."""
        return Part(
            _at(self.bodies, places),
            _at(self.properties, places),
            self.exchange if isinstance(self.exchange, str) else _at(self.exchange, places),
            self.routing_key if isinstance(self.routing_key, str) else _at(self.routing_key, places),
            self.alternate if isinstance(self.alternate, str | None) else _at(self.alternate, places),
            self.diverted,
            self.since,
        )

    @classmethod
    def of(cls, chosen: Sequence[tuple[Part, int]]) -> Part:
        """Messages of several parts, each given by its part and its place there, in this order."""
        if all(part is chosen[0][0] for part, _ in chosen):
            return chosen[0][0].only([place for _, place in chosen])
        addresses = [part.address(place) for part, place in chosen]
        return cls(
            [part.bodies[place] for part, place in chosen],
            [part.properties[place] for part, place in chosen],
            [exchange for exchange, _ in addresses],
            [key for _, key in addresses],
            [part.alternate if isinstance(part.alternate, str | None) else part.alternate[at] for part, at in chosen],
        )

    def divert(self) -> Part:
        """The same messages, to their alternate exchanges. Raises InvalidArgument when one has none."""
        places = [self.alternate] if isinstance(self.alternate, str | None) else self.alternate
        if None in places:
            raise InvalidArgument(
                f"column '{ALTERNATE}' is null for a message that needs it, and there is no option 'alternateExchange'"
            )
        exchange: str | Sequence[str] = self.alternate  # type: ignore[assignment]  # no None is left in it
        return Part(self.bodies, self.properties, exchange, self.routing_key, diverted=True)

    def address(self, place: int) -> tuple[str, str]:
        """(exchange, routing key) of one."""
        exchange, key = self.exchange, self.routing_key
        return exchange if isinstance(exchange, str) else exchange[place], key if isinstance(key, str) else key[place]


def _at(values: Sequence[T], places: Sequence[int]) -> list[T]:
    return [values[place] for place in places]


class RowEncoder:
    """Turns record batches of one schema into parts. Made once per task.

    now       gives seconds since 1970, for timestamp=now
    sessions  for sessions of AMQP 0-10
    """

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        now: Callable[[], float] = time.time,
        *,
        sessions: bool = False,
    ) -> None:
        self._options = options
        self._now = now
        self._sessions = sessions
        self._names = [field.name for field in schema.fields]
        most = PART_ROWS if options.max_rate is None else min(PART_ROWS, int(options.max_rate * PART_SECONDS))
        self._rows = max(1, min(most, options.window // 2))
        constants: dict[str, Any] = dict(options.properties)
        constants["delivery_mode"] = PERSISTENT if options.persistent else TRANSIENT_MODE
        if "headers" in constants:
            constants["headers"] = headers_from_json(constants["headers"])
        self._constants = constants
        self._guard = CopyGuard(self._names, options) if is_copy(self._names) else None
        self._without_cc = self._guard is not None and options.routing_key is not None
        if sessions and "headers" in constants:
            _check_copies(constants["headers"])
        # What many messages share is decoded once. Where the id goes into the headers too, no two tables are the same.
        self._headers: Callable[[str], object] = self._decoded
        if sessions:
            self._headers = functools.lru_cache(1000)(self._decoded)
        elif not options.dedup:
            self._headers = functools.lru_cache(1000)(self._encoded)

    def _table(self, table: Table) -> Table:
        """The headers of a row as they are published. Raises InvalidArgument for what a session does not do."""
        if self._without_cc:  # with another routing key, the original's other keys mean nothing any more
            table = {name: value for name, value in table.items() if name != "CC"}
        if self._sessions:
            _check_copies(table)
        return table

    def _decoded(self, text: str) -> Table:
        return self._table(headers_from_json(text))

    def _encoded(self, text: str) -> bytes:
        """The header table as it travels. Raises InvalidArgument."""
        try:
            return write_table(self._decoded(text))
        except LocalProtocolError as error:
            raise InvalidArgument(f"a row is no message: {error}") from error

    def parts(self, batch: pa.RecordBatch, prefix: str, row: int) -> Iterator[Part]:
        """The batch's messages; generated ids are `<prefix>/<number>`, the first row's being `row`.

        Raises InvalidArgument for a row that is no message.
        """
        for piece in self.slices(batch):
            yield self.part(piece, prefix, range(row, row + piece.num_rows))
            row += piece.num_rows

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in pieces of the size of a part."""
        mean = batch.nbytes // batch.num_rows if batch.num_rows else 0
        rows = max(1, min(self._rows, PART_BYTES // max(mean, 1)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def part(self, batch: pa.RecordBatch, prefix: str, numbers: Sequence[int]) -> Part:
        """The batch's messages as one part; generated ids are `<prefix>/<number>`. Raises as `parts`."""
        options, rows = self._options, batch.num_rows
        if self._guard is not None:
            self._guard.check(batch)
        columns: dict[str, list[Any]] = {}
        for name, column in zip(self._names, batch.columns, strict=True):
            if name not in OF_A_READ:
                columns[_RENAMED.get(name, name)] = _values(name, column, self._headers, self._table)
        far = columns.pop(TIMESTAMP_NUMBER, [])
        if far.count(None) < len(far):
            near = columns.get("timestamp", [None] * rows)
            columns["timestamp"] = [
                unsigned(number) if at is None and number is not None else at
                for at, number in zip(near, far, strict=True)
            ]
        bodies = columns.pop("body")
        if None in bodies:
            raise InvalidArgument("column 'body' is null in a row; a message without content is an empty body")
        exchange = _address(columns.pop("exchange", None), options.exchange, "exchange")
        key = _address(columns.pop("routing_key", None), options.routing_key, "routing_key")
        alternate = columns.pop(ALTERNATE, None)
        if options.ids != "none" or "message_id" in columns:
            columns["message_id"] = self._ids(columns.get("message_id"), prefix, numbers)
        constants = {name: value for name, value in self._constants.items() if name not in columns}
        if constants.get("timestamp") == "now":
            constants["timestamp"] = int(self._now())
        for name in columns:
            if name in self._constants:
                default = self._constants[name]
                default = int(self._now()) if default == "now" else default
                columns[name] = [default if value is None else value for value in columns[name]]
        try:
            if self._guard is not None and "user_id" in columns:
                without_strangers(columns, constants, self._guard.user, rows)
            if options.dedup:
                table = constants.pop("headers", None)
                columns["headers"] = _marked(columns.get("headers", [table] * rows), columns["message_id"])
            if self._sessions:
                from harebell.protocol.conversion.header_columns import encode_header_columns  # as in `writer`

                properties = encode_header_columns(rows, exchange, key, columns, constants, mandatory=True)
            else:
                properties = encode_property_columns(rows, columns, constants)
        except LocalProtocolError as error:
            raise InvalidArgument(f"a row is no message: {error}") from error
        return Part(
            bodies,
            properties,
            exchange,
            key,
            options.alternate_exchange
            if alternate is None
            else [options.alternate_exchange if value is None else value for value in alternate],
        )

    def _ids(self, given: list[str | None] | None, prefix: str, numbers: Sequence[int]) -> list[str | None]:
        ids = self._options.ids
        if ids == "column" and given is not None and None in given:
            raise InvalidArgument("option 'ids' is 'column' but column 'message_id' is null in a row")
        if ids != "auto":
            return [None] * len(numbers) if given is None else given
        if given is None:
            start = prefix + "/"
            return [start + number for number in map(str, numbers)]
        return [
            value if value is not None else f"{prefix}/{number}" for value, number in zip(given, numbers, strict=True)
        ]


def _values(
    name: str, column: pa.Array, headers: Callable[[str], object], table: Callable[[Table], Table]
) -> list[Any]:
    if name in BODIES:
        bodies: list[Any] = column.cast("binary").to_pylist()
        return bodies
    if name == "timestamp":
        micros = column.cast("int64")
        seconds: list[Any] = pc.divide(micros, 1_000_000).to_pylist()
        if (pc.min(micros).as_py() or 0) < 0:  # the last second before 1970 would be rounded to 0
            raise InvalidArgument("column 'timestamp' is before 1970 in a row: AMQP counts the seconds since then")
        return seconds
    values: list[Any] = column.to_pylist()
    if name in ("headers", HEADERS_MAP):
        # A map column arrives as a list of pairs.
        return [
            None if value is None else headers(value) if isinstance(value, str) else table(dict(value))
            for value in values
        ]
    return values


def _check_copies(table: Table) -> None:
    """Raises InvalidArgument for headers that ask for copies: in a session a broker makes none."""
    for name in COPIES:
        if name in table:
            raise InvalidArgument(
                f"'headers' has {name}, which asks for copies, and exactlyOnce=sessions makes none: write a row for "
                f"each routing key and leave {name} out, or use exactlyOnce=none"
            )


def _address(given: list[Any] | None, option: str | None, name: str) -> str | list[str]:
    """The option's value for all, else the column. Raises InvalidArgument for a null."""
    if option is not None:
        return option
    assert given is not None  # `check_columns` has seen to that
    if None in given:
        raise InvalidArgument(
            f"column '{name}' is null in a row: give every row one, or all of them the same by option"
        )
    return given


def _marked(tables: list[Table | None], ids: list[str | None]) -> list[bytes | None]:
    """The header tables, encoded, with the id by which the broker recognises copies; a mark of the row's own stays."""
    marked: list[bytes | None] = []
    for table, message_id in zip(tables, ids, strict=True):
        if message_id is not None:
            table = {DEDUPLICATION: message_id, **(table or {})}
        marked.append(None if table is None else write_table(table))
    return marked
