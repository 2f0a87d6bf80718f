"""The log kit's cases about compaction: what is settled leaves, and nothing else."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio

import pytest

from agent_saga.domain.records import Ev
from agent_saga.errors import CompactionRefused
from agent_saga.wal.base import BaseWAL
from agent_saga_testing.kits.conformance import Conformance, needs
from agent_saga_testing.kits.wal_steps import WALOpener

__all__ = ["WALCompaction"]


class WALCompaction(Conformance):
    """What compaction does, or that it is refused by name."""

    @needs(compaction=True)
    def test_settled_sagas_leave_and_others_stay(self, opener: WALOpener) -> None:
        past, log = opener(), opener()
        for number in range(5):
            _saga(past, f"done-{number}", ends=True)
        _saga(past, "open", ends=False)
        past.close()
        assert log.compact(grace_seconds=3600).sagas == 0
        assert log.compact(grace_seconds=0).sagas == 5
        assert {record.saga for record in log.read_all()} == {"", "open"}
        assert log.compact(grace_seconds=0).sagas == 0
        log.close()

    @needs(compaction=True)
    def test_compaction_is_awaited_in_an_event_loop(self, opener: WALOpener) -> None:
        past, log = opener(), opener()
        _saga(past, "done", ends=True)
        past.close()

        async def run() -> int:
            return int((await log.compact(grace_seconds=0)).sagas)

        assert asyncio.run(run()) == 1
        log.close()

    @needs(compaction=False)
    def test_a_log_that_cannot_be_compacted_says_so(self, log: BaseWAL) -> None:
        _saga(log, "done", ends=True)
        with pytest.raises(CompactionRefused):
            log.compact(grace_seconds=0)
        assert [record for record in log.read_all() if record.saga]


def _saga(log: BaseWAL, saga: str, *, ends: bool) -> None:
    about = {"about": {"name": "n", "labels": {}}, "salt": "c2FsdHNhbHRzYWx0c2E"}
    log.append(Ev.SAGA_BEGIN, saga=saga, epoch=1, payload=about)
    if ends:
        log.append(Ev.SAGA_COMMITTED, saga=saga, epoch=1, payload={"unsettled": []})
    log.barrier_sync()
