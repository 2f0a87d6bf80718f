"""What verifying finds, and what it must not overlook."""

from __future__ import annotations

import json
import shutil

import pytest
from compaction.logs import Writer

from agent_saga import ConfigurationError, FileWAL, MemoryWAL, verify_chain
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.errors import NotFound, WALPathError
from agent_saga.wal.gaps import gap_line, gap_of


def log_of(path, count=12, *, compacted=False):
    """A closed writer with whole sagas and an open one; perhaps most of it has left."""
    past = Writer(path)
    for number in range(count):
        past.whole(f"s{number}")
        past.begin(f"open{number}")
    past.close()
    if compacted:
        wal = FileWAL(path)
        assert wal.compact(grace_seconds=0).sagas == count
        wal.close()
    return path / "writers" / past.wal.writer


def state_of(report, folder):
    return {one.writer: one.state for one in report.writers}[folder.name]


def verified(path, capsys, *options):
    code = main(["verify", "--wal-path", str(path), *options])
    return code, capsys.readouterr().out


def changed(segment, change):
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(change(lines)))


@pytest.mark.parametrize("compacted", [False, True])
def test_a_whole_log_is_intact(path, capsys, compacted):
    log_of(path, compacted=compacted)
    report = verify_chain(path)
    assert report
    assert report.intact
    assert {one.state for one in report.writers} == {"intact"}
    code, out = verified(path, capsys)
    assert code == 0
    assert "Intact" in out
    assert "not signed" in out
    code, out = verified(path, capsys, "--json")
    assert code == 0
    assert json.loads(out)["intact"] is True
    assert json.loads(out)["heads"] == "unsigned"


@pytest.mark.guarantee("VERIFY-1")
def test_a_changed_payload_is_damage(path, capsys):
    segment = log_of(path) / "seg-00000002.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b"charge", b"refund", 1))
    report = verify_chain(path)
    assert not report
    assert state_of(report, segment.parent) == "damage"
    assert report.writers[0].problems[0].segment == segment.name
    code, out = verified(path, capsys)
    assert code == 1
    assert "NOT INTACT" in out


def test_a_missing_segment_is_named(path):
    folder = log_of(path)
    (folder / "seg-00000002.jsonl").unlink()
    assert state_of(verify_chain(path), folder) == "missing segment"


def test_a_torn_end_of_a_dead_writer_is_not_intact(path, writer):
    past = writer()
    past.whole("s")
    past.sync()
    past.kill()
    segment = path / "writers" / past.wal.writer / "seg-00000001.jsonl"
    segment.write_bytes(segment.read_bytes().rstrip(b"\0")[:-30])
    report = verify_chain(path)
    assert not report
    assert state_of(report, segment.parent) == "torn tail"


def test_a_writer_that_is_in_the_middle_of_a_line_is_intact(path, writer):
    living = writer()
    living.whole("s")
    segment = path / "writers" / living.wal.writer / "seg-00000001.jsonl"
    content = segment.read_bytes()
    end = len(content.rstrip(b"\0"))
    segment.write_bytes(content[:end] + b'{"v":1,"q":' + content[end + 11 :])
    assert verify_chain(path)


@pytest.mark.guarantee("VERIFY-2")
def test_records_that_left_without_an_attestation_are_a_mismatch(path):
    folder = log_of(path, compacted=True)
    [other] = [one for one in folder.parent.iterdir() if one != folder]
    shutil.rmtree(other)
    report = verify_chain(path)
    assert not report
    assert state_of(report, folder) == "attestation mismatch"


@pytest.mark.guarantee("VERIFY-2")
def test_a_gap_that_swallowed_one_more_record_is_a_mismatch(path):
    """Whoever takes out a record behind a gap can make the chain fit, but not the attestation."""
    folder = log_of(path, compacted=True)
    segment = min(folder.glob("seg-*"))

    def swallow(lines):
        at = next(n for n, line in enumerate(lines) if gap_of(line.rstrip()))
        gap = gap_of(lines[at].rstrip())
        wider = gap._replace(last=gap.last + 1, hash=lines[at + 1][-46:-3])
        return [*lines[:at], gap_line(wider) + b"\n", *lines[at + 2 :]]

    changed(segment, swallow)
    assert state_of(verify_chain(path), folder) == "attestation mismatch"


def test_a_gap_moved_to_another_writer_is_a_mismatch(path):
    folder = log_of(path, compacted=True)
    segment = min(folder.glob("seg-*"))
    changed(segment, lambda lines: [line for line in lines if not gap_of(line.rstrip())])
    assert not verify_chain(path)


