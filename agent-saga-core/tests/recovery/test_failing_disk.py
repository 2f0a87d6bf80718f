"""Every system call of a recovery pass fails, once or from then on; later the disk is well again.

The second pass is made by the same process: it owns whatever the first one had taken.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from recovery.conftest import QUICK, Log, World

from agent_saga import AgentKit, FileWAL, SagaAborted
from agent_saga.domain.records import Ev
from agent_saga.errors import AgentSagaError
from agent_saga.recovery.daemon import Result
from agent_saga.wal.lock import EVERY_EPOCH, WHOLE_WRITER
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import records

FULL = settings.default.max_examples > 1000
EVERY = 1 if FULL else 9
NAMES = [
    name for name, value in vars(OsPort).items()
    if callable(value) and not name.startswith("_") and name not in {"boot_id", "hostname"}
]  # fmt: skip
ONCE, ALWAYS = 1, 10**9


class Disk:
    """The system calls of this process, which fail where they are told to."""

    def __init__(self) -> None:
        self.calls = self.first = 0
        self.times = 0

    def breaks(self, first: int, times: int) -> None:
        self.calls, self.first, self.times = 0, first, times

    def heals(self) -> None:
        self.times = 0

    def wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(port: OsPort, *arguments: Any) -> Any:
            self.calls += 1
            fails = self.first <= self.calls < self.first + self.times
            if fails and name != "close":  # a close that fails closes all the same
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            answer = real(port, *arguments)
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return answer

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    for name in NAMES:
        monkeypatch.setattr(OsPort, name, disk.wrapped(name, getattr(OsPort, name)))
    yield disk
    disk.heals()


def left(folder: Path) -> Log:
    """The log of a process that died with two effects standing."""
    log = Log(folder)
    past = log.past().begin()
    past.applied("a")
    past.applied("b")
    past.die()
    return log


def cannot_read_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileWAL, "_fences_now", lambda wal: {WHOLE_WRITER: EVERY_EPOCH})


class Passes:
    """The passes over one log; none may call it clean while an effect stands."""

    def __init__(self, log: Log, world: World, told: str) -> None:
        self.log, self.world, self.told = log, world, told
        self.daemon = log.daemon()

    def one(self) -> Result | None:
        """Make a pass; one that fails lets no error of the system through."""
        try:
            result: Result = self.daemon.recover_all()
        except AgentSagaError:
            return None
        assert self.finished or not result.clean, f"{self.told}: falsely clean: {result}"
        assert max(self.world.times().values(), default=1) == 1, f"{self.told}: twice"
        return result

    def restart(self) -> None:
        """Let the process end, and make the daemon of another one."""
        self.log.close()
        self.daemon = self.log.daemon()

    @property
    def finished(self) -> bool:
        return set(self.world.undone) == {"a", "b"}


def calls_of_a_pass(folder: Path, disk: Disk, world: World) -> int:
    log = left(folder)
    passes = Passes(log, world, "no fault")
    disk.breaks(0, 0)
    result = passes.one()
    assert result is not None
    assert result.clean
    log.close()
    return disk.calls


@pytest.mark.property
@pytest.mark.guarantee("RECOVER-26")
@pytest.mark.parametrize("times", [ONCE, ALWAYS], ids=["once", "from-then-on"])
def test_a_pass_that_the_disk_broke_is_made_again(
    tmp_path: Path, disk: Disk, world: World, times: int
) -> None:
    calls = calls_of_a_pass(tmp_path / "well", disk, world)
    restarts = 0
    for first in range(1, calls + 1, EVERY):
        world.undone.clear()
        log = left(tmp_path / str(first))
        passes = Passes(log, world, f"call {first}")
        disk.breaks(first, times)
        passes.one()
        disk.heals()
        last = [passes.one() for _ in range(2)][-1]
        if last is None or not last.clean:
            restarts += 1
            passes.restart()
            last = passes.one()
        assert last is not None
        assert passes.finished or last.needs_human, f"call {first}: {last}"
        log.close()
    assert restarts < calls / EVERY / 2, "a process that goes on could hardly ever help itself"


@pytest.mark.guarantee("RECOVER-26")
def test_what_a_pass_could_not_hand_back_is_handed_back_by_the_next(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = log.past().begin()
    past.applied("a")
    past.die()
    daemon = log.daemon()
    with monkeypatch.context() as broken:
        cannot_read_its_lock(broken)
        [first] = daemon.recover_all().sagas
    assert first.needs_human
    assert not world.undone
    for _ in range(2):
        result = daemon.recover_all()
    assert result.clean
    assert world.undone == ["a"]


@pytest.mark.guarantee("RECOVER-26")
def test_a_program_hands_back_before_its_next_saga_what_it_could_not_finish(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = FileWAL(log.path)
    log.wals.append(wal)
    kit = AgentKit("server", wal=wal, settings=QUICK)

    @kit.tool("COMPENSABLE", name="act")
    def act(what: str) -> str:
        return what

    @act.undo
    def unact(result: str) -> None:
        world.undone.append(result)

    with monkeypatch.context() as broken:
        with pytest.raises(SagaAborted) as failed, kit.transaction("first") as saga:
            act("a")
            cannot_read_its_lock(broken)
            raise RuntimeError
        assert failed.value.report.outcome == "RELEASED"
    assert log.view(saga.id).state.value != "RELEASED"
    with kit.transaction("second"):
        act("b")
    assert log.view(saga.id).state.value == "RELEASED"
    assert log.daemon().recover_all().clean
    assert world.undone == ["a"]
    with kit.transaction("third"):
        act("c")
    released = [r for r in records(log.path) if r.event == Ev.SAGA_RELEASED]
    assert len(released) == 1


def test_threads_that_begin_at_the_same_moment_hand_it_back_once(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = FileWAL(log.path)
    log.wals.append(wal)
    kit = AgentKit("server", wal=wal, settings=QUICK)

    @kit.tool("COMPENSABLE", name="act", compensate=lambda result: None)
    def act() -> None: ...

    with (
        monkeypatch.context() as patch,
        pytest.raises(SagaAborted),
        kit.transaction("first") as saga,
    ):
        act()
        cannot_read_its_lock(patch)
        raise RuntimeError
    together = threading.Barrier(8)
    looked = FileWAL._fences_now

    def one() -> None:
        together.wait()
        with kit.transaction("next"):
            pass

    with monkeypatch.context() as slowly:
        threads = [threading.Thread(target=one) for _ in range(8)]
        slowly.setattr(FileWAL, "_fences_now", lambda wal: (time.sleep(0.05), looked(wal))[1])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    released = [r for r in records(log.path) if r.event == Ev.SAGA_RELEASED]
    assert [r.saga for r in released] == [saga.id]
