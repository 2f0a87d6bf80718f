"""Undoing some steps of a saga: the others stay, nothing is undone twice, a crash shows."""

from __future__ import annotations

import pytest
from recovery.conftest import SAGA

from agent_saga.domain.records import Ev
from agent_saga.errors import ClaimRefused, UndoRefused
from agent_saga.recovery import claim as claiming
from agent_saga.recovery.survey import look_at
from agent_saga.recovery.undo_steps import stands, undo_steps


def recorded(log, ending=Ev.SAGA_COMMITTED, **fields):
    past = log.past().begin()
    for step in ("a", "b", "c"):
        past.applied(step, handler="undo_again")
    if ending is not None:
        past.end(ending, **fields)
    return past.die()


def committed(log):
    return recorded(log, unsettled=[])


def undo(log, *steps):
    return undo_steps(log.daemon()._place(), SAGA, steps, by="ann", reason="back in time")


def test_the_chosen_steps_are_undone_latest_first_and_the_saga_stays_committed(log, world):
    committed(log)
    report = undo(log, "b", "c")
    assert report.clean
    assert world.undone == ["c", "b"]
    assert log.view().state.value == "COMMITTED"
    assert log.states() == {"a": "COMMITTED", "b": "COMPENSATED", "c": "COMPENSATED"}
    assert log.view().clean


def test_asked_for_twice_it_is_done_once(log, world):
    committed(log)
    undo(log, "c")
    assert undo(log, "b", "c").clean
    assert world.undone == ["c", "b"]


def test_what_is_left_can_be_undone_later(log, world):
    committed(log)
    undo(log, "b")
    log.daemon().undo(SAGA, by="ann", reason="the rest")
    assert world.undone == ["b", "c", "a"]
    assert log.view().state.value == "ROLLED_BACK"


def test_a_suspended_saga_stays_suspended(log, world):
    recorded(log, Ev.SAGA_SUSPENDED, reason="waits", deadline=2**52, at_deadline="undo")
    assert undo(log, "c").clean
    assert log.view().state.value == "SUSPENDED"
    assert log.daemon().recover_all().sagas == []
    assert world.undone == ["c"]


@pytest.mark.parametrize("ending", [Ev.SAGA_COMMITTED, Ev.SAGA_SUSPENDED, Ev.SAGA_RELEASED, None])
def test_all_of_it_is_the_whole_saga(log, world, ending):
    recorded(log, ending, unsettled=[])
    assert undo(log, "a", "b", "c").clean
    assert log.view().state.value == "ROLLED_BACK"
    assert world.undone == ["c", "b", "a"]


@pytest.mark.parametrize("ending", [Ev.SAGA_RELEASED, None])
def test_a_saga_that_is_not_at_rest_loses_no_part(log, world, ending):
    recorded(log, ending)
    with pytest.raises(UndoRefused, match="without the others"):
        undo(log, "c")
    assert world.undone == []


def test_what_cannot_be_undone_is_refused_before_anything_runs(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "b", result="sent")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    with pytest.raises(UndoRefused, match="tool_b"):
        undo(log, "a", "b")
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


class Killed(BaseException):
    """Stands for the end of the process."""


def test_a_crash_in_the_middle_shows_and_is_gone_on_with(log, world, monkeypatch):
    committed(log)
    place = log.daemon()._place()
    monkeypatch.setattr(claiming, "_let_go", lambda *args: None)

    def dies(*args):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("agent_saga.engine.inverse._succeeded", dies)
        with pytest.raises(Killed):
            undo_steps(place, SAGA, ["b", "c"], by="ann", reason="back in time")
    place.wal.close()
    assert not log.view().clean
    with pytest.raises(UndoRefused, match="has not ended"):
        undo(log, "a", "b", "c")
    assert undo(log, "b", "c").clean
    assert world.undone == ["c", "c", "b"]
    assert len(set(world.keys["c"])) == 1
    assert log.view().clean


def test_an_inverse_that_fails_is_reported_and_shows(log, world):
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.applied("b", handler="no such handler")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    with pytest.raises(UndoRefused, match="no such handler"):
        undo(log, "b")


def test_what_stands_is_told_by_the_log(log):
    committed(log)
    undo(log, "c")
    found = look_at(log.path, [SAGA, "another"])[SAGA]
    assert [step for step in ("a", "b", "c", "d") if stands(found, step)] == ["a", "b"]


def test_there_is_no_such_saga(log):
    committed(log)
    with pytest.raises(ClaimRefused):
        undo_steps(log.daemon()._place(), "another", ["a"], by="ann", reason="back in time")
