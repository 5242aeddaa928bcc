"""`harebell config` prints a configuration file: read back, it has the same options."""

from __future__ import annotations

import tempfile
import tomllib
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from harebell.cli.server.config import config
from harebell.config import (
    OPTIONS,
    Choice,
    Config,
    File,
    Hosts,
    Kind,
    Names,
    References,
    Seconds,
    Size,
    Switch,
    Text,
    Watermark,
    Whole,
    WholeSeconds,
    load,
)  # fmt: skip

HARD = (
    "12345",
    "1.5",
    "true",
    "none",
    "unlimited",
    '"',
    "\\",
    "#",
    "a # b",
    "'''",
    "\n",
    "\x1b",
    "é",
    "📦",
    "\u202e",
    "٣",
)
TEXTS = st.one_of(st.sampled_from(HARD), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
PATHS = st.one_of(TEXTS, st.sampled_from(["~", "~/x", "./~x", "//x", "a/../b", ".", "/tmp/12345"]))
FLOATS = st.floats(0, exclude_min=True, allow_infinity=False)
DIGITS = st.from_regex(r"[0-9]{1,20}(\.[0-9]{1,20})?", fullmatch=True)
LISTS = st.lists(
    st.sampled_from(["a", "b:c", "::1", "[::1]", "*", "ß", "x.y:z", "A,b", " a ", "é", "m:é", "fe80::1%e"])
)

VALUES: dict[type[Kind], st.SearchStrategy[Any]] = {
    Text: TEXTS,
    File: PATHS,
    Switch: st.sampled_from([True, False, "on", "no"]),
    Whole: st.one_of(st.integers(), st.integers(0, 70_000).map(str), st.just("unlimited"), st.just(10**399)),
    Size: st.one_of(st.integers(), DIGITS, st.tuples(DIGITS, st.sampled_from(["B", " kB", "MiB", "TB"])).map("".join)),
    Watermark: st.one_of(
        st.floats(0, 1), FLOATS, DIGITS, DIGITS.map("{}%".format), st.sampled_from([0, 1, 1.0, "1GB"])
    ),
    Seconds: st.one_of(FLOATS, DIGITS, DIGITS.map("{}ms".format), DIGITS.map("{}d".format), st.integers(1)),
    WholeSeconds: st.one_of(st.integers(), DIGITS, DIGITS.map("{}ms".format), DIGITS.map("{}m".format)),
    Names: st.one_of(TEXTS, LISTS),
    References: st.one_of(TEXTS, LISTS),
    Hosts: st.one_of(TEXTS, LISTS),
}


def values(kind: Kind) -> st.SearchStrategy[Any]:
    """What the option may be given, from flags and from files."""
    strategy = st.sampled_from(kind.values) if isinstance(kind, Choice) else VALUES[type(kind)]
    return strategy.filter(lambda value: is_valid(kind, value))


def is_valid(kind: Kind, value: object) -> bool:
    try:
        kind.read(value)
    except ValueError:
        return False
    return True


ANY = st.fixed_dictionaries({}, optional={name: values(each.kind) for name, each in OPTIONS.items()})


def printed(options: dict[str, Any], encoding: str = "utf-8") -> bytes:
    with TextIOWrapper(BytesIO(), encoding) as out, redirect_stdout(out):
        config(**options)
        out.flush()
        assert isinstance(out.buffer, BytesIO)
        return out.buffer.getvalue()


def read_back(text: bytes) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "harebell.toml")
        file.write_bytes(text)
        return load({}, {}, file).config


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in OPTIONS.values():
        monkeypatch.delenv(each.variable, raising=False)
    monkeypatch.delenv("HAREBELL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@given(ANY, st.sampled_from(["utf-8", "ascii", "latin-1"]))
@example({"anonymous_user": "12345", "announce": "10", "data": "/tmp/📦", "consumer_timeout": "1234567"}, "utf-8")
@example({"consumer_timeout": "0.1234567", "memory_high_watermark": 1.0}, "utf-8")
def test_what_is_printed_is_read_back(options: dict[str, Any], encoding: str) -> None:
    options = {"tls_cert": "cert.pem", "tls_ca": "ca.pem", **options}  # other options need them
    given_ones = load(options, {}).config
    text = printed(options, encoding)
    assert read_back(text) == given_ones
    assert set(tomllib.loads(text.decode())) == set(options)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_kind_of_option_has_values_here(name: str) -> None:
    kind = OPTIONS[name].kind
    assert isinstance(kind, Choice) or type(kind) in VALUES


@pytest.mark.parametrize("place", ["a\nport : 1", "a\x1b[2J\r", "é", "\udcff"])
def test_what_comes_from_the_environment_begins_no_line(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / place
    file.write_text("heartbeat = 7\n")
    monkeypatch.setenv(f"HAREBELL_PRT{place}", "1")
    assert tomllib.loads(printed({"config": str(file)}).decode()) == {"heartbeat": 7}


def test_a_path_that_is_for_no_file() -> None:
    text = printed({"data": "/tmp/\udcff", "port": "7"}).decode()
    assert tomllib.loads(text) == {"port": 7}
    assert "# data is '/tmp/\\udcff', and a file has only UTF-8: give --data" in text


def test_what_stands_in_for_an_option_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    lines = [line.partition("  # ")[0].rstrip() for line in printed({"host": "*"}).decode().splitlines()]
    assert f'# data = "{tmp_path}/harebell"' in lines
    assert '# management_host = "*"' in lines
    assert "# tls_cert is not set" in lines


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert "# data is not set" in printed({}).decode()
