"""The folders of durable delayed exchanges: no exchange ever gets the messages, or the files, of another one."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from harebell.broker.operations.administration import administer
from harebell.broker.store.catalog.catalog import Catalog, first_delay_folder
from harebell.broker.store.catalog.check import CATALOG
from harebell.broker.store.examination import examine
from harebell.broker.store.queue_log.log import QueueLog
from harebell.broker.store.repair import repair
from harebell.protocol.v091 import methods as m
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client, NodeKit
from tests.broker.store.faults import Died
from tests.fixtures.profiles import scaled

OLD, NEW = 12, 3
DELAY = 60_000


def declare(client: Client, *, auto_delete: bool = False) -> None:
    client.call(m.QueueDeclare("q", durable=True), m.QueueDeclareOk)
    again(client, auto_delete=auto_delete)


def again(client: Client, *, auto_delete: bool = False) -> None:
    kind = m.ExchangeDeclare(
        "x", "x-delayed-message", durable=True, auto_delete=auto_delete, arguments={"x-delayed-type": "fanout"}
    )
    client.send(1, kind)
    client.send(1, m.QueueBind("q", "x", ""))


def hold(client: Client, what: str, count: int) -> None:
    for number in range(count):
        client.publish("", f"{what} {number} ".encode() + bytes(100), "x", delivery_mode=2, headers={"x-delay": DELAY})


def held(node: DiskNode | NodeKit, vhost: str = "/") -> list[str]:
    delays = node.node.vhosts[vhost].delays.get("x")
    if delays is None:
        return []
    return [each.message.content.body.split()[0].decode() for each in delays.pending() if each.message is not None]


def delete(client: Client) -> None:
    client.send(1, m.ExchangeDelete("x"))


def unbind(client: Client) -> None:
    """The exchange is deleted with its last binding."""
    client.send(1, m.QueueUnbind("q", "x", ""))


@pytest.mark.repeats
@settings(max_examples=scaled(60))
@example(calls=None, turns=2, power=None, by=delete)
@given(
    calls=st.none() | st.integers(0, 80),
    turns=st.integers(0, OLD + 4),
    power=st.none() | st.integers(0, 1 << 16),
    by=st.sampled_from([delete, unbind]),
)
def test_a_new_exchange_has_what_it_confirmed_and_nothing_of_an_earlier_one(
    calls: int | None, turns: int, power: int | None, by: Callable[[Client], None]
) -> None:
    """It is declared while the files of the earlier one are removed, and the broker ends at any step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harebell.broker.store.store.QueueLog", partial(QueueLog, segment_bytes=500))
        node = DiskNode()
        client = node.client
        declare(client, auto_delete=by is unbind)
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        hold(client, "old", OLD)
        node.sync()
        client.receive()
        client.events.clear()
        slices, later = node.node.batch.slices, list[Callable[[], object]]()
        slices.stopwatch.step = 1.0  # type: ignore[attr-defined]  # each step is a slice, ...
        slices._call_soon = later.append  # ... and the next one comes when the test says so
        if calls is not None:
            node.disk.die(calls)
        deleted = confirmed = False
        try:
            by(client)
            client.receive()
            deleted = bool(client.take(m.ExchangeDeleteOk) or client.take(m.QueueUnbindOk))
            again(client)
            hold(client, "new", NEW)
            for _ in range(turns):
                if later:
                    later.pop(0)()
            node.sync()
            client.receive()
            acks = client.take(m.BasicAck)
            confirmed = bool(acks) and acks[-1].delivery_tag == OLD + NEW
        except Died:
            pass
        node.restart(power)
        found = held(node)
        if deleted:
            assert "old" not in found
        if confirmed:
            assert found == ["new"] * NEW
        assert "old" not in found or "new" not in found
        node.close()


