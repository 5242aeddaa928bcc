"""The engines of a broker, and every way in for a pattern: evil ones are refused or quick, on disk too."""

from __future__ import annotations

import itertools
import logging
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harebell.broker.auth.users import found
from harebell.broker.operations.administration import administer
from harebell.broker.operations.definitions import import_definitions
from harebell.broker.patterns import MOST_STEPS, PATTERNS, bounded, linear
from harebell.errors import AmqpError, InvalidArgument
from harebell.protocol.v091 import methods as m
from harebell.routing.definitions import Permission, TopicPermission, parse_definitions
from harebell.routing.pattern_language import BadPattern, read_pattern
from harebell.routing.patterns import Engine, Patterns, Search, standard
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit
from tests.routing.regular_expressions import PATTERNS as REGULAR_EXPRESSIONS

LONGEST = 1.0  # seconds of CPU that a search may take: ten times what the worst takes; what backtracks takes hours
EVIL = {
    "nested repeats": "^(a+)+$",
    "repeated branches": "^(a|a)*$",
    "a repeat in a repeat": "^(([a-z])+.)+[A-Z]([a-z])+$",
    "many optional characters": "^" + "a?" * 60 + "a" * 60 + "$",
    "many repeats": ".*.*.*.*.*.*.*=.*",
    "polynomial": "^a*a*a*a*a*b",
}
REFUSED = {
    "malformed": "(",
    "nested 3,000 deep": "(" * 3000 + "a" + ")" * 3000,
    "nested 1,000 deep": "(" * 1000 + "a" + ")" * 1000,
    "a number that overflows": "a{99999999999999999999}",
    "a large number": "a{0,65536}",
    "numbers that multiply": "((a{1000}){1000}){1000}",
    "long": "a" * 100_000,
    "a back-reference": r"^(a+)\1$",
    "look-ahead": "a(?=b)",
    "look-behind": "(?<!a)b",
    "no UTF-8": "\ud800",
}
NAMES = ("a" * 254 + "!", "a" * 255, "ab" * 127, "é" * 127)
DEFINITION = {"max-length": 1}

Door = Callable[[NodeKit, str], object]


def defined(section: str, **entry: object) -> Door:
    """A definitions file with the pattern where `entry` has None."""

    def come(kit: NodeKit, pattern: str) -> object:
        filled = {key: pattern if value is None else value for key, value in entry.items()}
        return import_definitions(kit.node, parse_definitions({section: [{"vhost": "/", **filled}]}))

    return come


def asked(do: str, **fields: object) -> Door:
    def come(kit: NodeKit, pattern: str) -> object:
        filled = {key: pattern if value is None else value for key, value in fields.items()}
        return administer(kit.node, {"do": do, "vhost": "/", **filled})

    return come


def policy(operator: bool) -> Door:
    return lambda kit, pattern: kit.node.vhosts["/"].policies.set(
        Policy("/", "p", pattern, dict(DEFINITION)), operator=operator
    )


def permission(*given: str | None) -> Door:
    def come(kit: NodeKit, pattern: str) -> None:
        configure, write, read = (pattern if each is None else each for each in given)
        kit.node.users.set_permission(Permission("/", "guest", configure, write, read))

    return come


def topic_permission(*given: str | None) -> Door:
    def come(kit: NodeKit, pattern: str) -> None:
        write, read = (pattern if each is None else each for each in given)
        kit.node.users.set_topic_permission(TopicPermission("/", "guest", "amq.topic", write, read))

    return come


def parameter(component: str) -> Door:
    """RabbitMQ writes operator policies among the parameters."""

    def come(kit: NodeKit, pattern: str) -> object:
        value = {"pattern": pattern, "definition": DEFINITION}
        entry = {"vhost": "/", "component": component, "name": "p", "value": value}
        return import_definitions(kit.node, parse_definitions({"parameters": [entry]}))

    return come


DOORS: dict[str, Door] = {
    "policy": policy(operator=False),
    "operator policy": policy(operator=True),
    "permission to configure": permission(None, "", ""),
    "permission to write": permission("", None, ""),
    "permission to read": permission("", "", None),
    "topic permission to write": topic_permission(None, ""),
    "topic permission to read": topic_permission("", None),
    "a file's policy": defined("policies", name="p", pattern=None, definition=DEFINITION),
    "a file's operator policy": parameter("operator_policy"),
    "a file's permission": defined("permissions", user="guest", configure="", write=None, read=""),
    "a file's topic permission": defined("topic_permissions", user="guest", exchange="x", write="", read=None),
    "a request's policy": asked("set-policy", name="p", pattern=None, definition=DEFINITION),
    "a request's operator policy": asked("set-policy", name="p", pattern=None, definition=DEFINITION, operator=True),
    "a request's permission": asked("set-permission", user="guest", configure=None, write="", read=""),
    "a request's topic permission": asked("set-topic-permission", user="guest", exchange="x", write=None, read=""),
}


