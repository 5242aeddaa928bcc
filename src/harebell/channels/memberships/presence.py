"""Finds the channels in a group, in all processes. In the I/O thread.

Each process knows the memberships of its own channels, and is asked (`questions`); the registry has those that the
broker keeps.
"""

from __future__ import annotations

from typing import Any

from harebell.channels.local_members import LocalMembers
from harebell.channels.messages.questions import Questions

__all__ = ["Presence"]


class Presence:
    """Asks other processes for the members of a group, and answers such questions."""

    def __init__(self, members: LocalMembers, questions: Questions) -> None:
        self._members = members
        self._questions = questions
        questions.on["who"] = self._answer

    async def of(self, group: str, seconds: float) -> list[str]:
        """The channels in a group, sorted."""
        answers, registered = await self._questions.ask("who", group, seconds)
        kept = [channel for where, channel in registered.members if where == group]
        return sorted({*kept, *(str(channel) for channels in answers for channel in channels)})

    def _answer(self, group: Any) -> list[str]:
        return list(self._members.of(str(group)))
