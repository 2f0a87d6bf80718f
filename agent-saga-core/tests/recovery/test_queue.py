"""The human queue: what is in it, and how a case is closed for good or retried."""

from __future__ import annotations

import time

import pytest
from recovery.conftest import SAGA, key_of

from agent_saga import Applied, NotApplied, compensator, prober
from agent_saga.cli.main import main
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.errors import ClaimRefused, RecoveryError
from agent_saga.plugins.registry import process_handlers
from agent_saga.recovery.queue import cases_in
from agent_saga.wal import checkpoint, segments


def queue(log):
    return [case.id for case in cases_in(str(log.path))]


def orphaned(log):
    past = log.past().begin()
    past.intent("a")
    past.die()
    assert log.daemon().recover_all().needs_human
    return past


def close(log, by="ann", reason="the charge was refunded by hand"):
    log.daemon().close_case(SAGA, by=by, reason=reason)


# --- what is in it --------------------------------------------------------------------------------


@pytest.mark.guarantee("QUEUE-1")
def test_an_orphan_is_a_case(log):
    orphaned(log)
    assert queue(log) == [SAGA]


def test_what_recovery_has_yet_to_try_is_none(log):
    past = log.past().begin()
    past.applied("a")
    past.die()
    assert queue(log) == []


def test_a_saga_whose_process_lives_is_none_whatever_its_records_say(log):
    past = log.past().begin()
    past.write("SAGA_DANCED")
    assert queue(log) == []
    past.die()
    assert queue(log) == [SAGA]


@pytest.mark.guarantee("QUEUE-1")
@pytest.mark.parametrize("ending", [Ev.SAGA_COMMITTED, Ev.SAGA_ROLLED_BACK])
def test_a_settled_saga_with_a_record_of_a_newer_version_is_a_case_wherever_one_looks(
    log, world, capsys, ending
):
    past = log.past().begin()
    past.write("SAGA_FROM_TOMORROW")
    if ending == Ev.SAGA_ROLLED_BACK:
        past.unwinding()
    past.end(ending, unsettled=[])
    past.die()
    where = ["--wal-path", str(log.path)]
    for words in (["list"], ["show", SAGA], ["status"], ["queue", "list"], ["recover"]):
        assert main([*words, *where]) == 1, words
    assert "SAGA_FROM_TOMORROW" in capsys.readouterr().out
    assert queue(log) == [SAGA]
    close(log)
    for words in (["list"], ["show", SAGA], ["queue", "list"], ["recover"]):
        assert main([*words, *where]) == 0, words


def test_a_record_of_a_newer_version_is_not_forgotten_by_a_checkpoint(log, monkeypatch):
    monkeypatch.setattr(segments, "FIRST_SIZE", 4096)
    monkeypatch.setattr(segments, "LAST_SIZE", 4096)
    monkeypatch.setattr(checkpoint, "WORTH", 4096)
    past = log.past().begin()
    past.write("SAGA_FROM_TOMORROW")
    for number in range(40):
        past.saga = f"whole{number}"
        past.begin()
        past.applied("w")
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.saga = SAGA
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    log.age()
    daemon = log.daemon()
    for _ in range(2):
        assert [one.saga for one in daemon.sweep().needs_human] == [SAGA]
    assert (log.path / "checkpoint").exists()
    assert queue(log) == [SAGA]


def test_a_stuck_saga_is_a_case_even_if_no_step_says_why(log):
    past = log.past().begin()
    past.unwinding()
    past.end(Ev.SAGA_STUCK)
    past.die()
    assert queue(log) == [SAGA]


def test_an_approved_step_that_stands_is_none(log):
    past = log.past().begin()
    past.intent("a", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "a", result="sent")
    past.die()
    log.daemon().recover_all()
    assert queue(log) == []


def test_a_reopened_saga_is_a_case(log):
    past = log.past().begin()
    past.applied("a")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.end(Ev.SAGA_REOPENED, step="b", tool="b")
    past.die()
    assert queue(log) == [SAGA]


# --- closing --------------------------------------------------------------------------------------


