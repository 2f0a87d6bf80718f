"""Notifiers: told after the case is in the log, once, whoever else fails or hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recovery.conftest import SAGA, Log

from agent_saga import RecoveryDaemon
from agent_saga.domain.records import Ev
from agent_saga.errors import ConfigurationError, StateError
from agent_saga.recovery.notices import PREFIX, Notices
from agent_saga.recovery.queue import cases_in
from agent_saga.state.address import open_state
from agent_saga_testing.waiting import until


class Mail:
    """A notifier that keeps what it was told, and fails as often as it is set to."""

    def __init__(self, path: Path, fails: int = 0) -> None:
        self.path = path
        self.fails = fails
        self.told: list[str] = []
        self.cases: list[Any] = []

    def __call__(self, case: Any) -> None:
        assert case.saga in {one.id for one in cases_in(str(self.path))}, "it is in the log before"
        self.told.append(case.saga)
        self.cases.append(case)
        if self.fails:
            self.fails -= 1
            raise OSError("no mail today")


def orphan(log: Log, saga: str = SAGA) -> None:
    past = log.past(saga).begin(saga)
    past.intent("a")
    past.die()


def daemon(log: Log, **notifiers: Any) -> RecoveryDaemon:
    return log.daemon(notifiers=notifiers)


def marks(log: Log) -> list[str]:
    with open_state(f"file:{log.path}") as store:
        return [key for key, _ in store.scan(PREFIX)]


def test_of_a_saga_that_nobody_can_take_over_a_person_is_told_too(log: Log) -> None:
    past = log.past().begin()
    past.applied("a")
    past.die()
    (log.path / "writers" / past.wal.writer / "lock").unlink()
    told: list[Any] = []
    for _ in range(2):
        daemon(log, mail=told.append).sweep()
    [case] = told
    assert (case.saga, case.state) == (SAGA, "RUNNING")
    assert "cannot be told" in case.reason


@pytest.mark.guarantee("NOTIFY-1")
def test_a_new_case_is_told_once_over_passes_and_restarts(log: Log) -> None:
    orphan(log)
    mail = Mail(log.path)
    first = daemon(log, mail=mail)
    for _ in range(3):
        first.sweep()
    daemon(log, mail=mail).sweep()
    assert mail.told == [SAGA]
    [case] = mail.cases
    assert case.state == "PARTIAL"
    assert case.log == str(log.path)
    assert case.next == f"agent-saga queue show {SAGA} --wal-path {log.path}"
    assert "tool_a" in case.reason
    orphan(log, "another")
    first.sweep()
    assert mail.told == [SAGA, "another"]


@pytest.mark.guarantee("NOTIFY-1")
def test_one_that_fails_is_told_again_and_stops_no_other(log: Log) -> None:
    orphan(log)
    bad, good = Mail(log.path, fails=1), Mail(log.path)
    first = daemon(log, bad=bad, good=good)
    first.sweep()
    first.sweep()
    assert (bad.told, good.told) == ([SAGA], [SAGA]), "the failing one is left alone for a while"
    daemon(log, bad=bad, good=good).sweep()
    assert (bad.told, good.told) == ([SAGA, SAGA], [SAGA])
    daemon(log, bad=bad, good=good).sweep()
    assert bad.told == [SAGA, SAGA]


def test_one_that_fails_is_told_again_by_the_same_daemon_later(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(log)
    mail = Mail(log.path, fails=2)
    first = daemon(log, mail=mail)
    clock = first._place().engine.clock
    now = [clock.monotonic()]
    monkeypatch.setattr(type(clock), "monotonic", lambda self: now[0])
    for seconds in (0, 1, 2, 3, 4, 0):
        now[0] += seconds
        first.sweep()
    assert mail.told == [SAGA] * 3


@pytest.mark.guarantee("NOTIFY-1")
@pytest.mark.guarantee("NOTIFY-1")
def test_one_that_would_have_to_be_awaited_has_told_nobody(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def mail(case: Any) -> None:
        told.append(case)

    with pytest.raises(ConfigurationError, match="asynchronous"):
        RecoveryDaemon(log.path, notifiers={"mail": mail})
    orphan(log)
    daemon(log, mail=lambda case: mail(case)).sweep()  # noqa: PLW0108 - it hides what it is
    assert not told
    assert "give a plain function" in caplog.text
    daemon(log, mail=told.append).sweep()
    assert [one.saga for one in told] == [SAGA], "who was not told is told later"


def test_one_that_hangs_stops_neither_the_pass_nor_the_others(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(log)
    orphan(log, "another")
    over, hanging, calls = threading.Event(), threading.Event(), []

    class Ended(threading.Event):
        """The bound of a call is over as soon as the call hangs, and not before."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 30.0
            until(lambda: self.is_set() or hanging.is_set())
            hanging.clear()
            return self.is_set()

    def hangs(case: Any) -> None:
        calls.append(case.saga)
        hanging.set()
        over.wait()

    mail = Mail(log.path)
    first = daemon(log, hangs=hangs, mail=mail)
    monkeypatch.setattr("agent_saga.recovery.notices.threading", SimpleNamespace(Event=Ended))
    try:
        assert len(first.sweep().needs_human) == 2
        first.sweep()
    finally:
        over.set()
    assert len(calls) == 1, "it is not called again while it may hang"
    assert sorted(mail.told) == ["another", SAGA]