def test_a_writer_that_a_claim_names_must_be_there_to_where_it_was_read(path, writer):
    past, claimer = writer(), writer()
    past.begin("s")
    past.applied("s", "a")
    last = past.wal.seq
    past.close()
    claimer.claim("s", 2, {past.wal.writer: last})
    claimer.close()
    assert verify_chain(path)
    folder = path / "writers" / past.wal.writer
    segment = folder / "seg-00000001.jsonl"
    whole = segment.read_bytes()
    segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert state_of(verify_chain(path), folder) == "missing segment"
    shutil.rmtree(folder)
    report = verify_chain(path)
    assert state_of(report, folder) == "missing segment"
    assert "not there" in report.writers[0].problems[0].reason


def test_a_log_compacted_again_and_again_stays_intact(path, writer):
    for generation in range(4):
        past = writer()
        for number in range(10):
            past.whole(f"s{generation}-{number}")
            if number == 5:
                past.begin(f"open{generation}")
        past.close()
        compactor = writer()
        compactor.wal.compact(grace_seconds=0)
        if generation % 2:
            compactor.close()
        else:
            compactor.kill()
        assert verify_chain(path)
    report = verify_chain(path)
    assert sum(one.left for one in report.writers) > 100


def test_a_torn_writer_from_which_much_left_is_torn_and_nothing_else(path, writer):
    past = writer()
    for number in range(30):
        past.whole(f"s{number}")
    past.sync()
    past.write(Ev.MARK)
    past.kill()
    folder = path / "writers" / past.wal.writer
    last = max(p for p in folder.glob("seg*") if p.read_bytes().strip(b"\0"))
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-40])
    assert writer().wal.compact(grace_seconds=0).sagas > 0
    assert state_of(verify_chain(path), folder) == "torn tail"


@pytest.mark.parametrize(
    ("there", "error", "word"),
    [(False, NotFound, "nothing was verified"), (True, WALPathError, "so it is no log")],
)
def test_a_path_at_which_no_log_stands_is_refused(path, capsys, there, error, word):
    """A typing error must not read as "intact"."""
    if there:
        path.mkdir()
        (path / "notes.txt").write_text("somebody's")
    with pytest.raises(error, match="no log"):
        verify_chain(path)
    assert main(["verify", "--wal-path", str(path)]) == 3
    told = capsys.readouterr()
    assert word in told.out + told.err
    assert "intact" not in told.out + told.err
    assert path.exists() == there


def test_a_log_that_nobody_has_written_to_yet_has_no_record(path):
    wal = FileWAL(path)
    assert verify_chain(wal).records == 0
    wal.close()
    assert not path.exists()


def test_a_log_or_its_address_or_its_records_are_taken(path):
    wal = FileWAL(path)
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1)
    assert verify_chain(wal).records == 2
    assert verify_chain(f"file:{path}").records == 2
    assert verify_chain(str(path)).records == 2
    assert verify_chain(list(wal.read_all())).intact
    assert not verify_chain(list(wal.read_all())[1:]).intact
    wal.close()
    memory = MemoryWAL()
    memory.append(Ev.SAGA_BEGIN, saga="s", epoch=1)
    assert verify_chain(memory).records == 2
    with pytest.raises(ConfigurationError):
        verify_chain(3)
    with pytest.raises(ConfigurationError):
        verify_chain(["x"])


@pytest.mark.parametrize("which", [0, 1])
def test_what_was_deleted_is_lost_and_was_not_taken_out_by_compaction(path, capsys, which):
    folder = log_of(path, 400)
    segments = sorted(folder.glob("seg-*"))
    assert len(segments) > 2, "a segment is small enough for this test"
    gone = sum(line.strip(b"\0") != b"" for line in segments[which].read_bytes().splitlines())
    segments[which].unlink()
    report = verify_chain(path)
    [one] = [writer for writer in report.writers if writer.writer == folder.name]
    assert not report
    assert (one.left, one.lost) == (0, gone)
    code, out = verified(path, capsys)
    assert code == 1
    assert f"{gone} LOST" in out
    assert "compaction" not in out


def test_what_left_without_an_attestation_is_lost(path):
    folder = log_of(path, compacted=True)
    whole = {one.writer: one for one in verify_chain(path).writers}[folder.name]
    assert whole.left > 0
    assert whole.lost == 0
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other)
    one = {one.writer: one for one in verify_chain(path).writers}[folder.name]
    assert (one.left, one.lost) == (0, whole.left)
