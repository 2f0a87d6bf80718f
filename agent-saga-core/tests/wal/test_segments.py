"""Segments: rotation, and what happens when the disk fails or is full."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_saga.errors import WALError, WALFull, WALPathError, WALPoisoned, WALStalled
from agent_saga.wal.file import FileWAL
from agent_saga.wal.segments import FIRST_SIZE, LAST_SIZE, segment_size
from agent_saga_testing.faults import FOR_EVER, FaultyPort

TEXT = "x" * 2000


def begun(open_log: Callable[..., FileWAL], **options: object) -> tuple[FileWAL, FaultyPort]:
    port = FaultyPort()
    log = open_log(port=port, **options)
    log.append("STEP_INTENT", payload={"n": -1})
    log.barrier_sync()
    return log, port


def numbers(records) -> list[int]:
    return [r.data["n"] for r in records if r.event == "STEP_COMMITTED"]


def segments_of(log: FileWAL) -> list[Path]:
    return sorted((Path(log.path) / "writers" / log.writer).glob("seg-*"))


def write_many(log: FileWAL, first: int, count: int) -> None:
    for n in range(first, first + count):
        log.append("STEP_COMMITTED", saga="saga", payload={"n": n, "text": TEXT})
        if n % 10 == 0:
            log.drain()


# --- rotation


def test_segments_double_up_to_a_bound():
    assert [segment_size(n) for n in (1, 2, 3)] == [FIRST_SIZE, 2 * FIRST_SIZE, 4 * FIRST_SIZE]
    assert segment_size(7) == segment_size(10**6) == LAST_SIZE


def test_a_log_goes_on_in_the_next_segment_with_one_chain(open_log, look):
    log, _ = begun(open_log)
    write_many(log, 0, 1000)
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == list(range(1000))
    assert [r.seq for r in records] == list(range(1, len(records) + 1))
    seals = [r for r in records if r.event == "SEGMENT_SEAL"]
    assert len(seals) == len(segments_of(log)) - 1 >= 2
    assert all(path.read_bytes().endswith(b"}\n") for path in segments_of(log))


def test_no_append_waits_for_an_allocation(open_log):
    log, port = begun(open_log)
    mine = threading.get_ident()
    allocated: list[int] = []
    make = port.fallocate

    def fallocate(fd: int, size: int) -> None:
        allocated.append(threading.get_ident())
        make(fd, size)

    port.fallocate = fallocate  # type: ignore[method-assign]
    for n in range(40):
        write_many(log, n * 20, 20)
        log.barrier_sync()
        wait_for_spares(log)
    assert len(allocated) >= 2
    assert mine not in allocated


def wait_for_spares(log: FileWAL) -> None:
    while len(log._segments.spares) < 2:
        threading.Event().wait(0.002)


def test_a_segment_that_was_sealed_is_cut_once_it_is_durable(open_log):
    log, _ = begun(open_log)
    write_many(log, 0, 200)
    log.barrier_sync()
    first = segments_of(log)[0]
    while first.stat().st_size == FIRST_SIZE:
        threading.Event().wait(0.002)
    assert first.read_bytes().endswith(b"}\n")


def test_a_record_larger_than_a_segment_fits(open_log, look):
    log, _ = begun(open_log)
    texts = {f"part {n}": "y" * 200_000 for n in range(4)}
    log.append("STEP_COMMITTED", payload={"n": 0, **texts})
    log.append("STEP_COMMITTED", payload={"n": 1})
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == [0, 1]


# --- writes and syncs that fail


FAULTS = {
    "short write": lambda port: port.shorten("pwrite", keep=100),
    "no byte written": lambda port: port.shorten("pwrite", keep=0),
    "write error": lambda port: port.fail("pwrite", error=errno.EIO),
    "disk full at a write": lambda port: port.fail("pwrite", error=errno.ENOSPC),
    "sync error": lambda port: port.fail("fdatasync", error=errno.EIO),
    "sync error after the sync": lambda port: port.fail("fdatasync", error=errno.EIO, after=True),
    "two sync errors": lambda port: port.fail("fdatasync", error=errno.EIO, times=2),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_failed_segment_is_replaced_and_nothing_is_lost(open_log, look, fault):
    log, port = begun(open_log)
    write_many(log, 0, 30)
    FAULTS[fault](port)
    write_many(log, 30, 30)
    log.barrier_sync()
    assert log.synced == log.seq
    write_many(log, 60, 30)
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == list(range(90))
    assert len(segments_of(log)) >= 2


def test_a_failed_segment_is_never_written_or_synced_again(open_log):
    log, port = begun(open_log)
    used: list[tuple[str, int]] = []
    sync, write = port.fdatasync, port.pwrite

    def fdatasync(fd: int) -> None:
        used.append(("sync", fd))
        sync(fd)

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        used.append(("write", fd))
        return write(fd, data, offset)

    port.fdatasync, port.pwrite = fdatasync, pwrite  # type: ignore[method-assign]
    port.fail("fdatasync")
    log.append("STEP_COMMITTED", payload={"n": 0})
    log.barrier_sync()
    broken = next(fd for call, fd in used if call == "sync")
    at = used.index(("sync", broken))
    log.append("STEP_COMMITTED", payload={"n": 1})
    log.barrier_sync()
    assert broken not in [fd for _, fd in used[at + 1 :]]


def test_a_sync_that_fails_while_a_writer_goes_on_loses_nothing(open_log, look):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    port.fail("fdatasync")
    write_many(log, 0, 10)
    log.start_sync()
    hang.reached.wait()
    write_many(log, 10, 10)
    log.drain()
    hang.release()
    log.barrier_sync()
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == list(range(20))


def test_a_write_that_fails_while_a_sync_is_in_flight_loses_nothing(open_log, look):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    write_many(log, 0, 10)
    log.start_sync()
    hang.reached.wait()
    port.shorten("pwrite", keep=77)
    write_many(log, 10, 10)
    log.drain()
    hang.release()
    log.barrier_sync()
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == list(range(20))


def test_a_log_that_cannot_go_on_keeps_what_it_had(open_log, look):
    log, port = begun(open_log)
    write_many(log, 0, 10)
    log.barrier_sync()
    port.fail("pwrite", error=errno.EIO, times=FOR_EVER)
    with pytest.raises(WALPoisoned, match="Input/output"):
        log.append("STEP_COMMITTED", payload={"n": 10})
        log.drain()
    with pytest.raises(WALPoisoned):
        log.append("STEP_INTENT")
    log.close()
    records, damages = look()
    assert [damage for damage in damages if damage.kind != "torn-tail"] == []
    assert numbers(records) == list(range(10))


# --- a full disk


def test_a_full_disk_refuses_intents_and_takes_endings_until_it_is_freed(open_log, look):
    log, port = begun(open_log)
    wait_for_spares(log)
    port.fail("fallocate", error=errno.ENOSPC, times=FOR_EVER)
    taken = 0
    with pytest.raises(WALFull):
        while True:
            log.append("STEP_INTENT", payload={"n": -1, "text": TEXT})
            taken += 1
            log.drain()
    assert taken > 100
    room = 0
    for n in range(150):
        log.append("STEP_COMMITTED", payload={"n": n, "text": TEXT})
        log.barrier_sync()
        room += 1
    with pytest.raises(WALFull):
        log.append("STEP_INTENT", payload={"n": -1})
    port.heal()
    log.append("STEP_INTENT", payload={"n": -1})
    log.close()
    records, damages = look()
    assert damages == []
    assert numbers(records) == list(range(room))


@pytest.mark.parametrize("call", ["fallocate", "open", "unlink"])
def test_a_disk_that_is_full_from_the_start_refuses_and_does_not_fill_up(open_log, look, call):
    port = FaultyPort()
    log = open_log(port=port)
    log.port.fail("fallocate", error=errno.ENOSPC, times=FOR_EVER)
    begun = {"open": 6}.get(call, 5)  # the folder of the writer is there by then
    port.fail(call, nth=begun, error=errno.ENOSPC, times=FOR_EVER)
    for _ in range(10):
        with pytest.raises(WALFull):
            log.append("STEP_INTENT")
    assert len(list((Path(log.path) / "writers").iterdir())) == 1
    port.heal()
    log.append("STEP_INTENT")
    log.close()
    assert look()[1] == []


def test_a_disk_that_cannot_be_written_to_is_said_at_the_first_record(open_log):
    port = FaultyPort()
    port.fail("open", nth=3, error=errno.EROFS)
    with pytest.raises(WALPathError):
        open_log(port=port).append("STEP_INTENT")


def test_an_allocation_that_hangs_does_not_hang_the_intents(open_log):
    log, port = begun(open_log)
    wait_for_spares(log)
    log._segments._stall_after = 0.2
    hang = port.hang("fallocate")
    with pytest.raises(WALError):
        while True:
            log.append("STEP_INTENT", payload={"n": -1, "text": TEXT})
            log.drain()
    hang.release()


def test_an_intent_that_needs_room_first_does_not_allocate_it_itself(open_log):
    """Also if it is there before the thread in the background has begun."""
    log, port = begun(open_log)
    wait_for_spares(log)
    log._segments._stall_after = 0.2
    log._segments.spares.clear()
    hang = port.hang("fallocate")
    with pytest.raises(WALStalled):
        log.append("STEP_INTENT", payload={"n": 1})
    hang.release()


def test_an_intent_waits_for_no_thread_that_failed(open_log, monkeypatch):
    """Whatever it failed with: what can't be made is refused at once, not after the patience."""
    log, _ = begun(open_log)
    wait_for_spares(log)
    log._segments.spares.clear()

    def fail():
        raise MemoryError("no room to work in")

    with monkeypatch.context() as patch:
        patch.setattr(log._segments, "_make", fail)
        with pytest.raises(WALFull, match="no room to work in"):
            log.append("STEP_INTENT", payload={"n": 1})


