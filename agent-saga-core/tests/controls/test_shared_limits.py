"""Limits over processes and crashes: exactly the cap, and what a crash leaves is mended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from controls.limit_worker import kit_on

from agent_saga import FileWAL, LimitExceeded
from agent_saga.controls.limits.leases import MOST
from agent_saga.controls.limits.moments import Moment, moment
from agent_saga.controls.limits.upkeep import upkeep, usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

WORKER = Path(__file__).with_name("limit_worker.py")


class Worker:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        out, _ = self.process.communicate(timeout=300)
        return int(out or 0), self.process.returncode


@pytest.fixture
def place(tmp_path):
    return tmp_path / "log", tmp_path / "world"


def used(log):
    with SQLiteStateStore(log / FILE_NAME) as state:
        return {one.limit: one for one in usage_of(state, moment(SYSTEM_CLOCK))}


@pytest.mark.crash
@pytest.mark.guarantee("LIMIT-1")
def test_four_processes_with_two_hundred_charges_each_get_exactly_the_cap(place):
    log, world = place
    workers = [Worker(log, world, 500, 200) for _ in range(4)]
    for worker in workers:
        worker.go()
    ends = [worker.end() for worker in workers]
    assert [code for _, code in ends] == [0, 0, 0, 0]
    assert world.stat().st_size == 500
    assert sum(refused for refused, _ in ends) == 300
    assert used(log)["spend"].used == 500
    assert used(log)["calls"].used == 500


@pytest.mark.crash
@pytest.mark.guarantee("LIMIT-3")
@pytest.mark.parametrize("die", ["before the intent", "in the effect"])
def test_what_a_killed_process_held_is_handed_back_only_if_it_announced_nothing(place, die):
    log, world = place
    for _ in range(3):
        worker = Worker(log, world, 100, 1, die)
        worker.go()
        assert worker.end()[1] != 0
    happened = world.stat().st_size if world.exists() else 0
    assert happened == (3 if die == "in the effect" else 0)
    assert used(log)["spend"].used in (3, 1)  # each newcomer sweeps what the one before it left
    worker = Worker(log, world, 100, 200)
    worker.go()
    assert worker.end() == (200 - (100 - happened), 0)
    assert world.stat().st_size == 100


def charge(log, most, count):
    wal = FileWAL(log)
    try:
        kit = kit_on(wal, most)
        done = []

        def note(amount):
            done.append(amount)

        tool = kit.safe_tool(note, "COMPENSABLE", name="charge")
        look = kit.safe_tool(note, "REVERSIBLE", name="look")
        with kit.transaction():
            for number in range(count):
                try:
                    (look if number % 5 == 4 else tool).call(amount=1)
                except LimitExceeded:
                    break
        return len(done)
    finally:
        wal.close()


@pytest.mark.guarantee("LIMIT-6")
@pytest.mark.parametrize("lost", ["all", "the last", "nothing"])
def test_a_store_behind_the_log_is_caught_up(tmp_path, lost):
    """What a power loss takes from the store stands in the announcements, and counts."""
    log = tmp_path / "log"
    assert charge(log, 100, 20) == 20
    kept = {p.name: p.read_bytes() for p in log.glob(f"{FILE_NAME}*")}
    assert charge(log, 100, 20) == 20
    if lost == "all":
        for path in log.glob(f"{FILE_NAME}*"):
            path.unlink()
    elif lost == "the last":
        for path in log.glob(f"{FILE_NAME}*"):
            path.unlink()
        for name, body in kept.items():
            (log / name).write_bytes(body)
    wal = FileWAL(log)
    with SQLiteStateStore(log / FILE_NAME) as state:
        now = moment(SYSTEM_CLOCK)
        other = Moment(now.wall, 5.0, "another boot")
        wal.begin()
        upkeep(state, wal, other)
        found = {one.limit: one.used for one in usage_of(state, other)}
        upkeep(state, wal, other)
        assert {one.limit: one.used for one in usage_of(state, other)} == found
    wal.close()
    assert found["spend"] == 40
    # Leases that the store of then had count as used, beside what was spent of them since.
    assert 40 <= found["calls"] <= (40 if lost == "all" else 40 + 2 * MOST)


def test_a_refused_call_s_announcement_that_was_not_started_is_not_caught_up(tmp_path):
    from agent_saga.controls.control import Control
    from agent_saga.controls.installed import INSTALLED
    from agent_saga.errors import RefusedError

    class Last(Control):
        name = "last"

        def check(self, call):
            return None

        def recheck(self, call):
            raise RefusedError("no", rule="last", reason="halted meanwhile")

    log = tmp_path / "log"
    INSTALLED.put("switch", Last())
    try:
        with pytest.raises(Exception, match="undone"):
            charge(log, 100, 1)
    finally:
        INSTALLED.put("switch", None)
    for path in log.glob(f"{FILE_NAME}*"):
        path.unlink()
    assert charge(log, 100, 200) == 100


def test_a_call_costs_the_store_one_transaction(tmp_path):
    log = tmp_path / "log"
    wal = FileWAL(log)
    kit = kit_on(wal, 100)  # too small a limit for leases
    tool = kit.safe_tool(lambda amount: None, "COMPENSABLE", name="charge")
    counts = []

    async def main():
        async with kit.transaction():
            await tool(amount=1)
            store = kit.runtime.engine().gate.controls[0].store.state
            before = store.async_transact

            async def counted(*args, **kwargs):
                counts.append(args)
                return await before(*args, **kwargs)

            store.async_transact = counted
            for _ in range(50):
                await tool(amount=1)

    asyncio.run(main())
    wal.close()
    assert len(counts) == 50
    assert used(log)["spend"].used == 51
    assert used(log)["spend"].held == 1
