from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.options.address import HIDDEN_NAMES, Address, address


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAREBELL_URL", raising=False)


def test_the_default_and_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(address({})) == "amqp://guest@localhost:5672/"
    monkeypatch.setenv("HAREBELL_URL", "amqp://u:secret@host/my%2Fhost")
    assert str(address({})) == "amqp://u@host:5672/my/host"
    assert address({"url": "amqp://other/"}).parameters()[0].host == "other"
    assert address({"url": ""}).vhost == "my/host"  # an empty option is none, as an unset shell variable makes it


def test_several_hosts_are_tried_in_turn() -> None:
    hosts = address({"url": "amqp://a:x,y@one/v, amqps://a:b@two:5/v"}).parameters(timeout=3.0)
    assert [(host.host, host.port, host.password, host.tls) for host in hosts] == [
        ("one", 5672, "x,y", False),
        ("two", 5, "b", True),
    ]
    assert {host.timeout for host in hosts} == {3.0}


def test_a_file_is_read_when_a_connection_is_made(tmp_path: Path) -> None:
    file = tmp_path / "url"
    where = address({"urlfile": str(file)})  # it may exist on the executors only
    file.write_text("amqp://u:first@host/v\n")
    assert where.parameters()[0].password == "first"
    file.write_text("amqp://u:second@host/v\n")
    assert where.parameters()[0].password == "second"
    assert where.vhost == "v"


def test_a_password_file_counts_for_every_host(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret/with@signs\n")
    hosts = address({"url": "amqp://u@a/,amqp://u@b/", "passwordfile": str(file)}).parameters()
    assert [(host.username, host.password) for host in hosts] == [("u", "s3cret/with@signs")] * 2


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("ORDERS_URL", "spark.executorEnv.ORDERS_URL_SECRET"),
        ("BROKER", "spark.executorEnv.BROKER_SECRET"),
        ("ORDERS_SECRET", "spark.executorEnv.ORDERS_SECRET"),
        ("orders_password", "spark.executorEnv.orders_password"),
    ],
)
def test_a_missing_variable_is_to_be_set_under_a_name_that_spark_hides(name: str, setting: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} of option 'urlEnv' is not set on ") as refused:
        address({"urlenv": name}).parameters()
    assert re.findall(r"spark\.executorEnv\.\w+", str(refused.value)) == [setting]
    assert HIDDEN_NAMES.search(setting)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    where = address({"urlenv": "ORDERS_URL"})
    monkeypatch.setenv("ORDERS_URL", "amqp://u:p@host/")
    assert where.parameters()[0].password == "p"


def test_tls_files(tmp_path: Path) -> None:
    options = {"url": "amqps://h/", "cacertfile": "ca.pem", "certfile": "c.pem", "keyfile": "k.pem"}
    host = address(options).parameters()[0]
    assert (host.cacertfile, host.certfile, host.keyfile) == ("ca.pem", "c.pem", "k.pem")
    assert address({"url": "amqps://h/?cacertfile=in-url.pem"}).parameters()[0].cacertfile == "in-url.pem"


def test_what_is_shown_and_pickled_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://u:hunter2@h/")
    monkeypatch.setenv("ORDERS_URL", "amqp://u:hunter2@h/")
    plain = address({"url": "amqp://u:hunter2@h/"})
    for where in (plain, address({"urlfile": str(file)}), address({"urlenv": "ORDERS_URL"})):
        assert "hunter2" not in repr(where) + str(where)
        assert "hunter2" not in repr(where.parameters())
        assert str(where) == "amqp://u@h:5672/"
        assert (b"hunter2" in pickle.dumps(where)) == (where is plain)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"url": "amqp://a/", "urlfile": "f"}, "give the broker once: as option url or urlFile"),
        ({"url": "http://hunter2/"}, "option 'url' must start with amqp:// or amqps://"),
        ({"url": "amqp://a/,http://hunter2/"}, "the vhost has an unescaped slash"),
        ({"url": "amqp://u:hunter2/x@h/"}, "not a URL"),
        ({"url": "amqp://a/x,amqp://b/y"}, "one virtual host, but the URLs name x, y"),
        ({"url": "amqp://u:hunter2@h/", "passwordfile": "f"}, "give the password once"),
        ({"url": "amqp://h/", "cacertfile": "f"}, "option 'cacertFile' is for TLS"),
        ({"url": "amqps://h/", "keyfile": "f"}, "give 'certFile' too"),
    ],
)
def test_what_is_refused_at_once(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        address(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "cannot be read on .*: No such file"),
        ("", "is empty on"),
        ("https://x", "of option 'urlFile' .* must start"),
    ],
)
def test_a_file_that_is_of_no_use(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "url"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidArgument, match=said):
        Address(url_file=str(file)).parameters()
