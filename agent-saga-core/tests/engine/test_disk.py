"""The disk fails, fills up or hangs under a boundary: effects always have a durable intent, and
nothing is reported clean that the log cannot vouch for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading

import pytest

from agent_saga import AgentKit, FileWAL, SagaAborted, WALError
from agent_saga.domain.fold import fold
from agent_saga.errors import WALBackpressure, WALStalled
from agent_saga.wal.base import BackpressurePolicy
from agent_saga_testing.faults import FOR_EVER, FaultyPort
from agent_saga_testing.waiting import until


class Boom(Exception):
    pass


class Port(FaultyPort):
    """A port whose hangs can all be released, also when a test has failed."""

    def __init__(self):
        super().__init__()
        self.hangs = []

    def hang(self, name=None, **options):
        hang = super().hang(name, **options)
        self.hangs.append(hang)
        return hang


@pytest.fixture
def port():
    return Port()


@pytest.fixture
def disk(tmp_path, port):
    wal = FileWAL(tmp_path / "log", port=port, stall_after=60.0)
    yield wal
    port.heal()
    for hang in port.hangs:
        hang.release()
    with contextlib.suppress(WALError):
        wal.close()


def kit_on(wal, fast):
    return AgentKit("disk", wal=wal, settings=fast)


def tool_of(kit, world, mode):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="pay")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


def durable_intents(path):
    """How many intents a reader finds that starts from the files alone."""
    records = []
    with contextlib.suppress(WALError):
        records.extend(FileWAL(path).read_all())
    return len([r for r in records if r.event == "STEP_INTENT"])


@pytest.mark.guarantee("INTENT-1")
def test_the_effect_waits_until_its_intent_is_durable(tmp_path, disk, port, fast, world):
    kit = kit_on(disk, fast)
    tool = kit.safe_tool(world.charge, "COMPENSABLE")
    hang = port.hang("fdatasync", times=FOR_EVER)

    def agent():
        with kit.transaction():
            tool(5)

    thread = threading.Thread(target=agent)
    thread.start()
    assert hang.reached.wait(60)
    assert world.charges == []
    hang.release()
    thread.join(60)
    assert world.amounts == [5]


@pytest.mark.guarantee("INTENT-1")
def test_the_effect_waits_until_its_intent_is_durable_on_a_loop(disk, port, fast, world):
    kit = kit_on(disk, fast)

    async def pay(amount):
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE")
    hang = port.hang("fdatasync", times=FOR_EVER)

    async def main():
        async with kit.transaction():
            task = asyncio.ensure_future(tool(5))
            await asyncio.to_thread(hang.reached.wait, 60)
            for _ in range(20):
                await asyncio.sleep(0)
            assert world.charges == []
            hang.release()
            await task

    asyncio.run(main())
    assert world.amounts == [5]


@pytest.mark.guarantee("INTENT-1")
def test_a_disk_that_stalls_refuses_the_effect(mode, disk, port, fast, world):
    kit = kit_on(disk, fast)
    disk.stall_after = disk._waiters.stall_after = 0.1
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE")
    hang = port.hang("fdatasync", times=FOR_EVER)

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    hang.release()
    assert world.charges == []
    assert isinstance(error.cause, WALStalled)


@pytest.mark.guarantee("COMMIT-1")
def test_success_is_returned_only_when_the_commit_is_durable(disk, port, fast, world):
    kit = kit_on(disk, fast)
    tool = kit.safe_tool(world.charge, "COMPENSABLE")
    left = threading.Event()
    hangs = []

    def agent():
        with kit.transaction():
            tool(5)
            disk.barrier_sync()
            hangs.append(port.hang("fdatasync", times=FOR_EVER))
        left.set()

    thread = threading.Thread(target=agent)
    thread.start()
    until(lambda: hangs)
    assert hangs[0].reached.wait(60)
    assert not left.wait(0.05)
    hangs[0].release()
    assert left.wait(60)
    thread.join()


@pytest.mark.guarantee("COMMIT-1")
def test_a_commit_that_cannot_be_made_durable_is_no_success(mode, disk, port, fast, world):
    kit = kit_on(disk, fast)
    tool = tool_of(kit, world, mode)

    async def body(saga):
        await mode.call(tool, 5)
        disk.barrier_sync()
        port.fail(None, error=errno.EIO, times=FOR_EVER)

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert error.report.outcome == "RELEASED"
    assert not error.report.clean
    assert world.standing == ["ch1"]


def test_no_inverse_runs_when_the_log_cannot_announce_it(mode, disk, port, fast, world):
    kit = kit_on(disk, fast)
    tool = tool_of(kit, world, mode)

    async def body(saga):
        await mode.call(tool, 1)
        await mode.call(tool, 2)
        disk.barrier_sync()
        port.fail(None, error=errno.EIO, times=FOR_EVER)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == []
    assert error.report.outcome == "RELEASED"
    assert len(error.report.unresolved) == 2
    assert isinstance(error.cause, Boom)


def test_a_full_disk_refuses_intents_and_is_usable_again_when_freed(mode, tmp_path, fast, world):
    port = FaultyPort()
    wal = FileWAL(tmp_path / "full", port=port)
    kit = kit_on(wal, fast)
    tool = tool_of(kit, world, mode)
    port.fail("fallocate", error=errno.ENOSPC, times=FOR_EVER)
    port.fail("pwrite", error=errno.ENOSPC, times=FOR_EVER)

    async def body(saga):
        await mode.call(tool, 1)

    error = mode.attempt(kit, body)
    assert world.charges == []
    assert isinstance(error.cause, WALError)
    port.heal()
    with contextlib.suppress(WALError):
        wal.close()
    kit = kit_on(FileWAL(tmp_path / "full"), fast)
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="again")

    async def again(saga):
        await mode.call(tool, 2)

    assert mode.attempt(kit, again) is None
    assert world.amounts == [2]
    kit.runtime.wal.close()


def test_backpressure_refuses_before_the_effect(mode, tmp_path, fast, world):
    wal = FileWAL(tmp_path / "slow", policy=BackpressurePolicy.RAISE, max_unsynced=1)
    kit = kit_on(wal, fast)
    tool = tool_of(kit, world, mode)

    async def body(saga):
        wal.append("SAGA_RELEASED", saga="other", epoch=1)
        await mode.call(tool, 1)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, WALBackpressure)
    assert world.charges == []
    assert error.report.clean
    wal.close()


class Seen:
    """What stood at each effect: how many intents were durable."""

    def __init__(self, world, path):
        self.world = world
        self.path = path
        self.intents = []

    def charge(self, amount):
        self.intents.append(durable_intents(self.path))
        return self.world.charge(amount)


def agent_on(path, port, fast, world, *, fails):
    """Three steps and, if told so, an undoing; returns what leaving the boundary raised."""
    wal = FileWAL(path, port=port)
    kit = kit_on(wal, fast)
    seen = Seen(world, path)

    def inverse(result):
        from agent_saga import Compensation

        return Compensation(fn=world.refund, kwargs={"number": result["id"]})

    tool = kit.safe_tool(seen.charge, compensate=inverse, name="pay")
    error = None
    try:
        with kit.transaction():
            for amount in (1, 2, 3):
                tool(amount)
            if fails:
                raise Boom
    except SagaAborted as aborted:
        error = aborted
    port.heal()
    with contextlib.suppress(WALError):
        wal.close()
    port.let_go()
    return error, seen


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", ["pwrite", "fdatasync", "fsync", "fallocate", "open", "mkdir"])
def test_a_fault_at_every_call_never_gives_a_false_clean(tmp_path, fast, world, name, fails):
    """At every write, sync and new file of three steps and an undoing."""
    counting = FaultyPort()
    agent_on(tmp_path / "counted", counting, fast, type(world)(), fails=fails)
    for nth in range(1, counting.count(name) + 1):
        port, fresh = FaultyPort(), type(world)()
        port.fail(name, nth=nth)
        path = tmp_path / f"{name}{nth}"
        error, seen = agent_on(path, port, fast, fresh, fails=fails)
        where = f"{name} {nth}: {error!r}"
        for place, intents in enumerate(seen.intents, 1):
            assert intents >= place, where
        assert len(set(fresh.refunds)) == len(fresh.refunds), where
        if error is None:
            assert fresh.standing == ["ch1", "ch2", "ch3"], where
        elif error.report.clean:
            assert fresh.standing == [], where
        records = []
        with contextlib.suppress(WALError):
            records.extend(FileWAL(path).read_all())
        assert all(not view.faults for view in fold(records).values()), where


@pytest.mark.parametrize("fails", [False, True])
def test_short_writes_at_every_write_never_give_a_false_clean(tmp_path, fast, world, fails):
    counting = FaultyPort()
    agent_on(tmp_path / "counted", counting, fast, type(world)(), fails=fails)
    for nth in range(1, counting.count("pwrite") + 1):
        port, fresh = FaultyPort(), type(world)()
        port.shorten("pwrite", nth=nth, keep=7)
        error, _ = agent_on(tmp_path / f"short{nth}", port, fast, fresh, fails=fails)
        if error is None:
            assert fresh.standing == ["ch1", "ch2", "ch3"]
        elif error.report.clean:
            assert fresh.standing == []
