"""What leaves, what stays, and who must not notice."""

from __future__ import annotations

import asyncio
import time

import pytest
from compaction.logs import broken, readable

from agent_saga import CompactionRefused, ConfigurationError, FileWAL, MemoryWAL
from agent_saga.domain.records import Ev
from agent_saga.recovery.survey import look, survey
from agent_saga.wal import exchange
from agent_saga.wal.departed import has_departed, writers_that_left
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan_log, writers_of
from agent_saga.wal.takeover import dead_writer
from agent_saga.wal.view import DirectoryLock
from agent_saga_testing.waiting import until


def sagas_in(path):
    return set(readable(path)[0])


def folder_of(path, writer):
    return path / "writers" / writer.wal.writer


def files_in(path):
    return sorted(p.name for p in path.rglob("*") if p.is_file())


def filled(one, count=40, prefix="s"):
    for number in range(count):
        one.whole(f"{prefix}{number}")
    one.sync()
    one.write(Ev.MARK)  # it carries the watermark, as a moment of quiet would have it


def test_settled_sagas_of_a_closed_writer_leave_and_the_chain_stays_whole(path, writer):
    past = writer()
    filled(past)
    past.begin("open")
    past.applied("open", "a")
    past.close()
    before = readable(path)[0]["open"]
    done = writer().wal.compact(grace_seconds=0)
    sagas, damages = readable(path)
    assert done.sagas == 40
    assert damages == []
    assert sagas == {"open": before}
    assert b'"saga' not in b"".join(p.read_bytes() for p in folder_of(path, past).glob("seg*"))


def test_a_second_compaction_finds_nothing_and_takes_nothing(path, writer):
    past = writer()
    filled(past)
    past.begin("open")
    past.close()
    wal = writer().wal
    wal.compact(grace_seconds=0)
    files = {p: p.read_bytes() for p in folder_of(path, past).iterdir()}
    assert wal.compact(grace_seconds=0)[:4] == (0, 0, 0, 0)
    assert {p: p.read_bytes() for p in folder_of(path, past).iterdir()} == files


def test_of_a_living_writer_only_closed_segments_are_touched(path, writer):
    living = writer()
    filled(living)
    names = sorted(p.name for p in folder_of(path, living).glob("seg*"))
    inodes = {p.name: p.stat().st_ino for p in folder_of(path, living).iterdir()}
    done = writer().wal.compact(grace_seconds=0)
    assert 0 < done.sagas < 40
    left = {p.name: p.stat().st_ino for p in folder_of(path, living).iterdir()}
    assert left[names[-1]] == inodes[names[-1]]
    assert left["lock"] == inodes["lock"]
    filled(living, prefix="later")
    living.begin("open")
    sagas, damages = readable(path)
    assert damages == []
    assert {"open", "later0", "later39"} <= set(sagas)
    assert len([s for s in sagas if s.startswith("s")]) == 40 - done.sagas


def test_a_log_compacts_itself_while_it_is_written(path, writer):
    living = writer()
    filled(living)
    done = living.wal.compact(grace_seconds=0)
    assert done.sagas > 0
    living.begin("open")
    living.close()
    sagas, damages = readable(path)
    assert damages == []
    assert "open" in sagas


def test_what_was_not_confirmed_durable_stays(path, writer):
    living = writer()
    for number in range(40):
        living.whole(f"s{number}")
    assert living.wal.synced == 0 or living.wal.capabilities.durability != "disk"
    before = readable(path)[0]
    writer().wal.compact(grace_seconds=0)
    assert readable(path)[0] == before


def end_suspended(one, saga):
    one.write(Ev.SAGA_SUSPENDED, saga, deadline=1, at_deadline="hold")


def end_partial(one, saga):
    one.intent(saga, "lost")
    one.write(Ev.SAGA_UNWINDING, saga, cause="x", scope=[])
    one.undone(saga, "a")
    one.write(Ev.STEP_ORPHANED, saga, "lost", reason="x")
    one.write(Ev.SAGA_PARTIAL, saga)


