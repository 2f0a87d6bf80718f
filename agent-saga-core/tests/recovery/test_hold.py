"""A crashed saga that is held: its program goes on with it within its time, or it is undone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import QUICK, SAGA, Log, World

from agent_saga import AgentKit, ConfigurationError
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.engine.options import BoundaryOptions
from agent_saga.errors import StateError
from agent_saga.recovery import hold as holding
from agent_saga.state.address import open_state


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_us(self) -> int:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_800_000_000_000_000)
    monkeypatch.setattr(holding, "SYSTEM_CLOCK", clock)
    return clock


def crashed(log: Log, grace: Any = 900.0, saga: str = SAGA) -> None:
    past = log.past(saga)
    about = {"name": "past", "labels": {}, "on_crash": "hold", "resume_grace": grace}
    past.write(Ev.SAGA_BEGIN, about=about, salt="c2FsdHNhbHRzYWx0c2E")
    past.applied("a")
    past.die()


def outcomes(log: Log, **options: Any) -> list[str]:
    """What a daemon of its own, as after a restart, does in one pass."""
    return [one.outcome for one in log.daemon().recover_all(**options).sagas]


@pytest.mark.guarantee("HOLD-1")
def test_it_is_held_for_its_time_and_then_undone(log: Log, world: World, clock: Clock) -> None:
    crashed(log)
    assert outcomes(log) == ["held"]
    clock.later(899)
    assert outcomes(log) == ["held"]
    assert world.undone == []
    clock.later(2)
    assert outcomes(log) == ["undone"]
    assert world.undone == ["a"]
    assert log.view().clean
    assert open_state(f"file:{log.path}").scan(holding.PREFIX) == []


@pytest.mark.guarantee("HOLD-1")
def test_the_time_counts_from_the_first_who_saw_it_dead_not_from_its_last_record(
    log: Log, world: World, clock: Clock
) -> None:
    crashed(log, 60.0)
    clock.later(3600)
    daemon = log.daemon()
    assert [one.outcome for one in daemon.sweep().sagas] == ["held"]
    clock.later(59)
    assert not daemon.sweep().clean
    assert world.undone == []


def test_it_can_be_undone_before_its_time_if_somebody_says_so(log: Log, world: World) -> None:
    crashed(log)
    assert outcomes(log) == ["held"]
    assert outcomes(log, undo_held=True) == ["undone"]
    assert world.undone == ["a"]


def test_a_clock_that_was_put_back_only_makes_it_longer(
    log: Log, world: World, clock: Clock
) -> None:
    crashed(log)
    assert outcomes(log) == ["held"]
    clock.later(-5000)
    assert outcomes(log) == ["held"]
    clock.later(901)
    assert outcomes(log) == ["undone"]


def test_a_store_that_lost_it_begins_anew(log: Log, world: World, clock: Clock) -> None:
    crashed(log)
    assert outcomes(log) == ["held"]
    clock.later(800)
    store = open_state(f"file:{log.path}")
    holding.forget(store, SAGA)
    assert outcomes(log) == ["held"]
    clock.later(800)
    assert outcomes(log) == ["held"]


def test_a_store_that_cannot_be_read_undoes_nothing(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(log)
    crashed(log, saga="another")
    daemon = log.daemon()

    def broken(*args: Any, **options: Any) -> Any:
        raise StateError("the disk is gone")

    monkeypatch.setattr(daemon._place().store, "transact", broken)
    assert [one.outcome for one in daemon.recover_all().sagas] == ["failed", "failed"]
    assert world.undone == []


@pytest.mark.parametrize("grace", [None, "long", -1, True, float("nan"), 1e12, {}])
def test_a_grace_that_cannot_be_read_is_none(log: Log, world: World, grace: Any) -> None:
    crashed(log, grace)
    assert outcomes(log) == ["undone"]


@pytest.mark.parametrize("reason", ["recover", "operator", "undo", ""])
def test_what_somebody_began_to_undo_is_held_no_more(log: Log, world: World, reason: str) -> None:
    crashed(log)
    dead = log.found().writers
    past = log.past()
    past.epoch = 2
    cuts = {writer: {"seq": record.seq, "hash": ""} for writer, record in dead.items()}
    past.write(Ev.SAGA_CLAIM, reason=reason, by="the past", cuts=cuts)
    past.die()
    assert outcomes(log) == ["undone"]


def test_whoever_resumed_it_and_died_leaves_it_held_anew(
    log: Log, world: World, clock: Clock
) -> None:
    crashed(log)
    assert outcomes(log) == ["held"]
    clock.later(800)
    dead = log.found().writers
    past = log.past()
    past.epoch = 2
    cuts = {writer: {"seq": record.seq, "hash": ""} for writer, record in dead.items()}
    past.write(Ev.SAGA_CLAIM, reason="resume", by="resume", cuts=cuts)
    past.write(Ev.SAGA_RESUMED)
    past.die()
    open_state(f"file:{log.path}").transact(
        ["claim/" + SAGA],
        lambda docs: holding_claim(),
    )
    assert outcomes(log) == ["held"]
    clock.later(800)
    assert outcomes(log) == ["held"]
    clock.later(101)
    assert outcomes(log) == ["undone"]


def holding_claim() -> Any:
    from agent_saga.state.base import Change

    doc = {"epoch": 2, "owner": None, "deadline": None, "ended": False}
    return Change(None, {"claim/" + SAGA: doc})


# --- how it is asked for --------------------------------------------------------------------------


def test_the_boundary_says_so_and_the_log_keeps_it(log: Log) -> None:
    wal = log.daemon()._place().wal
    kit = AgentKit("k", wal=wal, settings=QUICK.replace(resume_grace=7.0))

    @kit.tool("COMPENSABLE")
    def act() -> int:
        return 1

    @act.undo
    def unact() -> None: ...

    with kit.transaction(saga_id="one", on_crash="hold") as one:
        act()
    with kit.transaction(saga_id="two", on_crash="hold", resume_grace=5) as two:
        act()
    with kit.transaction(saga_id="three") as three:
        act()
    graces = [log.view(saga.id).resume_grace for saga in (one, two, three)]
    assert graces == [7.0, 5.0, None]


@pytest.mark.parametrize("grace", ["x", -1, True, None, float("nan"), float("inf"), 10**10])
def test_a_grace_is_a_number_of_seconds(grace: Any) -> None:
    with pytest.raises(ConfigurationError):
        BoundaryOptions(on_crash="hold", resume_grace=grace)


def test_on_crash_is_one_of_two() -> None:
    with pytest.raises(ConfigurationError, match="on_crash"):
        BoundaryOptions(on_crash="later")


# --- real processes -------------------------------------------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit, Settings

    world = Path("world.txt")
    kit = AgentKit("held", wal="log", settings=Settings(settle_after=0.0))

    def note(line):
        with world.open("a") as file:
            print(line, file=file)

    @kit.tool("COMPENSABLE")
    def act(n: int) -> int:
        note(f"act {n}")
        return n

    @act.undo
    def unact(result):
        note(f"unact {result}")

    def run():
        with kit.transaction(saga_id="s", resume=True, on_crash="hold", resume_grace=900):
            act(1)
            if "dies" in sys.argv:
                os.kill(os.getpid(), signal.SIGKILL)
            act(2)

    if __name__ == "__main__":
        run()
    """
)


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, check=False, capture_output=True, text=True
    )


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder in which a program that holds its saga was killed."""
    (tmp_path / "program.py").write_text(PROGRAM)
    assert python(tmp_path, "program.py", "dies").returncode == -signal.SIGKILL
    return tmp_path


def recoveryd(folder: Path) -> int:
    words = ["-m", "agent_saga.cli.recoveryd", "--wal-path", "log", "--import", "program", "--once"]
    return python(folder, *words).returncode


@pytest.mark.guarantee("HOLD-1")
def test_a_killed_program_that_is_started_again_goes_on(killed: Path) -> None:
    assert recoveryd(killed) == 1
    done = python(killed, "program.py")
    assert done.returncode == 0, done.stderr
    assert recoveryd(killed) == 0
    assert (killed / "world.txt").read_text().split("\n")[:-1] == ["act 1", "act 2"]


def test_one_that_is_not_started_again_is_undone(killed: Path) -> None:
    assert recoveryd(killed) == 1
    words = ["-m", "agent_saga.cli", "recover", "--wal-path", "log", "--import", "program"]
    assert python(killed, *words).returncode == 1
    assert python(killed, *words, "--undo-held").returncode == 0
    assert (killed / "world.txt").read_text().split("\n")[:-1] == ["act 1", "unact 1"]
    refused = python(killed, "program.py")
    assert "SagaClosed" in refused.stderr or "ROLLED_BACK" in refused.stderr


@pytest.mark.guarantee("HOLD-1")
def test_the_program_and_those_who_undo_it_race_on_one_claim(killed: Path) -> None:
    recover = ["-m", "agent_saga.cli", "recover", "--wal-path", "log", "--import", "program"]
    racing = [
        subprocess.Popen(
            [sys.executable, *words],
            cwd=killed,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for words in (["program.py"], [*recover, "--undo-held"], ["program.py"])
    ]
    for one in racing:
        one.wait(60)
    lines = (killed / "world.txt").read_text().split("\n")[:-1]
    assert lines in (["act 1", "act 2"], ["act 1", "unact 1"])


def test_the_commands_tell_that_it_is_held(
    killed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(killed)
    before = set(Path("log/writers").iterdir())

    def told(*words: str) -> str:
        main([*words, "--wal-path", "log"])
        return capsys.readouterr().out

    assert "from the next recovery on" in told("list")
    assert set(Path("log/writers").iterdir()) == before, "looking makes nothing"
    assert recoveryd(killed) == 1
    [saga] = json.loads(told("list", "--json"))["sagas"]
    assert saga["held"]
    assert saga["held_until_us"] > saga["last_us"]
    assert "go on with it until" in told("list")
    assert "--undo-held" in told("show", saga["saga"])
    assert json.loads(told("show", saga["saga"], "--json"))["held"] is True
    assert "held: its program" in told("recover", "--dry-run")
    assert "held" in told("doctor")
