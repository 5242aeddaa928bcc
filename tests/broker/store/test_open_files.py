"""Any number of files over a bounded number of descriptors: nothing is lost, and only what is synced is called so."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harebell.broker.store import open_files as module
from harebell.broker.store.files import Files
from harebell.broker.store.open_files import LEAST, OpenFiles, kept_for_store, most_open_files
from harebell.broker.store.sync import FEW, sync_files
from harebell.protocol.v091 import methods as m
from tests.broker.kit import PATIENCE, NodeKit
from tests.broker.store.faults import Disk

NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


def descriptors(folder: Path) -> int:
    """How many of this process's are of files in the folder: others' come and go meanwhile."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += link.readlink().is_relative_to(folder)
    return count


def in_use(pool: OpenFiles) -> int:
    return len(pool._open) + len(pool._devices)


@pytest.fixture(params=["kernel", "disk"])
def files(request: pytest.FixtureRequest) -> Files:
    """With the system's sync of whole file systems, and without."""
    return os if request.param == "kernel" else Disk()


def folder_of(files: Files, tmp_path: Path) -> str:
    return "/data" if isinstance(files, Disk) else str(tmp_path)


def test_many_handles_few_descriptors(files: Files, tmp_path: Path) -> None:
    folder, draw = folder_of(files, tmp_path), random.Random(7)
    pool = OpenFiles(files, LEAST)
    names = [str(number) for number in range(50)]
    handles = [pool.open(f"{folder}/{name}", NEW) for name in names]
    expected = [b""] * len(handles)
    for _ in range(2000):
        at = draw.randrange(len(handles))
        match draw.randrange(6):
            case 0 | 1:
                pool.pwrite(handles[at], b"%d" % at, len(expected[at]))
                expected[at] += b"%d" % at
            case 2:
                assert pool.pread(handles[at], 10_000, 0) == expected[at]
            case 3:
                assert pool.lseek(handles[at], 0, os.SEEK_END) == len(expected[at])
            case 4:
                sync_files(pool, draw.sample(handles, draw.randrange(1, 20)))
            case 5:
                pool.replace(f"{folder}/{names[at]}", f"{folder}/{names[at]}+")
                names[at] += "+"
        assert in_use(pool) <= LEAST + 1
    for handle in handles:
        pool.close(handle)
    assert len(pool._open) == 0
    pool.release()
    assert in_use(pool) == 0


