"""Nobody acts on records that were changed: not recovery, not undo, not a resume."""

from __future__ import annotations

import contextlib
import os
import time
from base64 import urlsafe_b64encode

import pytest
from recovery.conftest import QUICK, SAGA, Log

from agent_saga import AgentKit, RecoveryDaemon
from agent_saga.cli.main import main
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.errors import RecoveryError, UndoRefused
from agent_saga.recovery import proofs
from agent_saga.recovery.queue import cases_in
from agent_saga.recovery.survey import survey
from agent_saga.recovery.undo_steps import undo_steps
from agent_saga.state.base import one
from agent_saga.state.claims import claim_key, raise_epoch
from agent_saga.wal import proof as proving
from agent_saga.wal import segments
from agent_saga.wal.format import hash_after, hash_bytes, line_of, parsed
from agent_saga.wal.gaps import GrowingGap


def segments_of(past):
    return sorted((past.path / "writers" / past.wal.writer).glob("seg-*.jsonl"))


def changed(past, change):
    """Change the lines of a writer by hand, as an editor would."""
    for segment in segments_of(past):
        content = segment.read_bytes()
        lines = content.rstrip(b"\0").splitlines(keepends=True)
        fresh = b"".join(change(lines))
        zeros = content[len(content.rstrip(b"\0")) :]
        if fresh + zeros != content:
            segment.write_bytes(fresh + zeros)


def edited(past, old=b'"what":"a"', new=b'"what":"x"'):
    """Let an inverse undo something else than what was done."""
    before = [segment.read_bytes() for segment in segments_of(past)]
    changed(past, lambda lines: [line.replace(old, new) for line in lines])
    assert before != [segment.read_bytes() for segment in segments_of(past)]


def one_dead(log: Log, saga: str = SAGA, *steps: str, end: str = ""):
    past = log.past(saga).begin()
    for step in steps or ("a", "b"):
        past.applied(step)
    if end:
        past.end(end, unsettled=[])
    return past.die()


def by_saga(result):
    return {one.saga: one for one in result.sagas}


@pytest.mark.guarantee("PROOF-1")
@pytest.mark.parametrize("what", ["a", "b"])
def test_recovery_undoes_nothing_by_a_record_that_was_changed(log, world, what):
    """Also not when it is the last one of its log, behind which nothing stands."""
    edited(one_dead(log), b'"what":"%b"' % what.encode())
    one_dead(log, "sound", "c")
    done = by_saga(log.daemon().recover_all())
    assert done[SAGA].outcome == "needs a human"
    assert "hash does not follow" in done[SAGA].reason
    assert done["sound"].outcome == "undone"
    assert world.undone == ["c"]
    assert Ev.SAGA_CLAIM not in log.events(), "it is not even claimed"


def test_what_was_changed_is_in_the_queue_until_a_person_closes_it(log, world, capsys):
    edited(one_dead(log))
    where = ["--wal-path", str(log.path)]
    for _ in range(2):
        assert main(["queue", "list", *where]) == 1
        assert "hash does not follow" in capsys.readouterr().out
        assert main(["recover", *where]) == 1
        assert "needs a human" in capsys.readouterr().out
    assert main(["status", *where]) == 1
    assert main(["queue", "retry", SAGA, *where, "--by", "ann"]) != 0
    assert main(["queue", "close", SAGA, *where, "--by", "ann", "--reason", "looked"]) == 0
    assert world.undone == []
    assert cases_in(str(log.path)) == []
    assert not log.daemon().recover_all().sagas
    assert log.view().clean


def test_a_saga_of_whose_records_none_is_as_it_was_is_in_the_queue_until_it_is_closed(log):
    edited(log.past().begin("lamp").die(), b"lamp", b"lump")
    assert [case.id for case in cases_in(str(log.path))] == [SAGA]
    assert log.daemon().recover_all().needs_human
    log.daemon().close_case(SAGA, by="ann", reason="nothing was done")
    assert cases_in(str(log.path)) == []
    assert not log.daemon().recover_all().needs_human


def test_a_saga_begun_behind_the_changed_place_goes_on(log, world):
    """What was changed may have been a record of any saga that had begun, but of no later one."""
    past = log.past("early").begin()
    past.applied("a")
    past.saga = "late"
    past.begin()
    past.applied("c")
    past.die()
    edited(past)
    done = by_saga(log.daemon().recover_all())
    assert {saga: one.outcome for saga, one in done.items()} == {
        "early": "needs a human",
        "late": "undone",
    }
    assert world.undone == ["c"]


