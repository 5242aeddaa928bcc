"""One page, and one websocket for each room."""

from django.shortcuts import render
from django.urls import path, re_path

from chat.consumers import Room

urlpatterns = [
    path("", lambda request: render(request, "room.html", {"room": "lobby"})),
    re_path(r"^(?P<room>[\w-]{1,50})/$", lambda request, room: render(request, "room.html", {"room": room})),
]
websockets = [re_path(r"^ws/(?P<room>[\w-]{1,50})/$", Room.as_asgi())]
