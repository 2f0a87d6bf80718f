"""Whoever begins to use a log is told once what dead processes left on it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_saga import AgentKit, FileWAL
from agent_saga.domain.records import Ev
from agent_saga.runtime import left
from agent_saga.runtime.composition import Runtime


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left, "_looked", set())


def dead(path: Path, saga: str, *events: tuple[str, dict[str, Any]], **about: Any) -> None:
    wal = FileWAL(path)
    begin = {"about": {"name": "x", "labels": {}, **about}}
    wal.append(Ev.SAGA_BEGIN, saga=saga, epoch=1, payload=begin)
    for event, payload in events:
        wal.append(event, saga=saga, epoch=1, payload=payload)
    wal.close()


STUCK = ((Ev.SAGA_UNWINDING, {"cause": "x", "scope": []}), (Ev.SAGA_STUCK, {}))


def said(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    Runtime(wal=str(path)).engine()
    for thread in threading.enumerate():
        if thread.name == "agent-saga-what-is-left":
            thread.join(30)
    return [r.getMessage() for r in caplog.records if r.name == "agent_saga.recovery"]


def test_what_dead_processes_left_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a log"
    dead(path, "one")
    dead(path, "two")
    dead(path, "three", *STUCK)
    [line] = said(path, caplog)
    assert "2 sagas left unfinished" in line
    assert f"agent-saga recover --wal-path '{path}' --import MODULE" in line
    assert "1 saga waiting for a human: agent-saga queue list" in line
    assert len(said(path, caplog)) == 1, "once for each path"


def test_what_waits_for_its_program_is_not_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    dead(path, "ended", (Ev.SAGA_COMMITTED, {"unsettled": []}))
    dead(path, "held", on_crash="hold", resume_grace=900)
    asleep = {"reason": "x", "deadline": 2**52, "at_deadline": "hold"}
    dead(path, "asleep", (Ev.SAGA_SUSPENDED, asleep))
    assert said(path, caplog) == []


def test_a_suspended_saga_beyond_its_deadline_is_not_said_to_have_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    late = {"reason": "x", "deadline": 1, "at_deadline": "undo"}
    dead(path, "late", (Ev.SAGA_SUSPENDED, late))
    [told] = said(path, caplog)
    assert "1 saga suspended beyond a deadline: agent-saga recover" in told
    assert "died" not in told


def test_what_lives_is_not_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wal = FileWAL(tmp_path / "log")
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1, payload={"about": {"name": "x", "labels": {}}})
    wal.barrier_sync()
    assert said(tmp_path / "log", caplog) == []
    wal.close()


def test_a_new_log_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left, "_look", lambda path: pytest.fail("looked"))
    assert left.say_what_is_left(FileWAL(tmp_path / "none")) is None
    with AgentKit("k", wal=str(tmp_path / "new")).transaction():
        pass


def test_a_log_that_cannot_be_read_troubles_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(tmp_path / "log", "one")

    def breaks(path: str) -> str:
        raise RecursionError

    monkeypatch.setattr(left, "what_is_left", breaks)
    assert said(tmp_path / "log", caplog) == []


def test_the_next_program_says_it_to_a_person(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        textwrap.dedent(
            """
            import os, sys, threading
            from agent_saga import AgentKit
            kit = AgentKit("k")
            @kit.tool("COMPENSABLE")
            def act() -> int: return 1
            @act.undo
            def unact(result): ...
            with kit.transaction():
                act()
                if "dies" in sys.argv:
                    os._exit(1)
            [t.join() for t in threading.enumerate() if t.name == "agent-saga-what-is-left"]
            """
        )
    )

    def run(*words: str) -> str:
        command = [sys.executable, "agent.py", *words]
        return subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True, text=True
        ).stderr

    assert run("dies") == ""
    told = run()
    assert told.count("agent-saga recover --wal-path") == 1
    assert "1 saga left unfinished by processes that died" in told
