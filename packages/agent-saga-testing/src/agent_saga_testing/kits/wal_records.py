"""The log kit's cases about records: what goes in comes out, in order, and masked."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

from agent_saga.domain.records import NEEDS, Ev
from agent_saga.errors import WALPoisoned
from agent_saga.wal.base import BaseWAL, Capabilities
from agent_saga.wal.encoding import masked
from agent_saga_testing.kits.conformance import Conformance
from agent_saga_testing.kits.threads import in_threads
from agent_saga_testing.kits.wal_steps import OWN_EVENTS, WALOpener, ours, step

__all__ = ["WALRecords"]

ODD_IDS = {
    "empty": "",
    "line break": "a\nb",
    "long": "x" * 300,
    "lone surrogate": "a\ud800b",
    "NUL": "a\x00b",
    "path": "../../etc/passwd",
    "quotes": "\"\\'{}",
    "unicode": "naïve ☃ \U0001f600",
}


class _Hostile:
    """A value whose every method fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


ODD_VALUES: dict[str, Any] = {
    "bytes": b"\xff\x00",
    "deep": [[[[[[]]]]]] * 3,
    "hostile": _Hostile(),
    "huge integer": 10**400,
    "infinity": float("inf"),
    "integer keys": {1: 2, None: 3},
    "large": "x" * (10 << 20),
    "lone surrogate": "\udcff",
    "not a number": float("nan"),
    "set": {1, "a"},
}

SECRET = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


