"""Who may take a saga over, and what stays behind when somebody did or could not."""

from __future__ import annotations

import math
import os
import threading
import time

import pytest
from msgspec.structs import replace
from recovery.conftest import QUICK, SAGA

from agent_saga import AgentKit, FileWAL
from agent_saga.domain.records import Ev
from agent_saga.errors import ClaimRefused, RecoveryError, SagaFenced, StateError, WALError
from agent_saga.recovery import claim as claiming
from agent_saga.recovery import epochs
from agent_saga.recovery import proofs as proving
from agent_saga.recovery.claim import claimed
from agent_saga.recovery.recover import recover_one
from agent_saga.recovery.survey import survey
from agent_saga.state.address import open_state
from agent_saga.state.base import one as one_of
from agent_saga.state.claims import claim_key
from agent_saga.wal.lock import LOCK_FILE
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.takeover import dead_writer


def place_of(daemon):
    return daemon._place()


def outcomes(daemon):
    return [one.outcome for one in daemon.recover_all().sagas]


def stored(log):
    with open_state(f"file:{log.path}") as store:
        return store.get(claim_key(SAGA))


def one_dead(log, state="RUNNING"):
    past = log.past().begin()
    past.applied("a")
    if state == "UNWINDING":
        past.unwinding()
    return past.die()


# --- a live owner ---------------------------------------------------------------------------------


@pytest.mark.guarantee("RECOVER-1")
def test_a_saga_whose_process_lives_is_never_touched(log, world):
    past = log.past().begin()
    past.applied("a")
    assert outcomes(log.daemon()) == ["live"]
    past.unwinding()
    assert outcomes(log.daemon()) == ["live"]
    assert world.undone == []
    assert log.events().count(Ev.SAGA_CLAIM) == 0
    with pytest.raises(ClaimRefused), claimed(place_of(log.daemon()), SAGA, reason="x", by="x"):
        pass
    assert log.events().count(Ev.SAGA_CLAIM) == 0
    past.wal.check_fence(SAGA, 1)


def test_a_saga_of_the_daemons_own_process_is_never_touched(log, world):
    daemon = log.daemon()
    kit = AgentKit("own", wal=place_of(daemon).wal, settings=QUICK)

    @kit.tool("COMPENSABLE")
    def act(what: str) -> str:
        return what

    @act.undo
    def undo_act(result: str) -> None:
        world.undo(result, "")

    with kit.transaction():
        act("a")
        assert outcomes(daemon) == ["live"]
    assert outcomes(daemon) == []
    assert world.undone == []


def test_a_lock_file_that_was_replaced_proves_nothing_while_its_process_lives(log, world):
    past = log.past().begin()
    past.applied("a")
    lock = log.path / "writers" / past.wal.writer / LOCK_FILE
    lock.unlink()
    lock.touch()
    [one] = log.daemon().recover_all().sagas
    assert one.outcome == "failed"
    assert one.needs_human
    assert "replaced" in one.reason
    assert world.undone == []
    with pytest.raises(SagaFenced):
        past.wal.check_fence(SAGA, 1)


def test_a_lock_file_that_is_gone_proves_nothing(log, world):
    past = log.past().begin()
    past.applied("a")
    (log.path / "writers" / past.wal.writer / LOCK_FILE).unlink()
    assert outcomes(log.daemon()) == ["failed"]
    assert world.undone == []


