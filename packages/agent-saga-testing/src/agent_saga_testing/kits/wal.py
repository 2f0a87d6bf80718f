"""The conformance kit for logs.

A backend's test is a class of a few lines:

    class TestMyLog(WALConformance):
        capabilities = Capabilities("disk", True, True, False, False)

        @pytest.fixture
        def opener(self, tmp_path):
            return partial(MyLog, str(tmp_path / "log"))

`opener` takes the options of `BaseWAL` and opens the log under test. Where records outlive the
process, every log that it opens shows the records of all; for a backend that other processes can
open it is picklable.
"""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_saga.domain.records import Ev
from agent_saga.errors import SagaFenced, SagaForked
from agent_saga.wal.base import BaseWAL
from agent_saga_testing.kits.conformance import needs
from agent_saga_testing.kits.processes import Process, run_all
from agent_saga_testing.kits.wal_compaction import WALCompaction
from agent_saga_testing.kits.wal_durability import WALDurability
from agent_saga_testing.kits.wal_records import WALRecords
from agent_saga_testing.kits.wal_steps import (
    WALOpener,
    append_many,
    hand_over_then_wait,
    ours,
    step,
)
from agent_saga_testing.waiting import until

__all__ = ["WALConformance"]


class WALConformance(WALRecords, WALDurability, WALCompaction):
    """What every log must pass; see the module for what a backend gives."""

    def test_a_saga_is_its_owners_until_it_is_fenced(self, log: BaseWAL) -> None:
        step(log, 1)
        log.check_fence("saga", 1)
        log.fence("saga", 2)
        for _ in range(2):
            with pytest.raises(SagaFenced):
                log.check_fence("saga", 1)
        log.check_fence("saga", 2)
        log.check_fence("other", 1)

    def test_fences_only_rise(self, log: BaseWAL) -> None:
        step(log, 1)
        log.fence("saga", 5)
        log.fence("saga", 2)
        with pytest.raises(SagaFenced):
            log.check_fence("saga", 4)
        log.check_fence("saga", 5)

    def test_everything_can_be_fenced(self, log: BaseWAL) -> None:
        step(log, 1)
        log.fence("*", 7)
        for saga in ("saga", "other", ""):
            with pytest.raises(SagaFenced):
                log.check_fence(saga, 6)
            log.check_fence(saga, 7)

    def test_a_fenced_writer_still_says_how_things_ended(self, log: BaseWAL) -> None:
        step(log, 1, Ev.STEP_INTENT)
        log.fence("saga", 2)
        step(log, 1, Ev.STEP_NOT_APPLIED)
        log.barrier_sync()
        assert [r.event for r in ours(log)] == [Ev.STEP_INTENT, Ev.STEP_NOT_APPLIED]

    @needs(survives_kill=True)
    def test_records_outlive_the_log(self, opener: WALOpener) -> None:
        first = opener()
        step(first, 1)
        first.close()
        second = opener()
        assert [r.data["n"] for r in ours(second)] == [1]
        step(second, 2)
        second.close()
        assert [r.data["n"] for r in ours(opener())] == [1, 2]
        assert first.writer != second.writer

    @needs(survives_kill=True)
    @pytest.mark.crash
    def test_what_was_handed_over_survives_a_kill(self, opener: WALOpener, tmp_path: Path) -> None:
        marker = tmp_path / "handed-over"
        with Process(hand_over_then_wait, opener, str(marker), 25) as process:
            until(marker.exists)
            process.kill()
        assert [r.data["n"] for r in ours(opener())] == list(range(25))

    @needs(multi_process=True)
    def test_processes_write_one_log(self, opener: WALOpener) -> None:
        names = [f"process-{n}" for n in range(3)]
        run_all(append_many, [(opener, name, 20) for name in names])
        records = ours(opener())
        assert len({record.writer for record in records}) == 3
        for name in names:
            own = [record for record in records if record.saga == name]
            assert [record.data["n"] for record in own] == list(range(20))
            assert len({record.writer for record in own}) == 1

    @needs(multi_process=True)
    def test_a_reader_sees_a_log_that_is_being_written(self, opener: WALOpener) -> None:
        writer, reader = opener(), opener()
        for number in range(5):
            step(writer, number)
            writer.barrier_sync()
            assert [r.data["n"] for r in ours(reader)] == list(range(number + 1))
        writer.close()
        reader.close()

    @needs(multi_process=True)
    def test_another_process_can_fence(self, opener: WALOpener) -> None:
        owner, claimer = opener(), opener()
        step(owner, 1)
        owner.barrier_sync()
        owner.check_fence("saga", 1)
        claimer.fence("saga", 2)
        with pytest.raises(SagaFenced):
            owner.check_fence("saga", 1)
        owner.close()
        claimer.close()

    @needs(multi_process=True)
    @pytest.mark.crash
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_is_a_writer_of_its_own(self, log: BaseWAL) -> None:
        step(log, 1)
        child = os.fork()
        if child == 0:
            _end_child(log)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        step(log, 3)
        log.barrier_sync()
        records = ours(log)
        assert sorted(record.data["n"] for record in records) == [1, 2, 3]
        mine = [record.data["n"] for record in records if record.writer == log.writer]
        assert mine == [1, 3]


def _end_child(log: BaseWAL) -> None:
    """Use the log in a forked child, then end it without the parent's clean-up."""
    try:
        with pytest.raises(SagaForked):
            log.check_fence("saga", 1)
        step(log, 2, saga="childs")
        log.barrier_sync()
        log.check_fence("childs", 1)
        ended_well = True
    except BaseException:
        ended_well = False
    os._exit(0 if ended_well else 1)