@pytest.fixture(params=["re2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Each engine in turn is the one of all brokers."""
    chosen: Engine = bounded
    if request.param == "re2":
        pytest.importorskip("re2")
        made = linear()
        assert made is not None
        chosen = made
    use(monkeypatch, chosen)
    yield chosen
    found.cache_clear()
    PATTERNS.search.cache_clear()  # type: ignore[attr-defined]


def use(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(PATTERNS, "_engine", engine)
    found.cache_clear()
    PATTERNS.search.cache_clear()  # type: ignore[attr-defined]


def seconds(search: Search) -> float:
    longest = 0.0
    for name in NAMES:
        started = time.thread_time()
        search(name)
        longest = max(longest, time.thread_time() - started)
    return longest


@pytest.mark.repeats
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("evil", [*REFUSED, *EVIL])
def test_an_evil_pattern_is_refused_or_quick(kit: NodeKit, engine: Engine, door: str, evil: str) -> None:
    pattern = REFUSED.get(evil) or EVIL[evil]
    started = time.thread_time()
    refusal = ""
    try:
        DOORS[door](kit, pattern)
    except (InvalidArgument, AmqpError) as error:
        refusal = str(error)
    if refusal:
        assert evil in REFUSED or (engine is bounded and "harebell[server]" in refusal)
        assert "regular expression" in refusal or "has no UTF-8 form" in refusal
        assert kit.node.vhosts["/"].policies.policies == {}
        assert kit.node.users.permissions["/", "guest"] == Permission("/", "guest", ".*", ".*", ".*")
        assert kit.node.users.topic_permissions == {}
    else:
        assert evil in EVIL
        assert engine is not bounded
        assert seconds(PATTERNS.search(pattern)) < LONGEST
    assert time.thread_time() - started < 4 * LONGEST


@pytest.mark.parametrize("door", DOORS)
def test_a_common_pattern_comes_in_everywhere(kit: NodeKit, engine: Engine, door: str) -> None:
    for pattern in ("", ".*", "^amq\\.", "^(?!amq\\.).*", "^orders-[0-9]+$", "^(a|b|c)\\.", "^{username}\\..*"):
        DOORS[door](kit, pattern)


@given(REGULAR_EXPRESSIONS, st.lists(st.text("abB1.-_ é\n", max_size=8), min_size=1, max_size=8))
def test_both_engines_give_the_same_verdict(pattern: str, names: list[str]) -> None:
    pytest.importorskip("re2")
    ours = linear()
    assert ours is not None
    fast, slow = Patterns(ours), Patterns(bounded)
    if (problem := slow.problem(pattern)) is not None:
        assert "harebell[server]" in problem.problem
        slow = Patterns(standard)
    assert [fast.search(pattern)(name) for name in names] == [slow.search(pattern)(name) for name in names]


LARGE = [
    ".{1000}",
    ".{0,1000}",
    "(?:.?){1000}",
    "(?:a?){1000}" * 5,
    "a" * 4096,
    "(.*a){800}b",
    "[^a]{1000}",
    "|".join(string.ascii_letters * 39),
    f"[{''.join(chr(0x800 + 50 * number) for number in range(1000))}]",
    "(?i)" + "[a-z]" * 800,
    "^" + "(?:a|a)" * 15 + "[ab]" * 60 + "b",
    "a*" + "a" * 128 + "b$",
    "^.*.*" + "." * 14 + "b$",
    "a" * 16 + "|b*" * 999,
]


@pytest.mark.parametrize("pattern", LARGE, ids=range(len(LARGE)))
def test_what_the_reader_takes_is_quick(pattern: str) -> None:
    reading = read_pattern(pattern)
    engine = linear()
    if engine is not None:
        assert seconds(engine(reading)) < LONGEST
    if reading.steps <= MOST_STEPS:
        assert seconds(bounded(reading)) < LONGEST


def test_no_name_is_longer_than_a_name(engine: Engine) -> None:
    assert PATTERNS.search("a")("a" * 255)
    assert not PATTERNS.search("a")("a" * 256)


def test_what_is_no_utf_8_is_one_character(engine: Engine) -> None:
    assert PATTERNS.search("^.*$")("a\udc80")
    assert PATTERNS.search("^a.$")("a\udc80")
    assert not PATTERNS.search(r"^a\w$")("a\udc80")


def test_without_re2_the_refusal_names_the_extra() -> None:
    with pytest.raises(BadPattern, match=r"pip install 'harebell\[server\]'"):
        bounded(read_pattern("^(a+)+$"))


def test_what_an_older_version_left_gives_nothing_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A catalog may hold a pattern that is refused now: the start goes on, the log says so, and nobody has access."""
    kit = NodeKit(tmp_path / "data")
    monkeypatch.setattr(PATTERNS, "check", lambda pattern: None)
    Client(kit.node).call(m.QueueDeclare(queue="q", durable=True), m.QueueDeclareOk)
    left = {"policy": r"(q)\1*", "operator policy": "(q)++", "permission": "(?=q)", "topic permission": "(?<=q)"}
    policies = kit.node.vhosts["/"].policies
    policies.set(Policy("/", "p", left["policy"], {"max-length": 1}))
    policies.set(Policy("/", "o", left["operator policy"], {"max-length": 1}), operator=True)
    kit.node.users.set_permission(Permission("/", "guest", ".*", ".*", left["permission"]))
    kit.node.users.set_topic_permission(TopicPermission("/", "guest", "amq.topic", left["topic permission"], ""))
    kit.stop()
    monkeypatch.undo()
    with caplog.at_level(logging.ERROR, "harebell.broker.recovery"):
        kit = NodeKit(tmp_path / "data")
    try:
        said = [each.getMessage() for each in caplog.records if each.name == "harebell.broker.recovery"]
        assert len(said) == 4
        for text, what in itertools.zip_longest(
            said, ("permission", "permission", "policy 'p'", "operator policy 'o'")
        ):
            assert text.startswith(what)
            assert "set it anew" in text
        client = Client(kit.node)
        (queue,) = kit.node.vhosts["/"].queues.values()
        assert queue.settings.max_length is None, "no policy applies"
        client.send(1, m.BasicGet(queue="q"))
        assert isinstance(client.events[-1][1], m.ChannelClose)
        assert kit.node.users.permissions["/", "guest"].read == left["permission"], "it is as it was"
    finally:
        kit.stop()