def test_a_forked_child_does_not_keep_a_dead_owner_locked(log):
    past = one_dead(log)
    dead = dead_writer(str(log.path), past.wal.writer)
    assert dead is not None
    reading, writing = os.pipe()
    ready, started = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.write(started, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.read(ready, 1)
    dead.close()
    try:
        again = dead_writer(str(log.path), past.wal.writer)
        assert again is not None
        again.close()
    finally:
        os.close(writing)
        os.waitpid(child, 0)


# --- a released saga of a process that lives ------------------------------------------------------


def test_a_released_saga_of_a_live_process_is_undone_and_fences_it(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="a second interrupt")
    assert outcomes(log.daemon()) == ["undone"]
    assert world.undone == ["a"]
    with pytest.raises(SagaFenced):
        past.wal.check_fence(SAGA, 1)


@pytest.mark.guarantee("RECOVER-6")
@pytest.mark.parametrize("what", ["forward", "given up", "inverse", "given up inverse"])
def test_a_released_saga_waits_for_its_calls_that_still_run(log, world, what):
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    if what == "forward":
        past.intent("b", prober="find")
    if what == "given up":
        past.intent("b", prober="find")
        past.write(Ev.STEP_UNKNOWN, "b", ending="timeout", running=True, answered=True)
    if "inverse" in what:
        past.unwinding()
        past.compensating("a", handler="undo_again")
    if what == "given up inverse":
        past.write(Ev.STEP_COMPENSATION_UNKNOWN, "a", error=None, running=True)
    past.end(Ev.SAGA_RELEASED, cause="the loop was torn down")
    result = log.daemon().recover_all()
    assert not result.clean
    assert world.undone == []
    assert world.asked == []
    past.die()
    assert outcomes(log.daemon()) == ["undone"]
    assert world.undone == ["a"]


def test_a_call_that_is_known_to_have_ended_keeps_nobody(log, world):
    past = log.past().begin()
    past.intent("b")
    past.write(Ev.STEP_UNKNOWN, "b", ending="timeout", running=True, answered=True)
    past.write(Ev.STEP_LATE, "b", result="b", inverse={"handler": "undo", "kwargs": {"what": "b"}})
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="the loop was torn down")
    assert outcomes(log.daemon()) == ["undone"]
    assert world.undone == ["b"]


# --- a claimer that dies --------------------------------------------------------------------------

MOMENTS = {
    "before the epoch is raised": "raised",
    "between the epoch and the fence": "_read_to_the_end",
    "between the fence and the claim": "_announced",
}


class Killed(BaseException):
    """Stands for the end of a process: nothing of it runs any more."""


