"""System calls that fail on purpose."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

import pytest

from agent_saga.wal.os_port import OsPort
from agent_saga_testing.faults import CALLS, FOR_EVER, FaultyPort, SimulatedCrash


@pytest.fixture
def port():
    return FaultyPort()


@pytest.fixture
def fd(port, tmp_path):
    fd = port.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    yield fd
    port.heal()
    port.let_go()


def use_all(port, folder):
    """Make every call of the port once, and a little more."""
    port.mkdir(str(folder / "made"))
    path = str(folder / "made" / "file")
    fd = port.open(path, os.O_RDWR | os.O_CREAT)
    port.flock(fd)
    port.flock_shared(fd)
    port.fallocate(fd, 100)
    port.pwrite(fd, b"hello", 0)
    port.append(fd, b"x")
    port.pread(fd, 5, 0)
    port.fdatasync(fd)
    port.fsync(fd)
    port.ftruncate(fd, 5)
    port.fstat(fd)
    port.stat(path)
    port.close(fd)
    port.replace(path, path + "2")
    port.listdir(str(folder / "made"))
    port.sync_directory(str(folder / "made"))
    port.unlink(path + "2")
    port.rmdir(str(folder / "made"))


def test_every_call_of_the_port_can_be_struck():
    made = {name for name, part in vars(OsPort).items() if callable(part) and name[0] != "_"}
    assert set(CALLS) == made - {"sync_directory", "file_system", "boot_id"}


def test_without_faults_calls_go_through_and_are_recorded(port, tmp_path):
    use_all(port, tmp_path)
    assert {call.name for call in port.calls} == set(CALLS)
    assert [call.number for call in port.calls] == list(range(1, port.count() + 1))
    assert port.count("open") == 2
    assert not port.crashed


def test_a_fault_at_every_call(tmp_path):
    scout = FaultyPort()
    (tmp_path / "0").mkdir()
    use_all(scout, tmp_path / "0")
    names = [call.name for call in scout.calls]
    for call in scout.calls:
        port = FaultyPort()
        port.fail(nth=call.number, error=errno.EIO)
        (tmp_path / str(call.number)).mkdir()
        with pytest.raises(OSError, match="Input/output error"):
            use_all(port, tmp_path / str(call.number))
        assert [made.name for made in port.calls[: call.number]] == names[: call.number]
        # After a failed sync of a directory its descriptor is still closed.
        assert port.count() <= call.number + 1
        port.let_go()


def test_fail_counts_per_name_and_for_as_many_times_as_told(port, fd):
    port.fail("pwrite", nth=2, times=2, error=errno.ENOSPC)
    assert port.pwrite(fd, b"1", 0) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="No space") as caught:
            port.pwrite(fd, b"2", 1)
        assert caught.value.errno == errno.ENOSPC
    assert port.pwrite(fd, b"3", 2) == 1
    assert port.pread(fd, 9, 0) == b"1\x003"


def test_a_fault_for_ever_ends_when_healed(port, fd):
    port.fail("fdatasync", times=FOR_EVER)
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output error"):
            port.fdatasync(fd)
    port.heal()
    port.fdatasync(fd)


def test_a_lost_answer_was_made(port, fd):
    port.fail("pwrite", after=True)
    with pytest.raises(OSError, match="Input/output error"):
        port.pwrite(fd, b"made", 0)
    assert port.pread(fd, 4, 0) == b"made"


def test_a_short_write(port, fd):
    port.shorten(nth=2, keep=3)
    assert port.pwrite(fd, b"whole", 0) == 5
    assert port.pwrite(fd, b"short", 5) == 3
    assert port.pread(fd, 20, 0) == b"wholesho"
    port.shorten()
    assert port.pwrite(fd, b"none", 0) == 0
    port.shorten("append", keep=1)
    assert port.append(fd, b"ab") == 1


def test_a_hang_holds_only_its_call(port, fd):
    hang = port.hang("fdatasync")
    thread = threading.Thread(target=port.fdatasync, args=(fd,))
    thread.start()
    assert hang.reached.wait(30)
    assert port.pwrite(fd, b"other calls go on", 0) == 17
    hang.release()
    thread.join(30)
    assert not thread.is_alive()


def test_after_a_crash_nothing_reaches_the_system(port, fd, tmp_path):
    port.crash("pwrite", nth=2)
    port.pwrite(fd, b"before", 0)
    for _ in range(2):
        with pytest.raises(SimulatedCrash):
            port.pwrite(fd, b"after!", 0)
    with pytest.raises(SimulatedCrash):
        port.stat(str(tmp_path))
    assert port.crashed
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_crash_after_a_call_or_inside_a_write(tmp_path):
    for options, left in (({"after": True}, b"hello"), ({"keep": 2}, b"he"), ({}, b"")):
        port = FaultyPort()
        fd = port.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        port.crash("pwrite", **options)
        with pytest.raises(SimulatedCrash):
            port.pwrite(fd, b"hello", 0)
        port.let_go()
        assert (tmp_path / "file").read_bytes() == left


def test_let_go_frees_the_locks_of_the_dead(tmp_path):
    path = str(tmp_path / "lock")
    dead, living = FaultyPort(), OsPort()
    assert dead.flock(dead.open(path, os.O_RDWR | os.O_CREAT))
    fd = living.open(path, os.O_RDWR)
    assert not living.flock(fd)
    dead.crash()
    with pytest.raises(SimulatedCrash):
        dead.stat(path)
    dead.let_go()
    assert living.flock(fd)
    living.close(fd)


def test_a_real_process_can_end_at_a_call(tmp_path):
    program = (
        "import os, sys\n"
        "from agent_saga_testing.faults import FaultyPort\n"
        "port = FaultyPort()\n"
        "port.crash('pwrite', keep=2, exit_code=42)\n"
        "port.pwrite(port.open(sys.argv[1], os.O_RDWR | os.O_CREAT), b'hello', 0)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    assert subprocess.run(command, check=False, timeout=300).returncode == 42
    assert (tmp_path / "file").read_bytes() == b"he"


@pytest.mark.parametrize(
    "order",
    [
        lambda port: port.fail("write"),
        lambda port: port.hang("sync"),
        lambda port: port.shorten("fsync"),
        lambda port: port.crash("fsync", keep=1),
        lambda port: port.crash(keep=1),
        lambda port: port.crash("pwrit"),
    ],
)
def test_a_misspelt_call_is_an_error(port, order):
    with pytest.raises(ValueError, match="choose"):
        order(port)


def test_ports_nest(tmp_path):
    inner = FaultyPort()
    outer = FaultyPort(inner)
    inner.fail("stat", error=errno.EACCES)
    outer.fail("stat", nth=2, error=errno.EIO)
    for wanted in (errno.EACCES, errno.EIO):
        with pytest.raises(OSError, match=os.strerror(wanted)):
            outer.stat(str(tmp_path))
