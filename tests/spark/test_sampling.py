from __future__ import annotations

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.options import source_options
from harebell.spark.sampling import infer_schema, sampled_bodies
from tests.spark.fakes import FakeStream


def test_a_stream_is_sampled_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream(10, 40)
    monkeypatch.setattr("harebell.spark.streams.bounds.Link", stream.link)
    monkeypatch.setattr("harebell.spark.streams.range_reader.SocketReader", stream.feed)
    with pytest.raises(InvalidArgument, match="no JSON object in the sample of s"):  # its bodies are numbers
        infer_schema("amqp://broker/", "s")
    seen = list(sampled_bodies(source_options({"queue": "s", "payload": "json", "samplemessages": "3"}, False)))
    assert seen == [b"10", b"11", b"12"]
    with pytest.raises(InvalidArgument, match="needs the name of a stream queue"):
        infer_schema("amqp://broker/")