def test_a_case_that_was_closed_and_comes_again_is_told_again(log: Log) -> None:
    orphan(log)
    mail = Mail(log.path)
    first = daemon(log, mail=mail)
    first.sweep()
    first.close_case(SAGA, by="ann", reason="done")
    first.sweep()
    assert marks(log) == []
    assert mail.told == [SAGA]


def test_a_case_that_was_retried_in_vain_is_not_told_again(log: Log) -> None:
    orphan(log)
    mail = Mail(log.path)
    first = daemon(log, mail=mail)
    first.sweep()
    first.retry(SAGA, by="ann")
    first.sweep()
    daemon(log, mail=mail).sweep()
    assert mail.told == [SAGA]


def test_a_case_that_a_living_process_made_is_told(log: Log) -> None:
    past = log.past().begin()
    past.intent("a")
    past.unwinding()
    past.write(Ev.STEP_UNKNOWN, "a", about={"ending": "x"})
    past.write(Ev.STEP_ORPHANED, "a", reason="x")
    past.end(Ev.SAGA_PARTIAL)
    mail = Mail(log.path)
    daemon(log, mail=mail).sweep()
    assert mail.told == [SAGA]


@pytest.mark.guarantee("NOTIFY-1")
def test_one_that_was_told_when_the_process_died_is_told_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(log)
    mail = Mail(log.path)
    with monkeypatch.context() as dying:
        dying.setattr(Notices, "_note", lambda *args: pytest.fail("died"))
        with pytest.raises(BaseException, match="died"):
            daemon(log, mail=mail).sweep()
    daemon(log, mail=mail).sweep()
    assert mail.told == [SAGA, SAGA], "at least once"


def test_a_store_that_cannot_be_used_stops_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(log)
    mail = Mail(log.path)
    first = daemon(log, mail=mail)

    def broken(*args: Any, **options: Any) -> Any:
        raise StateError("the disk is gone")

    first.sweep()
    monkeypatch.setattr(first._place().store, "scan", broken)
    orphan(log, "another")
    assert len(first.sweep().needs_human) == 2
    monkeypatch.undo()
    first.sweep()
    assert mail.told == [SAGA, "another"]


def test_what_is_live_or_waits_is_nobodys_case(log: Log) -> None:
    past = log.past().begin()
    past.applied("a")
    mail = Mail(log.path)
    daemon(log, mail=mail).sweep()
    assert mail.told == []


# --- a program ------------------------------------------------------------------------------------


def recoveryd(log: Log, command: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "agent_saga.cli.recoveryd", "--wal-path", str(log.path), "--once"]
    return subprocess.run(
        [sys.executable, *words, "--leave-missing", "--notify", command],
        env={**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_program_gets_the_case_on_its_standard_input(log: Log, tmp_path: Path) -> None:
    orphan(log)
    told = tmp_path / "told.json"
    text = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = f'{sys.executable} -c "{text}"'
    assert recoveryd(log, command).returncode == 1
    assert recoveryd(log, command).returncode == 1
    [line] = told.read_text().splitlines()
    assert json.loads(line)["saga"] == SAGA


def test_a_program_that_fails_is_said_and_changes_nothing(log: Log) -> None:
    orphan(log)
    done = recoveryd(log, "false")
    assert done.returncode == 1
    assert "the notifier 'command' failed" in done.stderr
    assert recoveryd(log, "").returncode == 2
    assert recoveryd(log, "'").returncode == 2
