"""Administration by requests: what each does, what is refused, who may ask, and that no hash shows anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.broker.auth.users import make_user
from harebell.broker.operations.administration import COMMANDS, administer
from harebell.broker.operations.firehose import set_tracing
from harebell.broker.transactions.branch import Xid
from harebell.broker.v010.sessions import Sessions
from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.errors import AccessRefused, AmqpError, NotAllowed, PreconditionFailed
from harebell.protocol.v091 import methods as m
from harebell.routing.definitions import Permission
from tests.broker.kit import Client, NodeKit
from tests.wire import BrokerThread

SECRET = make_user("u", "a secret", (), RABBITMQ_SHA256, scram=True)
HASHES = {"password_hash": SECRET.password_hash, "hashing_algorithm": RABBITMQ_SHA256}
REPLIES = "amq.rabbitmq.reply-to"

# For each command a request that a broker with user "u", vhost "v" and policy "p" can fulfil.
REQUESTS: dict[str, dict[str, object]] = {
    "list-users": {},
    "add-user": {"name": "new", **HASHES, "tags": ["monitoring"]},
    "set-password": {"name": "u", **HASHES},
    "set-tags": {"name": "u", "tags": ["a", "b"]},
    "set-user-limits": {"name": "u", "limits": {"max-channels": 3}},
    "delete-user": {"name": "u"},
    "list-vhosts": {},
    "add-vhost": {"name": "new", "description": "New", "tags": ["x"], "default_queue_type": "quorum"},
    "set-vhost-limits": {"name": "v", "limits": {"max-queues": 3}},
    "delete-vhost": {"name": "v"},
    "list-permissions": {"user": "guest"},
    "set-permission": {"vhost": "v", "user": "u", "configure": "a", "write": "b", "read": "c"},
    "clear-permission": {"vhost": "v", "user": "u"},
    "list-topic-permissions": {"vhost": "v"},
    "set-topic-permission": {"vhost": "v", "user": "u", "exchange": "amq.topic", "write": "b", "read": "c"},
    "clear-topic-permission": {"vhost": "v", "user": "u", "exchange": "amq.topic"},
    "list-policies": {},
    "set-policy": {"vhost": "v", "name": "new", "pattern": "q", "definition": {"max-length": 3}, "priority": 2},
    "clear-policy": {"vhost": "v", "name": "p"},
    "export-definitions": {"vhost": "/"},
    "list-sessions": {},
    "end-session": {"session": "s", "user": "guest", "vhost": "/"},
    "list-transactions": {},
    "commit-transaction": {"transaction": "1:t:b", "vhost": "/"},
    "roll-back-transaction": {"transaction": "1:t:b", "vhost": "/"},
    "import-definitions": {"definitions": {"vhosts": [{"name": "v"}]}},
}


def prepare(node: Any) -> None:
    """User "u", vhost "v", policy "p", a session "s" of AMQP 0-10 without a connection, a prepared transaction."""
    for request in (
        {"do": "add-user", "name": "u", **HASHES},
        {"do": "add-vhost", "name": "v"},
        {"do": "set-policy", "vhost": "v", "name": "p", "pattern": "q", "definition": {"max-length": 1}},
    ):
        administer(node, request)
    link: Any = SimpleNamespace(node=node, batch=node.batch, vhost=node.vhosts["/"], access=None, user="guest")
    sessions = Sessions(node)
    session = sessions.add(link, 0, b"s")
    sessions.grant(session, 60)
    node.batch.slices.run(sessions.leave(session))
    branch = node.branches.begin("/", Xid(1, b"t", b"b"), "guest")
    node.batch.slices.run(node.branches.preparing(branch))


@pytest.fixture
def node(kit: NodeKit) -> Any:
    prepare(kit.node)
    return kit.node


def do(node: Any, command: str, **changes: object) -> Any:
    return administer(node, {"do": command, **REQUESTS[command], **changes})


def listed(node: Any, kind: str, **fields: object) -> list[Any]:
    found = administer(node, {"do": f"list-{kind}", **fields})
    assert isinstance(found, list)
    json.dumps(found)
    return found


def test_users(node: Any) -> None:
    do(node, "add-user", scram_sha_256=SECRET.extra["scram_sha_256"])
    do(node, "set-tags")
    do(node, "set-user-limits")
    by_name = {user["name"]: user for user in listed(node, "users")}
    assert by_name["new"]["tags"] == ["monitoring"]
    assert (by_name["u"]["tags"], by_name["u"]["limits"]) == (["a", "b"], {"max-channels": 3})
    assert SECRET.password_hash is not None
    assert SECRET.password_hash not in json.dumps(list(by_name.values()))
    do(node, "delete-user")
    assert {user["name"] for user in listed(node, "users")} == {"guest", "new"}


def test_a_password_in_place_of_another(node: Any) -> None:
    other = make_user("u", "other", scram=True)
    do(node, "set-tags")
    do(
        node, "set-password", password_hash=other.password_hash, hashing_algorithm=other.hashing_algorithm,
        scram_sha_256=other.extra["scram_sha_256"],
    )  # fmt: skip
    user = node.users.users["u"]
    assert (user.password_hash, user.extra, user.tags) == (other.password_hash, other.extra, ("a", "b"))
    do(node, "set-password")
    assert node.users.users["u"].extra == {}, "keys of the password before would let it in"


def test_vhosts(node: Any) -> None:
    do(node, "add-vhost")
    do(node, "set-vhost-limits")
    do(node, "set-vhost-limits", limits={"max-connections": 5})
    by_name = {vhost["name"]: vhost for vhost in listed(node, "vhosts")}
    assert by_name["v"]["limits"] == {"max-queues": 3, "max-connections": 5}
    new = by_name["new"]
    assert (new["description"], new["tags"], new["default_queue_type"], new["queues"]) == ("New", ["x"], "quorum", 0)
    do(node, "delete-vhost")
    assert {vhost["name"] for vhost in listed(node, "vhosts")} == {"/", "new"}


def test_permissions(node: Any) -> None:
    do(node, "set-permission")
    do(node, "set-topic-permission")
    where = {"vhost": "v", "user": "u"}
    assert listed(node, "permissions", user="u") == [{**where, "configure": "a", "write": "b", "read": "c"}]
    assert listed(node, "topic-permissions") == [{**where, "exchange": "amq.topic", "write": "b", "read": "c"}]
    assert len(listed(node, "permissions")) == 2
    do(node, "clear-permission")
    do(node, "clear-topic-permission")
    assert listed(node, "permissions", vhost="v") == listed(node, "topic-permissions") == []


def test_policies(node: Any) -> None:
    do(node, "set-policy")
    do(node, "set-policy", operator=True)
    assert [(each["name"], each["operator"], each["priority"]) for each in listed(node, "policies", vhost="v")] == [
        ("p", False, 0), ("new", False, 2), ("new", True, 2),
    ]  # fmt: skip
    do(node, "clear-policy")
    do(node, "clear-policy", name="new", operator=True)
    assert [each["name"] for each in listed(node, "policies")] == ["new"]


def test_sessions(node: Any) -> None:
    (session,) = listed(node, "sessions")
    assert (session["session"], session["user"], session["timeout"]) == ("s", "guest", 60)
    assert do(node, "end-session") is None
    assert listed(node, "sessions") == []


@pytest.mark.parametrize("verb", ["commit", "roll-back"])
def test_transactions(node: Any, verb: str) -> None:
    (found,) = listed(node, "transactions")
    assert found == {
        "transaction": "1:t:b", "vhost": "/", "user": "guest", "state": "prepared", "messages": 0, "taken": 0,
        "timeout": 60, "sessions": 0,
    }  # fmt: skip
    assert do(node, f"{verb}-transaction") is None
    (found,) = listed(node, "transactions")
    assert found["state"] == {"commit": "committed by hand", "roll-back": "rolled back by hand"}[verb]
    with pytest.raises(PreconditionFailed, match="and not prepared"):
        do(node, f"{verb}-transaction")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"do": "commit-transaction", "transaction": "x", "vhost": "/"}, "no transaction 'x' in vhost '/'"),
        ({**REQUESTS["end-session"], "do": "end-session", "user": "u"}, "user 'u' has no session 's' in vhost '/'"),
        (None, "a request is an object"),
        ({"do": 5}, "a request is an object"),
        ({"do": "dance"}, "there is no 'dance' to do, only list-users, add-user"),
        ({"do": "delete-user"}, r"needs \[name \(str\)\] and takes \[\]; wrong here: name"),
        ({"do": "delete-user", "name": 5}, "wrong here: name"),
        ({"do": "delete-user", "name": "u", "password": "x"}, "wrong here: password"),
        ({"do": "delete-user", "name": ""}, "name is to have 1 to 255 bytes"),
        ({"do": "add-vhost", "name": "é" * 128}, "name is to have 1 to 255 bytes"),
        ({"do": "add-vhost", "name": "\ud800"}, "name is to have 1 to 255 bytes of UTF-8"),
        ({"do": "delete-user", "name": "nobody"}, "no user 'nobody'"),
        ({"do": "set-tags", "name": "u", "tags": [1]}, "tags are a list of words"),
        ({"do": "add-user", "name": "u", **HASHES}, "user 'u' is there already"),
        ({"do": "add-user", "name": "x", "password_hash": "?", "hashing_algorithm": RABBITMQ_SHA256}, "not base64"),
        ({"do": "add-user", "name": "x", "password_hash": "", "hashing_algorithm": "md5"}, "hashing algorithm 'md5'"),
        ({"do": "add-user", "name": "x", **HASHES, "scram_sha_256": "?"}, "scram_sha_256 is not as"),
        ({"do": "set-user-limits", "name": "u", "limits": {"max-hats": 1}}, "max-hats"),
        ({"do": "set-user-limits", "name": "u", "limits": {"max-channels": -2}}, "a whole number from -1 on"),
        ({"do": "set-vhost-limits", "name": "v", "limits": {"max-queues": -2}}, "a whole number from -1 on"),
        ({"do": "add-vhost", "name": "v"}, "vhost 'v' is there already"),
        ({"do": "add-vhost", "name": "x", "default_queue_type": "heap"}, "'heap' is none of"),
        ({"do": "delete-vhost", "name": "x"}, "no vhost 'x'"),
        ({"do": "set-vhost-limits", "name": "x", "limits": {}}, "no vhost 'x'"),
        ({**REQUESTS["set-permission"], "do": "set-permission", "vhost": "x"}, "no vhost 'x'"),
        ({**REQUESTS["set-permission"], "do": "set-permission", "user": "x"}, "no user 'x'"),
        ({**REQUESTS["set-permission"], "do": "set-permission", "read": "["}, "is not a regular expression"),
        ({**REQUESTS["clear-permission"], "do": "clear-permission", "user": "x"}, "no user 'x'"),
        ({**REQUESTS["set-policy"], "do": "set-policy", "definition": {"x": 1}}, "x"),
        ({**REQUESTS["set-policy"], "do": "set-policy", "apply_to": "hats"}, "hats"),
        ({"do": "clear-policy", "vhost": "v", "name": "x"}, "no policy 'x' in vhost 'v'"),
    ],
)
def test_what_is_refused_changes_nothing(node: Any, request_: object, says: str) -> None:
    before = [listed(node, kind) for kind in ("users", "vhosts", "permissions", "policies")]
    with pytest.raises(AmqpError, match=says):
        administer(node, request_)
    assert [listed(node, kind) for kind in ("users", "vhosts", "permissions", "policies")] == before


# -- the service


def ask(client: Client, **request: object) -> Any:
    client.declare("answers")
    client.publish("amq.administer", json.dumps(request).encode(), "amq.system", reply_to="answers")
    answer = client.get("answers")
    assert answer is not None
    return json.loads(answer.body)


def test_over_the_system_exchange(client: Client, kit: NodeKit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert ask(client, do="add-user", name="orders", **HASHES) is None
    assert [user["name"] for user in ask(client, do="list-users")] == ["guest", "orders"]
    assert "user 'guest' did add-user: name 'orders'" in caplog.text
    assert SECRET.password_hash is not None
    assert SECRET.password_hash not in caplog.text
    refused = ask(client, do="delete-user", name="guest")
    assert refused["error"] == "precondition_failed"
    assert "log in as another" in refused["reason"]
    assert "connect to another" in ask(client, do="delete-vhost", name="/")["reason"]
    assert "not JSON" in _answer_to(client, b"[" * 50_000)["reason"]
    assert "not JSON" in _answer_to(client, b"{")["reason"]


def test_events_name_the_client_that_asked(client: Client, kit: NodeKit) -> None:
    users: dict[str, object] = {}
    kit.node.events.watch(lambda name, headers: users.update({name: headers.get("user_who_performed_action")}))
    for command in ("add-vhost", "add-user", "delete-vhost", "delete-user"):
        assert ask(client, **{"do": command, **REQUESTS[command], "name": "new"}) is None
    named = ("vhost.created", "user.created", "vhost.deleted", "user.deleted")
    assert {name: users.get(name) for name in named} == dict.fromkeys(named, "guest")


RECORDED = [*(name for name, command in COMMANDS.items() if command.changes), "end-session"]
FIRST = {"clear-permission": "set-permission", "clear-topic-permission": "set-topic-permission"}
OTHER = {"password_hash": make_user("u", "other", (), RABBITMQ_SHA256).password_hash}


@pytest.mark.parametrize("command", RECORDED)
def test_each_change_over_the_service_is_in_the_audit_log(client: Client, kit: NodeKit, command: str) -> None:
    prepare(kit.node)
    if command in FIRST:
        do(kit.node, FIRST[command])
    acts = kit.node.events.audit.acts
    acts.clear()
    request = {"do": command, **REQUESTS[command], **(OTHER if command == "set-password" else {})}
    assert ask(client, **request) in (None, [])
    done = [each for each in acts if each.name != "answers"]
    assert done
    assert {(each.user, each.protocol, each.outcome) for each in done} == {("guest", "amqp 0-9-1", "done")}


@pytest.mark.parametrize(("command", "act"), [
    ("commit-transaction", "committed"), ("roll-back-transaction", "rolled back"),
])  # fmt: skip
def test_a_decided_transaction_is_in_the_audit_log(node: Any, command: str, act: str) -> None:
    do(node, command)
    done = node.events.audit.acts[-1]
    assert (done.vhost, done.kind, done.name, done.act) == ("/", "transaction", "1:t:b", act)


def _answer_to(client: Client, body: bytes) -> Any:
    client.publish("amq.administer", body, "amq.system", reply_to="answers")
    answer = client.get("answers")
    assert answer is not None
    return json.loads(answer.body)


def test_what_was_set_is_on_disk_before_the_answer(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    ask(client, do="add-user", name="orders", **HASHES)
    kit.node.catalog.close()  # as a kill would leave it
    again = NodeKit(tmp_path)
    assert again.node.users.users["orders"].password_hash == SECRET.password_hash
    again.stop()
    kit.node.batch.commit.stop()
    kit.node.logins.verifier.stop()


def test_hashes_are_in_no_copy(kit: NodeKit, client: Client) -> None:
    """Not in the firehose, nor where a policy or a header would have the request go too."""
    client.declare("copies")
    client.call(m.QueueBind("copies", "amq.rabbitmq.trace", "#"), m.QueueBindOk)
    client.call(m.QueueBind("copies", "amq.fanout"), m.QueueBindOk)
    catch_all = {"vhost": "/", "name": "all", "pattern": ".*", "definition": {"alternate-exchange": "amq.fanout"}}
    ask(client, do="set-policy", apply_to="exchanges", **catch_all)
    set_tracing(kit.node, "/", True)
    ask(client, do="add-user", name="orders", **HASHES)
    body = json.dumps({"do": "set-password", "name": "orders", **HASHES}).encode()
    client.publish("amq.administer", body, "amq.system", reply_to="answers", headers={"CC": ["copies"]})
    seen = []
    while (copy := client.get("copies")) is not None:
        seen.append(copy.frames)
    assert seen, "the firehose works"
    assert SECRET.password_hash is not None
    assert not [frames for frames in seen if SECRET.password_hash.encode() in frames]


def test_definitions_out_and_in(client: Client, kit: NodeKit) -> None:
    """The answer to an export has hashes: it goes to the one that asks, and into no queue and no copy."""
    refused = ask(client, do="export-definitions")
    assert refused["error"] == "precondition_failed"
    assert "ask for it with a direct reply" in refused["reason"]
    client.declare("copies")
    client.call(m.QueueBind("copies", "amq.rabbitmq.trace", "#"), m.QueueBindOk)
    set_tracing(kit.node, "/", True)
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)

    def directly(**request: object) -> Any:
        body = json.dumps(request).encode()
        client.publish("amq.administer", body, "amq.system", reply_to="amq.rabbitmq.reply-to")
        (answer,) = [answer for *_, answer in client.deliveries()]
        return json.loads(answer)

    exported = directly(do="export-definitions")
    assert exported["users"][0]["password_hash"]
    assert client.count("copies") == 0
    assert directly(do="import-definitions", definitions=exported) == []
    shop = {"vhosts": [{"name": "shop"}], "queues": [{"vhost": "shop", "name": "q"}]}
    assert directly(do="import-definitions", definitions=shop) == []
    assert "q" in kit.node.vhosts["shop"].queues
    bad = directly(do="import-definitions", definitions={"queues": [{"vhost": "shop", "name": 5}]})
    assert bad["reason"] == "PRECONDITION_FAILED - queues[0].name: expected a string, got a number"


# -- who may ask: every command, asked by every kind of user, over a socket

ROLES: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "administrator": (("administrator",), ".*", True),
    "administrator-narrow": (("administrator",), r"^amq\.system$", True),
    "administrator-without-write": (("administrator",), "^q$", False),
    "monitoring": (("monitoring",), ".*", False),
    "policymaker": (("policymaker",), ".*", False),
    "management": (("management",), ".*", False),
    "impersonator": (("impersonator",), ".*", False),
    "nobody": ((), ".*", False),
}
"""Tags, what may be written to, and whether it may administer."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as thread:

        def people() -> None:
            node = thread.broker.node
            for name, (tags, write, _) in ROLES.items():
                node.users.put(make_user(name, name, tags, RABBITMQ_SHA256))
                node.users.set_permission(Permission("/", name, "", write, ""))
            prepare(node)
            node.save()

        thread.run(people)
        yield thread


