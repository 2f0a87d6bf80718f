"""Compaction that fails, crashes or loses power at any system call: nothing is lost, ever."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys

import pytest
from compaction.logs import Quick, Writer, broken, readable, settled

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.wal import exchange
from agent_saga.wal.os_port import OsPort
from agent_saga_testing.faults import CALLS, FOR_EVER, SimulatedCrash
from agent_saga_testing.power import PowerLossPort, lose_everything

STEP = 1 if "AGENT_SAGA_FULL" in os.environ else 9
OPEN = ("open", "torn", "undone halfway")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A log with a closed writer, a killed one, one that a third took a saga over from."""
    path = tmp_path_factory.mktemp("made") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_saga.wal.segments.FIRST_SIZE", 4096)
        patch.setattr("agent_saga.wal.segments.LAST_SIZE", 4096)
        _fill(path)
    return path


def _fill(path):
    closed, killed, leaving = (Writer(path, Quick()) for _ in range(3))
    leaving.whole("left")
    leaving.close()
    for one, name in ((closed, "c"), (killed, "k")):
        for number in range(12):
            one.whole(f"{name}{number}", key="named" if number % 5 == 0 else None)
    closed.begin("open")
    closed.applied("open", "a")
    closed.whole("taken over")
    closed.whole("undone halfway")
    killed.begin("torn")
    killed.intent("torn", "a")
    last = closed.wal.seq
    closed.close()
    for saga in ("taken over", "undone halfway"):
        killed.claim(saga, 2, {closed.wal.writer: last})
        killed.write(Ev.SAGA_UNWINDING, saga, epoch=2, cause="x", scope=[], after_commit=True)
        killed.undone(saga, "a", 2)
    killed.write(Ev.SAGA_ROLLED_BACK, "taken over", epoch=2)
    killed.sync()
    killed.kill()


@pytest.fixture(autouse=True)
def copies_of_locks_prove_death(monkeypatch):
    """The logs here are copies, so no lock file is the one that its writer made."""
    monkeypatch.setattr("agent_saga.wal.takeover._may_run", lambda pid: False)


@pytest.fixture
def log(made, tmp_path):
    path = tmp_path / "log"
    shutil.copytree(made, path)
    return path


def calls_of(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("counted") / "log"
    shutil.copytree(made, path)
    compactor = Writer(path, Quick())
    compactor.wal.compact(grace_seconds=0)
    count = compactor.port.count()
    compactor.close()
    return count


def check(path, before):
    """What was not settled is as it was; what was is there as a whole, or not at all."""
    sagas, damages = readable(path)
    assert broken(damages) == []
    assert {saga: sagas.get(saga) for saga in OPEN} == {saga: before[saga] for saga in OPEN}
    halves = {s for s, lines in before.items() if sagas.get(s) not in (None, lines)}
    assert halves == set()
    return sagas


def finished(path, before):
    """The next compaction brings everything to the same end."""
    compactor = Writer(path, Quick())
    compactor.wal.compact(grace_seconds=0)
    compactor.close()
    assert set(check(path, before)) == set(OPEN)
    names = [p.name for p in path.rglob("*")]
    assert not [name for name in names if name.endswith(exchange.DRAFT) or name == exchange.PLAN]


def test_the_log_holds_what_it_should(made):
    before, damages = readable(made)
    assert broken(damages) == []
    assert set(before) - settled(made, list(before)) == set(OPEN)


def strike_eio(port, nth):
    """Any call but a close fails; one of those fails only after the descriptor is given back."""
    for name in set(CALLS) - {"close"}:
        port.fail(name, nth=nth, error=errno.EIO)


def strike_late_eio(port, nth):
    port.fail(nth=nth, error=errno.EIO, after=True)


def strike_full(port, nth):
    for name in ("pwrite", "fallocate", "append"):
        port.fail(name, nth=nth, error=errno.ENOSPC, times=FOR_EVER)


def strike_crash(port, nth):
    port.crash(nth=nth)


def strike_late_crash(port, nth):
    port.crash(nth=nth, after=True)


STRIKES = [strike_eio, strike_late_eio, strike_full, strike_crash, strike_late_crash]


@pytest.mark.timeout(1800)
@pytest.mark.crash
@pytest.mark.guarantee("COMPACT-2")
@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: strike.__name__)
def test_a_fault_at_any_system_call_loses_nothing(strike, made, tmp_path_factory):
    before, _ = readable(made)
    calls = calls_of(made, tmp_path_factory)
    assert calls > 100
    if strike in (strike_eio, strike_full):
        calls //= 5  # these count the calls of each name, and strike several
    root = tmp_path_factory.mktemp("struck")
    for nth in range(1 + STRIKES.index(strike) % STEP, calls + 1, STEP):
        path = root / f"{nth}"
        shutil.copytree(made, path)
        compactor = Writer(path, Quick())
        strike(compactor.port, nth)
        with contextlib.suppress(WALError, SimulatedCrash):
            compactor.wal.compact(grace_seconds=0)
        if not compactor.port.crashed:
            check(path, before)
        compactor.port.heal()
        compactor.kill()
        check(path, before)
        finished(path, before)
        shutil.rmtree(path)


