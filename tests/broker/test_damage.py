"""Each kind of damage to each file of a data folder: the start refuses with words, or loses nothing else and says what.

`make test` tries a sample that is another one each time, `make torture` (HAREBELL_DAMAGES=all) all of it. What comes of
a case is what its row of docs/reference/damage.md says (`damage_rows`).
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from harebell.broker.operations.definitions import export_definitions
from harebell.broker.store.catalog.check import CatalogError
from harebell.broker.store.data_folder import hold_folder, mark_running, mark_stopped
from harebell.broker.store.inventory import RECORDS
from harebell.broker.store.queue_log.log import QueueLog
from harebell.protocol.v010 import commands as c, controls as k, structs as s
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.definitions import Definitions, Permission, User
from tests.broker.damage_rows import ROWS, rows_of
from tests.broker.kit import NodeKit
from tests.broker.v010.kit import Client, Kit

ALL: Final = os.environ.get("HAREBELL_DAMAGES") == "all"
SAMPLE: Final = 80
QUEUES: Final = ("plain", "acked", "long", "quorum")
STREAM: Final[Table] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000}
KEPT: Final = {"sessions": {b"one", b"two"}, "transactions": {b"prepared early", b"prepared late"}}
FLIPS: Final = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass
class Built:
    """A data folder, what is in it, and the state of the folder in the middle of the work."""

    folder: Path
    older: Path
    definitions: Definitions
    messages: dict[str, list[bytes]] = field(default_factory=dict)
    acked: dict[str, set[bytes]] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)  # queue -> its folder

    def owner(self, path: str) -> str | None:
        """The queue that a file or folder belongs to."""
        for queue, folder in self.folders.items():
            if path == folder or path.startswith(folder + "/"):
                return queue
        return None


def body(queue: str, number: int) -> bytes:
    return b"%s %d %s" % (queue.encode(), number, b"." * (number * 41 % 200))


def publish(kit: NodeKit, queue: str, first: int, end: int) -> None:
    for number in range(first, end):
        kit.clients[0].publish(queue, body(queue, number), delivery_mode=2)


def build(root: Path, *, stopped: bool) -> Built:
    """A broker that is stopped, or killed, with queues of several kinds, segments, settlements, and a second user.

    And with sessions that survive a restart, and prepared branches.
    """
    data, older = root / "data", root / "older"
    data.mkdir()
    mark_running(data)
    kit = Kit(data)
    client = kit.client()
    for name in QUEUES:
        client.declare(name, **({"x_queue_type": "quorum"} if name == "quorum" else {}))
    client.declare("numbered")
    client.call(m.QueueDeclare("stream", durable=True, arguments=STREAM), m.QueueDeclareOk)
    delayed: Table = {"x-delayed-type": "fanout"}
    client.call(m.ExchangeDeclare("late", "x-delayed-message", durable=True, arguments=delayed), m.ExchangeDeclareOk)
    client.call(m.QueueBind("plain", "amq.topic", "a.#"), m.QueueBindOk)
    for name in (*QUEUES, "stream"):
        publish(kit, name, 0, 20)
    for number in range(5):
        client.publish("", b"held %d" % number, "late", delivery_mode=2, headers={"x-delay": 10_000_000})
    for number in range(4):
        assert client.get("acked") is not None, number
    worker = kit.peer().session(b"worker")
    worker.call(c.DtxSelect())
    sessions = [session(kit, name) for name in (b"one", b"two")]
    for branch in (b"prepared early", b"over"):
        prepare(worker, branch)
    publish_by(sessions[0], 0, 20)
    kit.node.batch.end()
    shutil.copytree(data, older)
    kit.node.users.put(User("someone", ""))
    kit.node.users.set_permission(Permission("/", "someone", ".*", ".*", ".*"))
    for name in (*QUEUES, "stream"):
        publish(kit, name, 20, 40)
    for number in range(4, 15):
        assert client.get("acked") is not None, number
    client.call(m.QueueDeclare("new", durable=True), m.QueueDeclareOk)
    prepare(worker, b"prepared late")
    worker.call(c.DtxRollback(s.Xid(1, b"over", b"")))
    publish_by(sessions[1], 20, 40)
    kit.node.users.remove("guest-of-old")
    kit.node.batch.end()
    built = Built(data, older, export_definitions(kit.node))
    built.folders = {name: queue.folder for name, queue in kit.node.vhosts["/"].queues.items() if queue.folder}
    for name in (*QUEUES, "stream", "numbered"):
        built.messages[name] = [body(name, number) for number in range(40)]
        built.acked[name] = set()
    built.acked["acked"] = set(built.messages["acked"][:15])
    built.messages["acked"] = built.messages["acked"][15:]
    built.messages["new"], built.acked["new"] = [], set()
    if stopped:
        kit.sessions.close()
        kit.stop()
        mark_stopped(data)
    else:
        shutil.copytree(data, root / "killed")
        kit.sessions.close()
        kit.stop()
        built.folder = root / "killed"
    return built


def session(kit: Kit, name: bytes) -> Client:
    """A session that survives a restart."""
    client = kit.peer().session(name)
    client.peer.control(0, k.SessionRequestTimeout(60))
    client.call(c.QueueDeclare("numbered", durable=True))
    return client


def publish_by(client: Client, first: int, end: int) -> None:
    for number in range(first, end):
        client.publish("numbered", body("numbered", number), delivery_mode=2)


def prepare(client: Client, name: bytes) -> None:
    """A prepared branch with messages that nobody sees before its commit."""
    xid = s.Xid(1, name, b"")
    client.call(c.DtxStart(xid))
    for number in range(3):
        client.publish("plain", b"%s %d" % (name, number), delivery_mode=2)
    client.call(c.DtxEnd(xid))
    client.call(c.DtxPrepare(xid))
    assert client.exception is None


# -- the kinds of damage: each returns whether it changed anything


def flip(at: float) -> Callable[[Path, Built], bool]:
    def flip(path: Path, built: Built) -> bool:
        data = bytearray(path.read_bytes())
        if not data:
            return False
        data[min(len(data) - 1, int(at * len(data)))] ^= 0x10
        path.write_bytes(data)
        return True

    return flip


def cut(part: float) -> Callable[[Path, Built], bool]:
    def cut(path: Path, built: Built) -> bool:
        size = path.stat().st_size
        if size < 2:
            return False
        os.truncate(path, min(size - 1, int(size * part)))
        return True

    return cut


def delete(path: Path, built: Built) -> bool:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return True


def older(path: Path, built: Built) -> bool:
    """Replace it by the copy from the middle of the work."""
    copy = built.older / path.relative_to(built.folder)
    if not copy.exists() or (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        return False
    delete(path, built)
    (shutil.copytree if copy.is_dir() else shutil.copy2)(copy, path)
    return True


def swap(path: Path, built: Built) -> bool:
    """Swap it with that of another queue."""
    parts = path.relative_to(built.folder).parts
    if parts[0] not in ("queues", "streams") or len(parts) < 2:
        return False
    for other in sorted((built.folder / parts[0]).iterdir()):
        target = other if len(parts) == 2 else next(other.glob(f"*{path.suffix}"), None)
        if other.name != parts[1] and target is not None:
            aside = built.folder.with_name("aside")
            path.rename(aside)
            target.rename(path)
            aside.rename(target)
            return True
    return False


def link(path: Path, built: Built) -> bool:
    """It is elsewhere, and a link leads there: nothing is lost."""
    away = built.folder.with_name("away")
    path.rename(away)
    path.symlink_to(away)
    return True


def lost_link(path: Path, built: Built) -> bool:
    delete(path, built)
    path.symlink_to(built.folder / "nowhere")
    return True


def other_kind(path: Path, built: Built) -> bool:
    """A folder in the place of a file, a file in that of a folder."""
    folder = path.is_dir()
    delete(path, built)
    if folder:
        path.write_bytes(b"")
    else:
        path.mkdir()
    return True


def garbage(path: Path, built: Built) -> bool:
    with path.open("ab") as file:
        file.write(bytes(range(256)) * 3)
    return True


FILE_KINDS: Final[dict[str, Callable[[Path, Built], bool]]] = {
    **{f"bit flipped at {at:.0%}": flip(at) for at in FLIPS},
    **{f"cut to {part:.0%}": cut(part) for part in (0.0, 0.3, 0.6, 1.0)},
    "deleted": delete, "older copy": older, "swapped": swap, "a link": link, "a lost link": lost_link,
    "a folder": other_kind, "garbage appended": garbage,
}  # fmt: skip
FOLDER_KINDS: Final[dict[str, Callable[[Path, Built], bool]]] = {
    "deleted": delete, "older copy": older, "swapped": swap, "a link": link, "a lost link": lost_link,
    "a file": other_kind,
}  # fmt: skip


# Where nothing shows what is missing: a broker that was killed has written no sizes, and such a cut may leave whole
# records. What came after the cut is lost; where it was acknowledgements, the messages come again.
def unnoticed(path: str, kind: str, stopped: bool) -> bool:
    cuts = kind.startswith("cut to") or kind == "older copy"
    if path in RECORDS:
        return not stopped and (cuts or kind in ("deleted", "a lost link"))
    return not stopped and cuts and path.endswith((".log", ".settled"))


def targets(built: Built) -> Iterator[tuple[str, str]]:
    """Each path below the folder with each kind of damage."""
    for path in sorted(built.folder.rglob("*")):
        name = str(path.relative_to(built.folder))
        for kind in FOLDER_KINDS if path.is_dir() else FILE_KINDS:
            if kind == "swapped" and (path.suffix == ".settled" or not name.startswith("queues/")):
                continue  # there is only one of these
            yield name, kind


def read_all(kit: NodeKit) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    client = kit.client()
    client.call(m.BasicQos(0, 1000), m.BasicQosOk)
    for name, queue in kit.node.vhosts["/"].queues.items():
        found[name] = []
        if queue.type == "stream":
            client.send(1, m.BasicConsume(name, name, arguments={"x-stream-offset": "first"}))
            found[name] = [each for *_, each in client.deliveries()]
        else:
            while (content := client.get(name)) is not None:
                found[name].append(content.body)
    return found


def judge(built: Built, path: str, kind: str, *, stopped: bool, caplog: pytest.LogCaptureFixture) -> tuple[str, bool]:
    """Start on the damaged folder. Returns "refused", "said" or "nothing", and whether messages are lost.

    AssertionError when something was lost in silence.
    """
    what = f"{path} {kind}, {'stopped' if stopped else 'killed'}"
    caplog.clear()
    try:
        last = mark_running(built.folder)
        kit = NodeKit(built.folder, last_stop=last)
    except OSError as error:
        words = "harebell data repair" if isinstance(error, CatalogError) else str(built.folder)
        if words not in str(error):
            raise AssertionError(f"{what}: {error!r} does not say what to do") from error
        return "refused", False
    some_lost = False
    try:
        found_records = {
            "sessions": {known.name for known in kit.node.store.positions.known.values()},
            "transactions": {branch.xid.global_id for branch in kit.node.branches},
        }
        for name, expected_names in KEPT.items():
            if name != path:
                assert found_records[name] == expected_names, f"{what}: {name}: {found_records[name]}"
            elif found_records[name] != expected_names:
                assert path in caplog.text or unnoticed(path, kind, stopped), f"{what}: {found_records[name]}"
                some_lost = True
        assert export_definitions(kit.node) == built.definitions, f"{what}: the catalog is another one"
        found = read_all(kit)
        held = sum(len(each) for each in kit.node.vhosts["/"].delays.values())
        text = caplog.text
        owner = built.owner(path)
        others = {built.owner(path), *([] if kind != "swapped" else built.folders)}
        said = path in text or f"'{owner}'" in text or (path.startswith("delays") and "late: " in text)
        for name, expected in built.messages.items():
            extra = [each for each in found[name] if each not in expected]
            lost = [each for each in expected if each not in found[name]]
            some_lost |= bool(lost)
            if name not in others and path not in ("queues", "streams"):
                assert not extra, f"{what}: {name} has {extra}"
                assert not lost, f"{what}: {name} has lost {lost}"
            assert set(extra) <= built.acked[name], f"{what}: {extra} in {name} come from nowhere"
            if name in others or path in ("queues", "streams"):
                assert said or unnoticed(path, kind, stopped) or not (extra or lost), f"{what}: {lost} {extra}: {text}"
            order = [each for each in found[name] if each in expected]
            assert order == [each for each in expected if each in order], f"{what}: the order of {name}"
        if not path.startswith("delays"):
            assert held == 5, what
        elif held != 5:
            assert path in text or "late" in text or unnoticed(path, kind, stopped), f"{what}: {text}"
    finally:
        kit.stop()
    return "said" if said else "nothing", some_lost or held != 5


@pytest.mark.repeats
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_every_damage_to_every_file(
    tmp_path: Path, stopped: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr("harebell.broker.store.store.QueueLog", partial(QueueLog, segment_bytes=1500))
    built = build(tmp_path, stopped=stopped)
    good = shutil.copytree(built.folder, tmp_path / "good")
    cases = list(targets(built))
    assert len(cases) > 400
    assert [(path, kind) for path, kind in cases if not rows_of(path, kind)] == []
    covered = {row for path, kind in cases for row in rows_of(path, kind)}
    if not stopped:  # then the journal is there too
        assert [row for row in ROWS if row not in covered and not row.test] == []
    if not ALL:
        cases = random.sample(cases, SAMPLE)
    outcomes: dict[str, int] = {}
    for path, kind in cases:
        shutil.rmtree(built.folder)
        shutil.copytree(good, built.folder)
        for each in ("away", "aside"):
            target = tmp_path / each
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        target = built.folder / path
        if (FOLDER_KINDS if target.is_dir() else FILE_KINDS)[kind](target, built):
            outcome, lost = judge(built, path, kind, stopped=stopped, caplog=caplog)
            rows = rows_of(path, kind)
            assert any(outcome in row.outcomes for row in rows), f"{path} {kind}, stopped: {stopped}: {outcome}; {rows}"
            assert not lost or not all(row.whole for row in rows), f"{path} {kind}, stopped: {stopped}: lost; {rows}"
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes.get("refused")
    assert outcomes.get("said")
    assert outcomes.get("nothing")


def refused(folder: Path) -> str:
    """What the start says that does not take the folder."""
    with pytest.raises(CatalogError) as caught:
        NodeKit(folder, last_stop=mark_running(folder))
    return str(caught.value)


def test_the_files_of_another_broker(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    mine, other = build(tmp_path / "one", stopped=True), build(tmp_path / "two", stopped=True)
    for file in ("catalog.sqlite", "catalog.seal", "catalog.good"):
        folder = shutil.copytree(mine.folder, tmp_path / file)
        shutil.copy2(other.folder / file, folder / file)
        assert "harebell data repair" in refused(folder), file
    newer = shutil.copytree(mine.folder, tmp_path / "newer")
    for file in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm", "catalog.seal"):
        (newer / file).unlink(missing_ok=True)
        if (mine.older / file).exists():
            shutil.copy2(mine.older / file, newer / file)
    assert "harebell data repair" in refused(newer)


def test_all_files_of_the_catalog_are_gone(tmp_path: Path) -> None:
    folder = build(tmp_path, stopped=True).folder
    for file in folder.glob("catalog.*"):
        file.unlink()
    assert "missing" in refused(folder)


def test_a_lock_that_is_gone(tmp_path: Path) -> None:
    hold_folder(tmp_path).close()
    (tmp_path / "lock").unlink()
    with hold_folder(tmp_path), pytest.raises(BlockingIOError):
        hold_folder(tmp_path)