@pytest.mark.parametrize("owner", ["RUNNING", "UNWINDING"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_claimer_that_is_killed_keeps_nobody_from_going_on(
    log, world, monkeypatch, moment, owner
):
    one_dead(log, owner)
    first = log.daemon()

    def killed(*args):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(claiming, MOMENTS[moment], killed)
        dying.setattr(claiming, "withdraw", lambda *args: None)
        dying.setattr(claiming, "_let_go", lambda *args: None)
        with pytest.raises(Killed):
            first.recover_all()
    assert world.undone == []
    if moment != "before the epoch is raised":
        assert outcomes(log.daemon()) == ["claimed elsewhere"], "the claimer may go on any moment"
        assert world.undone == []
    place_of(first).wal.close()
    assert outcomes(log.daemon()) == ["undone"]
    assert world.undone == ["a"]
    assert log.view().clean


@pytest.mark.parametrize("handler", ["undo", "undo_again"])
def test_a_daemon_that_is_killed_while_undoing_is_taken_over_in_turn(
    log, world, handlers, monkeypatch, handler
):
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.applied("b", handler=handler)
    past.die()
    first = log.daemon()
    monkeypatch.setattr(claiming, "_let_go", lambda *args: None)

    def dies(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("agent_saga.engine.inverse._succeeded", dies)
        with pytest.raises(Killed):
            first.recover_all()
    assert world.undone == ["b"]
    assert outcomes(log.daemon()) == ["live"]
    place_of(first).wal.close()
    last = log.daemon().recover_all().sagas[0]
    if handler == "undo":
        assert last.needs_human
        assert world.undone == ["b"], "whether it took effect is unknown, so it is not repeated"
    else:
        assert last.outcome == "undone"
        assert world.undone == ["b", "b", "a"]
        assert len(set(world.keys["b"])) == 1
    assert log.view().clean == (handler == "undo_again")


@pytest.mark.parametrize("step", list(MOMENTS.values()))
def test_a_claim_that_fails_is_given_back(log, world, monkeypatch, step):
    one_dead(log)
    first = log.daemon()

    def fails(*args):
        raise WALError("the disk does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(claiming, step, fails)
        [one] = first.recover_all().sagas
    assert one.needs_human
    assert "does not answer" in one.reason
    assert world.undone == []
    assert outcomes(log.daemon()) == ["undone"], "while the first daemon still lives"
    assert world.undone == ["a"]


def test_what_fails_after_the_claim_releases_the_saga(log, world, monkeypatch):
    one_dead(log)
    first = log.daemon()

    def fails(*args, **kwargs):
        raise WALError("something broke")

    with monkeypatch.context() as failing:
        failing.setattr("agent_saga.recovery.recover.undo_saga", fails)
        [one] = first.recover_all().sagas
    assert one.needs_human
    assert log.view().state.value == "RELEASED"
    assert outcomes(log.daemon()) == ["undone"]


def test_it_is_acted_on_only_when_the_claim_is_durable_and_unfenced(log, world, monkeypatch):
    one_dead(log)
    daemon = log.daemon()
    place = place_of(daemon)
    monkeypatch.setattr(
        claiming,
        "_announced",
        _then(claiming._announced, lambda: place.wal.fence(SAGA, 99, writer=place.wal.writer)),
    )
    [one] = daemon.recover_all().sagas
    assert one.outcome == "failed"
    assert world.undone == []


def _then(function, following):
    def both(*args):
        answer = function(*args)
        following()
        return answer

    return both


# --- two claimers ---------------------------------------------------------------------------------


@pytest.mark.guarantee("RECOVER-2")
@pytest.mark.parametrize("state", ["RUNNING", "UNWINDING", "RELEASED", "STUCK", "COMMITTED"])
def test_of_two_claimers_at_once_one_gets_the_saga(log, world, monkeypatch, state):
    """Both have read the log and the store before either raises the epoch."""
    past = log.past().begin()
    past.applied("a")
    if state not in ("RUNNING", "COMMITTED"):
        past.unwinding()
    if state == "COMMITTED":
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    elif state not in ("RUNNING", "UNWINDING"):
        past.end(f"SAGA_{state}")
    past.die()
    monkeypatch.setattr(claiming, "_claiming", _Many())
    both = threading.Barrier(2, timeout=60)
    seen = epochs._seen

    def meets(*args):
        answer = seen(*args)
        both.wait()
        return answer

    monkeypatch.setattr(epochs, "_seen", meets)
    if state in ("RUNNING", "UNWINDING"):
        monkeypatch.setattr(claiming, "_dead_owner", lambda *args: claiming.contextlib.ExitStack())
    got, refused = [], []

    def claims(place):
        try:
            with claimed(place, SAGA, reason="operator", by="one of two") as claim:
                got.append(claim.epoch)
        except ClaimRefused:
            refused.append(1)

    threads = [threading.Thread(target=claims, args=(place_of(log.daemon()),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, refused) == ([2], [1])
    assert log.events().count(Ev.SAGA_CLAIM) == 1


class _Many(set):
    """Lets several threads of this process claim, as if each were a process of its own."""

    def __contains__(self, saga):
        return False


def test_a_claimer_with_an_old_survey_sees_what_another_one_did_and_died_of(
    log, world, monkeypatch
):
    """The model found this: one surveys, another claims, undoes and dies, the first goes on."""
    past = log.past().begin()
    past.applied("a", handler="undo")
    past.applied("b", handler="undo")
    past.die()
    slow, quick = log.daemon(), log.daemon()
    old = survey(log.path, dead=frozenset({past.wal.writer})).sagas[SAGA]
    monkeypatch.setattr(claiming, "_let_go", lambda *args: None)

    def dies(*args):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("agent_saga.engine.inverse._succeeded", dies)
        with pytest.raises(Killed):
            quick.recover_all()
    place_of(quick).wal.close()
    assert world.undone == ["b"]
    done = recover_one(place_of(slow), old, by="the slow one", dead_since=0.0)
    assert done.outcome == "claimed elsewhere"
    assert world.undone == ["b"]
    assert slow.recover_all().needs_human
    assert world.undone == ["b"]
    assert log.view().faults == []


def test_two_threads_of_one_process_do_not_claim_together(log):
    one_dead(log)
    place = place_of(log.daemon())
    second = claimed(place, SAGA, reason="recover", by="the second")
    with (
        claimed(place, SAGA, reason="recover", by="the first"),
        pytest.raises(ClaimRefused, match="already"),
        second,
    ):
        pass


def test_the_dead_owners_lock_is_held_while_its_saga_is_claimed(log):
    past = one_dead(log)
    with claimed(place_of(log.daemon()), SAGA, reason="recover", by="x"):
        assert dead_writer(str(log.path), past.wal.writer) is None
    again = dead_writer(str(log.path), past.wal.writer)
    assert again is not None
    again.close()


# --- the store ------------------------------------------------------------------------------------


def test_epochs_rise_and_never_repeat(log, world):
    past = log.past().begin()
    past.applied("a", handler="gone")
    past.die()
    daemon = log.daemon()
    assert daemon.recover_all().needs_human
    for epoch in (3, 4, 5):
        with claimed(place_of(daemon), SAGA, reason="operator", by="x") as claim:
            assert claim.epoch == epoch


def test_a_store_that_was_deleted_is_rebuilt_from_the_log(log, world):
    past = log.past().begin()
    past.applied("a", handler="gone")
    past.die()
    log.daemon().recover_all()
    for file in log.path.glob("state.*"):
        file.unlink()
    with claimed(place_of(log.daemon()), SAGA, reason="operator", by="x") as claim:
        assert claim.epoch == 3


def test_a_store_behind_the_log_is_rebuilt_from_the_log(log, world):
    past = log.past().begin()
    past.applied("a", handler="gone")
    past.die()
    log.daemon().recover_all()
    with open_state(f"file:{log.path}") as store:
        document = store.get(claim_key(SAGA))
        store.transact(
            [claim_key(SAGA)],
            one_of(claim_key(SAGA), lambda doc: ({**document, "epoch": 1}, None)),
        )
    with claimed(place_of(log.daemon()), SAGA, reason="operator", by="x") as claim:
        assert claim.epoch == 3


def test_a_store_that_cannot_be_read_means_that_nothing_is_done(log, world, monkeypatch):
    one_dead(log)
    daemon = log.daemon()

    class Broken:
        def get(self, key):
            raise StateError("the store does not answer")

    place = place_of(daemon)
    monkeypatch.setattr(daemon._daemon, "_place", lambda: replace(place, store=Broken()))
    [one] = daemon.recover_all().sagas
    assert one.needs_human
    assert "does not answer" in one.reason
    assert world.undone == []


def test_records_that_the_store_knows_and_the_log_has_lost_forbid_acting(log, world):
    """A daemon undid the saga, and its part of the log is lost: undoing again would be twice."""
    one_dead(log)
    daemon = log.daemon()
    assert outcomes(daemon) == ["undone"]
    writer = place_of(daemon).wal.writer
    place_of(daemon).wal.close()
    for segment in (log.path / "writers" / writer).glob("seg-*"):
        segment.unlink()
    [one] = log.daemon().recover_all().sagas
    assert one.needs_human
    assert "lost" in one.reason
    assert world.undone == ["a"]


def test_the_claim_is_cleared_when_the_saga_has_ended(log):
    one_dead(log)
    outcomes(log.daemon())
    doc = stored(log)
    last = log.found().effective.records[-1]
    assert doc.pop("last") == {"writer": last.writer, "seq": last.seq}
    assert doc == {"epoch": 2, "owner": None, "deadline": None, "ended": True}


# --- what a fenced owner writes afterwards --------------------------------------------------------


@pytest.mark.guarantee("RECOVER-7")
def test_what_a_fenced_owner_writes_is_named_and_never_clean(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="it was wrong")
    assert outcomes(log.daemon()) == ["undone"]
    past.intent("b")
    past.committed("b")
    past.die()
    view = log.view()
    assert not view.clean
    assert any("STEP_INTENT" in fault for fault in view.faults)
    [one] = log.daemon().recover_all().sagas
    assert one.needs_human
    assert "stale" in one.reason
    assert world.undone == ["a"]


@pytest.mark.parametrize("daemon_is_older", [True, False])
def test_stale_records_are_found_whichever_writer_is_read_first(log, world, daemon_is_older):
    daemon = log.daemon()
    if daemon_is_older:
        place_of(daemon).wal.begin()
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="it was wrong")
    assert outcomes(daemon) == ["undone"]
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    assert [saga.problems for saga in survey(log.path).sagas.values()] != []
    assert log.daemon().recover_all().needs_human


def test_a_late_announcement_that_was_not_started_harms_nobody(log, world):
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_RELEASED, cause="it was wrong")
    assert outcomes(log.daemon()) == ["undone"]
    past.intent("b")
    past.write(Ev.STEP_NOT_APPLIED, "b", by="engine", evidence="the call was not started")
    past.die()
    assert log.view().clean
    assert log.daemon().recover_all().sagas == []


@pytest.mark.guarantee("FENCE-2")
def test_a_live_owner_that_is_fenced_starts_no_step_and_says_so(log, world):
    """A released saga that its process goes on with is refused, not done in two places."""
    wal = FileWAL(log.path)
    log.wals.append(wal)
    kit = AgentKit("live", wal=wal, settings=QUICK)
    done = []

    @kit.tool("COMPENSABLE")
    def act(what: str) -> str:
        done.append(what)
        return what

    @act.undo
    def undo_act(result: str, *, idempotency_key: str) -> None:
        world.undo(result, idempotency_key)

    with pytest.raises(Exception) as left, kit.transaction() as saga:
        act("a")
        wal.append(Ev.SAGA_RELEASED, saga=saga.id, epoch=1)
        wal.drain()
        assert outcomes(log.daemon()) == ["undone"]
        act("b")
    assert done == ["a"]
    assert world.undone == ["a"]
    assert "taken over" in str(left.value) or "taken over" in str(left.value.__cause__)


# --- the log --------------------------------------------------------------------------------------


def test_damage_behind_the_beginning_of_a_saga_makes_it_a_humans_case(log, world):
    past = log.past().begin()
    past.applied("a")
    for number in range(50):
        past.write(Ev.STEP_REFUSED, f"refused{number}", tool="x", rule="x", reason="x" * 50)
    past.wal.barrier_sync()
    past.write(Ev.STEP_REFUSED, "last", tool="x", rule="x", reason="x")
    past.die()
    segment = next((log.path / "writers" / past.wal.writer).glob("seg-*"))
    data = bytearray(segment.read_bytes())
    place = data.index(b"refused20")
    data[place : place + 9] = b"\xff" * 9
    segment.write_bytes(bytes(data))
    result = log.daemon().recover_all()
    assert result.damages
    assert result.sagas[0].needs_human
    assert world.undone == []


def test_damage_is_told_when_no_saga_is_open(log):
    past = log.past().begin()
    past.unwinding()
    past.end(Ev.SAGA_ROLLED_BACK)
    past.wal.barrier_sync()
    past.write(Ev.STEP_REFUSED, "x", saga="other")
    past.die()
    segment = next((log.path / "writers" / past.wal.writer).glob("seg-*"))
    data = bytearray(segment.read_bytes())
    place = data.index(b"SAGA_UNWINDING")
    data[place : place + 14] = b"\xff" * 14
    segment.write_bytes(bytes(data))
    assert survey(log.path).damages


def test_a_log_that_does_not_exist_holds_nothing_and_nothing_is_made(log):
    assert log.daemon().recover_all().clean
    assert not log.path.exists()


def test_an_unknown_saga_cannot_be_claimed(log):
    one_dead(log)
    unknown = claimed(place_of(log.daemon()), "nobody", reason="x", by="x")
    with pytest.raises(ClaimRefused, match="no saga"), unknown:
        pass


def test_a_refusal_before_the_claim_leaves_no_trace(log):
    one_dead(log)

    def no(found):
        raise RecoveryError("no")

    with (
        pytest.raises(RecoveryError),
        claimed(place_of(log.daemon()), SAGA, reason="operator", by="x", check=no),
    ):
        pass
    assert stored(log) is None
    assert Ev.SAGA_CLAIM not in log.events()


# --- a wrong verdict of death ---------------------------------------------------------------------


def seen_dead(log, past):
    """Survey a saga whose owner is taken for dead, long after it wrote its last record."""
    for _ in range(200):
        log.age()
        [found] = survey(log.path, dead={past.wal.writer}).sagas.values()
        if past.wal.writer in found.complete:
            return found
        time.sleep(0.02)  # its next segment was just being made ready
    raise AssertionError("its log does not come to rest")


@pytest.mark.guarantee("FENCE-2")
def test_who_writes_after_being_taken_for_dead_is_read_again(log, world, monkeypatch):
    """It is told success only if the claimer, who fences first and reads then, has not seen it."""
    past = log.past().begin()
    past.applied("a")
    found = seen_dead(log, past)
    monkeypatch.setattr(OsPort, "flock", lambda port, fd: True)
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.wal.check_fence(SAGA, 1)
    one = recover_one(place_of(log.daemon()), found, by="it", dead_since=0.0)
    assert one.outcome == "settled"
    assert world.undone == []
    assert log.view().clean


def test_a_log_that_has_not_changed_is_not_read_again(log, world, monkeypatch):
    past = one_dead(log)
    found = seen_dead(log, past)
    place = place_of(log.daemon())
    found = place.proved(found)
    monkeypatch.setattr(proving, "proof_of", None)
    one = recover_one(place, found, by="it", dead_since=0.0)
    assert one.outcome == "undone"
    assert world.undone == ["a"]


def test_a_log_that_has_just_changed_tells_nothing_of_later_changes(log):
    past = log.past().begin()
    for moment in (time.time() + 10.0, math.floor(time.time())):
        for segment in log.path.rglob("seg-*"):
            os.utime(segment, (moment, moment))
        [found] = survey(log.path, dead={past.wal.writer}).sagas.values()
        assert found.complete == {}, "some file systems know whole seconds only"
