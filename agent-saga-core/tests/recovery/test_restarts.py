"""A saga over which one daemon after another dies: later every time, and not for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import SAGA, Log, World

from agent_saga.domain.records import Ev
from agent_saga.recovery import daemon as watching
from agent_saga.recovery.queue import cases_in


def tried(log: Log, times: int, *, handler: str = "undo_again", ago: float = 0.0) -> None:
    """A saga over whose inverse so many daemons died, each after it had announced it."""
    past = log.past().begin()
    past.applied("a", handler=handler)
    past.die()
    for number in range(times):
        cuts = {w: {"seq": r.seq, "hash": ""} for w, r in log.found().writers.items()}
        past = log.past()
        past.epoch = number + 2
        past.write(Ev.SAGA_CLAIM, reason="recover", by="the past", cuts=cuts)
        if number == 0:
            past.unwinding()
        else:
            past.write(Ev.STEP_COMPENSATION_UNKNOWN, "a", error=None, ending="interrupted")
        past.compensating("a", handler=handler)
        past.die()


@pytest.mark.guarantee("RECOVER-9")
def test_an_inverse_that_every_daemon_dies_of_becomes_a_humans_case(log: Log, world: World) -> None:
    tried(log, 9)
    [one] = log.daemon().recover_all().sagas
    assert one.needs_human
    assert world.undone == []
    assert log.states() == {"a": "COMPENSATION_UNKNOWN"}
    assert [case.id for case in cases_in(str(log.path))] == [SAGA]
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone", "a person may try once more"
    assert world.undone == ["a"]


def test_until_then_it_is_tried(log: Log, world: World) -> None:
    tried(log, 8)
    assert [one.outcome for one in log.daemon().recover_all().sagas] == ["undone"]
    assert world.undone == ["a"]


@pytest.mark.guarantee("RECOVER-9")
def test_a_daemon_that_is_started_again_waits_as_long_as_the_one_before_would_have(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(log, 5)

    class Later:
        def now_us(self) -> int:
            return log.found().effective.records[-1].time + self.passed

        passed = 0

    clock = Later()
    monkeypatch.setattr(watching, "SYSTEM_CLOCK", clock)
    assert [one.outcome for one in log.daemon().sweep().sagas] == ["waiting"]
    clock.passed = 33_000_000
    assert [one.outcome for one in log.daemon().sweep().sagas] == ["undone"]


def test_a_saga_that_its_program_had_again_is_not_made_to_wait(log: Log, world: World) -> None:
    past = log.past().begin()
    past.applied("a")
    past.die()
    for epoch, reason in ((2, "recover"), (3, "recover"), (4, "resume")):
        cuts = {w: {"seq": r.seq, "hash": ""} for w, r in log.found().writers.items()}
        past = log.past()
        past.epoch = epoch
        past.write(Ev.SAGA_CLAIM, reason=reason, by="the past", cuts=cuts)
        if reason == "resume":
            past.write(Ev.SAGA_RESUMED)
        past.die()
    assert [one.outcome for one in log.daemon().sweep().sagas] == ["undone"]


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit, Settings, compensator

    kit = AgentKit("k", wal="log")

    def note(line):
        with Path("world.txt").open("a") as file:
            print(line, file=file)

    @compensator("deadly", idempotent=True)
    def deadly(n, idempotency_key):
        note("deadly")
        os.kill(os.getpid(), signal.SIGKILL)

    @kit.tool("COMPENSABLE", compensate=deadly.using(n="$"))
    def bad(n: int) -> int:
        return n

    @kit.tool("COMPENSABLE")
    def good(n: int) -> int:
        return n

    @good.undo
    def ungood(result):
        note("good")

    if __name__ == "__main__":
        with kit.transaction(), kit.transaction(detached=True):
            good(1)
            with kit.transaction(detached=True):
                bad(1)
                os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_the_other_sagas_are_undone_although_the_daemon_dies(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(PROGRAM)
    environ = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0", "AGENT_SAGA_INVERSE_ATTEMPTS": "1"}

    def python(*words: str) -> int:
        command = [sys.executable, *words]
        done: Any = subprocess.run(
            command, cwd=tmp_path, env=environ, check=False, capture_output=True
        )
        return int(done.returncode)

    assert python("deadly.py") == -signal.SIGKILL
    recover = ("-m", "agent_saga.cli", "recover", "--wal-path", "log", "--import", "deadly")
    ends = [python(*recover) for _ in range(4)]
    assert ends == [-signal.SIGKILL] * 3 + [1], "three daemons die of it, the fourth asks a human"
    world = (tmp_path / "world.txt").read_text().split()
    assert world.count("deadly") == 3
    assert world.count("good") == 1