def test_a_closed_case_is_clean_and_never_comes_back(log, world):
    orphaned(log)
    close(log)
    assert queue(log) == []
    assert log.view().state.value == "CLOSED"
    assert log.view().clean
    for _ in range(2):
        assert log.daemon().recover_all().sagas == []
    assert world.undone == []


def test_closing_records_who_and_why(log):
    orphaned(log)
    close(log, by=" ann ", reason=" refunded by hand ")
    closing = [r.data for r in log.found().effective.records if r.event == Ev.SAGA_CLOSED]
    assert [(facts["by"], facts["reason"]) for facts in closing] == [("ann", "refunded by hand")]
    assert log.states() == {"a": "CLOSED"}


@pytest.mark.guarantee("QUEUE-2")
@pytest.mark.parametrize(("by", "reason"), [("", "x"), ("  ", "x"), ("ann", ""), ("ann", "\n\t")])
def test_a_nameless_or_groundless_closing_is_refused(log, by, reason):
    orphaned(log)
    with pytest.raises(RecoveryError):
        close(log, by, reason)
    assert queue(log) == [SAGA]


def test_a_case_is_closed_once(log):
    orphaned(log)
    close(log)
    with pytest.raises(RecoveryError):
        close(log)


@pytest.mark.parametrize("event", [Ev.SAGA_COMMITTED, Ev.SAGA_ROLLED_BACK])
def test_what_ended_well_cannot_be_closed(log, event):
    """Closing a committed saga would keep it from ever being undone later."""
    past = log.past().begin()
    past.applied("a")
    if event == Ev.SAGA_ROLLED_BACK:
        past.unwinding()
        past.compensating("a")
        past.write(Ev.STEP_COMPENSATED, "a", by="handler", attempt=1)
    past.end(event, unsettled=[])
    past.die()
    with pytest.raises(RecoveryError, match="no case"):
        close(log)


@pytest.mark.parametrize("released", [True, False])
def test_what_recovery_has_yet_to_try_cannot_be_closed(log, world, released):
    past = log.past().begin()
    past.applied("a")
    if released:
        past.end(Ev.SAGA_RELEASED, cause="x")
    past.die()
    with pytest.raises(RecoveryError, match="recovery has tried"):
        close(log)
    assert [one.outcome for one in log.daemon().recover_all().sagas] == ["undone"]


def test_a_live_saga_cannot_be_closed(log):
    past = log.past().begin()
    past.write("SAGA_DANCED")
    with pytest.raises(ClaimRefused):
        close(log)


def test_an_unsettled_commit_can_be_closed(log):
    past = log.past().begin()
    past.intent("a")
    past.write(Ev.STEP_UNKNOWN, "a", ending="exception", answered=False, running=False)
    past.end(Ev.SAGA_COMMITTED, unsettled=["a"])
    past.die()
    assert queue(log) == [SAGA]
    close(log)
    assert queue(log) == []
    assert log.view().clean


def test_an_inverse_of_unknown_ending_can_be_closed(log):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.die()
    assert log.daemon().recover_all().needs_human
    close(log)
    assert log.view().clean


@pytest.mark.parametrize("fault", ["an unknown event", "an illegal order", "a second beginning"])
def test_a_saga_of_faulty_records_can_be_closed_and_stays_closed(log, world, fault):
    past = log.past().begin()
    past.applied("a")
    if fault == "an unknown event":
        past.write("SAGA_DANCED")
    if fault == "an illegal order":
        past.write(Ev.STEP_COMPENSATED, "a")
    if fault == "a second beginning":
        past.begin()
    past.die()
    [one] = log.daemon().recover_all().sagas
    assert one.needs_human
    assert queue(log) == [SAGA]
    close(log)
    assert queue(log) == []
    assert log.daemon().recover_all().sagas == []
    assert world.undone == []


def test_stale_records_that_were_seen_stay_closed_and_later_ones_come_back(log):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="it was wrong")
    log.daemon().recover_all()
    past.intent("b")
    assert queue(log) == [SAGA]
    close(log)
    assert queue(log) == []
    assert log.view().clean
    past.intent("c")
    past.die()
    assert queue(log) == [SAGA]
    assert not log.view().clean


