"""A client of the stream of events, which keeps what it is told as a console would."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from tests.admin.kit import Api
from tests.wire import PATIENCE


class Watch:
    """The stream of some topics. `rows` are those of each topic by id; `changes` and `acts` in their order."""

    def __init__(self, api: Api, *topics: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
        sent = {"authorization": api.authorization} if headers is None else dict(headers)
        self._connection.request("GET", f"/api/events?topics={','.join(topics)}", headers=sent)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.media = self._answer.headers.get("content-type", "")
        self.columns: dict[str, Any] = {}
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self.complete = set[str]()
        self.resets = 0
        self.changes = list[dict[str, Any]]()
        self.acts = list[dict[str, Any]]()
        self.lost = 0
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answer.close()
        self._connection.close()

    def take(self) -> bool:
        """Take the next event. Returns False at the end of the stream."""
        name, data = "", ""
        for raw in self._answer:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = line.removeprefix("data: ")
            elif not line:
                if name:
                    self._apply(name, json.loads(data))
                return True
        return False

    def _apply(self, name: str, data: Any) -> None:
        match name:
            case "topics":
                self.columns = data
            case "reset":
                self.resets += 1
                self.rows[data["topic"]] = {}
                self.complete.discard(data["topic"])
            case "complete":
                self.complete.add(data["topic"])
            case "rows":
                rows, columns = self.rows[data["topic"]], self.columns[data["topic"]]
                for kind in ("facts", "figures"):
                    for row in data[kind]:
                        assert len(row) == len(columns[kind]) + 1
                        rows.setdefault(row[0], {}).update(zip(columns[kind], row[1:], strict=True))
                for number in data["gone"]:
                    del rows[number]
            case "change":
                self.changes.append(data)
            case "act":
                self.acts.append(data)
            case "lost":
                self.lost += 1
            case "end":
                self.ended = True

    def until(self, holds: Callable[[], bool]) -> None:
        """Take events until that holds."""
        while not holds():
            assert self.take(), "the stream has ended"

    def list(self, topic: str, column: str = "name") -> list[Any]:
        """A column of a topic's rows, in order."""
        return sorted(row[column] for row in self.rows.get(topic, {}).values() if column in row)

    def row(self, topic: str, name: str, column: str = "name") -> dict[str, Any]:
        """The row of an object; empty without one."""
        return next((row for row in self.rows.get(topic, {}).values() if row.get(column) == name), {})

    def drain(self) -> None:
        while self.take():
            pass
