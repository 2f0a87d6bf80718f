"""The daemon: waiting, going on, telling once, stopping; one bad saga never stops the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter

import pytest
from recovery.conftest import QUICK, SAGA, key_of

from agent_saga import Settings, compensator, prober
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.errors import ClaimRefused, WALError
from agent_saga.recovery import survey as surveying
from agent_saga.recovery.queue import cases_in
from agent_saga.wal.scan import EnvelopeScan


def slowly(seconds):
    return QUICK.__class__(settle=0.2, settle_after=seconds, inverse_delay=0.0)


def by_saga(result):
    return {one.saga: one.outcome for one in result.sagas}


def dead(log, saga, *, handler="undo"):
    past = log.past(saga).begin(saga)
    past.applied("a", handler=handler)
    return past.die()


# --- waiting --------------------------------------------------------------------------------------


def test_a_pass_of_watch_waits_for_nobody(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.die()
    dead(log, "other")
    daemon = log.daemon(slowly(3600.0))
    assert by_saga(daemon.sweep()) == {SAGA: "waiting", "other": "undone"}
    assert not daemon.sweep().clean
    assert world.asked == []


def test_a_tools_own_settle_after_is_waited_for(log, world):
    past = log.past().begin()
    past.intent("a", prober="find", settle_after=3600)
    past.die()
    assert log.daemon(slowly(0.0)).sweep().waiting
    assert world.asked == []


def test_waiting_for_several_sagas_is_one_wait(log, world, monkeypatch):
    for saga in ("one", "two", "three"):
        past = log.past(saga).begin()
        past.intent("a", prober="find")
        past.die()
    slept = []
    from agent_saga.engine.drive_sync import SyncDriver

    sleep = SyncDriver._sleep
    monkeypatch.setattr(
        SyncDriver, "_sleep", lambda self, seconds: (slept.append(seconds), sleep(self, seconds))
    )
    daemon = log.daemon(slowly(0.5))
    assert set(by_saga(daemon.recover_all()).values()) == {"undone"}
    assert sum(slept) <= 0.6, "the death of all three was proved before the first wait"


def test_what_needs_no_waiting_comes_first(log, world):
    past = log.past("first").begin()
    past.intent("a", prober="find")
    past.die()
    dead(log, "second")
    result = log.daemon(slowly(0.2)).recover_all()
    assert [one.saga for one in result.sagas] == ["second", "first"]


def test_the_setting_that_leaves_unknown_calls_to_recovery_does_not_leave_them_for_ever(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.die()
    settings = Settings(settle=0.2, settle_after=0.1, inverse_delay=0.0, settle_unknown="release")
    assert by_saga(log.daemon(settings).recover_all()) == {SAGA: "undone"}


# --- one bad saga ---------------------------------------------------------------------------------


def bad_sagas(log):
    """Sagas that nothing can be done about, each for a reason of its own."""
    past = log.past("unknown event").begin()
    past.write("SAGA_DANCED")
    past.die()
    past = log.past("no beginning")
    past.applied("a")
    past.die()
    past = log.past("unknown semantics").begin()
    past.intent("a", "PERHAPS")
    past.committed("a")
    past.die()
    past = log.past("a payload of another form").begin()
    past.write(Ev.STEP_INTENT, "a", call=7, nth="x", scope="y", args=[1], recipe=3)
    past.write(Ev.STEP_COMMITTED, "a", inverse={"handler": "undo", "kwargs": [1]})
    past.die()
    past = log.past("claims of another form").begin()
    past.applied("a")
    past.epoch = 2
    past.write(Ev.SAGA_CLAIM, cuts={past.wal.writer: {"seq": "x"}})
    past.die()
    past = log.past("a scope of another form").begin()
    past.intent("a", scope=7)
    past.die()
    for name in ("../../etc", "x" * 300, "two\nlines", "\u202e gnp", "'; drop", "\x7f\x1b[2J"):
        past = log.past(name).begin(name)
        past.intent("a")
        past.die()


def test_one_bad_saga_stops_no_other(log, world):
    dead(log, "healthy first")
    bad_sagas(log)
    dead(log, "healthy last")
    daemon = log.daemon()
    result = daemon.recover_all()
    outcomes = by_saga(result)
    assert outcomes.pop("healthy first") == "undone"
    assert outcomes.pop("healthy last") == "undone"
    assert len(outcomes) >= 11
    assert set(outcomes.values()) <= {"needs a human", "failed"}
    assert all(one.reason for one in result.needs_human)
    assert world.undone == ["a", "a"]


def test_bad_sagas_are_all_in_the_queue_and_can_all_be_closed(log, world):
    bad_sagas(log)
    daemon = log.daemon()
    wanted = {one.saga for one in daemon.recover_all().needs_human}
    assert {case.id for case in daemon.cases()} == wanted
    for saga in wanted:
        daemon.close_case(saga, by="ann", reason="looked at")
    assert daemon.cases() == []
    assert daemon.recover_all().sagas == []
    assert log.daemon().recover_all().sagas == []


def test_one_bad_saga_keeps_no_command_from_the_others(log, world, capsys, monkeypatch):
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    dead(log, "healthy first")
    bad_sagas(log)
    past = log.past("an owner whose lock is gone").begin()
    past.applied("a")
    past.die()
    (log.path / "writers" / past.wal.writer / "lock").unlink()
    dead(log, "healthy last")
    for more in (["--dry-run"], []):
        assert main(["recover", "--wal-path", str(log.path), *more]) == 1
        told = capsys.readouterr().out
        assert "healthy first" in told
        assert "healthy last" in told
    assert world.undone == ["a", "a"]


def test_plans_are_made_for_bad_sagas_too(log):
    bad_sagas(log)
    dead(log, "healthy")
    plans = {plan.saga: plan for plan in log.daemon().forecast().sagas}
    assert [step.what for step in plans["healthy"].steps] == ["undo"]
    assert plans["unknown event"].outcome == "needs a human"
    assert plans["unknown event"].reason
    assert len(plans) >= 12


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError]
)
def test_a_handler_that_raises_stops_no_other_saga(log, world, error):
    @compensator("raises")
    def raises(what):
        raise error("no")

    dead(log, "bad", handler="raises")
    dead(log, "good")
    result = log.daemon().recover_all()
    outcomes = by_saga(result)
    assert outcomes.pop("good") == "undone"
    assert outcomes == {"bad": "needs a human"}
    assert world.undone == ["a"]
    [case] = cases_in(str(log.path))
    assert case.id == "bad", "at once, not at the next pass"
    assert error.__name__ in next(one.reason for one in result.sagas if one.saga == "bad")


def _hanging(kind, over, calls):
    """A function that blocks its thread, whichever way it is written."""

    def plain(what=""):
        calls.append(what)
        over.wait(10)

    async def blocking(what=""):
        plain(what)

    async def stubborn(what=""):
        calls.append(what)
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def promising(what=""):
        return blocking(what)

    return {"plain": plain, "blocking": blocking, "stubborn": stubborn, "promising": promising}[
        kind
    ]


HANGING = ["plain", "blocking", "stubborn", "promising"]
IMPATIENT = Settings(
    settle=0.2, settle_after=0.0, inverse_delay=0.0, inverse_timeout=0.1, cancel_grace=0.1
)


@pytest.mark.guarantee("RECOVER-8")
@pytest.mark.parametrize("kind", HANGING)
def test_a_handler_that_hangs_stops_no_other_saga(log, world, kind):
    over, calls = threading.Event(), []
    compensator("hangs", idempotent=True)(_hanging(kind, over, calls))
    dead(log, "bad", handler="hangs")
    dead(log, "good")
    daemon = log.daemon(IMPATIENT)
    try:
        result = daemon.recover_all()
        assert by_saga(result) == {"bad": "needs a human", "good": "undone"}
        assert log.states("bad") == {"a": "COMPENSATION_UNKNOWN"}
        daemon.sweep()
        with pytest.raises(ClaimRefused, match="still runs"):
            daemon.retry("bad", by="ann")
    finally:
        over.set()
    assert calls == ["a"]


@pytest.mark.guarantee("RECOVER-8")
@pytest.mark.parametrize("kind", HANGING)
def test_a_prober_that_raises_or_hangs_stops_no_other_saga(log, world, kind):
    over = threading.Event()
    prober("hangs")(_hanging(kind, over, []))

    @prober("raises")
    def raises():
        raise OSError("no network")

    for saga in ("hangs", "raises"):
        past = log.past(saga).begin()
        past.intent("a", prober=saga)
        past.die()
    dead(log, "good")
    try:
        result = log.daemon(IMPATIENT).recover_all()
    finally:
        over.set()
    assert by_saga(result) == {
        "hangs": "needs a human",
        "raises": "needs a human",
        "good": "undone",
    }


def test_an_async_handler_runs_by_its_name(log, world):
    @compensator("undo_async")
    async def undo_async(what, *, idempotency_key):
        await asyncio.sleep(0)
        world.undo(what, idempotency_key)

    dead(log, SAGA, handler="undo_async")
    assert by_saga(log.daemon().recover_all()) == {SAGA: "undone"}
    assert world.undone == ["a"]


# --- again and again ------------------------------------------------------------------------------


def test_a_person_is_told_once_for_as_long_as_it_lasts(log):
    past = log.past().begin()
    past.intent("a")
    past.die()
    told = []
    daemon = log.daemon(told=[told.append])
    for _ in range(3):
        assert daemon.sweep().needs_human
    assert [one.saga for one in told] == [SAGA]
    daemon.close_case(SAGA, by="ann", reason="done")
    assert daemon.sweep().clean


def test_a_notifier_that_raises_stops_nothing(log, world):
    for saga in ("one", "two"):
        past = log.past(saga).begin()
        past.intent("a")
        past.die()
    told = []

    def raises(one):
        raise RuntimeError("no mail today")

    assert len(log.daemon(told=[raises, told.append]).sweep().needs_human) == 2
    assert len(told) == 2


def test_a_case_is_not_claimed_again_and_again(log, world):
    past = log.past().begin()
    past.intent("a")
    past.die()
    daemon = log.daemon()
    for _ in range(5):
        daemon.recover_all()
    assert log.events().count(Ev.SAGA_CLAIM) == 1


def test_what_keeps_failing_is_tried_later_and_later(log, world, monkeypatch):
    dead(log, SAGA)
    daemon = log.daemon()
    tries = []

    def fails(*args, **kwargs):
        tries.append(1)
        raise WALError("something broke")

    monkeypatch.setattr("agent_saga.recovery.recover.undo_saga", fails)
    for _ in range(5):
        assert daemon.sweep().needs_human
    assert len(tries) == 1


def test_nothing_is_kept_of_sagas_that_are_settled(log, world):
    daemon = log.daemon()
    for number in range(5):
        dead(log, f"saga{number}")
        daemon.sweep()
    daemon.sweep()
    inner = daemon._daemon
    assert (inner._again, inner._dead_since, inner._known) == ({}, {}, set())


def test_only_what_is_not_settled_is_kept_of_a_log(log, world):
    for number in range(20):
        past = log.past(f"ended{number}").begin()
        past.applied("a")
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
        past.die()
    dead(log, "open")
    collected = surveying.survey(log.path).sagas
    assert list(collected) == ["open"]


# --- watching -------------------------------------------------------------------------------------


def watching(daemon, **options):
    thread = threading.Thread(target=daemon.watch, args=(0.02,), kwargs=options)
    thread.start()
    return thread


def test_watch_recovers_what_dies_while_it_watches(log, world):
    daemon = log.daemon()
    passed = threading.Event()
    thread = watching(daemon, after=lambda result: passed.set())
    try:
        assert passed.wait(60)
        past = log.past().begin()
        past.applied("a")
        past.die()
        undone = threading.Event()
        log_is_clean = lambda: world.undone == ["a"]  # noqa: E731
        for _ in range(1000):
            if log_is_clean():
                undone.set()
                break
            threading.Event().wait(0.02)
        assert undone.is_set()
    finally:
        daemon.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_watch_outlives_a_pass_that_fails(log, world, monkeypatch):
    dead(log, SAGA)
    daemon = log.daemon()
    results = []
    survey = daemon._daemon.__class__.sweep

    def first_fails(self, **options):
        if not results:
            raise OSError("the disk was away")
        return survey(self, **options)

    monkeypatch.setattr(daemon._daemon.__class__, "sweep", first_fails)
    twice = threading.Event()

    def after(result):
        results.append(result)
        if len(results) >= 2:
            twice.set()

    thread = watching(daemon, after=after)
    assert twice.wait(60)
    daemon.stop()
    thread.join(60)
    assert results[0] is None
    assert world.undone == ["a"]


def test_stop_ends_a_pass_after_the_saga_that_is_being_recovered(log, world):
    daemon = log.daemon()

    @compensator("stops")
    def stops(what, *, idempotency_key):
        world.undo(what, idempotency_key)
        daemon.stop()

    for saga in ("one", "two", "three"):
        dead(log, saga, handler="stops")
    assert list(by_saga(daemon.sweep()).values()) == ["undone"]
    assert world.undone == ["a"]


def test_in_an_event_loop_everything_is_awaited(log, world):
    dead(log, SAGA)

    async def main():
        daemon = log.daemon()
        watch = asyncio.ensure_future(daemon.watch(0.02))
        while not world.undone:
            await asyncio.sleep(0.02)
        daemon.stop()
        await watch
        return await daemon.recover_all()

    assert asyncio.run(main()).clean
    assert world.undone == ["a"]


@pytest.mark.guarantee("RECOVER-4")
def test_the_same_key_in_process_and_in_recovery(log, world):
    """One step, asked about and undone by another process, is seen by its provider as one."""
    past = log.past().begin()
    past.intent("a", prober="find", recipe={"handler": "undo", "kwargs": {"what": "a"}})
    past.die()
    world.there.add(key_of("a"))
    log.daemon().recover_all()
    assert world.asked == [key_of("a")]
    assert world.keys["a"] == [key_of("a", "inverse")]


def test_the_process_identity_is_in_the_claim(log, world):
    dead(log, SAGA)
    log.daemon(by=f"worker {os.getpid()}").recover_all()
    [claim] = [r.data for r in log.found().effective.records if r.event == Ev.SAGA_CLAIM]
    assert claim["by"] == f"worker {os.getpid()}"
    assert claim["reason"] == "recover"


def test_a_pass_reads_the_log_at_most_twice_and_proves_each_writer_once(log, world, monkeypatch):
    for number in range(4):
        dead(log, f"open{number}")
    past = log.past("reopened").begin()
    past.applied("a")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.end(Ev.SAGA_REOPENED, step="b", tool="b")
    past.die()
    log.age()
    reads = []
    begin = EnvelopeScan.__init__

    def counted(scan, folder, writer, *args, **options):
        reads.append((writer, options.get("verify", False)))
        begin(scan, folder, writer, *args, **options)

    monkeypatch.setattr(EnvelopeScan, "__init__", counted)
    outcomes = by_saga(log.daemon().recover_all())
    assert outcomes.pop("reopened") == "needs a human"
    assert set(outcomes.values()) == {"undone"}
    times = Counter(reads)
    assert {count for (_, proves), count in times.items() if not proves} == {2}
    assert {count for (_, proves), count in times.items() if proves} == {1}


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Ev.SAGA_COMMITTED, "settled"),
        (Ev.SAGA_ROLLED_BACK, "settled"),
        (Ev.SAGA_PARTIAL, "needs a human"),
    ],
)
def test_a_saga_that_ends_by_itself_between_two_looks_is_no_work_left(
    log, world, monkeypatch, ending, outcome
):
    """Its process ends it and exits while a pass is on its way: nobody is told that it waits."""
    past = log.past().begin()
    past.applied("a")

    def surveyed(*args, **options):
        found = surveying.survey(*args, **options)
        if ending != Ev.SAGA_COMMITTED:
            past.unwinding()
        if ending == Ev.SAGA_ROLLED_BACK:
            past.compensating("a")
            past.write(Ev.STEP_COMPENSATED, "a", by="handler")
        elif ending == Ev.SAGA_PARTIAL:
            past.write(Ev.STEP_ORPHANED, "a", reason="it has no inverse")
        past.end(ending, unsettled=[])
        past.die()
        return found

    monkeypatch.setattr("agent_saga.recovery.daemon.survey", surveyed)
    result = log.daemon().recover_all()
    assert [one.outcome for one in result.sagas] == [outcome]
    assert result.clean == (outcome == "settled")
    assert world.undone == []