@pytest.mark.parametrize("state", ["UNWINDING", "STUCK"])
def test_a_damaged_saga_can_be_closed_and_stays_closed(log, state):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.wal.barrier_sync()
    if state == "STUCK":
        past.end(Ev.SAGA_STUCK)
    else:
        past.compensating("a")
    past.die()
    segment = next((log.path / "writers" / past.wal.writer).glob("seg-*"))
    data = bytearray(segment.read_bytes())
    place = data.index(b"SAGA_UNWINDING")
    data[place : place + 14] = b"\xff" * 14
    segment.write_bytes(bytes(data))
    assert queue(log) == [SAGA]
    close(log)
    assert queue(log) == []


# --- retrying -------------------------------------------------------------------------------------


def test_a_retry_undoes_what_is_left_when_its_handler_is_there_now(log, world):
    past = log.past().begin()
    past.applied("a")
    past.applied("b", handler="comes.later")
    past.die()
    assert log.daemon().recover_all().needs_human

    @compensator("comes.later")
    def comes_later(what, *, idempotency_key):
        world.undo(what, idempotency_key)

    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert world.undone == ["b", "a"]
    assert log.view().clean
    assert queue(log) == []


def test_a_retry_asks_again_about_an_orphan(log, world):
    past = log.past().begin()
    past.intent("a", prober="comes.later", recipe={"handler": "undo", "kwargs": {"what": "$"}})
    past.die()
    assert log.daemon().recover_all().needs_human

    @prober("comes.later")
    def comes_later(*, idempotency_key):
        return Applied("found")

    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert world.undone == ["found"]


