"""`harebell data check` and `harebell data repair`: what they say, and that the broker starts again."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.broker.store.catalog.check import CATALOG, COPY, SEAL, CatalogError, check_catalog
from harebell.broker.store.data_folder import hold_folder, mark_running, mark_stopped, shared_folder
from harebell.broker.store.prepared import KeptBranch
from harebell.cli.server.data import Unusable, check, repair
from harebell.routing.definitions import User
from tests.broker.kit import NodeKit
from tests.broker.store.permissions import unreadable
from tests.cli.command import harebell

WAL = f"{CATALOG}-wal"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker that was killed: its declarations are in the journal of the catalog."""
    first = tmp_path / "first"
    mark_running_in(first)
    kit = NodeKit(first)
    fill(kit, "early")
    kit.stop()
    mark_stopped(first)
    mark_running(first)
    kit = NodeKit(first)
    fill(kit, "late")
    kit.node.users.put(User("someone", ""))
    kit.node.users.remove("guest")
    kit.node.batch.end()
    folder = shutil.copytree(first, tmp_path / "data")
    kit.stop()
    return folder


def mark_running_in(folder: Path) -> None:
    folder.mkdir()
    mark_running(folder)


def fill(kit: NodeKit, name: str) -> None:
    client = kit.client()
    client.declare(name)
    client.declare(f"{name} stream", x_queue_type="stream")
    for number in range(3):
        client.publish(name, b"%d" % number, delivery_mode=2)
        client.publish(f"{name} stream", b"%d" % number, delivery_mode=2)


def contents(data: Path) -> dict[str, int]:
    """The queues with their messages, after a start."""
    kit = NodeKit(data, last_stop=mark_running(data))
    found = {name: queue.message_count for name, queue in kit.node.vhosts["/"].queues.items()}
    kit.stop()
    mark_stopped(data)
    return found


EVERYTHING = {"early": 3, "early stream": 3, "late": 3, "late stream": 3}


def state(folder: Path) -> dict[str, object]:
    """All that a command could change, but the times of reading."""

    def seen(path: Path) -> object:
        own = path.lstat()
        what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        return own.st_mode, own.st_ino, own.st_nlink, own.st_mtime_ns, own.st_ctime_ns, what

    return {str(path): seen(path) for path in (folder, *folder.rglob("*"))}


