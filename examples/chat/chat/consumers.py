"""A chat room: connected users are members of the room's group, and every message goes to all members.

A message "/count some words" is a task, too.
"""

from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from chat.attendance import Attendance
from chat.tasks import count_words
from harebell.errors import HarebellError

attendance = Attendance()


class Room(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        self.group = f"room.{self.scope['url_route']['kwargs']['room']}"
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        attendance.came(self.channel_layer, self.group)

    async def disconnect(self, code: int) -> None:
        try:
            await self.channel_layer.group_discard(self.group, self.channel_name)
        finally:
            attendance.left(self.channel_layer, self.group)

    async def receive_json(self, content: dict[str, Any]) -> None:
        command, _, rest = str(content["text"])[:2000].partition(" ")
        message = {"type": "room.message", "name": str(content["name"])[:50], "text": str(content["text"])[:2000]}
        try:
            if command == "/count":
                await count_words.aenqueue(self.group, rest)
            await self.channel_layer.group_send(self.group, message)
        except HarebellError as error:  # no broker in time; an error that went on would end this consumer, unsaid
            await self.send_json({"name": "not sent", "text": f"{message['text']} ({error})"})

    async def room_message(self, event: dict[str, Any]) -> None:
        await self.send_json({"name": event["name"], "text": event["text"]})

    async def room_people(self, event: dict[str, Any]) -> None:
        await self.send_json({"people": event["count"]})
