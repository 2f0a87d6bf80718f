"""Ctrl-C and SIGTERM while inverses run: none is cut in half, the rest waits, none is repeated."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import QUICK, SAGA, Log, World

from agent_saga import AgentKit, SagaSuspended, compensator
from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
from agent_saga.plugins.registry import process_handlers
from agent_saga.runtime import resuming
from agent_saga.wal.reader import records

HANDLERS = """
import time
from pathlib import Path
from agent_saga import compensator

HERE = Path(__file__).parent

@compensator("undo")
def undo(what, *, idempotency_key):
    with (HERE / "world").open("a") as file:
        file.write(f"begin {what}\\n")
    while not (HERE / "go").exists():
        time.sleep(0.01)
    with (HERE / "world").open("a") as file:
        file.write(f"end {what}\\n")
"""

RECOVER = ("recover",)
UNDO = ("undo", SAGA, "--by", "ann", "--reason", "x")
RETRY = ("queue", "retry", SAGA, "--by", "ann")


class Command:
    """A command that undoes, in a process of its own."""

    def __init__(self, log: Log, folder: Path, words: tuple[str, ...]) -> None:
        self.world = folder / "world"
        self.go = folder / "go"
        (folder / "handlers_that_wait.py").write_text(HANDLERS)
        program = [sys.executable, "-m", "agent_saga.cli", *words]
        self.words = [*program, "--import", "handlers_that_wait", "--wal-path", str(log.path)]
        self.how: dict[str, Any] = {
            "cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
            "env": {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0"},
        }  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.words, **self.how)

    def seen(self) -> list[str]:
        return self.world.read_text().splitlines() if self.world.exists() else []

    def until(self, line: str) -> None:
        for _ in range(6000):
            if line in self.seen():
                return
            time.sleep(0.01)
        raise AssertionError(f"{line} was not seen: {self.seen()}")


def left(log: Log, words: tuple[str, ...], steps: str = "abc") -> None:
    past = log.past().begin()
    for step in steps:
        past.applied(step)
    if words is UNDO:
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    if words is RETRY:
        past.unwinding()
        past.end(Ev.SAGA_STUCK)
    past.die()
    if words is RECOVER:
        other = log.past("another").begin()
        other.applied("z")
        other.die()


@pytest.mark.guarantee("RECOVER-22")
@pytest.mark.crash
@pytest.mark.parametrize("words", [RECOVER, UNDO, RETRY], ids=lambda words: words[0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_the_inverse_that_runs_end_and_begins_no_other(
    log: Log, tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    left(log, words)
    command = Command(log, tmp_path, words)
    with command.start() as run:
        command.until("begin c")
        run.send_signal(number)
        assert run.stderr is not None
        assert "Stopping as soon as the inverse that runs has ended." in run.stderr.readline()
        if number == signal.SIGHUP:
            run.send_signal(number)  # the kernel sends one, and the shell another
        command.go.touch()
        out, err = run.communicate(timeout=300)
    assert run.returncode == 128 + number
    assert command.seen() == ["begin c", "end c"]
    assert log.states()["c"] == "COMPENSATED"
    assert log.states()["b"] == "COMMITTED"
    assert "Interrupted." in err
    assert "not reached" in out
    again = Command(log, tmp_path, UNDO if words is UNDO else RECOVER).start()
    with again:
        again.communicate(timeout=300)
    assert again.returncode == 0
    assert sorted(command.seen()) == sorted(
        [f"{word} {step}" for word in ("begin", "end") for step in command_steps(words)]
    )
    assert log.view().clean


def command_steps(words: tuple[str, ...]) -> str:
    return "abcz" if words is RECOVER else "abc"


@pytest.mark.crash
def test_what_runs_under_nohup_does_not_end_with_the_terminal(log: Log, tmp_path: Path) -> None:
    left(log, UNDO)
    command = Command(log, tmp_path, UNDO)
    command.words = ["/bin/sh", "-c", f"trap '' HUP; exec {shlex.join(command.words)}"]
    with command.start() as run:
        command.until("begin c")
        run.send_signal(signal.SIGHUP)
        command.go.touch()
        run.communicate(timeout=300)
    assert run.returncode == 0
    assert log.view().clean


@pytest.mark.crash
def test_in_the_background_of_a_shell_a_signal_cuts_no_inverse_either(
    log: Log, tmp_path: Path
) -> None:
    """There Ctrl-C is ignored, and stays so."""
    left(log, UNDO)
    command = Command(log, tmp_path, UNDO)
    quoted = shlex.join(command.words)
    command.words = ["/bin/sh", "-c", f"trap '' INT; exec {quoted}"]
    with command.start() as run:
        command.until("begin c")
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGTERM)
        assert run.stderr is not None
        assert "Stopping as soon as" in run.stderr.readline()
        command.go.touch()
        run.communicate(timeout=300)
    assert run.returncode == 143
    assert command.seen() == ["begin c", "end c"]
    assert log.states()["c"] == "COMPENSATED"


@pytest.mark.crash
def test_a_second_signal_cuts_and_what_it_cut_is_not_repeated(log: Log, tmp_path: Path) -> None:
    left(log, UNDO)
    command = Command(log, tmp_path, UNDO)
    with command.start() as run:
        command.until("begin c")
        for _ in range(2):
            run.send_signal(signal.SIGINT)
            assert run.stderr is not None
            assert run.stderr.readline()
        out, _ = run.communicate(timeout=300)
    assert run.returncode == 130
    assert "KeyboardInterrupt" in out, "the reason is told"
    command.go.touch()
    assert log.states()["c"] == "COMPENSATION_UNKNOWN"
    again = Command(log, tmp_path, RECOVER).start()
    with again:
        again.communicate(timeout=300)
    assert again.returncode == 1
    assert [line for line in command.seen() if line.startswith("begin")] == ["begin c"]


@pytest.mark.guarantee("RECOVER-22")
def test_a_program_of_its_own_is_protected_too(log: Log, world: World) -> None:
    """`RecoveryDaemon` in the main thread: Ctrl-C is raised when the inverse has ended."""
    with process_handlers().isolated():

        @compensator("interrupted")
        def interrupted(what: str) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            world.undone.append(what)

        past = log.past().begin()
        past.applied("a", handler="interrupted")
        past.applied("b", handler="interrupted")
        past.die()
        daemon = log.daemon()
        for undone in (["b"], ["b", "a"]):
            with pytest.raises(KeyboardInterrupt):
                daemon.recover_all()
            assert world.undone == undone
            daemon = log.daemon()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert log.view().clean


def test_a_saga_that_is_resumed_is_given_up_by_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stays in the process, as at a prompt, can go on with it afterwards."""
    kit = AgentKit("resumed", wal=str(tmp_path / "log"))
    with pytest.raises(SagaSuspended), kit.transaction(saga_id="x") as saga:
        saga.suspend("waits")
    real = resuming._let_replay

    def interrupted(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(resuming, "_let_replay", interrupted)
        with pytest.raises(KeyboardInterrupt), kit.transaction(saga_id="x", resume=True):
            raise AssertionError("it was not to begin")
    with kit.transaction(saga_id="x", resume=True) as saga:
        assert saga.id


# --- how long an inverse may take -----------------------------------------------------------------


def test_recovery_gives_an_inverse_the_time_that_its_tool_says(log: Log, world: World) -> None:
    with process_handlers().isolated():

        @compensator("long")
        def long(what: str) -> None:
            time.sleep(0.6)
            world.undone.append(what)

        past = log.past().begin()
        past.intent("a", undo_timeout=60.0)
        past.committed("a", handler="long")
        past.die()
        assert log.daemon(replace(QUICK, inverse_timeout=0.1)).recover_all().clean
    assert world.undone == ["a"]


def test_the_time_that_a_tool_says_stands_in_the_log(tmp_path: Path) -> None:
    kit = AgentKit("timed", wal=str(tmp_path / "log"))

    @kit.tool("COMPENSABLE", undo_timeout=7.5)
    def act() -> int:
        return 1

    @act.undo
    def undo_act(result: int) -> None: ...

    with kit.transaction():
        act()
    [intent] = [r for r in records(tmp_path / "log") if r.event == Ev.STEP_INTENT]
    assert facts_of(intent)["undo_timeout"] == 7.5


@pytest.mark.parametrize("odd", [0, -1, "5", None, True, [1]])
def test_a_time_of_another_form_counts_as_not_there(log: Log, world: World, odd: object) -> None:
    past = log.past().begin()
    past.intent("a", undo_timeout=odd)
    past.committed("a")
    past.die()
    assert log.daemon().recover_all().clean
    assert world.undone == ["a"]
