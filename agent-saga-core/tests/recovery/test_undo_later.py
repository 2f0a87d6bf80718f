"""Undoing a committed saga later: planned, refused, interrupted, repeated, never twice."""

from __future__ import annotations

import pytest
from recovery.conftest import QUICK, SAGA, key_of

from agent_saga import AgentKit
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.errors import RecoveryError, UndoRefused
from agent_saga.recovery import claim as claiming


def committed(log, *, dies=True):
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.applied("b", handler="undo_again")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    return past.die() if dies else past


def undo(log, **options):
    return log.daemon().undo(SAGA, by="ann", reason="the wrong order", **options)


def test_it_is_undone_latest_first_with_the_keys_of_an_unwinding_at_the_time(log, world):
    committed(log)
    done = undo(log)
    assert done.outcome == "undone"
    assert done.report.clean
    assert world.undone == ["b", "a"]
    assert world.keys["a"] == [key_of("a", identity.INVERSE)]
    assert log.view().state.value == "ROLLED_BACK"
    assert log.view().clean


def test_while_the_process_that_committed_it_lives(log, world):
    past = committed(log, dies=False)
    assert undo(log).outcome == "undone"
    assert world.undone == ["b", "a"]
    past.wal.check_fence("another saga", 1)


def test_in_the_process_that_committed_it(log, world):
    daemon = log.daemon()
    wal = daemon._place().wal
    kit = AgentKit("own", wal=wal, settings=QUICK)

    @kit.tool("COMPENSABLE", name="act")
    def act(what: str) -> str:
        return what

    @act.undo
    def undo_act(result: str, *, idempotency_key: str) -> None:
        world.undo(result, idempotency_key)

    with kit.transaction() as saga:
        act("a")
    assert daemon.undo(saga.id, by="ann", reason="later").outcome == "undone"
    assert world.undone == ["a"]
    with pytest.raises(UndoRefused):
        daemon.undo(saga.id, by="ann", reason="again")
    assert world.undone == ["a"]


def test_twice_is_refused(log, world):
    committed(log)
    undo(log)
    with pytest.raises(UndoRefused, match="was undone already"):
        undo(log)
    assert world.undone == ["b", "a"]


def test_a_plan_runs_nothing_and_writes_nothing(log, world):
    committed(log)
    plan = log.daemon().plan(SAGA)
    assert [(step.what, step.tool) for step in plan.steps] == [
        ("undo", "tool_b"),
        ("undo", "tool_a"),
    ]
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


class Killed(BaseException):
    """Stands for the end of the process."""


def test_an_interrupted_undo_goes_on_when_it_is_run_again(log, world, monkeypatch):
    committed(log)
    daemon = log.daemon()
    monkeypatch.setattr(claiming, "_let_go", lambda *args: None)

    def dies(*args):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("agent_saga.engine.inverse._succeeded", dies)
        with pytest.raises(Killed):
            daemon.undo(SAGA, by="ann", reason="the wrong order")
    assert world.undone == ["b"]
    with pytest.raises(RecoveryError):
        undo(log)
    daemon._place().wal.close()
    assert undo(log).outcome == "undone"
    assert world.undone == ["b", "b", "a"]
    assert len(set(world.keys["b"])) == 1
    assert log.view().clean


def test_an_interrupted_undo_is_finished_by_recovery_too(log, world, monkeypatch):
    committed(log)
    daemon = log.daemon()
    monkeypatch.setattr(claiming, "_let_go", lambda *args: None)

    def dies(*args, **how):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("agent_saga.engine.inverse._announced", dies)
        with pytest.raises(Killed):
            daemon.undo(SAGA, by="ann", reason="the wrong order")
    daemon._place().wal.close()
    assert [one.outcome for one in log.daemon().recover_all().sagas] == ["undone"]
    assert world.undone == ["b", "a"]


# --- refusals -------------------------------------------------------------------------------------


def with_a_pivot(log):
    past = log.past().begin()
    past.applied("a")
    past.intent("b", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "b", result="sent")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()


def test_what_cannot_be_undone_is_refused_before_anything_runs(log, world):
    with_a_pivot(log)
    with pytest.raises(UndoRefused, match="tool_b"):
        undo(log)
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


def test_the_rest_can_be_left(log, world):
    with_a_pivot(log)
    done = undo(log, leave_the_rest=True)
    assert world.undone == ["a"]
    assert log.states() == {"a": "COMPENSATED", "b": "KEPT"}
    assert not done.report.clean
    assert not log.view().clean


def test_a_missing_handler_is_refused(log, world):
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    with pytest.raises(UndoRefused, match="nobody"):
        undo(log)


@pytest.mark.parametrize("state", ["RUNNING", "STUCK", "ROLLED_BACK", "CLOSED"])
def test_only_a_committed_saga_is_undone_later(log, world, state):
    past = log.past().begin()
    past.applied("a")
    if state != "RUNNING":
        past.unwinding()
        past.end("SAGA_STUCK" if state == "CLOSED" else f"SAGA_{state}")
    if state == "CLOSED":
        past.end(Ev.SAGA_CLOSED, by="ann", reason="done")
    past.die()
    with pytest.raises(UndoRefused):
        undo(log)
    assert world.undone == []


def test_an_unknown_saga_is_refused(log):
    committed(log)
    with pytest.raises(UndoRefused):
        log.daemon().undo("nobody", by="ann", reason="x")


@pytest.mark.parametrize(("by", "reason"), [("", "x"), ("ann", " ")])
def test_a_nameless_or_groundless_undo_is_refused(log, world, by, reason):
    committed(log)
    with pytest.raises(RecoveryError):
        log.daemon().undo(SAGA, by=by, reason=reason)
    assert world.undone == []


def test_faulty_records_are_refused(log, world):
    past = committed(log, dies=False)
    past.write("SAGA_DANCED")
    past.die()
    with pytest.raises(UndoRefused, match="cannot be trusted"):
        undo(log)
    assert world.undone == []
