from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.deliver import DeliverPrefixes, encode_get_ok, pack_tag
from harebell.protocol.v091.fields import write_shortstr


@given(st.integers(1, 65_535), st.integers(0, 2**64 - 1), st.booleans(), st.integers(0, 2**32 - 1))
def test_get_ok_from_bytes_is_what_the_method_encodes(channel: int, tag: int, again: bool, count: int) -> None:
    address = write_shortstr("exchange", "exchange") + write_shortstr("key.\u00e9", "routing_key")
    expected = encode_method(channel, m.BasicGetOk(tag, again, "exchange", "key.\u00e9", count))
    assert encode_get_ok(channel, tag, again, address, count) == expected


tags = st.text(max_size=60)


@given(st.integers(1, 65_535), tags, st.integers(0, 2**64 - 1), st.booleans(), tags, tags)
def test_a_delivery_in_three_pieces_is_what_the_method_encodes(
    channel: int, consumer_tag: str, tag: int, again: bool, exchange: str, key: str
) -> None:
    prefixes = DeliverPrefixes(channel, consumer_tag)
    end = bytes((again,)) + write_shortstr(exchange, "exchange") + write_shortstr(key, "routing_key") + b"\xce"
    expected = encode_method(channel, m.BasicDeliver(consumer_tag, tag, again, exchange, key))
    for _ in range(2):  # built, and then found
        assert prefixes[len(end)] + pack_tag(tag) + end == expected
    assert len(prefixes) == 1
