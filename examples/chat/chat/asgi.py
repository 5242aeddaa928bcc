"""Pages by Django, websockets by Channels."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chat.settings")
pages = get_asgi_application()

from chat.urls import websockets  # noqa: E402  Django has to be set up before

application = ProtocolTypeRouter({"http": pages, "websocket": AllowedHostsOriginValidator(URLRouter(websockets))})
