"""How many people are in a room: asked of the layer at most once a second, whoever comes and goes meanwhile."""

import asyncio
from typing import Any

PAUSE = 1.0  # seconds between two questions about the same room


class Attendance:
    """Tells each room of this process how many people are in it, after a change."""

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._telling: dict[str, asyncio.Task[None]] = {}

    def changed(self, layer: Any, room: str) -> None:
        """Somebody has come into the room or left it: its members are told soon."""
        self._changed.add(room)
        if room not in self._telling:
            self._telling[room] = asyncio.create_task(self._tell(layer, room))

    async def _tell(self, layer: Any, room: str) -> None:
        try:
            while room in self._changed:
                self._changed.discard(room)
                people = await layer.group_channels(room)
                await layer.group_send(room, {"type": "room.people", "count": len(people)})
                await asyncio.sleep(PAUSE)
        finally:
            del self._telling[room]
