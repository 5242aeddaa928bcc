"""The settings of an example: no database, no users, and Harebell as the channel layer and for tasks."""

import os

TIME_ZONE = "UTC"
SECRET_KEY = "of an example, which keeps no secrets"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "chat.urls"
ASGI_APPLICATION = "chat.asgi.application"
INSTALLED_APPS = ["channels", "harebell.django", "chat"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

BROKER = os.environ.get("CHAT_BROKER", "embedded://")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "harebell.channels.ChannelLayer",
        "CONFIG": {"url": BROKER, "prefix": "chat"},
    }
}
TASKS = {
    "default": {
        "BACKEND": "harebell.django.TaskBackend",
        "OPTIONS": {"url": BROKER, "prefix": "chat.tasks", "results": None},
    }
}