def test_descriptors_come_back(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    pool = OpenFiles(os, LEAST)
    handles = [pool.open(f"{tmp_path}/{number}", NEW) for number in range(20)]
    assert descriptors(tmp_path) <= before + LEAST + 1
    for handle in handles[:10]:
        pool.close(handle)
    pool.release()
    assert descriptors(tmp_path) == before


def test_what_was_closed_is_synced_all_the_same() -> None:
    """Also by a sync of one file alone, long after its descriptor was given to another file."""
    for together in (True, False):
        disk = Disk()
        pool = OpenFiles(disk, LEAST)
        handles = [pool.open(f"/data/{number}", NEW) for number in range(30)]
        for handle in handles:
            pool.pwrite(handle, b"kept", 0)
        for fds in [handles] if together else [[handle] for handle in handles]:
            sync_files(pool, fds)
        folder = pool.open("/data", os.O_RDONLY | os.O_DIRECTORY)
        sync_files(pool, [folder])
        disk.power_cut(random.Random(1))
        assert [bytes(disk.file(f"/data/{number}")) for number in range(30)] == [b"kept"] * 30


def test_the_file_system_is_synced_for_closed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[int] = []
    monkeypatch.setattr(module, "sync_file_system", whole.append)
    pool = OpenFiles(os, LEAST)
    handles = [pool.open(f"{tmp_path}/{number}", NEW) for number in range(LEAST + 1)]
    sync_files(pool, handles[1:2])
    assert whole == []
    sync_files(pool, handles[:1])
    assert [os.fstat(fd).st_ino for fd in whole] == [tmp_path.stat().st_ino]
    sync_files(pool, handles[:1])
    assert len(whole) == 1, "nothing was written to it since"
    pool.release()


@pytest.mark.parametrize("when", ["closing", "syncing", "fsync"])
def test_a_failed_sync_is_final(when: str) -> None:
    """Also one that came about because another file was opened, whose opener may go on without it."""
    disk = Disk()
    pool = OpenFiles(disk, LEAST)
    handles = [pool.open(f"/data/{number}", NEW) for number in range(LEAST)]
    pool.pwrite(handles[0], b"lost", 0)
    disk.fail(0, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        if when == "closing":
            pool.open("/data/more", NEW)
        elif when == "fsync":
            pool.fsync(handles[0])
        else:
            sync_files(pool, handles[:1])
    with pytest.raises(OSError, match="Input/output"):
        sync_files(pool, handles[:1])
    with pytest.raises(OSError, match="Input/output"):
        pool.fsync(handles[1])


def test_a_descriptor_in_use_by_a_sync_is_not_given_to_another_file() -> None:
    class Slow(Disk):
        def fdatasync(self, fd: int, /) -> None:
            begun.set()
            assert go_on.wait(60)
            assert fd in self._open, "it was closed meanwhile"
            super().fsync(fd)

    begun, go_on = threading.Event(), threading.Event()
    disk = Slow()
    pool = OpenFiles(disk, LEAST)
    handles = [pool.open(f"/data/{number}", NEW) for number in range(LEAST)]
    go_on.set()
    sync_files(pool, handles[1:])
    begun.clear()
    go_on.clear()
    thread = threading.Thread(target=lambda: sync_files(pool, handles[:1]))
    thread.start()
    assert begun.wait(60)
    pool.close(handles[0])
    more = [pool.open(f"/data/more{number}", os.O_RDONLY | os.O_CREAT) for number in range(LEAST)]
    go_on.set()
    thread.join(60)
    assert disk.open_files <= LEAST
    for handle in more:
        pool.close(handle)


def test_a_process_without_descriptors(tmp_path: Path) -> None:
    """The host program took them all: the store goes on with those that it has."""

    class Full(Disk):
        room = 100

        def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
            if self.open_files >= self.room:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return super().open(path, flags, mode)

    disk = Full()
    pool = OpenFiles(disk, 50)
    handles = [pool.open(f"/data/{number}", NEW) for number in range(20)]
    disk.room = 1
    for number, handle in enumerate(handles):
        pool.pwrite(handle, b"%d" % number, 0)
    assert [pool.pread(handle, 10, 0) for handle in handles] == [b"%d" % number for number in range(20)]
    disk.room = 0
    for handle in handles:
        pool.close(handle)
    with pytest.raises(OSError, match="Too many open files"):
        pool.open("/data/more", NEW)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    pool = OpenFiles(os, LEAST)
    handles = [pool.open(f"{tmp_path}/{number}", NEW) for number in range(LEAST + 1)]
    pool.unlink(f"{tmp_path}/0")
    sync_files(pool, handles)
    pool.close(handles[0])
    pool.release()


def test_the_limit_by_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for soft in (64, 200, 1024, 65_536, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        found.append((kept_for_store(), most_open_files()))
    assert found == [(16, LEAST), (50, 26), (256, 232), (1024, 1000), (None, 1000)]


# -- a whole node


@contextmanager
def running(data: Path, open_files: int) -> Iterator[NodeKit]:
    kit = NodeKit(data, open_files=open_files)
    yield kit
    kit.run_syncs()
    kit.stop()


QUEUES, STREAMS = 150, 20


def test_many_queues_on_few_descriptors(tmp_path: Path) -> None:
    """Written, delivered, settled, recovered, read from the disk, deleted; streams and held messages beside."""
    before = descriptors(tmp_path)
    most = before + LEAST + 12
    with running(tmp_path, LEAST) as kit:
        client = kit.client()
        for number in range(QUEUES):
            client.declare(f"q{number}")
            client.call(m.QueueBind(f"q{number}", "amq.fanout"), m.QueueBindOk)
        for number in range(STREAMS):
            client.declare(f"s{number}", x_queue_type="stream")
            client.call(m.QueueBind(f"s{number}", "amq.fanout"), m.QueueBindOk)
            late = m.ExchangeDeclare(
                f"d{number}", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
            )
            client.call(late, m.ExchangeDeclareOk)
            client.publish("", b"late", f"d{number}", delivery_mode=2, headers={"x-delay": 1_000_000})
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for body in (b"1", b"2", b"3"):
            client.publish("", body, "amq.fanout", delivery_mode=2)
            assert descriptors(tmp_path) <= most
        while kit.node.batch.commit.synced == 0 or not client.take(m.BasicAck):
            kit.run_sync()
            client.receive()
        for number in range(QUEUES):
            got = client.get(f"q{number}")
            assert got is not None
            assert got.body == b"1"
        assert descriptors(tmp_path) <= most
        kit.pass_time(130_000)  # queues that rest close their files
        assert descriptors(tmp_path) <= most
    assert descriptors(tmp_path) == before
    for first in (b"2", b"3"):
        with running(tmp_path, LEAST) as kit:
            assert descriptors(tmp_path) <= most
            client = kit.client()
            assert [client.count(f"q{number}") for number in range(QUEUES)] == [4 - int(first)] * QUEUES
            for number in range(QUEUES):
                got = client.get(f"q{number}")
                assert got is not None
                assert got.body == first
            assert [client.count(f"s{number}") for number in range(STREAMS)] == [3] * STREAMS
            assert sum(len(each) for each in kit.node.vhosts["/"].delays.values()) == STREAMS
            client.call(m.BasicQos(0, 10), m.BasicQosOk)
            for number in range(STREAMS):
                client.send(1, m.BasicConsume(f"s{number}", f"s{number}", arguments={"x-stream-offset": "first"}))
                assert [body for *_, body in client.deliveries()] == [b"1", b"2", b"3"]
                client.call(m.BasicCancel(f"s{number}"), m.BasicCancelOk)
            assert descriptors(tmp_path) <= most
    with running(tmp_path, LEAST) as kit:
        client = kit.client()
        for number in range(QUEUES):
            client.call(m.QueueDelete(f"q{number}"), m.QueueDeleteOk)
        assert list((tmp_path / "queues").iterdir()) == []
    assert descriptors(tmp_path) == before


MANY_QUEUES = int(os.environ.get("HAREBELL_QUEUES", "2500"))  # `make torture` has 10,000


@pytest.mark.parametrize(
    "descriptors, queues, connections",
    [(200, 400, 300), pytest.param(1024, MANY_QUEUES, 1100, marks=pytest.mark.slow)],
)
def test_more_queues_and_connections_than_descriptors(
    tmp_path: Path, descriptors: int, queues: int, connections: int
) -> None:
    """With a real limit, in a process of its own, over sockets: as many connections as there is room for."""
    script = Path(__file__).with_name("many_queues.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(descriptors), str(queues), str(connections)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all there" in done.stdout


class _SlowSync(Disk):
    """A disk whose first sync lasts until it is let go on, and fails then with `error`."""

    def __init__(self, error: OSError | None) -> None:
        super().__init__()
        self.error = error
        self.begun, self.go_on = threading.Event(), threading.Event()

    def fdatasync(self, fd: int, /) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
            if self.error is not None:
                raise self.error
        super().fdatasync(fd)


@pytest.mark.parametrize("together", [False, True], ids=["each file", "the file system"])
@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "Input/output error")])
def test_a_sync_ends_no_earlier_than_one_of_the_same_data(together: bool, error: OSError | None) -> None:
    disk = _SlowSync(error)
    pool = OpenFiles(disk, LEAST)
    one, other = (pool.open(f"/data/{number}", NEW) for number in range(2))
    pool.pwrite(one, b"1", 0)
    many = [one]
    if together:
        many += [pool.open(f"/data/m{number}", NEW) for number in range(FEW)]
        pool._sync_all = disk.fdatasync
        pool._devices[0] = disk.open("/data/0", os.O_RDWR)
    ends: list[str] = []

    def sync(name: str, handles: list[int]) -> None:
        try:
            pool.sync_many(handles)
        except OSError as raised:
            ends.append(f"{name} {raised.strerror}")
        else:
            ends.append(name)

    first = threading.Thread(target=sync, args=("first", many))
    first.start()
    assert disk.begun.wait(PATIENCE)
    second = threading.Thread(target=sync, args=("second", [one]))
    second.start()
    sync("another file", [other])
    second.join(0.05)
    assert ends == ["another file"]
    disk.go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE)
    if error is None:
        assert sorted(ends[1:]) == ["first", "second"]
    else:
        assert sorted(ends[1:]) == ["first Input/output error", "second Input/output error"]
