from __future__ import annotations

import pytest

from harebell.errors import PreconditionFailed
from harebell.routing.copies import bcc_keys, cc_bcc, cc_keys, without_bcc


def test_no_copies() -> None:
    assert cc_bcc({}) == cc_bcc({"cc": "x"}) == cc_bcc({"CC": [], "BCC": ()}) == ()


def test_cc_comes_before_bcc() -> None:
    headers = {"BCC": ["b"], "CC": ["c1", "c2"], "other": 1}
    assert cc_bcc(headers) == ("c1", "c2", "b")
    assert cc_keys(headers) == ("c1", "c2")
    assert bcc_keys(headers) == ("b",)
    assert without_bcc(headers) == {"CC": ["c1", "c2"], "other": 1}


def test_elements_that_are_no_long_strings_are_ignored() -> None:
    assert cc_bcc({"CC": ["c", 1, b"x", None, ["d"]]}) == ("c",)


@pytest.mark.parametrize(
    "headers, name, kind",
    [
        ({"CC": "x"}, "CC", "longstr"),
        ({"BCC": 1}, "BCC", "signedint"),
        ({"BCC": None}, "BCC", "void"),
        ({"CC": b"x"}, "CC", "binary"),
        ({"BCC": {}}, "BCC", "table"),
        ({"CC": True, "BCC": 3}, "CC", "bool"),
    ],
)
def test_another_type_is_refused_in_rabbitmqs_words(headers: dict[str, object], name: str, kind: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        cc_bcc(headers)
    assert refused.value.detail == f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
