"""Lists: filtered by name, sorted, cut into pages, cut down to columns, and encoded, in steps.

Rules (RabbitMQ's):

- With `page`, the answer is {"items": [...], "page": ..., ...}; `name` then filters, as a part of the name or, with
  `use_regex`, as a pattern. Without it, the answer is the list alone, and `name` has no meaning.
- `sort` is a path such as message_stats.publish; what lacks it comes first. `sort_reverse` turns the order around.
- `columns` are such paths, with commas between them; what an object lacks is left out.

Objects are made only as far as they are needed: to sort by a column of `quick` makes none, and a page makes its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from harebell.admin.answers import Answer, Refused, bad_request, encode
from harebell.admin.http.requests import Request
from harebell.broker.patterns import PATTERNS
from harebell.routing.pattern_language import BadPattern
from harebell.routing.steps import Steps

__all__ = ["Listing", "columns_of", "only"]

T = TypeVar("T")

PAGE_SIZE: Final = 100
MOST_PAGE_SIZE: Final = 500
STEP: Final = 32  # objects made and encoded in one step
QUICK_STEP: Final = 512  # objects of which one value is taken, or sorted, in one step
Shape = Callable[[Any], Mapping[str, Any]]


class Listing(NamedTuple, Generic[T]):
    """One kind of list.

    shape  makes the object for the JSON
    order  what the list is sorted by, unless the request says so
    name   what `name` filters
    quick  columns that can be taken without making the object, by name
    """

    shape: Callable[[T], Mapping[str, Any]]
    order: Callable[[T], Any]
    name: Callable[[T], str]
    quick: Mapping[str, Callable[[T], Any]] = {}

    def answer(self, request: Request, items: Sequence[T]) -> Steps[Answer]:
        """The answer to a request for these items. Raises Refused."""
        query = request.query
        page = _page(query)
        columns = columns_of(query)
        total = len(items)
        if page is not None:
            items = yield from self._filtered(query, items)
        items = yield from self._sorted(query, items)
        shape = self._shape(columns)
        if page is None:
            pieces = yield from _encoded(items, shape)
            return Answer(200, [b"[", *pieces, b"]"], media="application/json")
        number, size = page
        count = -(-len(items) // size)  # 0 of none, of which the first page is empty
        if number > max(1, count):
            raise Refused(
                400, "page_out_of_range", f"Page out of range, page: {number} page size: {size}, len: {len(items)}"
            )
        chosen = items[(number - 1) * size : number * size]
        pieces = yield from _encoded(chosen, shape)
        about = encode(
            {
                "filtered_count": len(items), "item_count": len(chosen), "page": number, "page_count": count,
                "page_size": size, "total_count": total,
            }
        )  # fmt: skip
        return Answer(200, [about[:-1], b',"items":[', *pieces, b"]}"], media="application/json")

    def _filtered(self, query: Mapping[str, str], items: Sequence[T]) -> Steps[Sequence[T]]:
        wanted = query.get("name", "")
        if not wanted:
            return items
        if query.get("use_regex", "false").lower() == "true":
            try:
                PATTERNS.check(wanted)
                matches = PATTERNS.search(wanted)
            except BadPattern as error:
                raise bad_request(
                    f"Pagination parameters are invalid: name is no regular expression: {error}"
                ) from None
        else:
            lower = wanted.lower()

            def matches(name: str) -> bool:
                return lower in name.lower()

        found = list[T]()
        for start in range(0, len(items), QUICK_STEP):
            found += [each for each in items[start : start + QUICK_STEP] if matches(self.name(each))]
            yield
        return found

    def _sorted(self, query: Mapping[str, str], items: Sequence[T]) -> Steps[Sequence[T]]:
        column, reverse = query.get("sort", ""), query.get("sort_reverse", "false").lower() == "true"
        order, quick, path = self.order, self.quick.get(column), column.split(".")
        keys = list[tuple[Any, int]]()
        if not column:
            for start in range(0, len(items), QUICK_STEP):
                keys += [(order(each), number) for number, each in enumerate(items[start : start + QUICK_STEP], start)]
                yield
            return (yield from _in_order(keys, items, reverse))
        step = STEP if quick is None else QUICK_STEP
        for start in range(0, len(items), step):
            for number, each in enumerate(items[start : start + step], start):
                value = quick(each) if quick is not None else _at(self.shape(each), path)
                keys.append(((_comparable(value), order(each)), number))
            yield
        return (yield from _in_order(keys, items, reverse))

    def _shape(self, columns: Sequence[Sequence[str]]) -> Shape:
        shape, quick = self.shape, self.quick
        if not columns:
            return shape
        if all(len(path) == 1 and path[0] in quick for path in columns):
            taken = [(path[0], quick[path[0]]) for path in columns]
            return lambda each: {name: take(each) for name, take in taken}
        return lambda each: only(shape(each), columns)


def _in_order(keys: list[tuple[Any, int]], items: Sequence[T], reverse: bool) -> Steps[Sequence[T]]:
    """The items in the order of their keys, each with its place among them; long lists are sorted in parts."""
    parts = list[list[tuple[Any, int]]]()
    for start in range(0, len(keys), QUICK_STEP):
        parts.append(sorted(keys[start : start + QUICK_STEP]))
        yield
    if len(parts) < 2:
        order = [number for part in parts for _, number in part]
    else:
        order = []
        merged = heapq.merge(*parts)
        while some := [number for _, number in islice(merged, QUICK_STEP)]:
            order += some
            yield
    if reverse:
        order.reverse()
    return [items[number] for number in order]


def _page(query: Mapping[str, str]) -> tuple[int, int] | None:
    """The page that is asked for, and its size; None for all of the list."""
    if "page" not in query:
        return None
    page, size = query["page"], query.get("page_size", str(PAGE_SIZE))
    if not (_is_number(page) and _is_number(size)):
        raise bad_request("Pagination parameters are invalid")
    if int(page) < 1 or not 1 <= int(size) <= MOST_PAGE_SIZE:
        told = query.get("page_size", "undefined")
        raise Refused(
            400,
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {page}, page size {told}",
        )
    return int(page), int(size)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 10


def columns_of(query: Mapping[str, str]) -> list[list[str]]:
    """The columns that a query asks for; [] for all."""
    return [column.split(".") for column in query.get("columns", "").split(",") if column]


def only(value: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The object with these columns alone."""
    found: dict[str, Any] = {}
    for path in columns:
        _copy(value, found, path)
    return found


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: Sequence[str]) -> None:
    name = path[0]
    if name not in source:
        return
    inner = source[name]
    if len(path) == 1:
        target[name] = inner
    elif isinstance(inner, Mapping):
        below = target.setdefault(name, {})
        if below is not inner:
            _copy(inner, below, path[1:])


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _comparable(value: Any) -> tuple[int, Any]:
    """The value as a key for sorting, whatever the others are."""
    match value:
        case None:
            return 0, 0
        case bool() | int() | float():
            return 1, value
        case str():
            return 2, value
    return 3, encode(value)


def _encoded(items: Sequence[Any], shape: Shape) -> Steps[list[bytes]]:
    """The items as JSON with commas between them, in pieces."""
    pieces = list[bytes]()
    for start in range(0, len(items), STEP):
        piece = encode([shape(each) for each in items[start : start + STEP]])[1:-1]
        pieces.append(piece if not start else b"," + piece)
        yield
    return pieces