def test_a_retry_never_repeats_an_inverse_that_may_have_succeeded(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.compensating("a")
    past.die()
    assert log.daemon().recover_all().needs_human
    for _ in range(3):
        assert log.daemon().retry(SAGA, by="ann").needs_human
    assert world.undone == []


def test_a_retry_waits_for_a_call_that_still_runs_in_its_process(log, world):
    past = log.past().begin()
    past.intent("a", prober="find")
    past.write(Ev.STEP_UNKNOWN, "a", ending="timeout", running=True, answered=False)
    past.unwinding()
    past.write(Ev.STEP_UNRESOLVED, "a", reason="its call is still running")
    past.end(Ev.SAGA_STUCK)
    with pytest.raises(ClaimRefused, match="still runs"):
        log.daemon().retry(SAGA, by="ann")
    assert world.asked == []
    past.die()
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"


@pytest.mark.parametrize("by", ["", " "])
def test_a_nameless_retry_is_refused(log, by):
    orphaned(log)
    with pytest.raises(RecoveryError):
        log.daemon().retry(SAGA, by=by)


def test_a_closed_case_is_not_retried(log, world):
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    past.die()
    log.daemon().recover_all()
    close(log)
    with pytest.raises(RecoveryError):
        log.daemon().retry(SAGA, by="ann")
    assert log.view().clean


def test_a_saga_of_faulty_records_is_not_retried(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_STUCK)
    past.write("SAGA_DANCED")
    past.die()
    with pytest.raises(RecoveryError, match="cannot be trusted"):
        log.daemon().retry(SAGA, by="ann")
    assert world.undone == []


# --- inverses that are known to have had no effect ------------------------------------------------


class Desk:
    """A provider that refuses for a while, and says so."""

    def __init__(self):
        self.closed = True
        self.keys = []
        self.done = []

    def refund(self, what, idempotency_key):
        self.keys.append(idempotency_key)
        if self.closed:
            raise NotApplied("the desk is closed")
        self.done.append(what)


@pytest.fixture
def desk():
    desk = Desk()

    def refund(what, *, idempotency_key):
        desk.refund(what, idempotency_key)

    compensator("refund")(refund)
    return desk


def refused(log, desk):
    past = log.past().begin()
    past.applied("a")
    past.applied("b", handler="refund")
    past.die()
    [one] = log.daemon().recover_all().sagas
    assert one.outcome == "needs a human"
    assert log.states() == {"a": "UNRESOLVED", "b": "COMPENSATION_NOT_APPLIED"}
    assert queue(log) == [SAGA]


def test_an_inverse_that_had_no_effect_is_run_again_by_a_retry_with_its_own_key(log, world, desk):
    refused(log, desk)
    tried = len(desk.keys)
    assert log.daemon().retry(SAGA, by="ann").needs_human, "the desk is closed still"
    assert len(desk.keys) == 2 * tried
    desk.closed = False
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert desk.done == ["b"]
    assert world.undone == ["a"]
    assert set(desk.keys) == {key_of("b", identity.INVERSE)}
    assert queue(log) == []
    assert log.view().clean


def test_a_halt_before_it_does_not_hide_that_an_inverse_had_no_effect(log, world, desk):
    """The step that is undone first is missing its handler at the first retry."""
    refused(log, desk)
    past = log.past()
    last = {writer: record.seq for writer, record in log.found().writers.items()}
    past.claim(3, **last)
    past.unwinding()
    past.applied("c", handler="not.there")
    past.end(Ev.SAGA_STUCK)
    past.die()
    assert log.daemon().retry(SAGA, by="ann").needs_human
    assert log.states()["b"] == "COMPENSATION_NOT_APPLIED"


def test_an_inverse_that_refused_its_arguments_is_run_again_when_it_takes_them(log, world):
    past = log.past().begin()
    past.applied("a", handler="narrow")
    past.die()
    undone = []
    with process_handlers().isolated():

        @compensator("narrow")
        def narrow():
            undone.append("without arguments")

        assert log.daemon().recover_all().needs_human

    @compensator("narrow")
    def wide(what):
        undone.append(what)

    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert undone == ["a"]


def test_an_attempt_without_an_answer_is_not_forgotten_for_a_later_one_without_effect(log, world):
    answers = iter([ConnectionError("lost"), NotApplied("busy"), NotApplied("busy")])
    asked = []

    @compensator("moody", idempotent=True, window=0.2)
    def moody(what, *, idempotency_key):
        asked.append(what)
        raise next(answers)

    past = log.past().begin()
    past.applied("a", handler="moody")
    past.die()
    assert log.daemon().recover_all().needs_human
    assert log.states() == {"a": "COMPENSATION_FAILED"}
    time.sleep(0.3)  # its window is over
    assert log.daemon().retry(SAGA, by="ann").needs_human
    assert asked == ["a"] * 3


@pytest.mark.guarantee("QUEUE-3")
def test_closing_what_is_unknown_leaves_a_committed_saga_to_be_undone(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b")
    past.end(Ev.SAGA_COMMITTED, unsettled=["b"])
    past.die()
    assert queue(log) == [SAGA]
    close(log)
    assert queue(log) == []
    assert (log.view().state.value, log.view().clean) == ("COMMITTED", True)
    assert log.states() == {"a": "COMMITTED", "b": "CLOSED"}
    assert log.daemon().recover_all().sagas == []
    with pytest.raises(RecoveryError, match="nothing to close"):
        close(log)
    done = log.daemon().undo(SAGA, by="ann", reason="all of it")
    assert done.report.clean
    assert world.undone == ["a"]


def test_closing_one_with_a_savepoint_that_stands_closes_all_of_it(log):
    past = log.past().begin()
    past.write(Ev.SCOPE_OPEN, path=["part"])
    past.intent("b", scope=["part"])
    past.write(Ev.SAGA_UNWINDING, scope=["part"], cause="it failed")
    past.write(Ev.SCOPE_CLOSED, path=["part"], result="STUCK")
    past.end(Ev.SAGA_COMMITTED, unsettled=["b"])
    past.die()
    close(log)
    assert (log.view().state.value, log.view().clean) == ("CLOSED", True)
    assert queue(log) == []


@pytest.mark.guarantee("QUEUE-1")
@pytest.mark.parametrize("then", ["ask somebody", "", None, 5])
def test_one_whose_deadline_is_over_with_nothing_known_to_happen_then_is_a_case(log, world, then):
    past = log.past().begin()
    past.applied("a")
    past.write(Ev.SAGA_SUSPENDED, reason="a human", deadline=1, at_deadline=then)
    past.die()
    assert log.daemon().recover_all().needs_human
    assert queue(log) == [SAGA]
    assert world.undone == [], "nobody has said that it is undone then"
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