def end_kept(one, saga):
    one.write(Ev.SAGA_UNWINDING, saga, cause="x", scope=[])
    one.write(Ev.STEP_KEPT, saga, "a", reason="approved")
    one.write(Ev.SAGA_PARTIAL, saga)


def end_stuck(one, saga):
    one.write(Ev.SAGA_UNWINDING, saga, cause="x", scope=[])
    one.write(Ev.SAGA_STUCK, saga)


def end_reopened(one, saga):
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})
    one.write(Ev.STEP_LATE, saga, "a", result=1)
    one.write(Ev.SAGA_REOPENED, saga, step="a", tool="t")


def end_unsettled(one, saga):
    one.intent(saga, "lost")
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=["lost"], counts={})


def end_claims_less_than_it_left(one, saga):
    """A commit that hides an unknown step is a fault of its records, whatever it says."""
    one.intent(saga, "lost")
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})


def end_savepoint_partial(one, saga):
    one.write(Ev.SCOPE_OPEN, saga, path=["p"])
    one.write(Ev.SAGA_UNWINDING, saga, cause="x", scope=["p"])
    one.write(Ev.SCOPE_CLOSED, saga, path=["p"], result="PARTIAL")
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})


def end_unknown_event(one, saga):
    one.write("STEP_INVENTED", saga, "a")
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})


def end_stale(one, saga):
    one.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})
    one.write(Ev.STEP_COMPENSATED, saga, "a", 7)


def end_released(one, saga):
    one.write(Ev.SAGA_RELEASED, saga, cause="x")


def end_unwinding(one, saga):
    one.write(Ev.SAGA_UNWINDING, saga, cause="x", scope=[])
    one.undone(saga, "a")


def end_running(one, saga):
    one.applied(saga, "b")


STAYING = [value for name, value in sorted(globals().items()) if name.startswith("end_")]


@pytest.mark.guarantee("COMPACT-1")
@pytest.mark.parametrize("end", STAYING, ids=lambda end: end.__name__)
def test_what_is_not_settled_stays_byte_for_byte(path, writer, end):
    past = writer()
    past.begin("stays")
    past.applied("stays", "a")
    filled(past, 15)
    end(past, "stays")
    filled(past, 15, "t")
    past.close()
    before = readable(path)[0]["stays"]
    for _ in range(2):
        done = writer().wal.compact(grace_seconds=0)
        sagas, damages = readable(path)
        assert sagas == {"stays": before}
        assert damages == []
    assert done.sagas == 0


def test_a_call_that_may_still_run_in_a_living_process_keeps_its_saga(path, writer):
    living = writer()
    living.begin("busy")
    living.write(
        Ev.STEP_UNKNOWN, "busy", "r", call={"tool": "t", "semantics": "REVERSIBLE"}, running=True
    )
    living.write(Ev.SAGA_COMMITTED, "busy", unsettled=[], counts={})
    filled(living)
    other = writer().wal
    other.compact(grace_seconds=0)
    assert "busy" in sagas_in(path)
    living.close()
    other.compact(grace_seconds=0)
    assert "busy" not in sagas_in(path)


@pytest.mark.guarantee("COMPACT-1")
def test_a_saga_stays_through_its_undo_window(path, writer):
    past = writer()
    filled(past, 20)
    past.close()
    wal = writer().wal
    assert wal.compact().sagas == 0
    assert wal.compact(grace_seconds=3600).sagas == 0
    wal.undo_window = 0.0
    time.sleep(0.001)
    assert wal.compact().sagas == 20


