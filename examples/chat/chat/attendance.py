"""How many people are in a room: asked of the layer at most once a second, whoever comes and goes meanwhile.

It is asked now and then without that, too: after an outage the processes come back one by one, and one that was killed
says nothing.
"""

import asyncio
from collections import Counter
from typing import Any

from harebell.errors import HarebellError

PAUSE = 1.0  # seconds between two questions about the same room
AGAIN = 5.0  # seconds until the next question though nobody of this process has come or gone


class Attendance:
    """Tells the rooms of this process how many people are in them."""

    def __init__(self) -> None:
        self._here = Counter[str]()  # people of this process
        self._changed: dict[str, asyncio.Event] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}

    def came(self, layer: Any, room: str) -> None:
        """Somebody has come into the room: its members are told soon."""
        self._here[room] += 1
        self._tell_soon(layer, room)

    def left(self, layer: Any, room: str) -> None:
        """Somebody has left it."""
        self._here[room] -= 1
        self._tell_soon(layer, room)

    def _tell_soon(self, layer: Any, room: str) -> None:
        self._changed.setdefault(room, asyncio.Event()).set()
        if room not in self._telling:
            self._telling[room] = asyncio.create_task(self._tell(layer, room))

    async def _tell(self, layer: Any, room: str) -> None:
        changed, told = self._changed[room], -1
        while self._here[room] > 0 or changed.is_set():
            told = -1 if changed.is_set() else told
            changed.clear()
            try:
                count = len(await layer.group_channels(room))
                if count != told:
                    await layer.group_send(room, {"type": "room.people", "count": count})
                    told = count
            except HarebellError:
                pass  # no broker: it is asked again
            await asyncio.sleep(PAUSE)
            try:
                async with asyncio.timeout(AGAIN if self._here[room] > 0 else 0):
                    await changed.wait()
            except TimeoutError:
                pass
        del self._telling[room], self._changed[room], self._here[room]
