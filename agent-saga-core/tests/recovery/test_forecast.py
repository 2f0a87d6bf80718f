"""`--dry-run` tells what the command would do now, and its exit code is the command's judgement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import SAGA, Log, Past, World
from recovery.states import (
    STATES,
    committed,
    crashed,
    irreversible,
    overdue,
    overdue_for_a_human,
    running,
    stuck,
    suspended,
)

from agent_saga import FileSwitchStore, KillSwitch
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.recovery.looking import WOULD_ASK, WOULD_UNDO

State = Callable[[Log], Past]
WHO = ("--by", "ann", "--reason", "because")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    monkeypatch.setenv("AGENT_SAGA_INVERSE_DELAY", "0")


@pytest.fixture
def typed(log: Log, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Run a command on the log and return its exit code and its document."""

    def run(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main([*words, "--wal-path", str(log.path), "--json"])
        return int(code), json.loads(capsys.readouterr().out)

    return run


def files(log: Log) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(log.path.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_recovery_does_what_was_told_before(
    log: Log, world: World, typed: Callable[..., tuple[int, Any]], state: State
) -> None:
    past = state(log)
    code, told = typed("recover", "--dry-run")
    assert world.undone == []
    done, result = typed("recover")
    assert [one["saga"] for one in told["sagas"]] == [one["saga"] for one in result["sagas"]]
    for before, after in zip(told["sagas"], result["sagas"], strict=True):
        acts = before["outcome"] in (WOULD_UNDO, WOULD_ASK)
        assert acts or before["outcome"] == after["outcome"]
        assert acts or before["steps"] == []
    nothing = all(one["outcome"] == "live" for one in result["sagas"])
    assert (code == 0) == nothing
    assert code in (0, 1)
    assert code >= done
    past.die()


@pytest.mark.parametrize("how", [(), ("--leave-the-rest",)])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_undoing_later_ends_as_was_told_before(
    log: Log,
    world: World,
    typed: Callable[..., tuple[int, Any]],
    state: State,
    how: tuple[str, ...],
) -> None:
    past = state(log)
    code, told = typed("undo", SAGA, *WHO, *how, "--dry-run")
    assert world.undone == []
    done, result = typed("undo", SAGA, *WHO, *how)
    assert code == done
    if code == 4:
        assert told == result
    past.die()


@pytest.mark.parametrize("words", [("recover",), ("undo", SAGA, *WHO)])
@pytest.mark.parametrize("state", [crashed, committed, overdue, stuck, suspended])
def test_a_dry_run_writes_nothing(
    log: Log, typed: Callable[..., tuple[int, Any]], state: State, words: tuple[str, ...]
) -> None:
    state(log)
    before = files(log)
    typed(*words, "--dry-run")
    assert files(log) == before


@pytest.mark.parametrize(
    ("state", "code", "outcome"),
    [
        (running, 0, "live"),
        (suspended, 0, None),
        (committed, 0, None),
        (irreversible, 0, None),
        (overdue, 1, WOULD_UNDO),
        (crashed, 1, WOULD_UNDO),
        (overdue_for_a_human, 1, "needs a human"),
        (stuck, 1, "needs a human"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_only_what_there_is_to_do_makes_it_exit_with_1(
    log: Log,
    typed: Callable[..., tuple[int, Any]],
    state: State,
    code: int,
    outcome: str | None,
) -> None:
    past = state(log)
    found, told = typed("recover", "--dry-run")
    assert (found, [one["outcome"] for one in told["sagas"]]) == (code, [outcome] * bool(outcome))
    past.die()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_inverse_that_is_needed_now_and_not_here_is_refused(
    log: Log, typed: Callable[..., tuple[int, Any]], more: tuple[str, ...]
) -> None:
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    past.die()
    code, told = typed("recover", *more)
    assert (code, told["error"]["kind"]) == (4, "RecoveryRefused")
    code, _ = typed("recover", *more, "--leave-missing")
    assert code == 1


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_inverse_that_only_a_living_process_may_need_is_not_asked_for(
    log: Log, typed: Callable[..., tuple[int, Any]], more: tuple[str, ...]
) -> None:
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    code, told = typed("recover", *more)
    assert (code, [one["outcome"] for one in told["sagas"]]) == (0, ["live"])
    past.die()


@pytest.mark.parametrize("undo_held", [False, True])
def test_what_is_held_is_told_as_held(
    log: Log, typed: Callable[..., tuple[int, Any]], undo_held: bool
) -> None:
    past = log.past()
    about = {"name": "held", "labels": {}, "on_crash": "hold", "resume_grace": 900.0}
    past.write(Ev.SAGA_BEGIN, about=about, salt="c2FsdHNhbHRzYWx0c2E")
    past.applied("a")
    past.die()
    assert log.view().held_for == 900.0
    more = ("--undo-held",) if undo_held else ()
    code, told = typed("recover", "--dry-run", *more)
    expected = WOULD_UNDO if undo_held else "held"
    assert (code, [one["outcome"] for one in told["sagas"]]) == (1, [expected])


def test_what_is_quarantined_is_told_as_a_humans(
    log: Log, typed: Callable[..., tuple[int, Any]]
) -> None:
    crashed(log)
    KillSwitch(FileSwitchStore(log.path)).quarantine(SAGA, reason="odd", by="soc")
    told = [typed("recover", *more)[1]["sagas"][0] for more in (("--dry-run",), ())]
    assert [one["outcome"] for one in told] == ["needs a human"] * 2
    assert told[0]["reason"] == told[1]["reason"]


def test_a_call_that_still_runs_elsewhere_is_told(
    log: Log, typed: Callable[..., tuple[int, Any]]
) -> None:
    past = log.past().begin()
    past.intent("a")
    past.end(Ev.SAGA_RELEASED, cause="it gave up")
    told = [typed("recover", *more)[1]["sagas"][0] for more in (("--dry-run",), ())]
    assert [one["outcome"] for one in told] == ["claimed elsewhere"] * 2
    past.die()


def test_status_looks_at_a_saga_beyond_its_deadline(
    log: Log, typed: Callable[..., tuple[int, Any]]
) -> None:
    overdue(log)
    code, told = typed("status")
    assert (code, told["sections"]["sagas"]["overdue"]) == (1, [SAGA])
    typed("recover")
    code, told = typed("status")
    assert (code, told["sections"]["sagas"]["overdue"]) == (0, [])


@pytest.mark.parametrize("leave_missing", [False, True])
def test_a_daemon_tells_what_it_would_leave_alone_for_want_of_an_inverse(
    log: Log, leave_missing: bool
) -> None:
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    past.die()
    daemon = log.daemon(leave_missing=leave_missing)
    [told] = daemon.forecast().sagas
    [done] = daemon.recover_all().sagas
    assert told.outcome == (WOULD_UNDO if leave_missing else "waiting")
    assert done.outcome == ("needs a human" if leave_missing else "waiting")
    assert leave_missing or told.reason == done.reason