def test_a_saga_begun_before_the_changed_place_is_not_proved(log, world):
    """The record that was changed may have been one of it, under another name."""
    past = log.past("early").begin()
    past.applied("a")
    past.saga = "late"
    past.begin()
    past.applied("c")
    past.die()
    edited(past, b'"what":"c"')
    assert {one.outcome for one in log.daemon().recover_all().sagas} == {"needs a human"}
    assert world.undone == []


def test_hashes_that_were_made_to_fit_break_the_chain_further_on(log, world):
    past = one_dead(log)

    def forged(lines):
        made, previous = [], None
        for line in lines:
            fresh = line.replace(b'"what":"a"', b'"what":"x"')
            record = parsed(fresh.rstrip())
            if fresh != line:
                record = parsed(line_of(record)[:-45] + _text(hash_after(record, previous)) + b'"}')
                fresh = line_of(record) + b"\n"
            previous = hash_bytes(parsed(line.rstrip()).hash)
            made.append(fresh)
        return made

    changed(past, forged)
    assert log.daemon().recover_all().sagas[0].outcome == "needs a human"
    assert world.undone == []


def _text(digest):
    return urlsafe_b64encode(digest).rstrip(b"=")


def test_what_was_taken_out_and_covered_by_a_gap_is_missed(log, world):
    """A gap carries the chain on; only a COMPACTED record says that it is true."""
    past = one_dead(log)

    def hidden(lines):
        at = next(n for n, line in enumerate(lines) if b'"what":"a"' in line)
        record = parsed(lines[at].rstrip())
        gap = GrowingGap(record.seq)
        gap.add(record.seq, record.hash, record.hash)
        return [*lines[:at], gap.line() + b"\n", *lines[at + 1 :]]

    changed(past, hidden)
    [one] = log.daemon().recover_all().sagas
    assert one.outcome == "needs a human"
    assert proving.UNATTESTED in one.reason
    assert world.undone == []


def test_what_left_by_compaction_proves_as_before(log, world, monkeypatch):
    monkeypatch.setattr(segments, "FIRST_SIZE", 4096)
    monkeypatch.setattr(segments, "LAST_SIZE", 4096)
    past = log.past("open").begin()
    past.applied("a")
    for number in range(12):
        past.saga = f"whole{number}"
        past.begin()
        past.applied("w")
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    daemon = log.daemon()
    assert daemon.compact(grace_seconds=0).sagas == 12
    [one] = daemon.recover_all().sagas
    assert one.outcome == "undone", one
    assert world.undone == ["a"]


def test_only_the_files_from_its_beginning_on_are_read_for_it(log, world, monkeypatch):
    """What was changed long before its beginning cannot have been a record of it."""
    monkeypatch.setattr(segments, "FIRST_SIZE", 4096)
    monkeypatch.setattr(segments, "LAST_SIZE", 4096)
    past = log.past("old").begin()
    past.applied("a")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    for number in range(12):
        past.saga = f"whole{number}"
        past.begin()
        past.applied("w")
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.saga = "open"
    past.begin()
    past.applied("b")
    past.die()
    edited(past)
    [one] = log.daemon().recover_all().sagas
    assert one.outcome == "undone", one
    [found] = survey(log.path).sagas.values() or [None]
    assert found is None


@pytest.mark.guarantee("PROOF-1")
@pytest.mark.parametrize("to", [None, "a"])
def test_undo_refuses_a_saga_that_was_changed(log, world, to):
    edited(one_dead(log, end=Ev.SAGA_COMMITTED), b'"what":"b"')
    daemon = log.daemon()
    assert [step.what for step in daemon.plan(SAGA, to=to).steps] == ["cannot"]
    with pytest.raises(UndoRefused, match="cannot be trusted"):
        daemon.undo(SAGA, by="ann", reason="wrong order", to=to)
    with pytest.raises(UndoRefused, match="cannot be trusted"):
        undo_steps(daemon._place(), SAGA, ["b"], by="ann", reason="wrong order")
    assert world.undone == []


@pytest.mark.guarantee("PROOF-1")
def test_a_saga_that_was_changed_is_not_resumed(log, world):
    past = one_dead(log, identity.saga_id_of("order-17"))
    edited(past)
    kit = AgentKit(wal=str(log.path), settings=QUICK)
    with (
        pytest.raises(RecoveryError, match="hash does not follow"),
        kit.transaction(saga_id="order-17", resume=True),
    ):
        pass
    kit.runtime.engine().wal.close()


