from __future__ import annotations

import pytest

from harebell.errors import AccessRefused, PreconditionFailed
from harebell.routing.naming import check_new_name, generated_queue_name, kept_from, kept_name, without_line_ends


def test_names_of_the_servers() -> None:
    check_new_name("queue", "amq")
    with pytest.raises(AccessRefused) as caught:
        check_new_name("queue", "amq.foo")
    assert caught.value.detail == "queue name 'amq.foo' contains reserved prefix 'amq.*'"
    assert generated_queue_name(bytes(range(16))) == "amq.gen-AAECAwQFBgcICQoLDA0ODw"
    assert generated_queue_name(b"\xff" * 16) == "amq.gen-_____________________w"
    assert without_line_ends("a\r\nb\n") == "ab"


def test_a_servers_name_with_a_prefix_of_the_clients() -> None:
    token = b"\xff" * 16
    for prefix in ("shop", "", "é" * 32, "amq.gen"):
        assert generated_queue_name(token, {"x-name-prefix": prefix}) == f"{prefix}-_____________________w"
    with pytest.raises(PreconditionFailed) as caught:
        generated_queue_name(token, {"x-name-prefix": "é" * 33})
    assert caught.value.detail == f"x-name-prefix '{'é' * 33}' has 66 bytes, and may have 64"
    with pytest.raises(PreconditionFailed):
        generated_queue_name(token, {"x-name-prefix": 5})
    with pytest.raises(AccessRefused):
        generated_queue_name(token, {"x-name-prefix": "amq.other"})


def test_the_queue_that_is_kept() -> None:
    at = 1_780_000_000_000
    for name in ("q", "a.b", "x" * 232, "ü" * 116, "12.3", "two\nlines"):
        assert kept_from(kept_name(name, at)) == name
        assert kept_name(kept_name(name, 1), at) == kept_name(name, at)  # what is kept of what was kept
    for name in ("x" * 233, "ü" * 117):  # cut it would be another queue's
        with pytest.raises(PreconditionFailed, match="do without `keep`"):
            kept_name(name, at)
    for other in ("q", "amq.kept", "amq.kept.", "amq.kept.x.q", "amq.kept.1.", "amq.kept.1", "xamq.kept.1.q"):
        assert kept_from(other) is None
    with pytest.raises(AccessRefused):
        check_new_name("queue", kept_name("q", 1))
