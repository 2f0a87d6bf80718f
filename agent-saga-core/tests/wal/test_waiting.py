"""Who waits, for how long, and what a log that cannot keep up refuses."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable

import pytest

from agent_saga.errors import SagaFenced, WALBackpressure, WALPoisoned, WALStalled
from agent_saga.wal import turns, worker
from agent_saga.wal.base import BackpressurePolicy
from agent_saga.wal.file import FileWAL
from agent_saga.wal.memory import MemoryWAL
from agent_saga.wal.worker import Worker
from agent_saga_testing.faults import FOR_EVER, FaultyPort
from agent_saga_testing.waiting import until


def begun(open_log: Callable[..., FileWAL], **options: object) -> tuple[FileWAL, FaultyPort]:
    """A log that has its first records durable, and its port; only later waits are short."""
    port = FaultyPort()
    stall_after = options.pop("stall_after", 30.0)
    log = open_log(port=port, **options)
    log.append("STEP_INTENT")
    log.barrier_sync()
    log.stall_after = log._waiters.stall_after = stall_after
    return log, port


# --- counting: how many writes and syncs


def test_many_waiters_share_one_sync(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")

    async def step(number: int) -> None:
        await log.barrier(log.append("STEP_INTENT", saga=str(number)))

    async def main() -> None:
        first = asyncio.create_task(step(0))
        await asyncio.to_thread(hang.reached.wait)
        rest = [asyncio.create_task(step(n)) for n in range(1, 100)]
        await asyncio.sleep(0)
        before = port.count("fdatasync")
        hang.release()
        await asyncio.gather(first, *rest)
        assert port.count("fdatasync") == before + 1

    asyncio.run(main())


def test_a_barrier_joins_the_sync_that_covers_it(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    log.append("STEP_COMMITTED")
    log.start_sync()
    hang.reached.wait()

    async def main() -> None:
        waiting = asyncio.create_task(log.barrier())
        await asyncio.sleep(0)
        hang.release()
        await waiting

    before = port.count("fdatasync")
    asyncio.run(main())
    log.barrier_sync()
    assert port.count("fdatasync") == before


def test_an_outcome_is_written_at_once_when_nothing_is_in_flight(open_log):
    log, port = begun(open_log)
    writes, syncs = port.count("pwrite"), port.count("fdatasync")
    seq, out = log.append_out("STEP_COMMITTED")
    assert out
    assert log.written == seq
    assert (port.count("pwrite"), port.count("fdatasync")) == (writes + 1, syncs)


def test_outcomes_of_one_loop_turn_share_one_write_while_a_sync_is_in_flight(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    log.append("STEP_COMMITTED")
    log.start_sync()
    hang.reached.wait()
    writes = port.count("pwrite")

    async def outcome() -> None:
        seq, out = log.append_out("STEP_COMMITTED", sync=True)
        assert not out
        future = log.out_future(seq, asyncio.get_running_loop())
        assert future is not None
        await future
        assert log.written >= seq

    async def main() -> None:
        await asyncio.gather(*[outcome() for _ in range(50)])

    asyncio.run(main())
    assert port.count("pwrite") == writes + 1
    hang.release()


def other_threads_run() -> None:
    """Give the flusher every chance to begin, as any system call of a tool does."""
    time.sleep(0.02)


def test_an_outcome_and_what_its_turn_announces_next_share_one_sync(open_log):
    log, port = begun(open_log)

    async def main() -> None:
        for _ in range(3):
            syncs = port.count("fdatasync")
            seq, out = log.append_out("STEP_COMMITTED", sync=True)
            assert out
            assert log.written == seq
            other_threads_run()
            await log.barrier(log.append("STEP_INTENT"))
            await asyncio.sleep(0.02)
            assert port.count("fdatasync") == syncs + 1

    asyncio.run(main())


def test_the_outcomes_of_many_turns_share_one_timer(open_log, monkeypatch):
    monkeypatch.setattr(turns, "_MOMENT", 3600.0)
    log, port = begun(open_log)

    async def main() -> int:
        loop, timers = asyncio.get_running_loop(), []
        real = loop.call_later
        loop.call_later = lambda after, *rest: timers.append(after) or real(after, *rest)
        syncs = port.count("fdatasync")
        for _ in range(10):
            log.append_out("STEP_COMMITTED", sync=True)
            await asyncio.sleep(0)
            await log.barrier(log.append("STEP_INTENT"))
        assert port.count("fdatasync") == syncs + 10
        return timers.count(3600.0)

    assert asyncio.run(main()) == 1


def test_the_sync_of_an_outcome_starts_a_moment_after_its_turn(open_log):
    log, _ = begun(open_log)

    async def main() -> None:
        seq, _ = log.append_out("STEP_COMMITTED", sync=True)
        other_threads_run()
        assert log.synced < seq
        async with asyncio.timeout(30):
            while log.synced < seq:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_where_no_loop_runs_the_sync_of_an_outcome_starts_soon(open_log):
    log, _ = begun(open_log)
    for _ in range(3):  # the first within the rest after a sync, maybe, or long after it
        seq, _ = log.append_out("STEP_COMMITTED", sync=True)
        until(lambda seq=seq: log.synced >= seq)
        time.sleep(0.01)


def test_where_no_loop_runs_an_outcome_and_the_next_announcement_share_one_sync(
    open_log, monkeypatch
):
    monkeypatch.setattr(worker, "_REST", 3600.0)
    log, port = begun(open_log)
    for _ in range(3):
        until(lambda: log._flusher._resting)
        syncs = port.count("fdatasync")
        seq, out = log.append_out("STEP_COMMITTED", sync=True)
        assert out
        assert log.written == seq
        log.barrier_sync(log.append("STEP_INTENT"))
        assert port.count("fdatasync") == syncs + 1


def test_a_write_that_hangs_holds_up_nobody_for_longer_than_the_bound(open_log):
    """The flusher writes what is waited for: the thread or loop that waits may not hang in it."""
    log, port = begun(open_log, stall_after=0.2)
    hang = port.hang("pwrite", times=FOR_EVER)
    with pytest.raises(WALStalled):
        log.barrier_sync(log.append("STEP_INTENT"))

    async def main() -> None:
        waiting = asyncio.create_task(log.barrier(log.append("STEP_COMMITTED")))
        await asyncio.sleep(0)
        assert not waiting.done(), "the loop goes on"
        with pytest.raises(WALStalled):
            await waiting

    asyncio.run(main())
    hang.release()


def test_who_waits_while_another_thread_is_inside_a_write_does_not_wait_for_it(open_log):
    log, port = begun(open_log)
    hang = port.hang("pwrite")
    log.append("STEP_COMMITTED")
    stuck = threading.Thread(target=log.drain)
    stuck.start()
    hang.reached.wait()

    async def main() -> None:
        waiting = asyncio.create_task(log.barrier(log.append("STEP_INTENT")))
        await asyncio.sleep(0.02)  # the loop goes on
        assert not waiting.done()
        hang.release()
        await waiting

    asyncio.run(main())
    stuck.join()


def test_work_that_was_put_off_is_done_at_the_end_of_the_rest(monkeypatch):
    monkeypatch.setattr(worker, "_REST", 0.05)
    done: list[bool] = []

    def work() -> float:
        done.append(thread._put_off)
        return 3600.0

    thread = Worker("resting", work)
    thread.kick()
    until(lambda: thread._resting)
    thread.kick_soon()
    until(lambda: len(done) == 2)
    assert done == [False, False]
    assert thread.stop(10.0)


def test_work_is_not_put_off_while_the_thread_does_not_rest():
    done: list[int] = []
    thread = Worker("resting", lambda: done.append(1))
    for count in (1, 2):
        thread.kick_soon()
        until(lambda count=count: len(done) == count)
    assert thread.stop(10.0)


def test_a_crowd_shares_the_sync_of_its_turn_however_the_threads_alternate(open_log):
    log, port = begun(open_log)
    rounds = 5

    async def one(name: int) -> None:
        for number in range(rounds):
            seq = log.append("STEP_INTENT", saga=f"{name}.{number}")
            other_threads_run()
            await log.barrier(seq)

    async def main() -> None:
        await asyncio.gather(*[one(name) for name in range(8)])

    before = port.count("fdatasync")
    asyncio.run(main())
    # In the first turn nobody knows yet that a crowd has come; later it may wake in two groups.
    assert port.count("fdatasync") - before <= 8 + 2 * rounds < 8 * rounds


def test_a_turn_that_its_loop_never_ended_holds_nobody_else_up(open_log):
    log, _ = begun(open_log)

    async def crowd() -> None:
        await asyncio.gather(*[log.barrier(log.append("STEP_INTENT")) for _ in range(4)])

    async def left() -> None:
        log.append_out("STEP_COMMITTED", sync=True)
        asyncio.get_running_loop().stop()

    asyncio.run(crowd())
    loop = asyncio.new_event_loop()
    task = loop.create_task(left())
    loop.run_forever()
    assert task.done()
    loop.close()
    log.barrier_sync()
    assert log.synced == log.seq
    asyncio.run(crowd())


def test_counters_count(open_log):
    log, _ = begun(open_log)
    counters = log.counters
    assert (counters.records, counters.syncs) == (2, 1)
    log.append("STEP_COMMITTED")
    log.drain()
    assert (counters.records, counters.syncs) == (3, 1)
    assert counters.bytes > 300


# --- loops and threads


def test_waiters_of_many_loops_and_threads_all_go_on(open_log):
    log = open_log()
    done: list[int] = []

    async def many(name: int) -> None:
        for number in range(20):
            await log.barrier(log.append("STEP_INTENT", saga=f"{name}.{number}"))
        done.append(name)

    def plain(name: int) -> None:
        for number in range(20):
            log.barrier_sync(log.append("STEP_INTENT", saga=f"{name}.{number}"))
        done.append(name)

    threads = [threading.Thread(target=asyncio.run, args=(many(n),)) for n in range(3)]
    threads += [threading.Thread(target=plain, args=(n,)) for n in range(3, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


def test_a_loop_that_was_closed_meanwhile_stops_nobody(open_log, look):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")

    async def leave() -> None:
        seq = log.append("STEP_INTENT")
        log.durable_future(seq, asyncio.get_running_loop())
        await asyncio.to_thread(hang.reached.wait)

    asyncio.run(leave())
    hang.release()
    log.append("STEP_COMMITTED")
    log.barrier_sync()
    assert look()[1] == []


def test_a_cancelled_wait_stops_nobody(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")

    async def main() -> None:
        seq = log.append("STEP_INTENT")
        one, other = asyncio.create_task(log.barrier(seq)), asyncio.create_task(log.barrier(seq))
        await asyncio.to_thread(hang.reached.wait)
        one.cancel()
        hang.release()
        await other
        with pytest.raises(asyncio.CancelledError):
            await one

    asyncio.run(main())


def test_a_hundred_loops_leave_nothing_behind(open_log):
    log, _ = begun(open_log)
    for _ in range(100):
        asyncio.run(log.barrier(log.append("STEP_COMMITTED")))
    assert len(log._waiters._watched) <= 2
    assert len(log._turns) <= 2


# --- bounded


def test_a_wait_for_a_disk_that_does_not_answer_is_bounded(open_log):
    log, port = begun(open_log, stall_after=0.1)
    hang = port.hang("fdatasync")
    seq = log.append("STEP_INTENT")
    with pytest.raises(WALStalled):
        log.barrier_sync(seq)
    with pytest.raises(WALStalled):
        asyncio.run(log.barrier(seq))
    with pytest.raises(WALStalled):
        log.wait_durable(seq, 0.01)
    hang.release()
    log.wait_durable(seq, 60)


def test_the_watchdog_goes_on_while_anyone_waits(open_log):
    log, port = begun(open_log, stall_after=0.2)
    hang = port.hang("fdatasync")

    async def main() -> None:
        async def late() -> None:
            await asyncio.sleep(0.1)
            await log.barrier()

        log.append("STEP_INTENT")
        ends = await asyncio.gather(log.barrier(), late(), return_exceptions=True)
        assert [type(end) for end in ends] == [WALStalled, WALStalled]

    asyncio.run(main())
    hang.release()


def test_a_drain_behind_a_write_that_hangs_is_bounded(open_log):
    log, port = begun(open_log, stall_after=0.1)
    hang = port.hang("pwrite")
    log.append("STEP_INTENT")
    stuck = threading.Thread(target=log.drain)
    stuck.start()
    hang.reached.wait()
    log.append("STEP_COMMITTED")
    with pytest.raises(WALStalled):
        log.drain()
    with pytest.raises(WALStalled):
        log.barrier_sync()
    hang.release()
    stuck.join()
    log.wait_durable(log.seq, 60)


def test_closing_is_bounded_and_keeps_the_lock_while_a_write_may_still_land(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    with pytest.raises(WALStalled):
        log.close(0.2)
    other = FileWAL(log.path)
    fd = other.port.open(f"{log.path}/writers/{log.writer}/lock", 2)
    assert not other.port.flock(fd)
    other.port.close(fd)
    hang.release()


# --- backpressure


def stuck_log(open_log, policy: BackpressurePolicy) -> tuple[FileWAL, Callable[[], None]]:
    log, port = begun(open_log, policy=policy, max_unsynced=20_000, stall_after=0.3)
    hang = port.hang("fdatasync")
    log.append("STEP_COMMITTED", payload={"text": "x" * 30_000})
    log.start_sync()
    hang.reached.wait()
    return log, hang.release


@pytest.mark.parametrize("policy", BackpressurePolicy)
def test_an_intent_is_refused_when_the_disk_is_behind(open_log, look, policy):
    log, release = stuck_log(open_log, policy)
    seq = log.seq
    with pytest.raises(WALBackpressure):
        log.append("STEP_INTENT")
    assert log.seq == seq
    release()
    log.wait_durable(log.seq, 60)
    log.append("STEP_INTENT")
    log.wait_durable(log.seq, 60)
    assert [r.event for r in look()[0]].count("STEP_INTENT") == 2


@pytest.mark.parametrize("policy", BackpressurePolicy)
def test_how_things_ended_is_never_refused(open_log, look, policy):
    log, release = stuck_log(open_log, policy)
    for event in ("STEP_COMMITTED", "STEP_UNKNOWN", "SAGA_UNWINDING", "STEP_COMPENSATING"):
        log.append(event)
    release()
    log.wait_durable(log.seq, 60)
    assert look()[0][-1].event == "STEP_COMPENSATING"


def test_only_drop_silent_drops_and_only_observations(open_log, look):
    log, release = stuck_log(open_log, BackpressurePolicy.DROP_SILENT)
    seq = log.seq
    assert log.append("STEP_ATTEMPT") == seq
    assert log.counters.dropped == 1
    release()
    log.wait_durable(log.seq, 60)
    assert "STEP_ATTEMPT" not in [r.event for r in look()[0]]


def test_raise_keeps_observations(open_log):
    log, release = stuck_log(open_log, BackpressurePolicy.RAISE)
    assert log.append("STEP_ATTEMPT") == log.seq
    release()


def test_block_lets_the_intent_in_once_the_disk_has_caught_up(open_log):
    log, release = stuck_log(open_log, BackpressurePolicy.BLOCK)
    log.stall_after = 60
    threading.Timer(0.05, release).start()
    log.append("STEP_INTENT")


def test_records_that_nobody_waits_for_are_synced_in_the_end(open_log):
    log, _ = begun(open_log, max_unsynced=40_000)
    synced = threading.Event()
    log.on_durable(lambda _: synced.set())
    for _ in range(200):
        log.append_out("STEP_COMMITTED", payload={"text": "x" * 1000})
    assert synced.wait(60)


# --- poisoned


def test_when_even_a_new_segment_fails_everybody_is_told(open_log):
    log, port = begun(open_log)
    told: list[object] = []

    async def main() -> None:
        seq = log.append("STEP_INTENT")
        port.fail("fdatasync", error=errno.EIO, times=FOR_EVER)
        with pytest.raises(WALPoisoned, match="Input/output"):
            await log.barrier(seq)
        with pytest.raises(WALPoisoned):
            await log.barrier(seq)
        with pytest.raises(WALPoisoned):
            log.append("STEP_COMMITTED")
        told.append(seq)

    asyncio.run(main())
    assert told
    with pytest.raises(WALPoisoned):
        log.barrier_sync()
    with pytest.raises(WALPoisoned):
        log.drain()
    with pytest.raises(WALPoisoned):
        log.probe()
    log.close()


def test_a_poisoned_log_fails_the_turns_futures_too(open_log):
    log, port = begun(open_log)
    hang = port.hang("fdatasync")
    log.append("STEP_COMMITTED")
    log.start_sync()
    hang.reached.wait()
    port.fail("pwrite", times=FOR_EVER)

    async def main() -> None:
        seq, out = log.append_out("STEP_COMMITTED")
        assert not out
        with pytest.raises(WALPoisoned):
            await log.out_future(seq, asyncio.get_running_loop())

    asyncio.run(main())
    hang.release()


# --- observers


def test_observers_are_told_what_became_durable_and_only_then(open_log):
    log, _ = begun(open_log)
    told: list[tuple[int, str]] = []
    arrived = threading.Event()

    def observe(records: list[tuple[int, tuple[object, ...]]]) -> None:
        told.extend((seq, str(entry[1])) for seq, entry in records)
        arrived.set()

    log.on_durable(observe)
    log.on_durable(lambda _: 1 / 0)
    log.append("STEP_INTENT", saga="a")
    seq = log.append("STEP_COMMITTED", saga="a")
    log.drain()
    assert told == []
    log.barrier_sync()
    arrived.wait(60)
    assert told == [(seq - 1, "STEP_INTENT"), (seq, "STEP_COMMITTED")]


def test_an_observer_that_was_there_first_is_told_of_the_first_record():
    log = MemoryWAL()
    told: list[str] = []
    log.on_durable(lambda records: told.extend(entry[1] for _, entry in records))
    log.append("STEP_INTENT")
    log.drain()
    assert told == ["WRITER_OPEN", "STEP_INTENT"]


# --- memory


def test_a_memory_log_keeps_its_records_and_waits_for_nothing():
    log = MemoryWAL()
    seq = log.append("STEP_INTENT", saga="a", payload={"n": 1})
    asyncio.run(log.barrier(seq))
    log.append_out("STEP_COMMITTED", sync=True)
    log.barrier_sync()
    log.fence("a", 2)
    with pytest.raises(SagaFenced):
        log.check_fence("a", 1)
    log.close()
    assert [record.event for record in log.read_all()] == [
        "WRITER_OPEN",
        "STEP_INTENT",
        "STEP_COMMITTED",
        "WRITER_CLOSE",
    ]
    assert log.counters.syncs == 0
