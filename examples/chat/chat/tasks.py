"""Work that no page waits for: a worker counts the words of a message, and tells the room."""

import time

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task


@task
def count_words(room: str, text: str) -> int:
    time.sleep(0.2)  # as something that takes long
    words = text.split()
    answer = {"type": "room.message", "name": "worker", "text": f"{len(words)} words"}
    async_to_sync(get_channel_layer().group_send)(room, answer)
    return len(words)
