"""Names of options: each is taken where it is for, and said for what it is elsewhere, as it is written."""

from __future__ import annotations

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.options.names import _NAMES, Role, given_options

ALL = sorted({name for names in _NAMES.values() for name in names})


@pytest.mark.parametrize("name", ALL)
def test_every_name_in_every_role(name: str) -> None:
    for role, names in _NAMES.items():
        for written in (name, name.lower(), name.upper()):
            if name in names:
                assert given_options({written: "x"}, role) == {name.lower(): "x"}
                continue
            with pytest.raises(
                InvalidArgument, match=f"option '{name}' is for .*s, and this is a {role}: leave it out"
            ):
                given_options({written: "x"}, role)


@pytest.mark.parametrize(
    ("name", "roles", "says"),
    [
        ("maxMessagesPerTrigger", ["batch read"], "is for streaming reads, and this is a batch read"),
        ("endingOffsets", ["streaming read"], "is for batch reads, and this is a streaming read"),
        ("queue", ["write"], "is for reads, and this is a write"),
        ("exchange", ["streaming read"], "is for writes, and this is a streaming read"),
        ("exchange", ["batch read", "streaming read"], "is for writes, and this is a read"),
        ("prefech", ["batch read"], r"no option 'prefech' for a batch read \(is it 'prefetch'\?\); it has: .*queue"),
    ],
)
def test_what_a_name_is_for(name: str, roles: list[Role], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        given_options({name: "1"}, *roles)


@pytest.mark.parametrize("role", list(_NAMES))
def test_what_spark_adds_is_taken(role: Role) -> None:
    assert set(given_options({"path": "q", "checkpointLocation": "/c"}, role)) == {"path", "checkpointlocation"}