def prepared(broker: BrokerThread) -> None:
    """As REQUESTS want it."""

    def again() -> None:
        node = broker.broker.node
        for name in ("u", "new"):
            node.users.remove(name)
        for name in ("v", "new"):
            if name in node.vhosts:
                node.delete_vhost(name)
        prepare(node)
        node.save()

    broker.run(again)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_ask_for_what(broker: BrokerThread, role: str) -> None:
    assert set(REQUESTS) == set(COMMANDS)
    allowed = ROLES[role][2]
    url = f"amqp://{role}:{role}@127.0.0.1:{broker.port}/"
    with connect(url, recovery=None) as connection:
        for command, fields in REQUESTS.items():
            prepared(broker)
            with connection.channel() as channel:
                channel.confirm_select()
                body = json.dumps({"do": command, **fields}).encode()
                try:
                    with channel.consume(REPLIES, no_ack=True) as replies:
                        channel.publish(Message(body, reply_to=REPLIES), "amq.system", "amq.administer")
                        (delivery,) = replies.receive(1)
                    answer = json.loads(delivery.body)
                except AccessRefused:
                    answer = {"error": "access_refused"}
            refused = isinstance(answer, dict) and answer.get("error") == "access_refused"
            assert refused is not allowed, f"{role} asked for {command}: {answer}"
            assert refused or "error" not in (answer or ()), answer


def test_who_has_no_vhost_cannot_ask(broker: BrokerThread) -> None:
    def outsider() -> None:
        broker.broker.node.users.put(make_user("outsider", "outsider", ("administrator",), RABBITMQ_SHA256))

    broker.run(outsider)
    with pytest.raises(NotAllowed):
        connect(f"amqp://outsider:outsider@127.0.0.1:{broker.port}/", recovery=None)
