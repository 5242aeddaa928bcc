"""A table of wrong options: each is told in words."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import override_settings

import tests.django.conftest  # noqa: F401  Django has to be set up
from harebell.django.options import Options


@pytest.mark.parametrize(
    "options, text",
    [
        ({"urls": "amqp://x/"}, "no option 'urls': 'url'?"),
        ({"zzz": 1}, "no option 'zzz', there are url, prefix"),
        ({"url": "localhost"}, "url: the URL's scheme"),
        ({"url": ("localhost", 5672)}, "a URL"),
        ({"prefix": "amq.x"}, "prefix='amq.x'"),
        ({"prefix": "a:b"}, "prefix='a:b'"),
        ({"prefix": "a\u0663"}, "ASCII letters, digits"),
        ({"enqueue": "later"}, "one of 'commit', 'now', 'outbox'"),
        ({"results": "redis"}, "one of None, 'cache', 'database'"),
        ({"cache": "nope"}, "cache='nope': an alias in CACHES, which has 'default', is needed"),
        ({"cache": 3}, "cache=3: an alias in CACHES"),
        ({"cache": 3, "results": None}, "cache=3: an alias in CACHES"),
        ({"cache": ["default"]}, "cache=['default']: an alias in CACHES"),
        ({"attempts": 0}, "a whole number from 1"),
        ({"attempts": True}, "a whole number from 1"),
        ({"priority_levels": 500}, "to 201"),
        ({"backoff": 0}, "backoff=0: seconds"),
        ({"timeout": "10"}, "timeout='10': seconds"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        Options.of(options)
    assert text in str(caught.value)
    params = {"BACKEND": "harebell.django.TaskBackend", "OPTIONS": options}
    with override_settings(TASKS={"default": params}), pytest.raises(ImproperlyConfigured) as caught:
        call_command("check")
    assert text in str(caught.value)


def test_a_cache_that_is_not_used_need_not_be_there() -> None:
    assert Options(cache="nope", results="database").cache == "nope"


def test_priorities_and_delays() -> None:
    options = Options()
    assert [options.level(priority) for priority in (-100, 0, 100)] == [0, 5, 10]
    fine = Options(priority_levels=201)
    assert [fine.level(priority) for priority in range(-100, 101)] == list(range(201))
    assert Options(priority_levels=1).level(100) == 0
    delays = Options(backoff=2, backoff_max=20)
    assert [delays.delay(attempt) for attempt in range(1, 7)] == [2, 4, 8, 16, 20, 20]
    assert delays.delay(10_000) == 20