def test_a_folder_that_is_whole(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"}
    untouched = state(data)
    assert check(data=data) == 0
    assert state(data) == untouched
    out = capsys.readouterr().out
    assert "catalog.sqlite: whole by itself" in out
    assert "nothing is damaged" in out
    assert repair(data=data) == 0
    assert capsys.readouterr().out == "the catalog is whole and the newest: there is nothing to mend\n"
    for path, was in before.items():
        assert path.name.endswith("-shm") or path.read_bytes() == was, f"{path} was changed"
    assert contents(data) == EVERYTHING


def flip(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)


def misspell(data: Path) -> None:
    """A byte of a record changes in a catalog whose broker was stopped: SQLite does not notice."""
    mark_running(data)
    NodeKit(data).stop()
    mark_stopped(data)
    text = (data / CATALOG).read_bytes()
    assert b"early stream" in text
    (data / CATALOG).write_bytes(text.replace(b"early stream", b"early strean"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the journal": lambda data: flip(data / WAL),
    "a bit of the catalog": misspell,
    "the journal is gone": lambda data: (data / WAL).unlink(),
    "the catalog is gone": lambda data: (data / CATALOG).unlink(),
    "the catalog is empty": lambda data: (data / CATALOG).write_bytes(b""),
    "the seal is gone": lambda data: (data / SEAL).unlink(),
    "the seal is garbage": lambda data: (data / SEAL).write_bytes(b"?" * 2000),
    "an older catalog": lambda data: (data / COPY).rename(data / CATALOG) and (data / WAL).rename(data / "away"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_catalog_is_mended(data: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All messages are there again: in their queues, or in queues with new names where the declarations are lost."""
    DAMAGES[damage](data)
    with pytest.raises(CatalogError, match="harebell data repair"):
        NodeKit(data)
    untouched = state(data)
    assert check(data=data) == 1
    assert state(data) == untouched
    assert "LOST" in capsys.readouterr().out
    assert repair(data=data) == 0
    done = capsys.readouterr().out
    assert "what was there is in damaged-" in done
    assert any(path.is_dir() and path.name in done for path in data.iterdir())
    found = contents(data)
    assert sum(found.values()) == sum(EVERYTHING.values())
    assert len(found) == len(EVERYTHING)
    assert found["early"] == 3
    lost = set(EVERYTHING) - set(found)
    made = set(found) - set(EVERYTHING)
    assert len(made) == len(lost)
    for queue in made:
        assert f"are in queue '{queue}' of vhost '/'" in done
    if lost:
        assert "later changes to queues, bindings, users or policies are lost" in done
    assert check(data=data) == 0
    assert contents(data) == found


def files_of(data: Path) -> dict[Path, bytes]:
    """The files with their contents, but for those that hold nothing between two starts."""
    return {
        path: path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name not in ("lock", f"{CATALOG}-shm")
    }


OF_THE_CATALOG = (CATALOG, WAL, COPY, SEAL)


@pytest.mark.parametrize(
    "name", [*OF_THE_CATALOG, "segments", "sessions", "transactions", "queues/*", "streams/*", "*/*/*.log", "queues"]
)
def test_what_may_not_be_read_is_not_damaged(data: Path, name: str) -> None:
    """A check, a repair and a start say so, name it, and change nothing; the same file is whole for its user."""
    for record in ("sessions", "transactions"):
        (data / record).touch()
    path, before = next(data.glob(name)), files_of(data)
    with unreadable(path):
        with pytest.raises(Unusable, match=f"{path.name}.*: Permission denied: let the broker's user read"):
            check(data=data)
        if name in OF_THE_CATALOG:
            with pytest.raises(Unusable, match=f"{name}: Permission denied: let the broker's user read"):
                repair(data=data, new_catalog=True)
        with pytest.raises(PermissionError) as refused:
            NodeKit(data)
        assert path.name in str(refused.value)
        assert "data repair" not in str(refused.value)
    if name in OF_THE_CATALOG:
        assert files_of(data) == before
    assert check(data=data) == 0
    assert contents(data) == EVERYTHING


def test_a_catalog_is_not_damaged_when_descriptors_run_out(data: Path) -> None:
    """However many are left, a repair and a check of the catalog change nothing."""
    before = sorted(data.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [os.open(os.devnull, os.O_RDONLY) for _ in range(16)]
    highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
    try:
        used += [os.open(os.devnull, os.O_RDONLY) for _ in range(highest - len(used))]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(used) + 1, hard))
        found: list[object] = []
        while None not in found and len(found) < 12:
            found.append(refusal_of(data / CATALOG))
            os.close(used.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in used:
            os.close(each)
    assert found.pop() is None
    assert set(found) == {errno.EMFILE}
    assert sorted(data.iterdir()) == before


def refusal_of(catalog: Path) -> object:
    """What a check of the catalog says: nothing, that it is damaged, or the number of another error."""
    try:
        check_catalog(catalog)
    except CatalogError as error:
        return error
    except OSError as error:
        return error.errno
    return None


def test_a_catalog_is_not_damaged_while_another_program_uses_it(tmp_path: Path) -> None:
    NodeKit(tmp_path / "data").stop()
    with closing(sqlite3.connect(tmp_path / "data" / CATALOG, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("CREATE TABLE another (one)")  # in the journal, which is read then
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="database is locked") as refused:
            check_catalog(tmp_path / "data" / CATALOG)
    assert refused.value.errno == errno.EBUSY
    assert not isinstance(refused.value, CatalogError)
    check_catalog(tmp_path / "data" / CATALOG)


def test_no_whole_catalog(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / CATALOG).unlink()
    (data / COPY).write_bytes(b"")
    with pytest.raises(Unusable, match="restore the folder from a backup"):
        repair(data=data)
    assert not (data / CATALOG).exists()
    assert repair(data=data, new_catalog=True) == 0
    assert "harebell users add" in capsys.readouterr().out
    found = contents(data)
    assert sorted(found.values()) == [3, 3, 3, 3]
    assert all(name.startswith("recovered-") for name in found)


def test_damaged_messages_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("queues", "streams"):
        for segment in (data / kind).glob("*/*.log"):
            flip(segment)
    assert check(data=data) == 1
    out = capsys.readouterr().out
    for queue in ("early", "late", "early stream", "late stream"):
        assert f"(queue '{queue}' in vhost '/'): " in out
    folder = next((data / "queues").iterdir())
    shutil.rmtree(folder)
    assert check(data=data) == 1
    assert f"queues/{folder.name}/00000000000000000000.log is gone" in capsys.readouterr().out


def test_damaged_files_of_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`transactions` with what no commit has said, and `sessions` with what is no record, after a clean stop."""
    data = tmp_path / "first"
    mark_running_in(data)
    kit = NodeKit(data)
    fill(kit, "early")
    branch = KeptBranch((1, b"g", b""), "/", "guest", [], [("early", 0, "")])
    kit.node.store.prepared.keep(branch, decided=False)
    kit.node.batch.end()
    kit.stop()
    mark_stopped(data)
    assert check(data=data) == 0
    whole = (data / "transactions").read_bytes()
    (data / "transactions").write_bytes(b"")
    (data / "sessions").write_bytes(b"no record")
    assert check(data=data) == 1
    out = capsys.readouterr().out
    assert "transactions is gone or empty: prepared transactions may be lost, and the others are in doubt" in out
    assert "sessions: 9 bytes of a torn record at its end will be cut" in out
    (data / "sessions").unlink()
    (data / "sessions").mkdir()
    (data / "transactions").write_bytes(whole)
    assert check(data=data) == 1
    assert "sessions cannot be read" in capsys.readouterr().out


def test_what_belongs_to_nothing_is_no_loss(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, folders and logs that nothing in the catalog owns; in the place of a queue's folder, they are a loss."""
    for kind in ("queues", "streams", "delays"):
        for name in ("bar", ".hidden"):
            (data / kind / name).write_text("x")
            (data / kind / f"{name}-folder").mkdir()
        (data / kind / "damaged").mkdir()
        (data / kind / "damaged" / f"{0:020}.log").write_bytes(b"?" * 2000)
    assert check(data=data) == 0
    out = capsys.readouterr().out
    assert "ok    queues/bar is no folder, and belongs to nothing\n" in out
    assert "nothing is damaged\n" in out
    owned = next(path for path in (data / "queues").iterdir() if len(path.name) == 16)
    shutil.rmtree(owned)
    owned.write_text("x")
    assert check(data=data) == 1
    assert f"LOST  queues/{owned.name} is no folder (queue '" in capsys.readouterr().out


def test_folders_that_cannot_be(tmp_path: Path, data: Path) -> None:
    with pytest.raises(Unusable, match="is no data folder"):
        check(data=tmp_path / "nowhere")
    with hold_folder(data), pytest.raises(Unusable, match="in use by a broker"):
        repair(data=data)


def site(folder: Path) -> None:
    (folder / "css").mkdir(mode=0o755)
    (folder / "index.html").write_text("hi")
    (folder / "css" / "a.css").write_text("x")


def same_names(folder: Path) -> None:
    """Names that a broker uses too."""
    site(folder)
    for name in ("lock", "running", "segments"):
        (folder / name).write_text("not a broker's")
    (folder / "queues").mkdir()
    (folder / "queues" / "list.txt").write_text("1")


def other_database(folder: Path) -> None:
    site(folder)
    with closing(sqlite3.connect(folder / CATALOG)) as connection:
        connection.executescript("CREATE TABLE books (title TEXT)")


def one_file(folder: Path) -> None:
    (folder / ".profile").write_text("umask 022")


def set_up(folder: Path) -> None:
    for name in ("definitions.json", "harebell.toml", "server.pem", "server.key"):
        (folder / name).write_text("{}")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a web site": site, "names of a broker's": same_names, "a catalog of books": other_database, "one file": one_file,
}  # fmt: skip
OTHERS: dict[str, Callable[[Path], object]] = {
    **FOREIGN,
    "nothing": lambda folder: None,
    "an empty file system": lambda folder: (folder / "lost+found").mkdir(),
    "what a broker is set up with": set_up,
    "a file": lambda folder: folder.rename(folder.with_name("away")) and folder.write_text("x"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir(0o755)
    return folder


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("command", [check, repair, lambda *, data: repair(data=data, new_catalog=True)])
def test_another_folder_is_left_alone(folder: Path, command: Callable[..., int], kind: str) -> None:
    OTHERS[kind](folder)
    untouched = state(folder)
    with pytest.raises(Unusable, match="is no data folder of a broker: name one with --data"):
        command(data=folder)
    assert state(folder) == untouched


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("users", "list")])
def test_no_broker_starts_on_another_folder(folder: Path, kind: str, command: tuple[str, ...]) -> None:
    FOREIGN[kind](folder)
    untouched = state(folder)
    result = harebell(*command, "--data", folder)
    assert result.returncode == 1
    assert f"harebell: {folder} " in result.stderr
    assert "no data" in result.stderr
    assert result.stderr.count("\n") == 1
    assert state(folder) == untouched


@pytest.mark.parametrize(
    "left", ["nothing", "an empty file system", "what a broker is set up with", "a start that was killed"]
)
async def test_a_broker_starts_where_there_is_nothing_else(folder: Path, left: str) -> None:
    if left == "a start that was killed":
        hold_folder(folder).close()
        mark_running(folder)
    else:
        OTHERS[left](folder)
    async with Broker(port=None, data=folder):
        pass
    (folder / "notes.txt").write_text("beside the data, which is there now")
    async with Broker(port=None, data=folder):
        pass
    assert check(data=folder) == 0


@pytest.mark.parametrize("gone", ["catalog.*", "catalog.[!g]*", "catalog.[!s]*"])
def test_what_is_left_of_a_catalog_is_a_sign(data: Path, gone: str) -> None:
    (data / "notes.txt").write_text("beside the data")
    for path in data.glob(gone):
        path.unlink()
    untouched = state(data)
    check(data=data)
    assert state(data) == untouched


async def test_the_folder_of_a_running_broker(folder: Path) -> None:
    async with Broker(port=None, data=folder):
        untouched = state(folder)
        for command in (check, repair):
            with pytest.raises(Unusable, match="in use by a broker that runs: stop that one first"):
                command(data=folder)
        assert state(folder) == untouched


def test_a_folder_that_may_only_be_read(data: Path) -> None:
    paths = [path for path in (data, *data.rglob("*")) if not path.is_symlink()]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert check(data=data) == 0
    finally:
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_a_check_keeps_brokers_away(data: Path) -> None:
    hold_folder(data).close()
    with shared_folder(data), shared_folder(data), pytest.raises(BlockingIOError):
        hold_folder(data)
    hold_folder(data).close()