def test_a_saga_that_was_undone_by_another_process_leaves_from_both(path, writer):
    first, second = writer(), writer()
    first.whole("s", "a")
    filled(first, 20)
    first.close()
    second.claim("s", 2, {first.wal.writer: 5})
    second.write(Ev.SAGA_UNWINDING, "s", epoch=2, cause="x", scope=[], after_commit=True)
    second.undone("s", "a", 2)
    filled(second, 20, "t")
    before = readable(path)[0]["s"]
    wal = writer().wal
    wal.compact(grace_seconds=0)
    assert readable(path)[0]["s"] == before
    second.write(Ev.SAGA_ROLLED_BACK, "s", epoch=2)
    wal.compact(grace_seconds=0)
    assert readable(path)[0]["s"][: len(before)] == before
    second.close()
    wal.compact(grace_seconds=0)
    assert sagas_in(path) == set()


def test_a_writer_of_which_nothing_is_left_leaves_as_a_whole(path, writer):
    past = writer()
    filled(past, 20)
    past.close()
    gone = past.wal.writer
    wal = writer().wal
    assert wal.compact(grace_seconds=0).writers == 1
    assert gone not in writers_of(str(path))
    assert not folder_of(path, past).exists()
    assert gone in writers_that_left(str(path), OsPort())
    with dead_writer(str(path), gone) as dead:
        assert dead.writer == gone


def test_room_that_a_killed_writer_had_allocated_is_given_back(path, writer):
    past = writer()
    past.begin("open")
    past.sync()
    until(lambda: len(past.wal._spares) == 2)  # allocated as a whole, and no other is being made
    past.kill()
    assert len(files_in(folder_of(path, past))) == 4
    done = writer().wal.compact(grace_seconds=0)
    assert done.bytes > 0
    assert files_in(folder_of(path, past)) == ["lock", "seg-00000001.jsonl"]
    sagas, damages = readable(path)
    assert set(sagas) == {"open"}
    assert damages == []


def test_a_torn_end_stays_and_what_is_before_it_leaves(path, writer):
    past = writer()
    filled(past, 30)
    past.whole("torn")
    past.kill()
    written = [p for p in folder_of(path, past).glob("seg*") if p.read_bytes().strip(b"\0")]
    last = max(written)
    content = last.read_bytes().rstrip(b"\0")
    last.write_bytes(content[:-40])
    done = writer().wal.compact(grace_seconds=0)
    assert done.sagas > 0
    assert "torn" in sagas_in(path)
    assert last.read_bytes() == content[:-40]
    assert [d.kind for d in readable(path)[1]] == ["torn-tail"]


def test_a_damaged_log_stays_as_it_is_and_says_where(path, writer):
    """What is lost may have told of any saga: that it was undone, for example."""
    past, other = writer(), writer()
    filled(past, 30)
    filled(other, 30, "other")
    past.close()
    other.close()
    segment = folder_of(path, past) / "seg-00000002.jsonl"
    data = bytearray(segment.read_bytes())
    data[500] ^= 1
    segment.write_bytes(data)
    files = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    done = writer().wal.compact(grace_seconds=0)
    assert done.sagas == 0
    assert past.wal.writer in done.kept[0]
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == files


def test_a_named_saga_leaves_a_tombstone_that_outlives_its_compactor(path, writer):
    past = writer()
    past.whole("named", key="order-17")
    past.whole("nameless")
    past.close()
    compactor = writer()
    compactor.wal.compact(grace_seconds=0)
    compactor.close()
    assert sagas_in(path) == set()
    for _ in range(2):
        assert has_departed(str(path), "named")
        assert not has_departed(str(path), "nameless")
        writer().wal.compact(grace_seconds=0)


def test_a_late_record_of_a_saga_that_left_is_a_case(path, writer):
    living = writer()
    living.whole("s", "a")
    filled(living, 30, "t")
    writer().wal.compact(grace_seconds=0)
    assert look(path, "s") is None
    living.write(Ev.STEP_LATE, "s", "a", result=1)
    assert "s" in survey(path).sagas
    assert survey(path).sagas["s"].problems


