"""Paths are matched by their raw bytes."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from harebell.admin.http.paths import BadPath, Tree, split, without_authority

TREE = Tree(
    [
        ("GET", "/api/queues", "all"),
        ("GET", "/api/queues/detailed", "detailed"),
        ("GET", "/api/queues/{vhost}", "of vhost"),
        ("PUT", "/api/queues/{vhost}", "put"),
        ("GET", "/api/queues/{vhost}/{queue}", "one"),
        ("DELETE", "/api/queues/{vhost}/{queue}/contents", "purge"),
        ("POST", "/api/users/bulk-delete", "bulk"),
        ("GET", "/api/users/{user}", "user"),
    ]
)


@pytest.mark.parametrize("method, path, found", [
    ("GET", "/api/queues", ("all", {})),
    ("GET", "/api/queues/", ("all", {})),
    ("GET", "/api/queues/detailed", ("detailed", {})),
    ("PUT", "/api/queues/detailed", ("put", {"vhost": "detailed"})),
    ("GET", "/api/queues/%2F", ("of vhost", {"vhost": "/"})),
    ("GET", "/api/queues/%2F/a%2Fb", ("one", {"vhost": "/", "queue": "a/b"})),
    ("GET", "/api/queues/%2F/%C3%A9", ("one", {"vhost": "/", "queue": "é"})),
    ("GET", "/api/queues//q", ("one", {"vhost": "", "queue": "q"})),
    ("DELETE", "/api/queues/v//contents", ("purge", {"vhost": "v", "queue": ""})),
    ("DELETE", "/api/queues/%FF../%ff./contents", ("purge", {"vhost": "..", "queue": "."})),
    ("GET", "/api/queues/%2F/%FF", ("one", {"vhost": "/", "queue": ""})),
    ("GET", "/api/queues/%2F/%FFa", ("one", {"vhost": "/", "queue": "a"})),
    ("GET", "/api/queues/%2F/%C3%BF", ("one", {"vhost": "/", "queue": "ÿ"})),
    ("GET", "/api/users/bulk-delete", ("user", {"user": "bulk-delete"})),
    ("POST", "/api/users/bulk-delete", ("bulk", {})),
    ("POST", "/api/queues/v", frozenset({"GET", "PUT"})),
    ("POST", "/api/queues/detailed", frozenset({"GET", "PUT"})),
    ("GET", "/api/queues/v/q/r", frozenset()),
    ("GET", "/api", frozenset()),
    ("GET", "/", frozenset()),
])  # fmt: skip
def test_finds(method: str, path: str, found: object) -> None:
    assert TREE.find(method, split(path.encode())) == found


@pytest.mark.parametrize("path", ["/api/users/a%zz", "/%", "/a%2", "/a%%20", "/%C3%2g", "/a%FF/b%"])
def test_a_percent_sign_begins_an_octet(path: str) -> None:
    with pytest.raises(BadPath, match="%25"):
        split(path.encode())


@pytest.mark.parametrize("target, path, authority", [
    (b"/api/version", b"/api/version", None), (b"http://h:1/api/version", b"/api/version", b"h:1"),
    (b"HTTPS://[::1]/", b"/", b"[::1]"), (b"http://h", b"/", b"h"), (b"*", b"*", None), (b"//h/x", b"//h/x", None),
    (b"/api/users/http://u", b"/api/users/http://u", None), (b"ftp://h/x", b"ftp://h/x", None),
])  # fmt: skip
def test_a_target_may_be_a_whole_url(target: bytes, path: bytes, authority: bytes | None) -> None:
    assert without_authority(target) == (path, authority)


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_name_is_itself(vhost: str, queue: str) -> None:
    path = f"/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}"
    assert TREE.find("GET", split(path.encode())) == ("one", {"vhost": vhost, "queue": queue})


@given(st.binary())
def test_any_bytes_are_segments_or_refused(raw: bytes) -> None:
    try:
        segments = split(b"/" + raw)
    except BadPath:
        return
    assert len(segments) <= raw.count(b"/") + 1
