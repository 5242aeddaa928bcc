from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.options import default_spool, payload_options, queue_option, refuse, sink_options, source_options
from harebell.spark.options.payload import PayloadOptions


def test_defaults_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAREBELL_URL", raising=False)
    options = source_options({"queue": "a"}, streaming=False)
    assert options.queues == ("a",)
    assert options.queue_type == "auto"
    assert options.stream.starting == "earliest"
    assert options.stream.ending == "latest"
    assert options.spool == default_spool()
    assert options.fail_on_data_loss
    assert options.vhost == "/"


def test_names_are_taken_in_any_case_and_several_queues_with_commas() -> None:
    options = source_options({"QUEUES": "a, b,,a", "startingoffsets": '{"a": 3, "b": 0}'}, streaming=True)
    assert options.queues == ("a", "b")
    assert options.stream.starting == {"a": 3, "b": 0}


@pytest.mark.parametrize(
    "names", [("a",), ("a,b", " c ", "d"), ("[a]", '["a"]', "[1]", "[]"), (",",), (" ",), ('"', "\\", "ä")]
)
def test_any_name_can_be_in_a_list_of_queues(names: tuple[str, ...]) -> None:
    for option in ("queue", "queues", "path"):
        assert source_options({option: queue_option(*names)}, streaming=True).queues == names
    places = json.dumps(dict.fromkeys(names, 3))
    options = source_options({"queue": queue_option(*names), "startingOffsets": places}, streaming=True)
    assert options.stream.starting == dict.fromkeys(names, 3)


@pytest.mark.parametrize(
    ("text", "names"),
    [("[a", ("[a",)), ("[a], b", ("[a]", "b")), ("[1]", ("[1]",)), ('["a", 1]', ('["a"', "1]")), ("[]", ("[]",))],
)
def test_what_is_no_list_of_names_is_names_with_commas(text: str, names: tuple[str, ...]) -> None:
    assert source_options({"queue": text}, streaming=True).queues == names


def test_the_argument_of_load_is_the_queue_and_that_of_save_the_exchange() -> None:
    assert source_options({"path": "a"}, streaming=False).queues == ("a",)
    assert sink_options({"path": "ex", "checkpointlocation": "/x"}).exchange == "ex"