def test_a_change_between_two_passes_is_seen_however_old_it_looks(log, world):
    past = log.past().begin()
    past.applied("a")
    past.intent("b", settle_after=3600.0)
    past.die()
    log.age()
    daemon = log.daemon()
    [one] = daemon.sweep().sagas
    assert one.outcome == "waiting"
    edited(past)
    log.age()
    [one] = daemon.sweep().sagas
    assert one.outcome == "needs a human"
    assert world.undone == []


def test_an_inverse_that_a_changed_record_names_holds_nobody_else_up(log, world, capsys):
    edited(one_dead(log), b'"handler":"undo"', b'"handler":"gone"')
    one_dead(log, "sound", "c")
    assert main(["recover", "--wal-path", str(log.path)]) == 1
    assert "not registered" not in capsys.readouterr().out
    assert world.undone == ["c"]


def test_a_claim_tells_that_what_it_had_read_was_changed_since(log, world):
    """A chain that was made anew to its end proves itself, but the claimer's tells of it."""
    past = one_dead(log)
    last = log.found().writers[past.wal.writer]
    claimer = log.past()
    claimer.epoch = 2
    cuts = {past.wal.writer: {"seq": last.seq, "hash": "A" * 43}}
    claimer.write(Ev.SAGA_CLAIM, reason="recover", by="the past", cuts=cuts)
    claimer.die()
    [one] = log.daemon().recover_all().sagas
    assert one.outcome == "needs a human"
    assert "had read another record" in one.reason
    assert world.undone == []


def test_a_plan_says_that_a_changed_saga_cannot_be_undone(log, world, capsys):
    edited(one_dead(log))
    assert main(["recover", "--dry-run", "--wal-path", str(log.path)]) == 1
    assert "needs a human: the log is damaged" in capsys.readouterr().out


def test_a_log_that_its_writer_still_writes_is_proved_as_far_as_it_goes(log, world):
    """A released saga of a process that lives: its last line may be half written."""
    living = log.past().begin()
    living.applied("a")
    living.end(Ev.SAGA_RELEASED, cause="the loop is gone")
    living.saga = "other"
    living.begin()
    [segment] = [one for one in segments_of(living) if one.read_bytes().rstrip(b"\0")]
    content = segment.read_bytes()
    end = len(content.rstrip(b"\0"))
    with segment.open("r+b") as file:
        os.pwrite(file.fileno(), b'{"v":1,"q":', end)
    daemon = RecoveryDaemon(living.wal, settings=QUICK)
    done = by_saga(daemon.recover_all())
    daemon.close()
    assert done[SAGA].outcome == "undone", done


def test_a_claim_that_was_taken_out_of_its_writer_is_missed(log, world):
    """The store knows of a later owner than the log: what that one wrote must be whole."""
    one_dead(log)
    claimer = log.past("another").begin()
    claimer.applied("z")
    claimer.end(Ev.SAGA_COMMITTED, unsettled=[])
    place = log.daemon()._place()
    key = claim_key(SAGA)
    owner = claimer.wal.writer
    place.store.transact(
        [key], one(key, lambda doc: raise_epoch(doc, owner=owner, seen=1)), durable=True
    )
    claimer.die()
    edited(claimer, b'"what":"z"')
    [done] = log.daemon().recover_all().sagas
    assert done.needs_human
    assert "log was changed" in done.reason
    assert world.undone == []


def test_the_log_of_the_daemon_itself_is_proved_once_while_nothing_changes(log, world, monkeypatch):
    """It lives, so nobody has proved it dead; what it wrote about a case is the same each time."""
    past = log.past().begin()
    past.intent("a")
    past.die()
    daemon = log.daemon()
    assert daemon.sweep().needs_human
    reads = []
    for _ in range(200):
        log.age()
        daemon.sweep()
        reads.clear()
        monkeypatch.setattr(proofs, "proof_of", lambda *args, **more: reads.append(args))
        with contextlib.suppress(AttributeError):
            daemon.sweep()
        monkeypatch.setattr(proofs, "proof_of", proving.proof_of)
        if not reads:
            break
        time.sleep(0.02)  # its next segment was just being made ready
    assert reads == []
    own = [w for w in log.found().writers if w != past.wal.writer]
    assert own
