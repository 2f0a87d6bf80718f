"""A log over an async storage sink."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_saga.errors import WALError, WALPoisoned
from agent_saga.wal.sink import SinkWAL


class Sink:
    """Keeps what it confirmed apart from what it only took."""

    def __init__(self) -> None:
        self.taken = b""
        self.kept = b""
        self.threads: set[int] = set()

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.threads.add(threading.get_ident())
        self.taken += data

    async def sync(self) -> None:
        await asyncio.sleep(0)
        self.kept = self.taken

    async def read(self) -> bytes:
        return self.kept


class Failing(Sink):
    async def sync(self) -> None:
        raise ConnectionError("the sink is gone")


class Hanging(Sink):
    async def write(self, data: bytes) -> None:
        await asyncio.Event().wait()


class Blind:
    async def write(self, data: bytes) -> None:
        del data

    async def sync(self) -> None:
        return


def test_records_reach_the_sink_before_a_barrier_ends():
    sink = Sink()
    log = SinkWAL(sink, mark_after=3600)
    log.append("STEP_INTENT", saga="a", payload={"n": 1})
    log.drain()
    assert sink.kept == b""
    log.barrier_sync()
    assert b"STEP_INTENT" in sink.kept
    log.append_out("STEP_COMMITTED", saga="a", payload={"n": 2}, sync=True)
    log.close()
    events = [record.event for record in log.read_all()]
    assert events == ["WRITER_OPEN", "STEP_INTENT", "STEP_COMMITTED", "WRITER_CLOSE"]
    assert log.capabilities.durability == "sink"
    assert not log.capabilities.survives_kill


def test_a_sink_is_used_from_one_thread_that_is_not_the_callers():
    sink = Sink()
    log = SinkWAL(sink, mark_after=3600)

    async def main() -> None:
        for _ in range(5):
            await log.barrier(log.append("STEP_INTENT"))
        assert len(list(log.read_all())) == 6

    asyncio.run(main())
    log.close()
    assert len(sink.threads) == 1
    assert threading.get_ident() not in sink.threads


@pytest.mark.parametrize("sink", [Failing(), Hanging()], ids=["fails", "hangs"])
def test_a_sink_that_does_not_confirm_poisons_the_log_for_good(sink):
    log = SinkWAL(sink, stall_after=0.2)
    seq = log.append("STEP_INTENT")
    with pytest.raises(WALError):
        log.barrier_sync(seq)
    with pytest.raises(WALPoisoned):
        while True:
            log.append("STEP_COMMITTED")
            threading.Event().wait(0.01)
    log.close()


def test_a_sink_that_cannot_be_read_says_so():
    log = SinkWAL(Blind())
    log.append("STEP_INTENT")
    log.close()
    with pytest.raises(WALError, match="read"):
        list(log.read_all())