def test_a_reader_in_the_middle_sees_the_log_as_it_was(path, writer):
    past = writer()
    filled(past)
    past.close()
    before, _ = readable(path)
    reading = scan_log(path)
    seen = [next(reading) for _ in range(30)]
    wal = writer().wal
    with pytest.raises(CompactionRefused, match="being read") as refusal:
        _compact_quickly(wal)
    assert refusal.value.fix
    seen += list(reading)
    assert {one.saga for one in seen if one.saga} == set(before)
    assert wal.compact(grace_seconds=0).sagas == 40


def _compact_quickly(wal):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_saga.wal.compaction._LONGEST", 0.05)
        wal.compact(grace_seconds=0)


def test_one_compaction_at_a_time(path, writer):
    past = writer()
    filled(past)
    past.close()
    lock = DirectoryLock(OsPort(), str(path / "writers"), shared=False)
    with pytest.raises(CompactionRefused, match="Another process"):
        writer().wal.compact(grace_seconds=0)
    lock.close()
    assert writer().wal.compact(grace_seconds=0).sagas == 40


@pytest.mark.guarantee("COMPACT-3")
def test_a_saga_that_is_written_about_meanwhile_does_not_leave(path, writer, monkeypatch):
    past, late = writer(), writer()
    filled(past)
    past.close()
    write_plan = exchange.write_plan
    from agent_saga.wal import compaction

    rewrite = compaction.rewrite
    struck = []

    def slow(*args):
        new = rewrite(*args)
        if not struck:
            struck.append(late.write(Ev.SAGA_CLAIM, "s3", epoch=2, reason="undo", by="x", cuts={}))
        return new

    monkeypatch.setattr(compaction, "rewrite", slow)
    assert write_plan is exchange.write_plan
    done = writer().wal.compact(grace_seconds=0)
    assert struck
    assert done.sagas == 39
    assert sagas_in(path) == {"s3"}
    assert not [name for name in files_in(path) if name.endswith(".new")]


def test_sagas_that_never_come_to_rest_refuse_the_compaction(path, writer, monkeypatch):
    past = writer()
    filled(past)
    past.close()
    monkeypatch.setattr("agent_saga.wal.compaction._changed", lambda *args: True)
    before = readable(path)[0]
    with pytest.raises(CompactionRefused, match="again and again"):
        writer().wal.compact(grace_seconds=0)
    assert readable(path)[0] == before


def test_there_need_be_no_log(path, writer):
    assert writer().wal.compact(grace_seconds=0).sagas == 0
    assert not path.exists()


def test_a_log_of_which_nothing_leaves_gets_no_new_writer(path, writer):
    past = writer()
    past.begin("open")
    past.close()
    writer().wal.compact(grace_seconds=0)
    assert writers_of(str(path)) == [past.wal.writer]


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "3", True])
def test_a_grace_that_is_no_time_is_refused(path, grace):
    with pytest.raises(ConfigurationError, match="grace"):
        FileWAL(path).compact(grace_seconds=grace)


def test_in_an_event_loop_it_is_awaited(path, writer):
    past = writer()
    filled(past, 20)
    past.close()

    async def run():
        return await writer().wal.compact(grace_seconds=0)

    assert asyncio.run(run()).sagas == 20


def test_a_log_without_files_refuses_by_name():
    with pytest.raises(CompactionRefused, match="memory:"):
        MemoryWAL().compact(grace_seconds=0)


def test_foreign_files_are_left_alone(path, writer):
    past = writer()
    filled(past, 20)
    past.close()
    foreign = path / "writers" / "notes"
    foreign.mkdir()
    (foreign / "seg-00000001.jsonl.new").write_text("mine")
    writer().wal.compact(grace_seconds=0)
    assert (foreign / "seg-00000001.jsonl.new").read_text() == "mine"
    assert files_in(foreign) == ["seg-00000001.jsonl.new"]
    assert broken(readable(path)[1]) == []
