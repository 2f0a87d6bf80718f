"""Reading: torn tails, damage, and what was written twice."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from agent_saga.errors import WALCorrupt, WALError, WALFormatError
from agent_saga.wal.damage import Damage
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record, first_hash, hash_after, hash_bytes, parsed
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import records, scan_log
from agent_saga_testing.faults import FaultyPort

COUNT = 40


@pytest.fixture
def segment(tmp_path: Path, open_log) -> Path:
    """The only segment of a closed log in which every record but the last was synced in turn."""
    log = open_log()
    for n in range(COUNT):
        log.append("STEP_COMMITTED", saga=f"saga {n}", payload={"n": n, "text": "x" * 50})
        log.barrier_sync()
    log.close()
    return next(tmp_path.rglob("seg-*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def numbers(found: list[Record]) -> list[int]:
    return [r.data["n"] for r in found if r.event == "STEP_COMMITTED"]


def kinds(damages: list[Damage]) -> list[tuple[str, int]]:
    return [(damage.kind, damage.seq) for damage in damages]


def test_a_whole_log_has_no_damage(segment, look):
    found, damages = look()
    assert damages == []
    assert numbers(found) == list(range(COUNT))


@pytest.mark.parametrize("keep", [1, 20, 100, -1])
def test_a_torn_last_line_is_a_torn_tail(segment, look, keep):
    *whole, last = lines_of(segment)
    segment.write_bytes(b"".join(whole) + last[:keep])
    found, damages = look()
    assert numbers(found) == list(range(COUNT))
    assert kinds(damages) == ([] if keep == -1 else [("torn-tail", COUNT + 2)])


def test_a_line_without_its_break_is_still_a_record(segment, look):
    segment.write_bytes(segment.read_bytes()[:-1])
    found, damages = look()
    assert damages == []
    assert found[-1].event == "WRITER_CLOSE"


def test_zeros_before_and_behind_lines_are_space(segment, look):
    lines = lines_of(segment)
    segment.write_bytes(b"\0" * 5000 + b"".join(b"\0" * 700 + line for line in lines) + bytes(9999))
    found, damages = look()
    assert damages == []
    assert numbers(found) == list(range(COUNT))


@pytest.mark.parametrize("bad", [b"", b"{", b"\xff\n", b"[1]\n", b'{"v":1,"q":"x"}\n', b"\0\n"])
def test_damage_in_the_middle_is_told_and_the_rest_is_read(segment, look, bad):
    lines = lines_of(segment)
    lines[10] = bad
    segment.write_bytes(b"".join(lines))
    found, damages = look()
    missing = {9} if b"\n" in bad or not bad else {9, 10}
    assert numbers(found) == [n for n in range(COUNT) if n not in missing]
    assert kinds(damages) == [("damage", 11)]
    assert damages[0].segment == segment.name
    assert damages[0].offset == sum(len(line) for line in lines[:10])


def padded(segment: Path) -> list[bytes]:
    """The lines of a segment, all but the last as before, the last one over several sectors."""
    lines = lines_of(segment)
    record = parsed(lines[-1][:-1])
    assert record is not None
    text = b'{"text":"%b"}' % (b"y" * 2000)
    lines[-1] = record.envelope + b'"d":' + text + lines[-1][lines[-1].index(b',"x":') :]
    return lines


@pytest.mark.parametrize(("shift", "kind"), [(0, "torn-tail"), (7, "damage")])
def test_zeros_within_the_last_line_are_a_lost_sector_or_damage(segment, look, shift, kind):
    lines = padded(segment)
    whole = bytearray(b"".join(lines))
    start = len(whole) - len(lines[-1])
    sector = (start // 512 + 2) * 512 + shift
    whole[sector : sector + 512] = bytes(512)
    segment.write_bytes(whole)
    assert kinds(look()[1]) == [(kind, COUNT + 2)]


@pytest.mark.parametrize("lost", ["first", "last", "all"])
def test_a_last_line_of_which_sectors_are_missing_is_a_torn_tail(segment, look, lost):
    lines = padded(segment)
    whole = bytearray(b"".join(lines))
    start = len(whole) - len(lines[-1])
    inner = (start // 512 + 2) * 512
    begin, end = {"first": (start, inner), "last": (inner, len(whole)), "all": (start, len(whole))}[
        lost
    ]
    whole[begin:end] = bytes(end - begin)
    segment.write_bytes(whole + bytes(4096))
    assert kinds(look()[1]) == ([] if lost == "all" else [("torn-tail", COUNT + 2)])


def test_zeros_within_a_line_that_was_confirmed_are_damage(segment, look):
    lines = lines_of(segment)
    lines[10] = lines[10][:60] + bytes(len(lines[10]) - 80) + lines[10][-20:]
    segment.write_bytes(b"".join(lines))
    assert kinds(look()[1]) == [("damage", 11)]


@pytest.mark.parametrize("space", [0, 9000])
def test_a_changed_byte_of_the_last_line_is_damage_wherever_it_stands(segment, look, space):
    """What was written whole has not been torn: the effect that it announces may stand."""
    whole = segment.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    chance = random.Random(17)
    for at in range(start, len(whole)):
        changed = bytearray(whole + bytes(space))
        changed[at] ^= 1 << chance.randrange(8)
        segment.write_bytes(changed)
        found, damages = look()
        still = found and found[-1].event == "WRITER_CLOSE"
        assert still or {damage.kind for damage in damages} & {"damage", "format"}, at
        assert {damage.kind for damage in damages} <= {"damage", "format"}, at


def test_a_line_that_is_being_written_is_no_damage(tmp_path, segment):
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-60] + bytes(40) + whole[-20:])

    class Writing(OsPort):
        reads = 0

        def pread(self, fd: int, size: int, offset: int) -> bytes:
            self.reads += 1
            if self.reads == 3:
                segment.write_bytes(whole)
            return super().pread(fd, size, offset)

    found = list(scan_log(tmp_path / "log", Writing()))
    assert [one.kind for one in found if isinstance(one, Damage)] == ["torn-tail"]
    assert [one for one in scan_log(tmp_path / "log") if isinstance(one, Damage)] == []


def test_a_line_that_was_taken_out_is_damage(segment, look):
    lines = lines_of(segment)
    segment.write_bytes(b"".join(lines[:5] + lines[8:]))
    found, damages = look()
    assert kinds(damages) == [("damage", 6)]
    assert "from 6 to 8 are missing" in damages[0].reason
    assert len(found) == len(lines) - 3


def test_the_first_lines_cannot_be_taken_out_unseen(segment, look):
    segment.write_bytes(b"".join(lines_of(segment)[3:]))
    assert kinds(look()[1]) == [("damage", 1)]


def test_a_missing_segment_is_damage(tmp_path, open_log, look):
    log = open_log()
    for n in range(900):
        log.append("STEP_COMMITTED", payload={"n": n, "text": "x" * 2000})
        log.drain()
    log.close()
    segments = sorted(tmp_path.rglob("seg-*.jsonl"))
    assert len(segments) >= 3
    segments[1].unlink()
    found, damages = look()
    assert [damage.kind for damage in damages] == ["damage"]
    assert numbers(found)[-1] == 899


def test_every_flipped_bit_is_seen_by_the_chain(segment, look):
    whole = segment.read_bytes()
    size = whole.rindex(b"\n", 0, -1)
    marked = whole.rindex(b"\n", 0, size)
    chance = random.Random(11)
    for _ in range(600):
        at = chance.randrange(marked)
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        segment.write_bytes(flipped)
        found, damages = look()
        assert damages, at
        assert {damage.kind for damage in damages} <= {"damage", "format"}
        missing = set(range(COUNT)) - set(numbers(found))
        assert len(missing) <= 2, at


def test_flips_that_leave_a_record_readable_are_seen_only_by_the_chain(segment, tmp_path):
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b'"n":7,', b'"n":8,', 1))
    assert [one for one in scan_log(tmp_path / "log") if isinstance(one, Damage)] == []
    damages = [one for one in scan_log(tmp_path / "log", verify=True) if isinstance(one, Damage)]
    assert kinds(damages) == [("damage", 9)]


def test_an_erased_record_leaves_the_chain_whole(segment, look):
    lines = lines_of(segment)
    record = parsed(lines[5][:-1])
    assert record is not None
    digest = digest_of(record)
    lines[5] = record.envelope + b'"y":"' + digest + b'","h":"' + record.hash + b'"}\n'
    segment.write_bytes(b"".join(lines))
    found, damages = look()
    assert damages == []
    assert found[5].erased
    assert found[5].data is None
    assert found[5].saga == "saga 4"
    segment.write_bytes(b"".join(lines).replace(b'"y":"' + digest[:4], b'"y":"AAAA', 1))
    assert kinds(look()[1]) == [("damage", 6)]


def digest_of(record: Record) -> bytes:
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    salted = sha256(hash_bytes(record.salt) + (record.payload or b""))
    return urlsafe_b64encode(salted.digest()).rstrip(b"=")


def test_the_chain_begins_with_the_writers_id(segment):
    record = parsed(lines_of(segment)[0][:-1])
    assert record is not None
    writer = segment.parent.name
    assert hash_after(record, first_hash(writer)) == hash_bytes(record.hash)


def test_a_chain_of_another_writer_is_damage(segment, look):
    name = segment.parent.name
    segment.parent.rename(segment.parent.with_name(name[:-1] + ("0" if name[-1] != "0" else "1")))
    assert kinds(look()[1]) == [("damage", 1)]


def test_an_unknown_format_is_told_and_the_others_are_read(segment, look):
    lines = lines_of(segment)
    lines[7] = lines[7].replace(b'{"v":1,', b'{"v":9,', 1)
    segment.write_bytes(b"".join(lines))
    found, damages = look()
    assert kinds(damages) == [("format", 8)]
    assert numbers(found) == [n for n in range(COUNT) if n != 6]


def test_a_foreign_file_is_never_called_an_empty_log(tmp_path, segment, look):
    segment.write_bytes(b"PK\x03\x04 this is no log\n")
    assert kinds(look()[1]) == [("damage", 1)]
    segment.write_bytes(b"no line at all")
    assert kinds(look()[1]) == [("damage", 1)]
    segment.write_bytes(bytes(4096))
    assert look() == ([], [])


def test_one_writers_damage_does_not_hide_the_others(tmp_path, segment, open_log, look):
    other = open_log()
    other.append("STEP_INTENT", saga="healthy")
    other.close()
    lines = lines_of(segment)
    segment.write_bytes(b"".join(lines[:3]) + b"garbage\n" + b"".join(lines[4:]))
    found, damages = look()
    assert len(damages) == 1
    assert "healthy" in [record.saga for record in found]


def test_what_a_failed_segment_holds_twice_is_read_once(tmp_path, segment, look):
    lines = lines_of(segment)
    segment.write_bytes(b"".join(lines[:20]) + lines[20][:33])
    segment.with_name("seg-00000002.jsonl").write_bytes(b"".join(lines[20:]))
    found, damages = look()
    assert damages == []
    assert numbers(found) == list(range(COUNT))


def test_unconfirmed_records_may_stand_twice_and_confirmed_ones_may_not(tmp_path, open_log, look):
    log = open_log()
    for n in range(20):
        log.append("STEP_COMMITTED", payload={"n": n})
        log.drain()
    segment = next(tmp_path.rglob("seg-*1.jsonl"))
    lines = [line + b"\n" for line in segment.read_bytes().rstrip(b"\0").split(b"\n")[:-1]]
    segment.with_name("seg-00000002.jsonl").write_bytes(b"".join(lines[5:]))
    found, damages = look()
    assert damages == []
    assert numbers(found) == list(range(20))
    log.barrier_sync()
    log.append("STEP_COMMITTED", payload={"n": 20})
    log.drain()
    found, damages = look()
    assert {damage.kind for damage in damages} == {"damage"}
    assert numbers(found) == list(range(21))


def test_another_record_under_the_same_sequence_is_damage(segment, look):
    lines = lines_of(segment)
    foreign = lines[-1].replace(b"WRITER_CLOSE", b"STEP_INTENTS")
    segment.write_bytes(b"".join(lines) + foreign)
    assert kinds(look()[1]) == [("damage", COUNT + 2)]


def test_a_watermark_beyond_its_own_record_is_no_record(segment, look):
    lines = lines_of(segment)
    lines[-1] = lines[-1].replace(b'"m":%d,' % (COUNT + 1), b'"m":%d,' % 10**9, 1)
    segment.write_bytes(b"".join(lines))
    assert kinds(look()[1]) == [("damage", COUNT + 2)]


def test_a_line_without_end_costs_no_memory(segment, look):
    whole = segment.read_bytes()
    with segment.open("ab") as file:
        for _ in range(40):
            file.write(b"x" * 1_000_000)
    found, damages = look()
    assert numbers(found) == list(range(COUNT))
    assert kinds(damages) == [("torn-tail", COUNT + 3)]
    segment.write_bytes(whole)


def test_what_the_system_cannot_read_is_damage(tmp_path, segment):
    port = FaultyPort()
    port.fail("pread", nth=2, times=2)
    damages = [one for one in scan_log(tmp_path / "log", port) if isinstance(one, Damage)]
    assert kinds(damages) == [("damage", 1)]
    port = FaultyPort()
    port.fail("listdir", nth=2)
    damages = [one for one in scan_log(tmp_path / "log", port) if isinstance(one, Damage)]
    assert kinds(damages) == [("damage", 1)]


def test_reading_all_is_loud_at_the_end(tmp_path, segment):
    lines = lines_of(segment)
    segment.write_bytes(b"".join(lines[:3]) + b"garbage\n" + b"".join(lines[4:]))
    read: list[Record] = []
    with pytest.raises(WALCorrupt, match="sequence 4"):
        read.extend(records(tmp_path / "log"))
    segment.write_bytes(b"".join(line.replace(b'{"v":1', b'{"v":3') for line in lines))
    with pytest.raises(WALFormatError):
        list(FileWAL(tmp_path / "log").read_all())


def test_random_garbage_never_raises(tmp_path, segment, look):
    whole = segment.read_bytes()
    chance = random.Random(5)
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 8)):
            start = chance.randrange(len(content))
            end = min(len(content), start + chance.randrange(1, 400))
            match chance.randrange(4):
                case 0:
                    content[start:end] = chance.randbytes(end - start)
                case 1:
                    content[start:end] = bytes(end - start)
                case 2:
                    del content[start:end]
                case _:
                    content[start:start] = content[chance.randrange(len(content)) :][:300]
        segment.write_bytes(content)
        found, damages = look()
        assert damages or numbers(found) == list(range(COUNT))


def test_foreign_folders_and_files_are_passed_over(tmp_path, segment, look):
    writers = segment.parent.parent
    (writers / "lost+found").mkdir()
    (writers / "a file").touch()
    (segment.parent / "notes.txt").write_text("hello")
    shutil.copy(segment, segment.parent / "seg-00000001.jsonl.bak")
    found, damages = look()
    assert damages == []
    assert numbers(found) == list(range(COUNT))


class ClosingPort(OsPort):
    """Its log is closed between the listing and the first look into a segment."""

    def __init__(self, log: FileWAL) -> None:
        self.log = log

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if "seg-" in path:
            self.log.close()
        return super().open(path, flags, mode)


def test_segments_that_a_live_writer_prepared_and_removed_are_no_damage(tmp_path, open_log):
    log = open_log()
    log.append("STEP_COMMITTED", saga="s", payload={"n": 1})
    log.barrier_sync()
    for _ in range(1000):
        listed = len(list(tmp_path.rglob("seg-*.jsonl")))
        if listed > 1:
            break
        time.sleep(0.01)  # the next one is made ready beside it
    found = list(scan_log(tmp_path / "log", ClosingPort(log)))
    assert len(list(tmp_path.rglob("seg-*.jsonl"))) < listed, "nothing was removed meanwhile"
    assert [one for one in found if isinstance(one, Damage)] == []
    assert numbers([one for one in found if isinstance(one, Record)]) == [1]


def test_a_removed_segment_that_held_records_is_missed(tmp_path, open_log):
    log = open_log()
    for n in range(COUNT):
        log.append("STEP_COMMITTED", saga=f"saga {n}", payload={"n": n, "text": "x" * 25_000})
        log.barrier_sync()
    log.close()
    segments = sorted(tmp_path.rglob("seg-*.jsonl"))
    assert len(segments) >= 3

    class RemovingPort(OsPort):
        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            segments[1].unlink(missing_ok=True)
            return super().open(path, flags, mode)

    damages = [one for one in scan_log(tmp_path / "log", RemovingPort()) if isinstance(one, Damage)]
    assert [damage.kind for damage in damages] == ["damage"]


@pytest.mark.parametrize("call", ["open", "pread"])
@pytest.mark.parametrize("number", range(2, 8))
def test_a_read_that_fails_once_is_damage_and_never_an_end(tmp_path, open_log, call, number):
    """Reading the same place again, to judge it, may well succeed: that makes nothing good."""
    log = open_log()
    for n in range(3000):
        log.append("STEP_COMMITTED", saga="s", payload={"n": n, "text": "x" * 300})
    log.close()
    port = FaultyPort()
    port.fail(call, nth=number)
    try:
        found = list(scan_log(tmp_path / "log", port))
    except WALError:
        return
    taken = [one for one in found if isinstance(one, Record)]
    assert len(taken) == log.seq or [one for one in found if isinstance(one, Damage)]
