"""The log kit's cases about durability: barriers, watermarks, backpressure, observers."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar

import pytest

from agent_saga.domain.records import Ev
from agent_saga.errors import WALBackpressure
from agent_saga.wal.base import BackpressurePolicy, BaseWAL, Capabilities
from agent_saga_testing.kits.conformance import Conformance
from agent_saga_testing.kits.threads import in_threads
from agent_saga_testing.kits.wal_steps import WALOpener, ours, step
from agent_saga_testing.waiting import until

__all__ = ["WALDurability"]


class WALDurability(Conformance):
    """What a log promises about what it was given."""

    capabilities: ClassVar[Capabilities]

    def test_a_barrier_makes_durable_what_was_appended(self, log: BaseWAL) -> None:
        seq = step(log, 1)
        log.barrier_sync()
        assert log.synced >= seq

    def test_an_async_barrier_does_too(self, log: BaseWAL) -> None:
        async def work() -> None:
            for number in range(5):
                seq = step(log, number)
                await log.barrier()
                assert log.synced >= seq

        asyncio.run(work())

    def test_waiting_for_what_is_durable_takes_no_sync(self, log: BaseWAL) -> None:
        async def work() -> None:
            await log.barrier(seq)
            assert log.durable_future(seq, asyncio.get_running_loop()) is None

        seq = step(log, 1)
        log.wait_durable(seq)
        syncs = log.counters.syncs
        log.wait_durable(seq)
        log.barrier_sync(seq)
        asyncio.run(work())
        assert log.counters.syncs == syncs

    def test_a_sync_can_be_started_without_waiting(self, log: BaseWAL) -> None:
        seq, _ = log.append_out(Ev.STEP_COMMITTED, saga="s", sync=True)
        until(lambda: log.synced >= seq)

    def test_what_waits_together_shares_syncs(self, log: BaseWAL) -> None:
        async def work() -> None:
            await asyncio.gather(*(one(number) for number in range(100)))

        async def one(number: int) -> None:
            await log.barrier(step(log, number))

        asyncio.run(work())
        assert log.synced >= log.seq
        assert log.counters.syncs <= 10
        assert len(ours(log)) == 100

    def test_threads_and_loops_wait_at_once(self, log: BaseWAL) -> None:
        async def in_loop(name: str) -> None:
            for number in range(20):
                seq = step(log, number, saga=name)
                await log.barrier(seq)
                assert log.synced >= seq

        def in_thread(name: str) -> None:
            for number in range(20):
                seq = step(log, number, saga=name)
                log.wait_durable(seq)
                assert log.synced >= seq

        loops: list[Any] = [lambda n=n: asyncio.run(in_loop(f"loop-{n}")) for n in range(2)]
        in_threads(loops + [partial(in_thread, f"thread-{n}") for n in range(2)])
        assert len(ours(log)) == 80

    def test_a_cancelled_wait_harms_nobody(self, log: BaseWAL) -> None:
        async def work() -> None:
            waiting = [asyncio.ensure_future(log.barrier(step(log, n))) for n in range(4)]
            await asyncio.sleep(0)
            for one in waiting[::2]:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await log.barrier(step(log, 9))

        asyncio.run(work())
        assert log.synced >= log.seq
        assert len(ours(log)) == 5

    def test_a_loop_that_closed_harms_nobody(self, log: BaseWAL) -> None:
        async def leave() -> None:
            loop = asyncio.get_running_loop()
            log.out_future(step(log, 1), loop)
            log.durable_future(log.seq, loop)

        for _ in range(3):
            asyncio.run(leave())
            log.barrier_sync(step(log, 2))
        assert len(ours(log)) == 6

    def test_watermarks_say_what_was_durable_when_they_were_written(self, log: BaseWAL) -> None:
        for number in range(5):
            step(log, number)
            log.barrier_sync()
        records = list(log.read_all())
        assert all(record.mark < record.seq for record in records)
        assert [r.mark for r in records] == sorted(r.mark for r in records)
        by_number = {r.data["n"]: r for r in records if r.event == Ev.STEP_COMMITTED}
        for number in range(1, 5):
            assert by_number[number].mark >= by_number[number - 1].seq

    def test_observers_are_told_of_every_record_in_order_once_it_is_durable(
        self, log: BaseWAL
    ) -> None:
        told: list[int] = []

        def observe(records: list[Any]) -> None:
            told.extend(seq for seq, _ in records)
            assert all(seq <= log.synced for seq, _ in records)

        def fails(_records: list[Any]) -> None:
            raise LookupError

        log.on_durable(fails)
        log.on_durable(observe)
        seqs = [step(log, number) for number in range(10)]
        log.barrier_sync()
        until(lambda: seqs[-1] in told)
        assert [seq for seq in told if seq in seqs] == seqs
        step(log, 10)
        log.barrier_sync()

    def test_an_intent_is_refused_when_the_log_cannot_keep_up(self, opener: WALOpener) -> None:
        log = opener(max_unsynced=1)
        log.append(Ev.SAGA_BEGIN, saga="s")
        with pytest.raises(WALBackpressure):
            step(log, 1, Ev.STEP_INTENT)
        step(log, 2, Ev.STEP_COMMITTED)
        step(log, 3, Ev.STEP_COMPENSATING)
        log.barrier_sync()
        step(log, 4, Ev.STEP_INTENT)
        log.close()
        assert [r.data.get("n") for r in ours(log)] == [None, 2, 3, 4]

    def test_blocking_waits_for_the_disk_instead(self, opener: WALOpener) -> None:
        log = opener(max_unsynced=1, policy=BackpressurePolicy.BLOCK)
        for number in range(5):
            step(log, number, Ev.STEP_INTENT)
        log.close()
        assert [r.data["n"] for r in ours(log)] == list(range(5))

    def test_dropping_silently_drops_observations_and_refuses_intents(
        self, opener: WALOpener
    ) -> None:
        log = opener(max_unsynced=1, policy=BackpressurePolicy.DROP_SILENT)
        log.append(Ev.SAGA_BEGIN, saga="s")
        step(log, 1, Ev.STEP_ATTEMPT)
        with pytest.raises(WALBackpressure):
            step(log, 2, Ev.STEP_INTENT)
        step(log, 3, Ev.STEP_COMMITTED)
        log.close()
        assert [r.data.get("n") for r in ours(log)] == [None, 3]
        assert log.counters.dropped == 1