def test_the_url_comes_from_the_environment_when_it_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAREBELL_URL", "amqp://u:p@host/my%2Fhost")
    assert source_options({"queue": "a"}, streaming=False).vhost == "my/host"


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "'queue' is missing"),
        ({"queue": " , "}, "'queue' is missing"),
        ({"queue": '["a", ""]'}, "'queue' has an empty name in its list"),
        ({"queue": "a", "queues": "b"}, "once"),
        ({"queue": "a", "prefech": "3"}, "no option 'prefech'.*prefetch"),
        ({"queue": "a", "exchange": "x"}, "option 'exchange' is for writes, and this is a batch read"),
        ({"queue": "a", "maxmessagespertrigger": "5"}, "option 'maxMessagesPerTrigger' is for streaming reads"),
        ({"queue": "a", "queuetype": "lazy"}, "one of: auto, stream, classic, quorum"),
        ({"queue": "a", "prefetch": "0"}, "1 to 65535"),
        ({"queue": "a", "prefetch": "many"}, "takes a number"),
        ({"queue": "a", "failondataloss": "no"}, "true, false"),
        ({"queue": "a", "startingoffsets": "now"}, "startingOffsets"),
        ({"queue": "a", "startingoffsets": '{"b": 1}'}, "a position for 'b', which is none of the queues .*: a"),
        ({"queue": "orders", "startingoffsets": '{"order": 1}'}, r"for 'order' \(is it 'orders'\?\)"),
        ({"queue": "a,b", "startingoffsets": '{"a": 1}'}, "no position for queue 'b'"),
        ({"queue": "a", "prefech": "3"}, r"'prefech' for a batch read \(is it 'prefetch'\?\)"),
        ({"queue": "a", "queuetype": "steam"}, r"'steam' \(is it 'stream'\?\)"),
        ({"queue": "a", "startingoffsets": '{"a": -1}'}, "startingOffsets"),
        ({"queue": "a", "endingoffsets": '{"a": true}'}, "endingOffsets"),
        ({"queue": "a", "url": "http://x"}, "amqp://"),
        ({"queue": "a", "ticket": "../x"}, "'ticket' is '../x'; letters, digits"),
        ({"queue": "a", "ticket": ""}, "'ticket' is ''; letters, digits"),
        ({"queue": "a", "ticket": ".."}, "letters, digits"),
        ({"queue": "a", "ticket": "lock"}, "'ticket' is 'lock', which the spool's own lock is called"),
        ({"queue": "a", "ticket": "LOCK"}, "take another name"),
        ({"queue": "a", "ticket": "t" * 256}, "'ticket' has 256 bytes .*; it takes 255 at most"),
        ({"queue": "a", "ticket": "é" * 128}, "'ticket' has 256 bytes"),
    ],
)
def test_what_a_read_refuses(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        source_options(given, streaming=False)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"exchange": "a", "path": "b"}, "once"),
        ({"queue": "a"}, "option 'queue' is for reads, and this is a write"),
        ({"ids": "uuid"}, "auto, column, none"),
        ({"window": "0"}, "at least 1"),
        ({"dedup": "broker", "ids": "none"}, "'dedup' is 'broker'"),
        ({"dedup": "yes"}, "none, broker"),
        ({"onUnroutable": "retry"}, "fail, drop, alternate"),
        ({"onUnroutable": "drop", "mandatory": "false"}, "needs mandatory=true"),
        ({"onNack": "ignore"}, "fail, retry, drop, alternate"),
        ({"alternateExchange": "a"}, "needs onUnroutable=alternate or onNack=alternate"),
        ({"transactions": "true"}, "none, partition"),
        ({"transactions": "partition", "onNack": "retry"}, "'onNack' means nothing"),
        ({"transactions": "partition", "window": "5"}, "'window' means nothing"),
        ({"transactions": "partition", "onUnroutable": "alternate"}, "cannot be with transactions"),
        ({"exactlyOnce": "true"}, "none, sessions, auto"),
        ({"exactlyOnce": "sessions", "dedup": "broker", "ids": "auto"}, "'dedup' cannot be with exactlyOnce=sessions"),
        ({"exactlyOnce": "auto", "transactions": "partition"}, "'transactions' cannot be with exactlyOnce=auto"),
        ({"exactlyOnce": "sessions", "persistent": "false"}, "needs persistent=true"),
        ({"exactlyOnce": "sessions", "sessionTimeout": "0"}, "1 to 4294967295"),
        ({"sessionTimeout": "60"}, "'sessionTimeout' needs exactlyOnce=sessions or exactlyOnce=auto"),
        ({"failOnLostState": "false"}, "'failOnLostState' needs exactlyOnce"),
        ({"maxRate": "0"}, "at least 0.001"),
        ({"maxRate": "nan"}, "at least 0.001"),
        ({"priority": "256"}, "0 to 255"),
        ({"expiration": "1h"}, "takes a number"),
        ({"timestamp": "2026-01-05T00:00:00"}, "with its zone"),
        ({"timestamp": "today"}, "takes 'now' or"),
        ({"appId": "é" * 128}, "'app_id' is longer than the 255 bytes"),
    ],
)
def test_what_a_write_refuses(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        sink_options(given)


@pytest.mark.parametrize("text", ["inf", "-inf", "Infinity", "1e400", "nan"])
def test_a_number_is_finite(text: str) -> None:
    for name in ("timeout", "retryTimeout", "blockedTimeout", "maxRate"):
        with pytest.raises(InvalidArgument, match=f"option '{name}' is '{text}'; it takes a number, at least"):
            sink_options({name: text})
    for name in ("timeout", "retryTimeout", "readTimeout", "dedupWindow"):
        with pytest.raises(InvalidArgument, match=f"option '{name}' is '{text}'; it takes a number, at least"):
            source_options({"queue": "q", name: text}, streaming=False)


def test_what_exactly_once_means_for_the_others() -> None:
    plain = sink_options({})
    assert (plain.exactly_once, plain.ids, plain.timeout_given) == ("none", "auto", False)
    asked = sink_options({"exactlyOnce": "sessions"})
    assert (asked.ids, asked.session_timeout, asked.fail_on_lost_state) == ("none", 3600, True)
    given = {"exactlyOnce": "auto", "ids": "auto", "sessionTimeout": "60", "failOnLostState": "false"}
    asked = sink_options(given)
    assert (asked.ids, asked.session_timeout, asked.timeout_given) == ("auto", 60, True)
    assert not asked.fail_on_lost_state


def test_an_ending_is_for_batch_reads_and_a_ticket_too() -> None:
    for name, value in (("endingOffsets", "latest"), ("ticket", "t")):
        with pytest.raises(InvalidArgument, match="is for batch reads, and this is a streaming read"):
            source_options({"queue": "a", name: value}, streaming=True)


KINDS: list[tuple[str, str, Literal["stream", "spool"], str]] = [
    ("spool", "/x", "stream", "unused"),
    ("dedupWindow", "5", "stream", "unused"),
    ("ordered", "true", "stream", "obeyed"),
    ("ticket", "t", "stream", "refused"),
    ("startingOffsets", "latest", "stream", "obeyed"),
    ("failOnDataLoss", "false", "stream", "obeyed"),
    ("spool", "/x", "spool", "obeyed"),
    ("ordered", "true", "spool", "obeyed"),
    ("ticket", "t", "spool", "obeyed"),
    ("failOnDataLoss", "false", "spool", "unused"),
    ("startingOffsets", "latest", "spool", "refused"),
    ("endingOffsets", "latest", "spool", "refused"),
    ("startingTimestamp", "5", "spool", "refused"),
    ("routingKeyPattern", "#", "spool", "refused"),
    ("filterValues", "a", "spool", "refused"),
]


@pytest.mark.parametrize("name, value, kind, outcome", KINDS)
def test_options_of_the_other_kind_of_queue(
    name: str, value: str, kind: Literal["stream", "spool"], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What would choose messages is refused; how the other kind is read does not matter, and is said once."""
    queue = f"{name}.{kind}"
    options = source_options({"queue": queue, name: value}, streaming=False)
    if outcome == "refused":
        with pytest.raises(InvalidArgument, match=f"'{name}' means nothing for a .* queue .{queue}"):
            refuse(options, kind)
        return
    for _ in range(2):
        refuse(options, kind)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (outcome == "unused")
    assert all(f"option '{name}' is unused for a" in each and queue in each for each in said)


def test_the_default_spool_is_not_in_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_spool() == tmp_path / "harebell" / "spool"


def test_what_is_asked_for_about_payloads() -> None:
    assert source_options({"queue": "a"}, streaming=True).payload == PayloadOptions()
    given = {"queue": "a", "payload": "JSON", "payloadschema": "a int", "extrafields": "corrupt", "encoding": "Latin-1"}
    more = {"compression": "gzip", "badrows": "dead-letter", "badrowsexchange": "", "badrowsroutingkey": "dead"}
    assert source_options(given | more, streaming=True).payload == PayloadOptions(
        format="json",
        schema="a int",
        bad_rows="dead-letter",
        bad_exchange="",
        bad_routing_key="dead",
        extra_fields="corrupt",
        charset="latin-1",
        compression="gzip",
    )
    sampled = payload_options({"payload": "json", "samplemessages": "5", "encoding": "auto"})
    assert sampled == PayloadOptions("json", sample=5)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"payload": "xml"}, "'payload' is 'xml'; it takes one of: binary, text, json, avro"),
        ({"badrows": "fail"}, "'badRows' means nothing here: it goes with payload=text, json or avro"),
        ({"payload": "binary", "encoding": "utf-8"}, "'encoding' means nothing here"),
        ({"payload": "avro", "payloadschema": "{}", "encoding": "utf-8"}, "it goes with payload=text or json"),
        ({"payload": "text", "payloadschema": "a int"}, "it goes with payload=json or avro"),
        ({"payload": "text", "extrafields": "ignore"}, "it goes with payload=json"),
        ({"payload": "json", "payloadschema": "a int", "samplemessages": "5"}, "payload=json without payloadSchema"),
        ({"payload": "json", "samplemessages": "0"}, "'sampleMessages' is '0'"),
        ({"payload": "avro"}, "payload=avro needs option 'payloadSchema'"),
        ({"payload": "text", "badrows": "dead-letter"}, "needs option 'badRowsExchange'"),
        ({"payload": "text", "badrows": "fail", "corruptcolumn": "c"}, "it goes with badRows=column"),
        ({"payload": "text", "badrowsexchange": "x"}, "it goes with badRows=dead-letter"),
        ({"payload": "text", "badrows": "dead-letter", "badrowsexchange": ""}, "give option 'badRowsRoutingKey'"),
        ({"payload": "text", "encoding": "klingon"}, "'encoding' is 'klingon'; it takes 'auto' or a charset"),
        ({"payload": "text", "encoding": "base64"}, "'encoding' is 'base64'"),
        ({"payload": "text", "compression": "br"}, "'compression' is 'br'; it takes one of: auto, none, gzip"),
    ],
)
def test_what_is_refused_about_payloads(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        source_options({"queue": "a", **given}, streaming=False)


def test_options_of_a_drain() -> None:
    options = source_options({"queue": "q"}, streaming=True)
    assert (options.prefetch, options.drain_prefetch, options.ordered) == (5000, 20_000, False)
    assert (options.max_bytes, options.min_messages, options.max_delay) == (None, 1, 900.0)
    given = {"prefetch": "7", "maxBytesPerTrigger": "10", "minMessagesPerTrigger": "3", "maxTriggerDelay": "1.5"}
    options = source_options({"queue": "q", "ordered": "true", **given}, streaming=True)
    assert (options.prefetch, options.drain_prefetch, options.ordered) == (7, 7, True)
    assert (options.max_bytes, options.min_messages, options.max_delay) == (10, 3, 1.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ordered": "true", "minPartitions": "2"}, "each queue is read in one task"),
        ({"maxTriggerDelay": "3"}, "is for 'minMessagesPerTrigger'"),
        ({"maxBytesPerTrigger": "0"}, "takes a number, at least 1"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        source_options({"queue": "q", **given}, streaming=True)
