from __future__ import annotations

import ssl

import pytest

from harebell.client.url import ConnectionParameters, parameters_of, parse_url
from harebell.errors import InvalidArgument


def test_every_part_has_a_default() -> None:
    assert parse_url("amqp://") == ConnectionParameters()
    assert parse_url("amqps://") == ConnectionParameters(port=5671, tls=True)


@pytest.mark.parametrize(
    "url, vhost",
    [
        ("amqp://host", "/"),
        ("amqp://host/", "/"),
        ("amqp://host/%2F", "/"),
        ("amqp://host/%2f", "/"),
        ("amqp://host/orders", "orders"),
        ("amqp://host/a%2Fb%20c", "a/b c"),
        ("amqp://host/%C3%A9?heartbeat=1", "é"),
    ],
)
def test_vhost(url: str, vhost: str) -> None:
    assert parse_url(url).vhost == vhost


def test_parts_are_percent_decoded_one_by_one() -> None:
    parameters = parse_url("amqp://us%40er:p%3Ass%2Fw%25@example.org:1234/v")
    assert (parameters.username, parameters.password) == ("us@er", "p:ss/w%")
    assert (parameters.host, parameters.port) == ("example.org", 1234)


def test_a_user_without_a_password_has_an_empty_one() -> None:
    assert parse_url("amqp://user@host").password == ""
    assert parse_url("amqp://host").password == "guest"


def test_ipv6() -> None:
    parameters = parse_url("amqp://[::1]:5673/")
    assert (parameters.host, parameters.port) == ("::1", 5673)
    assert parameters.peer == "amqp://guest@[::1]:5673/"


def test_query() -> None:
    parameters = parse_url(
        "amqp://h/?heartbeat=7&connection_timeout=2500&channel_max=9&frame_max=8192&auth_mechanism=amqplain"
        "&connection_name=my%20program"
    )
    assert parameters.heartbeat == 7
    assert parameters.timeout == 2.5
    assert parameters.channel_max == 9
    assert parameters.frame_max == 8192
    assert parameters.mechanisms == ("AMQPLAIN",)
    assert parameters.name == "my program"
    assert parse_url("amqp://").name == ""


def test_arguments_win_over_the_query() -> None:
    parameters = parse_url("amqp://h/?heartbeat=7&connection_timeout=2500", timeout=9, heartbeat=1)
    assert (parameters.timeout, parameters.heartbeat) == (9, 1)


@pytest.mark.parametrize(
    "url, word",
    [
        ("http://host/", "http"),
        ("localhost:5672", "localhost"),
        ("amqp://host/?verfiy=verify_none", "verfiy"),
        ("amqp://host/?heartbeat=-1", "heartbeat"),
        ("amqp://host/?heartbeat=x", "heartbeat"),
        ("amqp://host/?heartbeat=1&heartbeat=2", "twice"),
        ("amqp://host/?heartbeat", "malformed"),
        ("amqp://host/?frame_max=100", "4096"),
        ("amqp://host/?channel_max=70000", "65535"),
        ("amqp://host/?auth_mechanism=NTLM", "NTLM"),
        ("amqp://host/?cacertfile=/x", "amqps"),
        ("amqps://host/?verify=sometimes", "verify_peer"),
        ("amqp://host/a/b", "%2F"),
        ("amqp://host/v#f", "%23"),
        ("amqp://host:port/", "the port as a number"),
        ("amqp://guest:\udcff@host/", "no UTF-8 form"),
    ],
)
def test_what_is_refused(url: str, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        parse_url(url)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_timeout_is_positive(timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        parse_url("amqp://host", timeout=timeout)


def test_the_password_is_in_no_text() -> None:
    parameters = parse_url("amqps://user:secret@host/?password=hidden")
    assert "secret" not in repr(parameters) + parameters.peer
    assert "hidden" not in repr(parameters)


def test_tls_verifies_unless_told_not_to() -> None:
    assert parse_url("amqp://host").ssl_context() is None
    checking = parse_url("amqps://host").ssl_context()
    trusting = parse_url("amqps://host?verify=verify_none").ssl_context()
    assert checking is not None
    assert trusting is not None
    assert checking.verify_mode is ssl.CERT_REQUIRED
    assert checking.check_hostname
    assert trusting.verify_mode is ssl.CERT_NONE


def test_a_tls_file_that_cannot_be_used_is_named() -> None:
    with pytest.raises(InvalidArgument, match="/no/such/file"):
        parse_url("amqps://host?cacertfile=/no/such/file").ssl_context()


def test_a_context_of_ones_own() -> None:
    context = ssl.create_default_context()
    assert parse_url("amqps://host", context=context).ssl_context() is context
    with pytest.raises(InvalidArgument, match="amqps"):
        parse_url("amqp://host", context=context)


def test_parameters_instead_of_a_url() -> None:
    given = ConnectionParameters(host="h", timeout=3, heartbeat=9)
    assert parameters_of(given) == given
    assert parameters_of(given, timeout=1, heartbeat=2) == ConnectionParameters(host="h", timeout=1, heartbeat=2)
    assert parameters_of("amqp://h", timeout=1) == ConnectionParameters(host="h", timeout=1)
    with pytest.raises(InvalidArgument, match="timeout"):
        parameters_of(given, timeout=0)
    with pytest.raises(InvalidArgument, match="TLS"):
        parameters_of(given, context=ssl.create_default_context())


def test_a_certificate_instead_of_a_user_means_external() -> None:
    assert parse_url("amqps://host?certfile=/x").mechanisms[0] == "EXTERNAL"
    assert "EXTERNAL" not in parse_url("amqps://user@host?certfile=/x").mechanisms


def test_port_0_is_no_port() -> None:
    with pytest.raises(InvalidArgument, match="port is 0"):
        parse_url("amqp://localhost:0/")