class WALRecords(Conformance):
    """What a log keeps, and in which order."""

    capabilities: ClassVar[Capabilities]

    @pytest.fixture
    def opener(self) -> WALOpener:
        """Open the log under test; a backend's class must give this."""
        raise NotImplementedError("a backend's test class gives the fixture `opener`")

    @pytest.fixture
    def log(self, opener: WALOpener) -> Iterator[BaseWAL]:
        """The log under test, closed at the end."""
        log = opener()
        yield log
        log.close()

    def test_declared_capabilities_are_the_logs(self, log: BaseWAL) -> None:
        assert log.capabilities == type(self).capabilities

    def test_address_names_the_scheme(self, log: BaseWAL) -> None:
        assert log.address.partition(":")[1] == ":"

    def test_a_log_without_records_is_empty(self, log: BaseWAL) -> None:
        assert list(log.read_all()) == []
        assert (log.seq, log.written, log.synced) == (0, 0, 0)
        log.barrier_sync()
        assert list(log.read_all()) == []

    def test_records_come_back_whole_and_in_order(self, log: BaseWAL) -> None:
        log.append(Ev.SAGA_BEGIN, saga="s", epoch=3, payload={"name": "x", "list": [1, None, 0.5]})
        log.append(Ev.STEP_INTENT, saga="s", epoch=3, step="k", generation=2, payload={"n": 1})
        begin, intent = ours(log)
        assert (begin.event, begin.saga, begin.epoch) == (Ev.SAGA_BEGIN, "s", 3)
        assert begin.data == {"name": "x", "list": [1, None, 0.5]}
        assert (intent.event, intent.step, intent.generation) == (Ev.STEP_INTENT, "k", 2)
        assert intent.data == {"n": 1}
        assert {begin.writer, intent.writer} == {log.writer}
        assert begin.time <= intent.time

    def test_every_event_can_be_kept(self, log: BaseWAL) -> None:
        events = [event for event in NEEDS if event not in OWN_EVENTS]
        for event in events:
            log.append(event, saga="s")
        assert [record.event for record in ours(log)] == events

    def test_sequences_count_up_without_gaps(self, log: BaseWAL) -> None:
        seqs = [step(log, number) for number in range(20)]
        assert seqs == list(range(seqs[0], seqs[0] + 20))
        assert log.seq == seqs[-1]
        assert [record.seq for record in ours(log)] == seqs
        whole = [record.seq for record in log.read_all()]
        assert whole == list(range(1, len(whole) + 1))

    def test_the_first_record_tells_of_the_writer(self, log: BaseWAL) -> None:
        step(log, 1)
        first = next(iter(log.read_all()))
        assert (first.event, first.seq) == (Ev.WRITER_OPEN, 1)
        assert "pid" in first.data

    @pytest.mark.parametrize("what", sorted(ODD_IDS))
    def test_odd_ids_are_only_names(self, log: BaseWAL, what: str) -> None:
        name = ODD_IDS[what]
        log.append(Ev.STEP_INTENT, saga=name, step=name, payload={"after": False})
        step(log, 1)
        odd, after = ours(log)
        assert (odd.saga, odd.step, odd.data) == (name, name, {"after": False})
        assert after.data == {"n": 1}

    @pytest.mark.parametrize("what", sorted(ODD_VALUES))
    def test_odd_values_never_fail_and_harm_no_other_record(self, log: BaseWAL, what: str) -> None:
        log.append(Ev.STEP_COMMITTED, saga="s", payload={"v": ODD_VALUES[what], "n": 0})
        step(log, 1)
        odd, after = ours(log)
        assert odd.data["n"] == 0
        assert len(odd.payload or b"") < 2 << 20
        assert after.data == {"n": 1}

    def test_secrets_never_reach_it(self, log: BaseWAL) -> None:
        log.append(Ev.STEP_INTENT, saga="s", payload={"password": "hunter2", "note": SECRET})
        log.append(Ev.STEP_INTENT, saga="s", payload=masked({"token": SECRET})[0])
        kept = b"".join(record.payload or b"" for record in log.read_all())
        assert b"hunter2" not in kept
        assert SECRET.encode() not in kept

    def test_only_encoded_payloads_are_taken(self, log: BaseWAL) -> None:
        raw: Any = b'{"token":"x"}'
        with pytest.raises(TypeError):
            log.append(Ev.STEP_INTENT, saga="s", payload=raw)
        step(log, 1)
        assert len(ours(log)) == 1

    def test_draining_again_writes_nothing_again(self, log: BaseWAL) -> None:
        seq = step(log, 1)
        for _ in range(3):
            log.drain()
        assert log.written >= seq
        assert len(ours(log)) == 1

    def test_append_out_hands_over_at_once_when_idle(self, log: BaseWAL) -> None:
        seq, out = log.append_out(Ev.STEP_COMMITTED, saga="s", payload={"n": 1})
        assert out
        assert log.written >= seq

    def test_one_loop_turn_hands_over_together(self, log: BaseWAL) -> None:
        async def work() -> int:
            loop = asyncio.get_running_loop()
            log.append(Ev.SAGA_BEGIN, saga="s")
            log.drain()
            writes = log.counters.writes
            futures = [log.out_future(step(log, number), loop) for number in range(10)]
            await asyncio.gather(*(future for future in futures if future is not None))
            assert log.written >= log.seq
            return log.counters.writes - writes

        assert asyncio.run(work()) == 1
        assert len(ours(log)) == 11

    def test_threads_keep_their_order_and_lose_nothing(self, log: BaseWAL) -> None:
        def work(name: str) -> None:
            for number in range(50):
                step(log, number, saga=name)
                if number % 10 == 0:
                    log.drain()

        in_threads([partial(work, f"thread-{n}") for n in range(4)])
        records = ours(log)
        assert [r.seq for r in records] == sorted({r.seq for r in records})
        for name in ("thread-0", "thread-1", "thread-2", "thread-3"):
            assert [r.data["n"] for r in records if r.saga == name] == list(range(50))

    def test_closing_keeps_everything_and_ends_the_log(self, opener: WALOpener) -> None:
        log = opener()
        for number in range(5):
            step(log, number)
        log.close()
        log.close()
        assert [record.data["n"] for record in ours(log)] == list(range(5))
        assert list(log.read_all())[-1].event == Ev.WRITER_CLOSE
        with pytest.raises(WALPoisoned):
            step(log, 6)

    def test_closing_what_was_never_used_makes_nothing(self, opener: WALOpener) -> None:
        log = opener()
        asyncio.run(log.aclose())
        assert list(log.read_all()) == []
        with pytest.raises(WALPoisoned):
            step(log, 1)
