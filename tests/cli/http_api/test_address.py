"""Where the HTTP API is, by URLs of HTTP and of AMQP; no error has the URL in it."""

from __future__ import annotations

import pytest

from harebell.cli.http_api.address import Address, parse_address
from harebell.errors import InvalidArgument


@pytest.mark.parametrize(("url", "address", "peer"), [
    ("http://host", Address("host", 15672, False, "guest", "guest"), "http://host:15672"),
    ("https://u:p%40s@host", Address("host", 15671, True, "u", "p@s"), "https://host:15671"),
    ("http://u@[::1]:80/rabbit/", Address("::1", 80, False, "u", "", "/rabbit"), "http://[::1]:80"),
    ("http://host:1/é%20x", Address("host", 1, False, "guest", "guest", "/%C3%A9%20x"), "http://host:1"),
    ("http://host:1/api/", Address("host", 1, False, "guest", "guest"), "http://host:1"),
    ("amqp://u:p@host:5673/vhost", Address("host", 15672, False, "u", "p"), "http://host:15672"),
    ("amqps://h?verify=verify_peer&cacertfile=/a%20b", Address("h", 15671, True, "guest", "guest", "", "/a b"),
     "https://h:15671"),
    ("https://h?cacertfile=/a", Address("h", 15671, True, "guest", "guest", "", "/a"), "https://h:15671"),
    ("amqps://u:p@host/", Address("host", 15671, True, "u", "p"), "https://host:15671"),
])  # fmt: skip
def test_urls(url: str, address: Address, peer: str) -> None:
    found = parse_address(url)
    assert (found, found.peer) == (address, peer)
    assert found.password not in ("p", "p@s") or found.password not in repr(found).replace("http", "").split("'")


@pytest.mark.parametrize(("url", "says"), [
    ("http://u:s3cret/x@host", "as %2F"), ("ftp://u:s3cret@host", "begins with http:// or https://"),
    ("u:s3cret@host", "begins with"), ("http://u:s3cret@", "names no host"),
    ("http://u:s3cret\udcff@host", "no UTF-8 form"),
])  # fmt: skip
def test_no_urls(url: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as refused:
        parse_address(url)
    assert "s3cret" not in str(refused.value)
