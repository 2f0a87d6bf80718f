"""Checkpoints: what they save, and that nothing ever rests on one that does not fit."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from agent_saga import RecoveryDaemon
from agent_saga.domain.records import Ev
from agent_saga.recovery.survey import survey
from agent_saga.wal import checkpoint, scan
from agent_saga.wal.checkpoint import CHECKPOINT
from agent_saga_testing.waiting import until


@pytest.fixture(autouse=True)
def every_bit_is_worth_it(monkeypatch):
    monkeypatch.setattr(checkpoint, "WORTH", 1)
    monkeypatch.setattr(checkpoint, "is_recent", lambda changed: False)


def seen(found):
    """What a survey says, to the last record."""
    sagas = {
        saga: (one.view.state.value, [(r.writer, r.seq) for r in one.records], one.problems)
        for saga, one in found.sagas.items()
    }
    return sagas, [(d.writer, d.seq, d.kind) for d in found.damages]


def without_checkpoint(path):
    file = path / CHECKPOINT
    kept = file.read_bytes() if file.exists() else None
    file.unlink(missing_ok=True)
    try:
        return seen(survey(path))
    finally:
        if kept is not None:
            file.write_bytes(kept)


def kept(path):
    """Survey with a checkpoint being written, and say what the next one then sees."""
    survey(path, keep=True)
    return seen(survey(path))


def pieces_read(path, monkeypatch):
    """How many pieces of segments a survey reads."""
    counted = []
    start = scan.EnvelopeScan._start
    with monkeypatch.context() as patch:
        patch.setattr(
            scan.EnvelopeScan, "_start", lambda *args: (counted.append(args), start(*args))[1]
        )
        survey(path)
    return len(counted)


@pytest.fixture
def log(path, writer):
    """A living writer with much behind it, a few open sagas, and one that another undid later."""
    past, other = writer(), writer()
    past.begin("open early")
    past.whole("undone later", "a")
    last = past.wal.seq
    for number in range(40):
        past.whole(f"s{number}")
    past.begin("open late")
    other.claim("undone later", 2, {past.wal.writer: last})
    other.write(Ev.SAGA_UNWINDING, "undone later", epoch=2, cause="x", scope=[])
    past.sync()
    past.write(Ev.MARK)
    until(lambda: all_cut(path / "writers" / past.wal.writer))
    return past


def all_cut(folder):
    """Whether every file but the one in use has been cut to its size."""
    written = sorted(p for p in folder.glob("seg-*") if p.read_bytes().strip(b"\0"))
    return all(p.read_bytes()[-1:] == b"\n" for p in written[:-1])


def test_the_next_survey_sees_the_same_and_reads_little(path, log, monkeypatch):
    whole = without_checkpoint(path)
    before = pieces_read(path, monkeypatch)
    assert kept(path) == whole
    assert (path / CHECKPOINT).exists()
    assert pieces_read(path, monkeypatch) < before / 2
    log.applied("open early", "x")
    log.whole("more")
    log.write(Ev.SAGA_COMMITTED, "open late", unsettled=[], counts={})
    assert seen(survey(path)) == without_checkpoint(path)


def test_a_saga_that_ended_before_and_goes_on_is_found_whole(path, log):
    kept(path)
    log.write(Ev.STEP_LATE, "s3", "a", result=1)
    log.write(Ev.SAGA_REOPENED, "s3", step="a", tool="t")
    found = seen(survey(path))
    assert found == without_checkpoint(path)
    assert found[0]["s3"][0] == "REOPENED"


def test_only_the_daemon_writes_one(path, log):
    survey(path)
    assert not (path / CHECKPOINT).exists()
    daemon = RecoveryDaemon(path)
    daemon.sweep()
    daemon.close()
    assert (path / CHECKPOINT).exists()


def test_none_is_written_while_anything_is_damaged(path, log):
    segment = path / "writers" / log.wal.writer / "seg-00000002.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"v":1', b'"v":x', 1))
    found = survey(path, keep=True)
    assert found.damages
    assert not (path / CHECKPOINT).exists()


@pytest.mark.guarantee("CHECK-1")
def test_an_edit_behind_it_is_found(path, log):
    """A saga that was committed is made to look open: only who reads the file can tell."""
    kept(path)
    segment = path / "writers" / log.wal.writer / "seg-00000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-3] + lines[-2:]))
    found = seen(survey(path))
    assert found == without_checkpoint(path)
    assert [kind for *_, kind in found[1]] == ["damage"]


@pytest.mark.guarantee("CHECK-1")
@pytest.mark.parametrize("change", ["cut", "grown", "copied", "older", "gone"])
def test_files_that_are_not_those_that_were_read_make_it_void(path, log, change):
    kept(path)
    folder = path / "writers" / log.wal.writer
    segment = folder / "seg-00000002.jsonl"
    data = segment.read_bytes()
    if change == "cut":
        segment.write_bytes(data[: len(data) // 2])
    elif change == "grown":
        segment.write_bytes(data + b"x")
    elif change == "copied":
        shutil.copy(segment, folder / "x")
        (folder / "x").replace(segment)
    elif change == "older":
        os.utime(segment, ns=(1, 1))
    else:
        segment.unlink()
    assert checkpoint_of(path) == {}
    assert seen(survey(path)) == without_checkpoint(path)


def checkpoint_of(path):
    from agent_saga.wal.os_port import OsPort
    from agent_saga.wal.view import View

    with View(OsPort(), str(path)) as view:
        return checkpoint.read_checkpoint(OsPort(), str(path), view)


def edited(path, edit):
    """Change a checkpoint, and make its digest fit again."""
    stored = checkpoint.msgspec.json.decode(
        (path / CHECKPOINT).read_bytes(), type=checkpoint._Stored
    )
    edit(stored)
    stored.digest = checkpoint._digest(stored)
    (path / CHECKPOINT).write_bytes(checkpoint.msgspec.json.encode(stored))


def first(stored):
    return min(stored.writers.items())[1]


def a_place(stored):
    [open_sagas] = [one.open for one in stored.writers.values() if "open early" in one.open]
    return open_sagas["open early"]


HOSTILE = {
    "another version": lambda s: setattr(s, "version", s.version + 1),
    "another boot": lambda s: setattr(s, "boot", "other"),
    "another end": lambda s: setattr(first(s), "last", first(s).last + 1),
    "another hash": lambda s: setattr(first(s), "hash", "A" * 43),
    "no files": lambda s: setattr(first(s), "files", []),
    "a foreign file": lambda s: setattr(first(s), "files", [("../../../etc/passwd", 1, 2, 3)]),
    "more files": lambda s: first(s).files.append(("seg-00009999.jsonl", 1, 2, 3)),
    "a foreign writer": lambda s: s.writers.update({"../../x": first(s)}),
    "a writer that is not there": lambda s: s.writers.update(
        {"20200101T000000000000-0123456789abcdef": first(s)}
    ),
    "a place far away": lambda s: a_place(s).__setitem__(0, (0, 1 << 62, 100)),
    "a place before the file": lambda s: a_place(s).__setitem__(0, (0, -1, 100)),
    "a file that is none": lambda s: a_place(s).__setitem__(0, (77, 0, 100)),
    "a huge place": lambda s: a_place(s).__setitem__(0, (0, 0, 1 << 60)),
    "no place": lambda s: a_place(s).clear(),
    "another saga's place": lambda s: a_place(s).__setitem__(0, (0, 0, 50)),
}


@pytest.mark.guarantee("CHECK-1")
@pytest.mark.parametrize("edit", HOSTILE.values(), ids=HOSTILE)
def test_one_that_is_at_odds_with_the_log_is_ignored(path, log, edit):
    whole = kept(path)
    edited(path, edit)
    assert checkpoint_of(path) == {}
    assert seen(survey(path)) == whole


GARBAGE = {
    "empty": b"",
    "zeros": bytes(5000),
    "noise": bytes(range(256)) * 20,
    "a list": b"[1,2]",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "wrong types": b'{"version":"1","boot":3,"writers":[],"digest":{}}',
    "huge numbers": b'{"version":' + b"9" * 5000 + b"}",
    "not text": b'{"version":1,"boot":"\xff\xfe","writers":{}}',
}


@pytest.mark.guarantee("CHECK-1")
@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_ignored(path, log, data):
    whole = kept(path)
    (path / CHECKPOINT).write_bytes(data)
    assert checkpoint_of(path) == {}
    assert seen(survey(path)) == whole


@pytest.mark.guarantee("CHECK-1")
def test_one_cut_anywhere_is_ignored(path, log):
    whole = kept(path)
    data = (path / CHECKPOINT).read_bytes()
    for end in range(0, len(data), 97):
        (path / CHECKPOINT).write_bytes(data[:end])
        assert checkpoint_of(path) == {}
    for at in range(0, len(data), 61):
        flipped = bytearray(data)
        flipped[at] ^= 4
        (path / CHECKPOINT).write_bytes(flipped)
        assert checkpoint_of(path) == {}
        assert seen(survey(path)) == whole


def test_what_stands_in_its_place_is_no_harm(path, log):
    whole = kept(path)
    (path / CHECKPOINT).unlink()
    (path / CHECKPOINT).mkdir()
    assert seen(survey(path)) == whole
    survey(path, keep=True)
    assert not list(path.glob("*.new"))
    (path / CHECKPOINT).rmdir()
    (path / CHECKPOINT).symlink_to("/dev/zero")
    assert seen(survey(path)) == whole


def test_a_compaction_makes_it_void_and_the_next_survey_makes_a_new_one(path, log, writer):
    kept(path)
    old = (path / CHECKPOINT).read_bytes()
    assert writer().wal.compact(grace_seconds=0).sagas > 0
    assert checkpoint_of(path) == {}
    whole = without_checkpoint(path)
    assert kept(path) == whole
    assert (path / CHECKPOINT).read_bytes() != old
    assert checkpoint_of(path) != {}


def test_a_settled_saga_is_forgotten_only_when_all_of_it_is_covered(path, log, writer):
    other = writer()
    other.claim("undone later", 3, {log.wal.writer: 7})
    other.write(Ev.SAGA_UNWINDING, "undone later", epoch=3, cause="x", scope=[])
    other.undone("undone later", "a", 3)
    other.write(Ev.SAGA_ROLLED_BACK, "undone later", epoch=3)
    assert kept(path) == without_checkpoint(path)
    stored = json.loads((path / CHECKPOINT).read_bytes())
    assert any("undone later" in one["open"] for one in stored["writers"].values())
