from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.deliver import encode_get_ok
from harebell.protocol.v091.fields import write_shortstr


@given(st.integers(1, 65_535), st.integers(0, 2**64 - 1), st.booleans(), st.integers(0, 2**32 - 1))
def test_get_ok_from_bytes_is_what_the_method_encodes(channel: int, tag: int, again: bool, count: int) -> None:
    address = write_shortstr("exchange", "exchange") + write_shortstr("key.\u00e9", "routing_key")
    expected = encode_method(channel, m.BasicGetOk(tag, again, "exchange", "key.\u00e9", count))
    assert encode_get_ok(channel, tag, again, address, count) == expected
