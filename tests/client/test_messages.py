from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import harebell
from harebell.client.messages import NO_PROPERTIES, encoded
from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Properties


def test_a_message_takes_properties_one_by_one_or_together() -> None:
    single = harebell.Message(b"b", content_type="text/plain", headers={"a": 1}, message_id="m", type="t")
    whole = harebell.Message(
        b"b", properties=Properties(content_type="text/plain", headers={"a": 1}, message_id="m", type="t")
    )
    assert single.properties == whole.properties
    assert single.headers == {"a": 1}
    with pytest.raises(InvalidArgument, match="not both"):
        harebell.Message(b"", properties=Properties(), app_id="x")


def test_a_body_is_bytes() -> None:
    assert harebell.Message(bytearray(b"ab")).body == b"ab"
    assert harebell.Message(memoryview(b"ab")).body == b"ab"
    with pytest.raises(InvalidArgument, match="encode"):
        harebell.Message("text")  # type: ignore[arg-type]


def test_encoding_for_the_wire() -> None:
    assert encoded(b"x") == (NO_PROPERTIES, b"x")
    raw, body = encoded(harebell.Message(b"x", message_id="é"))
    assert body == b"x"
    assert Properties.decode(raw) == Properties(message_id="é")
    with pytest.raises(InvalidArgument, match="str"):
        encoded("x")  # type: ignore[arg-type]


def test_importing_harebell_loads_no_client() -> None:
    code = (
        "import harebell, sys; print([n for n in sys.modules if n.startswith('harebell.')], 'asyncio' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(harebell.__file__).parents[1])}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['harebell.builds'] False"


def test_every_exported_name_is_there() -> None:
    for exported in harebell.__all__:
        assert getattr(harebell, exported) is not None
        assert exported in dir(harebell)
    with pytest.raises(AttributeError, match="nothing"):
        _ = harebell.nothing
