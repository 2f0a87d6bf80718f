"""A storm of identical calls with one step key is one effect, and counts once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_saga import AgentKit, BudgetLimit, FileWAL, MemoryWAL, PreFlightGate, RateLimit
from agent_saga.controls.limits import chosen
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

WORKER = Path(__file__).with_name("storm_worker.py")
CALLS = 1000


@pytest.fixture(params=["memory", "sqlite"])
def wal(request, tmp_path):
    if request.param == "memory":
        yield MemoryWAL()
        return
    log = FileWAL(tmp_path / "log")
    yield log
    log.close()


@pytest.fixture
def kit(wal):
    limits = [
        BudgetLimit("spend", arg="amount", max_total=10, window=3600),
        RateLimit("calls", max_calls=10, window=3600),
    ]
    return AgentKit("storm", wal=wal, gate=PreFlightGate(limits=limits))


def used(wal):
    _, store = chosen._stores[wal]
    return {one.limit: one.used for one in store.usage()}


@pytest.mark.guarantee("KEY-1")
def test_a_thousand_identical_calls_on_a_loop_are_one_effect(kit, wal, world):
    async def wire(amount):
        await asyncio.sleep(0.01)
        return world.wire(amount)

    tool = kit.safe_tool(wire, "COMPENSABLE", name="wire")

    async def main():
        async with kit.transaction():
            return await asyncio.gather(*[tool.keyed("one")(amount=1) for _ in range(CALLS)])

    answers = asyncio.run(main())
    assert answers == [{"amount": 1, "to": "acme"}] * CALLS
    assert world.amounts == [1]
    assert used(wal) == {"spend": 1, "calls": 1}


@pytest.mark.guarantee("KEY-1")
def test_identical_calls_of_many_threads_are_one_effect(kit, wal, world):
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    answers = []

    with kit.transaction() as saga:
        start = threading.Barrier(20)

        def work():
            start.wait()
            for _ in range(CALLS // 20):
                answers.append(tool.keyed("one").call(amount=1))  # noqa: PERF401 - from many threads

        threads = [threading.Thread(target=saga.bind(work)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == CALLS
    assert world.amounts == [1]
    assert used(wal) == {"spend": 1, "calls": 1}


@pytest.mark.crash
@pytest.mark.guarantee("KEY-1")
def test_a_thousand_identical_calls_in_four_processes_are_one_effect(tmp_path):
    log, world = tmp_path / "log", tmp_path / "world"
    command = [sys.executable, str(WORKER), str(log), str(world), str(CALLS // 4)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    ends = [worker.communicate(timeout=300)[0].strip() for worker in workers]
    assert world.stat().st_size == 1
    assert f"answered {CALLS // 4}" in ends
    assert all(end.startswith(("refused", f"answered {CALLS // 4}")) for end in ends)
    with SQLiteStateStore(log / FILE_NAME) as state:
        found = {one.limit: one.used for one in usage_of(state, moment(SYSTEM_CLOCK))}
    assert found == {"spend": 1, "calls": 1}
