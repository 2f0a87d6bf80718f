"""Every state in which recovery can find a step, and what it does about it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from recovery.conftest import key_of

from agent_saga import (
    CannotTell,
    NotApplied,
    Observation,
    Settings,
    compensator,
    prober,
    reconciler,
)
from agent_saga.domain import identity
from agent_saga.domain.clock import SystemClock
from agent_saga.domain.records import Ev
from agent_saga.engine import drive_sync


def recovered(log, **options):
    """Recover everything; return the outcome of the one saga."""
    result = log.daemon(**options).recover_all()
    assert len(result.sagas) == 1, result
    return result.sagas[0]


# --- committed steps ------------------------------------------------------------------------------


def test_committed_steps_are_undone_latest_first_with_the_key_of_the_dead_process(log, world):
    past = log.past().begin()
    for step in "abc":
        past.applied(step)
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["c", "b", "a"]
    assert world.keys["a"] == [key_of("a", identity.INVERSE)]
    assert log.view().clean


def test_the_later_outcome_is_undone_first_whatever_was_announced_first(log, world):
    past = log.past().begin()
    past.intent("a")
    past.intent("b")
    past.committed("b")
    past.committed("a")
    past.die()
    recovered(log)
    assert world.undone == ["a", "b"]


def test_a_new_generation_takes_its_own_place_and_key(log, world):
    past = log.past().begin()
    past.applied("a")
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATED, "a", by="handler", attempt=1)
    past.applied("b")
    past.intent("a", generation=1)
    past.committed("a", generation=1)
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a", "b"]
    assert world.keys["a"] == [key_of("a", identity.INVERSE, 1)]


def test_a_new_generation_without_an_outcome_does_not_inherit_the_old_inverse(log, world):
    past = log.past().begin()
    past.applied("a")
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATED, "a", by="handler", attempt=1)
    past.intent("a", generation=1)
    past.die()
    assert recovered(log).needs_human
    assert world.undone == []
    assert log.states() == {"a": "ORPHANED"}


def test_a_step_without_an_inverse_is_an_orphan(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b")
    past.write(Ev.STEP_COMMITTED, "b", result="b", missing="the tool declares no inverse")
    past.die()
    done = recovered(log)
    assert done.needs_human
    assert "the tool declares no inverse" in done.reason
    assert world.undone == ["a"]
    assert log.view().state.value == "PARTIAL"
    assert not log.view().clean


def test_an_inverse_that_was_a_function_of_the_dead_process_leaves_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_COMMITTED, "a", result="a", inverse={"kwargs": {}})
    past.die()
    assert "a function of the process that died" in recovered(log).reason


def test_an_inverse_that_could_not_be_recorded_leaves_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_COMMITTED, "a", inverse={"handler": "undo", "unrecorded": "SAGA-205"})
    past.die()
    assert "could not be recorded" in recovered(log).reason
    assert world.undone == []


def test_nothing_to_undo_is_nothing_to_undo(log, world):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_COMMITTED, "a", inverse={"none": "a draft harms nobody"})
    past.die()
    assert recovered(log).outcome == "undone"
    assert log.view().clean


def test_a_missing_handler_halts_and_names_the_package_that_wrote_it(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b")
    inverse = {"handler": "shop.refund", "kwargs": {}, "from": "agent-shop 4.2"}
    past.write(Ev.STEP_COMMITTED, "b", inverse=inverse)
    past.die()
    done = recovered(log)
    assert done.needs_human
    assert "shop.refund" in done.reason
    assert "agent-shop 4.2" in done.reason
    assert world.undone == [], "what came before is not undone behind it"
    assert log.states() == {"a": "UNRESOLVED", "b": "UNRESOLVED"}


def test_a_pivot_is_kept_and_needs_nobody(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "b", result="sent")
    past.die()
    done = recovered(log)
    assert done.outcome == "undone"
    assert "ann" in done.reason
    assert world.undone == ["a"]
    assert log.states()["b"] == "KEPT"
    assert not log.view().clean
    assert log.daemon().recover_all().sagas == []


def test_reversible_steps_are_undone_where_that_can_be_done(log, world):
    past = log.past().begin()
    for step, handler in (("r", "undo"), ("s", "nobody.knows")):
        call = {"tool": f"tool_{step}", "semantics": "REVERSIBLE"}
        inverse = {"handler": handler, "kwargs": {"what": step}}
        past.write(Ev.STEP_COMMITTED, step, call=call, nth=1, args={}, inverse=inverse)
    past.applied("a")
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a", "r"]
    assert log.view().clean


# --- calls whose answer was lost ------------------------------------------------------------------


def test_an_unknown_call_without_a_prober_is_an_orphan(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b")
    past.die()
    assert recovered(log).needs_human
    assert log.states() == {"a": "COMPENSATED", "b": "ORPHANED"}


def test_an_unknown_irreversible_call_is_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a", "IRREVERSIBLE", approved_by="ann")
    past.die()
    assert recovered(log).needs_human
    assert not log.view().clean


def test_a_found_effect_is_undone_by_the_recorded_recipe(log, world):
    past = log.past().begin()
    past.intent("a", prober="find", recipe={"handler": "undo", "kwargs": {"what": "$"}})
    past.die()
    world.there.add(key_of("a"))
    assert recovered(log).outcome == "undone"
    assert world.asked == [key_of("a")]
    assert world.undone == ["found"]
    assert world.keys["found"] == [key_of("a", identity.INVERSE)]


def test_a_found_effect_without_a_recipe_is_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.die()
    world.there.add(key_of("a"))
    assert recovered(log).needs_human
    assert log.states() == {"a": "ORPHANED"}


@pytest.mark.guarantee("PROBE-1")
def test_no_is_believed_only_after_nothing_can_arrive_any_more(log, world, monkeypatch):
    """The request of the dead process arrives while recovery is asking."""
    slept = jumping(monkeypatch)
    past = log.past().begin()
    past.intent("a", prober="find", recipe={"handler": "undo", "kwargs": {"what": "a"}})
    past.die()
    ask = world.asked

    class Arriving(list):
        def append(self, key):
            super().append(key)
            if len(self) == 2:
                world.there.add(key)

    world.asked = Arriving(ask)
    assert recovered(log, settings=slowly(3600.0)).outcome == "undone"
    assert len(world.asked) == 2
    assert slept, "it waited in between"
    assert world.undone == ["a"]


def jumping(monkeypatch):
    """Let a sleep of the driver move the clock, and take no time; returns the sleeps."""
    slept = []

    def monotonic(clock):
        return time.monotonic() + sum(slept)

    def sleep(_):
        slept.append(3600.0)

    monkeypatch.setattr(SystemClock, "monotonic", monotonic)
    monkeypatch.setattr(drive_sync, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    return slept


def slowly(seconds):
    return Settings(settle=0.2, settle_after=seconds, inverse_delay=0.0, inverse_timeout=5.0)


def test_an_answered_no_is_believed_at_once(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.write(Ev.STEP_UNKNOWN, "a", ending="exception", answered=True, running=False)
    past.die()
    assert recovered(log, settings=slowly(3600.0)).outcome == "undone"
    assert log.states() == {"a": "NOT_APPLIED"}


def test_an_attempt_that_followed_an_answer_makes_it_open_again(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.write(Ev.STEP_UNKNOWN, "a", ending="exception", answered=True, running=False)
    past.write(Ev.STEP_ATTEMPT, "a", number=0, ending="repeated")
    past.die()
    daemon = log.daemon(slowly(3600.0))
    assert daemon.sweep().waiting
    assert world.asked == []


def test_a_prober_that_cannot_tell_leaves_an_orphan_and_says_why(log, world):
    @prober("blind")
    def blind(*, idempotency_key):
        return CannotTell("the provider keeps no keys")

    past = log.past().begin()
    past.intent("a", prober="blind")
    past.die()
    assert "the provider keeps no keys" in recovered(log).reason


def test_a_prober_is_not_asked_about_masked_arguments(log, world):
    """It would look for "***", find nothing, and its no would be taken for the truth."""

    @prober("by_card")
    def by_card(args):
        world.asked.append(str(args))
        return NotApplied("no such card", final=True)

    past = log.past().begin()
    past.intent("a", prober="by_card", mac="AAAA")
    past.die()
    assert recovered(log).needs_human
    assert world.asked == []


@pytest.mark.parametrize(("masked", "asked"), [({"mac": "AAAA"}, []), ({}, ["order-1"])])
def test_a_prober_is_asked_by_the_key_that_the_caller_gave(log, world, masked, asked):
    """By another key it would find nothing, and its no would be taken for the truth."""

    @prober("by_key")
    def by_key(*, idempotency_key):
        world.asked.append(idempotency_key)
        return NotApplied("no such key", final=True)

    past = log.past().begin()
    past.intent("a", prober="by_key", args={"idempotency_key": "order-1"}, **masked)
    past.die()
    assert recovered(log).needs_human is bool(masked)
    assert world.asked == asked


def test_a_missing_prober_leaves_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a", prober="nobody.knows")
    past.die()
    assert recovered(log).needs_human


def test_a_provisional_inverse_is_run_only_when_nothing_can_arrive_any_more(log, world):
    past = log.past().begin()
    past.intent("a", provisional={"handler": "undo", "kwargs": {"what": "a"}})
    past.die()
    daemon = log.daemon(slowly(0.3))
    assert daemon.sweep().waiting
    assert world.undone == []
    time.sleep(0.35)
    assert [one.outcome for one in daemon.sweep().sagas] == ["undone"]
    assert world.undone == ["a"]


def test_a_provisional_inverse_does_not_hide_a_committed_one(log, world):
    past = log.past().begin()
    past.intent("a", provisional={"handler": "undo", "kwargs": {"what": "provisional"}})
    past.committed("a")
    past.die()
    recovered(log)
    assert world.undone == ["a"]


def test_what_had_no_effect_is_left(log, world):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_NOT_APPLIED, "a", by="tool", evidence="refused", final=True)
    past.die()
    assert recovered(log).outcome == "undone"
    assert log.view().clean


# --- inverses that were tried ---------------------------------------------------------------------


def test_an_announced_inverse_of_a_plain_handler_is_never_repeated(log, world):
    past = log.past().begin()
    past.applied("a")
    past.applied("b")
    past.unwinding()
    past.compensating("b")
    past.die()
    assert recovered(log).needs_human
    assert world.undone == []
    assert log.states() == {"a": "UNRESOLVED", "b": "COMPENSATION_UNKNOWN"}


def test_an_announced_inverse_of_an_idempotent_handler_is_repeated_with_its_key(log, world):
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.unwinding()
    past.compensating("a", handler="undo_again")
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.keys["a"] == [key_of("a", identity.INVERSE)]


def test_the_window_of_an_idempotent_handler_counts_from_its_first_announcement(
    log, world, monkeypatch
):
    """After the window the provider has forgotten the key: the same call would be a second one."""

    @compensator("undo_in_a_window", idempotent=True, window=60.0)
    def undo_in_a_window(what, *, idempotency_key):
        world.undo(what, idempotency_key)

    past = log.past().begin()
    past.applied("a", handler="undo_in_a_window")
    past.unwinding()
    earlier = SimpleNamespace(
        time_ns=lambda: time.time_ns() - 120_000_000_000, monotonic=time.monotonic
    )
    monkeypatch.setattr("agent_saga.wal.intake.time", earlier)
    past.compensating("a", handler="undo_in_a_window")
    past.die()
    monkeypatch.undo()
    assert recovered(log).needs_human
    assert world.undone == []


def test_a_clock_that_was_put_back_closes_the_window(log, world, monkeypatch):
    @compensator("undo_in_a_window", idempotent=True, window=60.0)
    def undo_in_a_window(what, *, idempotency_key):
        world.undo(what, idempotency_key)

    past = log.past().begin()
    past.applied("a", handler="undo_in_a_window")
    past.unwinding()
    later = SimpleNamespace(
        time_ns=lambda: time.time_ns() + 120_000_000_000, monotonic=time.monotonic
    )
    monkeypatch.setattr("agent_saga.wal.intake.time", later)
    past.compensating("a", handler="undo_in_a_window")
    past.die()
    monkeypatch.undo()
    assert recovered(log).needs_human
    assert world.undone == []


def test_within_its_window_it_is_repeated(log, world):
    @compensator("undo_in_a_window", idempotent=True, window=60.0)
    def undo_in_a_window(what, *, idempotency_key):
        world.undo(what, idempotency_key)

    past = log.past().begin()
    past.applied("a", handler="undo_in_a_window")
    past.unwinding()
    past.compensating("a", handler="undo_in_a_window")
    past.die()
    assert recovered(log).outcome == "undone"


@pytest.mark.parametrize(
    ("seen", "outcome", "undone"),
    [(True, "undone", []), (False, "undone", ["a"]), (None, "needs a human", [])],
)
def test_a_reconciler_tells_whether_an_announced_inverse_holds(log, world, seen, outcome, undone):
    @reconciler("undo")
    def look(what):
        return Observation(reversed_=seen)

    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.die()
    assert recovered(log).outcome == outcome
    assert world.undone == undone


def test_an_inverse_that_was_refused_is_tried_again(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATION_NOT_APPLIED, "a", by="engine", evidence="it was not started")
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a"]


def test_a_failed_inverse_found_in_a_crash_is_a_humans_case(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATION_FAILED, "a", error={"type": "ValueError", "message": "no"})
    past.die()
    assert recovered(log).needs_human
    assert world.undone == []


def test_what_was_undone_before_is_not_undone_again(log, world):
    past = log.past().begin()
    past.applied("a")
    past.applied("b")
    past.unwinding()
    past.compensating("b")
    past.write(Ev.STEP_COMPENSATED, "b", by="handler", attempt=1)
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a"]


def test_an_effect_that_arrived_after_its_inverse_is_never_undone_a_second_time(log, world):
    """A handler that is not idempotent would take effect a second time."""
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATED, "a", by="handler", attempt=1)
    past.write(Ev.STEP_LATE, "a", result="a", inverse={"handler": "undo", "kwargs": {"what": "a"}})
    past.die()
    assert recovered(log).needs_human
    assert world.undone == []


# --- savepoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", ["OPEN", "LEFT", "UNWINDING"])
def test_a_process_that_died_inside_a_savepoint_is_undone_and_clean(log, world, ended):
    past = log.past().begin()
    past.applied("a")
    past.write(Ev.SCOPE_OPEN, path=["part#1"])
    past.intent("b", scope=["part#1"])
    past.committed("b")
    if ended == "LEFT":
        past.write(Ev.SCOPE_CLOSED, path=["part#1"], result="LEFT")
    if ended == "UNWINDING":
        past.write(Ev.SAGA_UNWINDING, cause="it failed", scope=["part#1"])
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["b", "a"]
    assert log.view().clean


def test_an_undone_savepoint_is_not_undone_again(log, world):
    past = log.past().begin()
    past.applied("a")
    past.write(Ev.SCOPE_OPEN, path=["part#1"])
    past.intent("b", scope=["part#1"])
    past.committed("b")
    past.write(Ev.SAGA_UNWINDING, cause="it failed", scope=["part#1"])
    past.compensating("b")
    past.write(Ev.STEP_COMPENSATED, "b", by="handler", attempt=1)
    past.write(Ev.SCOPE_CLOSED, path=["part#1"], result="UNDONE")
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a"]
    assert log.view().clean


# --- sagas that ended -----------------------------------------------------------------------------


@pytest.mark.parametrize("event", [Ev.SAGA_COMMITTED, Ev.SAGA_ROLLED_BACK])
def test_a_saga_that_ended_well_is_left_alone(log, world, event):
    past = log.past().begin()
    if event == Ev.SAGA_COMMITTED:
        past.applied("a")
        past.end(event, unsettled=[])
    else:
        past.unwinding()
        past.end(event)
    past.die()
    assert log.daemon().recover_all().sagas == []
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


@pytest.mark.parametrize(
    ("there", "outcome", "state"),
    [(True, "settled", "COMMITTED"), (False, "settled", "NOT_APPLIED")],
)
def test_an_unsettled_commit_is_asked_about_and_not_undone(log, world, there, outcome, state):
    past = log.past().begin()
    past.intent("a", prober="find", recipe={"handler": "undo", "kwargs": {"what": "a"}})
    past.write(Ev.STEP_UNKNOWN, "a", ending="exception", answered=False, running=False)
    past.end(Ev.SAGA_COMMITTED, unsettled=["a"])
    past.die()
    if there:
        world.there.add(key_of("a"))
    assert recovered(log).outcome == outcome
    assert world.undone == []
    assert log.states() == {"a": state}
    assert log.view().clean


def test_an_unsettled_commit_that_nobody_can_tell_about_is_a_case_and_not_claimed(log, world):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_UNKNOWN, "a", ending="exception", answered=False, running=False)
    past.end(Ev.SAGA_COMMITTED, unsettled=["a"])
    past.die()
    for _ in range(3):
        assert recovered(log).needs_human
    assert Ev.SAGA_CLAIM not in log.events()


def test_a_released_saga_is_undone(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="the loop was torn down")
    past.die()
    assert recovered(log).outcome == "undone"
    assert world.undone == ["a"]
    assert log.view().clean