def test_an_earlier_exchange_is_deleted_whole_while_the_new_one_is_used(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    declare(client)
    for _ in range(5):
        hold(client, "old", OLD)
        delete(client)
        again(client)
    hold(client, "new", NEW)
    kit.node.batch.slices.finish()
    folder = tmp_path / kit.node.vhosts["/"].delay_folders["x"]
    assert list((tmp_path / "delays").iterdir()) == [folder], "nothing is left of the others"
    kit.stop()
    after = NodeKit(tmp_path)
    assert held(after) == ["new"] * NEW
    after.stop()


def test_a_virtual_host_that_is_added_again_holds_nothing(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    found = []
    for what in ("old", "new"):
        administer(kit.node, {"do": "add-vhost", "name": "v"})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        administer(kit.node, {"do": "set-permission", "user": "guest", "vhost": "v", **everything})
        client = kit.client(vhost="v")
        declare(client)
        hold(client, what, OLD)
        found.append(held(kit, "v"))
        if what == "old":
            administer(kit.node, {"do": "delete-vhost", "name": "v"})
            kit.node.batch.slices.finish()
            kit.run_syncs()
            kit.clients.remove(client)
    assert found == [["old"] * OLD, ["new"] * OLD]
    assert len(list((tmp_path / "delays").iterdir())) == 1
    kit.stop()


def test_the_folder_of_an_older_version_is_used_until_the_exchange_is_deleted(tmp_path: Path) -> None:
    first = first_delay_folder("/", "x")
    kit = NodeKit(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit.node.store, "new_delay_folder", lambda: first)
        declare(kit.client())
    hold(kit.clients[0], "old", OLD)
    kit.stop()
    catalog = Catalog.open(tmp_path / CATALOG)
    (exchange,) = [each for each in catalog.load().definitions.exchanges if each.name == "x"]
    catalog.put_exchange(exchange)
    catalog.commit()
    catalog.close()
    kit = NodeKit(tmp_path)
    assert held(kit) == ["old"] * OLD
    assert kit.node.vhosts["/"].delay_folders["x"] == first
    client = kit.client()
    delete(client)
    again(client)
    assert kit.node.vhosts["/"].delay_folders["x"] != first
    hold(client, "new", NEW)
    kit.node.batch.slices.finish()
    kit.stop()
    kit = NodeKit(tmp_path)
    assert held(kit) == ["new"] * NEW
    assert not (tmp_path / first).exists()
    kit.stop()


def test_what_a_kill_left_of_a_deletion_is_said_and_can_be_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit = NodeKit(tmp_path)
    declare(kit.client())
    hold(kit.clients[0], "old", OLD)
    folder = kit.node.vhosts["/"].delay_folders["x"]
    kit.stop()
    shutil.copytree(tmp_path / folder, tmp_path / "delays" / ("0" * 32))
    caplog.set_level(logging.WARNING, "harebell.broker.recovery")
    NodeKit(tmp_path).stop()
    assert "belongs to no delayed exchange" in caplog.text
    assert any("belongs to no delayed exchange" in finding.text for finding in examine(tmp_path))
    shutil.rmtree(tmp_path / "delays" / ("0" * 32))
    for path in tmp_path.glob("catalog.*"):
        path.unlink()
    assert any("are in delayed exchange 'recovered-" in line for line in repair(tmp_path, new_catalog=True))
    kit = NodeKit(tmp_path)
    kit.pass_time(2 * DELAY)
    name = "recovered-" + folder.rpartition("/")[2]
    assert kit.node.vhosts["/"].queues[name].message_count == OLD
    kit.stop()


@pytest.mark.parametrize("stored", [False, True])
def test_delays_that_cannot_be_read_are_not_there_in_part(stored: bool) -> None:
    """The first message opens the journal: nothing is held, and nothing rings, unless all of it could be read."""
    node = DiskNode()
    declare(node.client)
    vhost = node.node.vhosts["/"]
    if stored:
        hold(node.client, "old", OLD)
        node.sync()
        vhost.delays.pop("x").close()
    timers = len(node.node.timers)
    for after in range(100):
        node.disk.fail(after, errno.EIO)
        try:
            vhost.delays_of("x")
        except OSError:
            assert not vhost.delays
            assert sum(timer.callback is not None for _, _, timer in node.node.timers._heap) <= timers
        else:
            break
        finally:
            node.disk.heal()
    assert after, "the disk was asked"
    assert len(vhost.delays["x"]) == (OLD if stored else 0)
    node.close()
