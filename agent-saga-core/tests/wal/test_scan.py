"""The fast way of reading agrees with the slow one, whatever became of the files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wal.conftest import assert_read_alike

from agent_saga.wal import scan as scanning
from agent_saga.wal.file import FileWAL
from agent_saga.wal.lines import segments_in
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.scan import EnvelopeScan

_SEED: dict[str, bytes] = {}


def seed() -> dict[str, bytes]:
    """The segments of a log whose records were synced now and then."""
    if not _SEED:
        with tempfile.TemporaryDirectory() as folder:
            log = FileWAL(folder, mark_after=3600.0)
            for n in range(60):
                log.append("STEP_COMMITTED", saga=f"saga {n % 7}", step="s", payload={"n": n})
                if n % 3 == 0:
                    log.barrier_sync()
            log.close()
            [found] = Path(folder).rglob("seg-*.jsonl")
            lines = found.read_bytes().splitlines(keepends=True)
            _SEED["writer"] = found.parent.name.encode()
            for number, at in enumerate((0, 20, 45), 1):
                part = b"".join(lines[at : {0: 20, 20: 45, 45: 99}[at]])
                _SEED[f"seg-{number:08d}.jsonl"] = part
    return _SEED


_SEGMENTS = st.integers(1, 3).map("seg-{:08d}.jsonl".format)
_CHANGES = st.one_of(
    st.tuples(st.just("cut"), _SEGMENTS, st.integers(0, 9000)),
    st.tuples(st.just("flip"), _SEGMENTS, st.integers(0, 72_000)),
    st.tuples(st.just("zeros"), _SEGMENTS, st.integers(0, 9000)),
    st.tuples(st.just("again"), _SEGMENTS, st.integers(0, 24)),
    st.tuples(st.just("without"), _SEGMENTS, st.integers(0, 24)),
    st.tuples(st.just("foreign"), _SEGMENTS, st.integers(0, 24)),
    st.tuples(st.just("space"), _SEGMENTS, st.integers(1, 9000)),
    st.tuples(st.just("gone"), _SEGMENTS, st.just(0)),
)


def flipped(data: bytes, at: int) -> bytes:
    place, bit = divmod(at % max(1, len(data) * 8), 8)
    return data[:place] + bytes(b ^ 1 << bit for b in data[place : place + 1]) + data[place + 1 :]


def without(data: bytes, at: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:at] + lines[at + 1 :])


def foreign(data: bytes, at: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:at], b'{"v":7,"other":1}\n', *lines[at:]])


CHANGED = {
    "cut": lambda data, at: data[:at],
    "flip": flipped,
    "zeros": lambda data, at: data[:at] + bytes(len(data[at : at + 300])) + data[at + 300 :],
    "again": lambda data, at: data + b"".join(data.splitlines(keepends=True)[at:]),
    "without": without,
    "foreign": foreign,
    "space": lambda data, at: data + bytes(at),
    "gone": lambda data, at: b"",
}


@pytest.mark.property
@given(changes=st.lists(_CHANGES, max_size=3), chunk=st.sampled_from([90, 700, 5000, 262_144]))
@settings(max_examples=120, deadline=None)
def test_both_ways_agree_whatever_became_of_the_files(changes, chunk):
    files = dict(seed())
    writer = files.pop("writer").decode()
    for what, name, at in changes:
        files[name] = CHANGED[what](files.get(name, b""), at)
        if what == "gone":
            files.pop(name, None)
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_CHUNK", chunk)
        folder = Path(root, "writers", writer)
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        assert_read_alike(Path(root))


def test_a_whole_segment_is_never_read_slowly(tmp_path, open_log, monkeypatch):
    log = open_log()
    for n in range(3000):
        log.append("STEP_COMMITTED", saga=f"saga {n % 7}", payload={"text": "x" * 300})
    log.close()
    monkeypatch.setattr(scanning, "WriterScan", None)
    port, taken = OsPort(), []
    for folder in (tmp_path / "log" / "writers").iterdir():
        names = segments_in(port, str(folder))
        scan = EnvelopeScan(
            str(folder), folder.name, names, port, lambda *record: taken.append(record), verify=True
        )
        assert list(scan.run()) == []
        assert len(names) > 2
    assert len(taken) == scan.expected - 1 > 3000


def test_a_writer_that_lives_is_never_read_slowly(tmp_path, open_log, monkeypatch):
    log = open_log()
    for _ in range(50):
        log.append("STEP_COMMITTED", saga="s", payload={})
    log.barrier_sync()
    monkeypatch.setattr(scanning, "WriterScan", None)
    [folder] = (tmp_path / "log" / "writers").iterdir()
    port, taken = OsPort(), []
    names = segments_in(port, str(folder))
    scan = EnvelopeScan(str(folder), folder.name, names, port, lambda *one: taken.append(one))
    assert list(scan.run()) == []
    assert len(taken) == 51
