"""Nobody else reads what a broker writes: after every kind of use, with a umask that hides nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.broker.auth.users import make_user
from harebell.broker.store.private import close_to_others, is_open_to_others, make_private
from harebell.broker.store.repair import repair
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.definitions import Permission
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_ones(folder: Path) -> list[str]:
    """What others can use, with the modes; there must be something to look at."""
    found = [folder, *folder.rglob("*")]
    assert len(found) > 1
    open_to_others = []
    for path in found:
        with suppress(FileNotFoundError):  # a stream's next segment gets its name meanwhile
            if is_open_to_others(path):
                open_to_others.append(f"{path.relative_to(folder)} {path.lstat().st_mode:o}")
    return open_to_others


def declare(client: Client, name: str, **arguments: object) -> None:
    table: Table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}  # type: ignore[misc]
    client.call(m.QueueDeclare(queue=name, durable=True, arguments=table), m.QueueDeclareOk)


def fill(client: Client, name: str, count: int = 200, size: int = 1000) -> None:
    for number in range(count):
        client.publish(name, bytes([number % 256]) * size, delivery_mode=2)


def topology(kit: NodeKit, client: Client) -> None:
    for kind in ("classic", "quorum", "stream"):
        declare(client, kind, queue_type=kind)
    client.call(m.ExchangeDeclare(exchange="x", type="topic", durable=True), m.ExchangeDeclareOk)
    client.call(m.QueueBind(queue="classic", exchange="x", routing_key="#"), m.QueueBindOk)


def messages(kit: NodeKit, client: Client) -> None:
    topology(kit, client)
    for kind in ("classic", "quorum", "stream"):
        fill(client, kind)


def acknowledgements(kit: NodeKit, client: Client) -> None:
    messages(kit, client)
    for name in ("classic", "quorum"):
        for _ in range(100):
            client.send(1, m.BasicGet(queue=name))
    client.send(1, m.BasicAck(150, multiple=True))
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))


def segments(kit: NodeKit, client: Client) -> None:
    """More than one file of a queue and of a stream."""
    declare(client, "classic")
    declare(client, "stream", queue_type="stream", stream_max_segment_size_bytes=10_000)
    fill(client, "classic", 100, 100_000)
    fill(client, "stream", 100)


def purge_and_delete(kit: NodeKit, client: Client) -> None:
    messages(kit, client)
    client.call(m.QueuePurge(queue="classic"), m.QueuePurgeOk)
    client.call(m.QueueDelete(queue="quorum"), m.QueueDeleteOk)
    client.call(m.QueueDelete(queue="stream"), m.QueueDeleteOk)


def settings(kit: NodeKit, client: Client) -> None:
    kit.node.users.put(make_user("u", "secret"))
    kit.node.users.set_permission(Permission("/", "u", "", "", ""))
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "^a", {"max-length": 1}))
    kit.node.save()


def delays(kit: NodeKit, client: Client) -> None:
    declare(client, "classic")
    arguments: Table = {"x-delayed-type": "direct"}
    declaration = m.ExchangeDeclare(exchange="d", type="x-delayed-message", durable=True, arguments=arguments)
    client.call(declaration, m.ExchangeDeclareOk)
    client.publish("classic", b"later", "d", delivery_mode=2, headers={"x-delay": 1000})


def transactions(kit: NodeKit, client: Client) -> None:
    declare(client, "classic")
    client.call(m.TxSelect(), m.TxSelectOk)
    fill(client, "classic", 10)
    client.send(1, m.TxCommit())


USES = (topology, messages, acknowledgements, segments, purge_and_delete, settings, delays, transactions)


@pytest.mark.parametrize("use", USES)
def test_nothing_is_open_after(tmp_path: Path, use: Callable[[NodeKit, Client], None]) -> None:
    data = tmp_path / "data"
    kit = NodeKit(data)
    use(kit, kit.client())
    assert open_ones(data) == []
    kit.run_syncs()
    assert open_ones(data) == []
    kit.stop()
    assert open_ones(data) == []
    again = NodeKit(data)
    assert open_ones(data) == []
    again.client().publish("classic", b"again", delivery_mode=2)
    assert open_ones(data) == []
    again.stop()
    assert open_ones(data) == []


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_is_open_after_a_repair(tmp_path: Path, whole: bool) -> None:
    data = tmp_path / "data"
    kit = NodeKit(data)
    messages(kit, kit.client())
    kit.stop()
    (data / "catalog.sqlite").write_bytes(b"damaged")
    if not whole:
        for path in data.glob("catalog.*"):
            path.write_bytes(b"damaged")
    done = repair(data, new_catalog=True)
    assert len(done) > 1
    assert open_ones(data) == []
    NodeKit(data).stop()
    assert open_ones(data) == []


async def test_nothing_is_open_while_a_broker_runs(tmp_path: Path) -> None:
    data = tmp_path / "above" / "data"
    async with Broker(data=data) as broker:
        broker.add_user("u", "secret")
        assert open_ones(data) == []
    assert open_ones(data) == []


async def test_what_was_open_is_closed_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    outside.write_text("not the broker's")
    async with Broker(data=data):
        pass
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (data / "link").symlink_to(outside)
    async with Broker(data=data):
        assert open_ones(data) == []
    assert "was open to other users of this machine: closed" in caplog.text
    assert outside.stat().st_mode & 0o777 == 0o666, "a link leads out of the folder"
    caplog.clear()
    async with Broker(data=data):
        pass
    assert "open to other users" not in caplog.text


async def test_what_belongs_to_another_user_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", os.fspath(path))

    data = tmp_path / "data"
    data.mkdir(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    with caplog.at_level(logging.ERROR):
        async with Broker(data=data):
            pass
    assert f"{data} belongs to another one" in caplog.text


async def test_folders_that_lost_the_way_into_them_get_it_back(tmp_path: Path) -> None:
    """As `chmod 644 *` leaves them: a broker that is not root's could not enter them."""
    data = tmp_path / "data"
    async with Broker(data=data):
        pass
    folders = [path for path in data.rglob("*") if path.is_dir()]
    assert folders
    data.chmod(0o755)
    for path in folders:
        path.chmod(0o644)
    async with Broker(data=data):
        assert {oct(path.stat().st_mode & 0o777) for path in folders} == {"0o700"}


def test_a_private_file_is_made_once(tmp_path: Path) -> None:
    make_private(tmp_path / "a")
    assert not is_open_to_others(tmp_path / "a")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "a")


def test_the_owners_own_access_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(0o755)
    (tmp_path / "a" / "b").touch(0o444)
    assert close_to_others(tmp_path / "a") == 2
    assert close_to_others(tmp_path / "a") == 0
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o400