# --- the end


def waits_briefly(log: FileWAL) -> None:
    """Let closing not wait for the thread that makes segments, but for all else."""
    close = log._segments.close
    log._segments.close = lambda timeout, *, whole: close(0.01, whole=whole)


@pytest.mark.parametrize("call", ["fallocate", "fsync", "open"])
def test_a_spare_that_comes_too_late_is_taken_back(open_log, call):
    """The log is closed while the disk holds up the thread that makes its next segments."""
    log, port = begun(open_log)
    wait_for_spares(log)
    waits_briefly(log)
    segments = log._segments
    segments._discard(segments.spares.pop())
    hang = port.hang(call)
    segments._preparer.kick()
    hang.reached.wait()
    log.close()
    hang.release()
    segments._preparer._thread.join()
    assert not segments.spares
    assert port._open == set()


def test_a_spare_that_comes_while_the_others_are_closed_stands_in_nobodys_way(open_log):
    log, port = begun(open_log)
    wait_for_spares(log)
    waits_briefly(log)
    segments = log._segments
    segments._discard(segments.spares.pop())
    hang = port.hang("fallocate")
    segments._preparer.kick()
    hang.reached.wait()
    close, comes = port.close, iter([True])

    def closes_late(fd: int) -> None:
        close(fd)
        if fd == spare and next(comes, False):
            hang.release()
            segments._preparer._thread.join()

    (spare,) = [segment.fd for segment in segments.spares]
    port.close = closes_late  # type: ignore[method-assign]
    log.close()
    assert not next(comes, False), "it was closed beside the others"
    assert port._open == set()