@pytest.mark.timeout(1800)
@pytest.mark.crash
@pytest.mark.guarantee("COMPACT-2")
def test_a_power_loss_at_any_system_call_loses_nothing(made, tmp_path_factory):
    before, _ = readable(made)
    calls = calls_of(made, tmp_path_factory)
    root = tmp_path_factory.mktemp("powerless")
    chance = random.Random(11)
    for nth in range(1, calls + 1, STEP):
        path = root / f"{nth}"
        shutil.copytree(made, path)
        disk = PowerLossPort(path)
        compactor = Writer(path, disk)
        compactor.port.crash(nth=nth)
        with contextlib.suppress(WALError, SimulatedCrash):
            compactor.wal.compact(grace_seconds=0)
        for choose in (lose_everything, chance.randrange):
            survived = root / f"{nth}-{choose.__name__}"
            disk.materialise(survived, choose)
            check(survived, before)
            finished(survived, before)
            shutil.rmtree(survived)
        compactor.kill()
        shutil.rmtree(path)


def test_readers_follow_a_plan_that_is_half_in_place(log, monkeypatch):
    before, _ = readable(log)
    compactor = Writer(log, Quick())
    compactor.port.crash("replace", nth=2)  # the first one puts the plan there
    with pytest.raises(SimulatedCrash):
        compactor.wal.compact(grace_seconds=0)
    compactor.kill()
    assert (log / exchange.PLAN).exists()
    assert list(log.rglob("*" + exchange.DRAFT))
    assert set(check(log, before)) == set(OPEN)
    finished(log, before)


@pytest.mark.parametrize(
    "plan",
    [b"", b"{}", b"[1]", b'{"version":1,"plan":{},"digest":"x"}', b"\xff" * 9, b"[" * 100_000],
)
def test_a_plan_that_cannot_be_read_stops_reading_and_is_named(log, plan):
    (log / exchange.PLAN).write_bytes(plan)
    with pytest.raises(WALError, match="being compacted") as error:
        readable(log)
    assert error.value.fix
    with pytest.raises(WALError, match="being compacted"):
        Writer(log, Quick()).wal.compact(grace_seconds=0)
    (log / exchange.PLAN).unlink()
    assert set(OPEN) <= set(readable(log)[0])


@pytest.mark.parametrize("name", ["../../../victim", "seg-../../x.jsonl", "lock", "/seg-x.jsonl"])
def test_a_plan_that_names_other_files_is_not_followed(log, tmp_path, name):
    writer = next((log / "writers").iterdir()).name
    victim = tmp_path / "victim"
    victim.write_text("mine")
    exchange.write_plan(OsPort(), str(log), {writer: exchange.Exchange(gone=[name])})
    with pytest.raises(WALError, match="being compacted"):
        Writer(log, Quick()).wal.compact(grace_seconds=0)
    assert victim.read_text() == "mine"
    assert (log / "writers" / writer / "lock").exists()


def test_drafts_that_a_crash_left_are_removed(log):
    before, _ = readable(log)
    compactor = Writer(log, Quick())
    compactor.port.crash("pwrite", nth=3)
    with pytest.raises(SimulatedCrash):
        compactor.wal.compact(grace_seconds=0)
    compactor.kill()
    assert list(log.rglob("*" + exchange.DRAFT))
    assert set(readable(log)[0]) == set(before)
    finished(log, before)


def test_a_full_disk_is_an_error_that_says_that_nothing_is_lost(log):
    before, _ = readable(log)
    compactor = Writer(log, Quick())
    compactor.port.fail("pwrite", error=errno.ENOSPC, times=1 << 40)
    with pytest.raises(WALError) as error:
        compactor.wal.compact(grace_seconds=0)
    assert error.value.fix
    assert readable(log)[0] == before
    assert not list(log.rglob("*" + exchange.DRAFT))
    compactor.kill()


FORK = """
import os, sys
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.view import DirectoryLock
lock = DirectoryLock(OsPort(), sys.argv[1], shared=True)
pid = os.fork()
if pid == 0:
    lock_of_child = lock._fd
    sys.stdin.read()
    os._exit(0 if lock_of_child == -1 else 1)
lock.close()
DirectoryLock(OsPort(), sys.argv[1], shared=False, longest=10.0).close()
sys.exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_holds_no_lock_of_its_parent(tmp_path):
    program = [sys.executable, "-c", FORK, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        assert process.wait() == 0
