"""The kill switch, by counting effects: what is halted does not happen, and undoing goes on."""

from __future__ import annotations

import asyncio
import math
import threading
import time

import pytest

from agent_saga import (
    AgentKit,
    Compensation,
    FileSwitchStore,
    Halted,
    KillSwitch,
    PreFlightGate,
    Quarantined,
    RetryPolicy,
    SagaAborted,
    Settings,
    set_kill_switch,
)
from agent_saga.controls.control import CallView
from agent_saga.controls.switch import kill_switch as module
from agent_saga.controls.switch.document import Asked
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, StateError, StateUnavailable
from agent_saga.recovery.recover import NEEDS_HUMAN, UNDONE
from agent_saga.runtime.daemon import RecoveryDaemon
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.signal import FileSignal

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2, tool_threads=2)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def switch(log):
    return KillSwitch(FileSwitchStore(log))


class World:
    def __init__(self):
        self.done = []
        self.undone = []
        self.lock = threading.Lock()

    def act(self, number):
        with self.lock:
            self.done.append(number)
        return {"number": number}

    def back(self, number):
        with self.lock:
            self.undone.append(number)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def kit(log):
    return AgentKit("stopped", wal=str(log), settings=FAST)


def acting(kit, world, *, name="wire.send", fn=None, **options):
    def undo(result):
        return Compensation(fn=world.back, kwargs={"number": result["number"]})

    return kit.safe_tool(fn or world.act, "COMPENSABLE", undo, name=name, **options)


# --- what it stops -------------------------------------------------------------------------------


@pytest.mark.guarantee("HALT-1")
@pytest.mark.parametrize("scope", ["*", "tool:wire.send", "tool:wire.*", "tag:money"])
def test_what_is_halted_does_not_happen_and_happens_again_when_it_is_lifted(
    kit, world, switch, scope
):
    send = acting(kit, world, tags=["money"])
    with kit.transaction():
        send(1)
        switch.halt(scope, reason="fraud", by="soc")
        with pytest.raises(Halted) as caught:
            send(2)
        assert "fraud" in str(caught.value)
        assert "soc" in str(caught.value)
        switch.lift(scope, by="soc")
        send(3)
    assert world.done == [1, 3]


@pytest.mark.parametrize("scope", ["tool:wire", "tool:wire.sent", "tool:wir.*", "tag:wire.send"])
def test_what_a_halt_does_not_cover_goes_on(kit, world, switch, scope):
    send = acting(kit, world, tags=["money"])
    switch.halt(scope, reason="r", by="b")
    with kit.transaction():
        send(1)
    assert world.done == [1]


def test_reads_are_halted_too(kit, world, switch):
    look = kit.safe_tool(world.act, "REVERSIBLE", name="look")
    switch.halt("tool:look", reason="r", by="b")
    with kit.transaction(), pytest.raises(Halted):
        look(1)
    assert world.done == []


def test_undoing_goes_on_under_a_halt_of_everything(kit, world, switch):
    send = acting(kit, world)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        send(1)
        send(2)
        switch.halt("*", reason="r", by="b")
        send(3)
    assert world.done == [1, 2]
    assert world.undone == [2, 1]
    assert caught.value.report.clean


def test_a_drain_lets_a_begun_saga_end_and_no_new_one_begin(kit, world, switch):
    send = acting(kit, world)
    with kit.transaction():
        send(1)
        switch.halt("*", reason="closing", by="ops", drain=True)
        send(2)
    with kit.transaction(), pytest.raises(Halted, match="drained"):
        send(3)
    assert world.done == [1, 2]


def test_a_halt_with_a_time_is_over_by_itself(kit, world, switch):
    send = acting(kit, world)
    switch.halt("*", reason="r", by="b", ttl=2)
    with kit.transaction(), pytest.raises(Halted):
        send(1)
    while switch.switches().against(Asked("wire.send", (), time.time_ns() // 1000)):
        time.sleep(0.02)
    with kit.transaction():
        send(2)
    assert world.done == [2]


class Stepping:
    """The wall clock, put forward or back by a test."""

    def __init__(self):
        self.step = 0

    def now_us(self):
        return time.time_ns() // 1000 + self.step

    def monotonic(self):
        return time.monotonic()


@pytest.mark.guarantee("HALT-1")
@pytest.mark.parametrize("hours", [-5, 5])
@pytest.mark.parametrize("how", ["a drain", "a halt with an end"])
def test_a_clock_step_lifts_nothing(world, hours, how):
    clock, store = Stepping(), MemoryStateStore()
    switch = KillSwitch(SwitchStore(store), clock=clock)
    gate = PreFlightGate(kill_switch=switch)
    kit = AgentKit("steps", wal="memory:", gate=gate, settings=FAST)
    kit.runtime.engine().clock = clock
    send = acting(kit, world)
    with kit.transaction():
        send(1)
    if how == "a drain":
        switch.halt("*", reason="r", by="b", drain=True)
    else:
        switch.halt("*", reason="r", by="b", ttl=600)
    with kit.transaction(), pytest.raises(Halted):
        send(2)
    clock.step = hours * 3600 * 1_000_000
    with kit.transaction(), pytest.raises(Halted):
        send(3)
    assert world.done == [1]


def test_a_gate_asks_its_own_switch_and_a_process_one_for_all(world):
    switch = KillSwitch(SwitchStore(MemoryStateStore()))
    mine = AgentKit("mine", wal="memory:", gate=PreFlightGate(kill_switch=switch), settings=FAST)
    other = AgentKit("other", wal="memory:", settings=FAST)
    one, two = acting(mine, world), acting(other, world)
    switch.halt("*", reason="r", by="b")
    with mine.transaction(), pytest.raises(Halted):
        one(1)
    with other.transaction():
        two(2)
    set_kill_switch(switch)
    try:
        with other.transaction(), pytest.raises(Halted):
            two(3)
    finally:
        set_kill_switch(None)
    assert world.done == [2]


def test_a_freeze_of_one_class_leaves_another_alone_that_is_a_scope_of_its_own(kit, world, switch):
    """A destructive call without an inverse under a freeze; the backups are a separate scope."""
    drop = kit.safe_tool(world.act, "REVERSIBLE", name="volume.delete", tags=["destructive"])
    backup = kit.safe_tool(world.act, "REVERSIBLE", name="backup.write", tags=["backups"])
    switch.halt("tag:destructive", reason="code freeze", by="ops")
    with kit.transaction():
        with pytest.raises(Halted, match="code freeze"):
            drop(1)
        backup(2)
        switch.halt("tag:backups", reason="these too", by="ops")
        with pytest.raises(Halted, match="these too"):
            backup(3)
    assert world.done == [2]


def test_the_posture_of_a_kit_tells_what_is_halted_and_is_not_ready_when_it_cannot(
    kit, switch, log
):
    assert kit.status().facts["halted"] == []
    switch.halt("tool:a", reason="r", by="ann")
    status = kit.status()
    assert status.facts["halted"] == ["tool:a"]
    assert any("set by ann" in warning for warning in status.warnings)
    (log / "state.switch.sqlite").write_text("99\n")
    status = kit.status()
    assert not status.ready
    assert any("may be lost" in blocker for blocker in status.blockers)


# --- what is under way ---------------------------------------------------------------------------


@pytest.mark.guarantee("HALT-1")
def test_no_new_effect_of_parallel_calls_a_retry_loop_and_a_queue_after_a_halt(kit, world, switch):
    """Five calls at once on two threads, one more between two attempts; then everything halts."""
    both = threading.Barrier(3)
    go_on = threading.Event()

    def slow(number):
        both.wait(30)
        go_on.wait(30)
        return world.act(number)

    def flaky(number):
        world.act(number)
        raise ConnectionRefusedError("again")

    at_work = acting(kit, world, name="slow", fn=slow)
    retrying = acting(
        kit,
        world,
        name="flaky",
        fn=flaky,
        retry=RetryPolicy(max_retries=50, base_delay=0.05, retry_on=(ConnectionRefusedError,)),
        not_applied_on=(ConnectionRefusedError,),
    )

    async def run():
        loop = asyncio.get_running_loop()
        async with kit.transaction():
            loop_task = asyncio.ensure_future(retrying.acall(100))
            while world.done.count(100) < 2:
                await asyncio.sleep(0.01)
            tasks = [asyncio.ensure_future(at_work.acall(n)) for n in range(5)]
            await loop.run_in_executor(None, both.wait, 30)  # two have begun, three wait
            await asyncio.to_thread(switch.halt, "*", reason="stop", by="soc")
            before = list(world.done)
            go_on.set()
            done = await asyncio.gather(loop_task, *tasks, return_exceptions=True)
        return before, done

    before, done = asyncio.run(run())
    assert isinstance(done[0], Halted)
    ended = [one for one in done[1:] if not isinstance(one, BaseException)]
    assert len(ended) == 2
    assert sum(isinstance(one, Halted) for one in done) == 4
    assert sorted(world.done[len(before) :]) == sorted(one["number"] for one in ended)


def test_a_call_that_waited_for_a_thread_is_not_made_after_a_halt(kit, world, switch):
    entered, leave = threading.Event(), threading.Event()

    def hold():
        entered.set()
        leave.wait(30)

    send = acting(kit, world)
    block = kit.safe_tool(hold, "REVERSIBLE", name="block")

    async def run():
        async with kit.transaction():
            blocked = [asyncio.ensure_future(block.acall()) for _ in range(2)]
            await asyncio.to_thread(entered.wait, 30)
            queued = asyncio.ensure_future(send.acall(1))
            pool = kit.runtime.engine().pool
            while not pool.stats()["queued"]:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(switch.halt, "*", reason="stop", by="soc")
            leave.set()
            await asyncio.gather(*blocked)
            with pytest.raises(Halted):
                await queued

    asyncio.run(run())
    assert world.done == []


# --- quarantine ----------------------------------------------------------------------------------


@pytest.mark.guarantee("HALT-2")
def test_a_quarantine_stops_steps_and_inverses_and_recovery_until_it_is_lifted(
    kit, world, switch, log
):
    with kit.transaction() as other:
        pass
    from agent_saga import tool

    @tool("COMPENSABLE", name="durable")
    def durable(number: int):
        return world.act(number)

    @durable.undo
    def back(result):
        world.back(result["number"])

    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        durable(1)
        switch.quarantine(saga.id, reason="forensics", by="soc")
        with pytest.raises(Quarantined):
            durable(2)
        raise RuntimeError("the run failed")
    report = caught.value.report
    assert (world.done, world.undone) == ([1], [])
    assert not report.clean
    assert report.unresolved
    daemon = RecoveryDaemon(str(log), settings=FAST)
    try:
        (left,) = daemon.recover_all().sagas
        assert (left.outcome, world.undone) == (NEEDS_HUMAN, [])
        assert "quarantined by soc" in left.reason
        with pytest.raises(Quarantined):
            daemon.undo(saga.id, by="x", reason="y")
        switch.release_saga(saga.id, by="soc")
        assert [one.outcome for one in daemon.recover_all().sagas] == [UNDONE]
    finally:
        daemon.close()
    assert world.undone == [1]
    assert other.id != saga.id


def test_a_name_with_blanks_around_is_the_same_saga(switch):
    (entry,) = switch.quarantine(" s ", reason="r", by="b").entries
    assert entry.scope == "s"
    assert switch.release_saga("s ", by="b").entries == (entry,)


def test_what_a_terminal_of_another_encoding_gives_halts_all_the_same(kit, world, switch):
    switch.halt("*", reason="\udce9teint", by="Ren\udce9")
    with kit.transaction(), pytest.raises(Halted, match="udce9teint"):
        acting(kit, world)(1)
    assert world.done == []


def test_one_tag_halts_what_has_it(kit, world, switch):
    send = acting(kit, world, tags="payments")
    switch.halt("tag:payments", reason="r", by="b")
    with kit.transaction(), pytest.raises(Halted):
        send(1)
    assert world.done == []


def test_a_quarantine_concerns_its_saga_only(kit, world, switch):
    send = acting(kit, world)
    switch.quarantine("another", reason="r", by="b")
    with kit.transaction():
        send(1)
    assert world.done == [1]


# --- a store that cannot be read -----------------------------------------------------------------


class Unreachable(MemoryStateStore):
    """A store that a test takes away."""

    trouble = None

    def get(self, key, *, timeout=None):
        if self.trouble is not None:
            raise self.trouble
        return super().get(key, timeout=timeout)


@pytest.fixture
def away(monkeypatch):
    """A switch whose store can be taken away, and the clock that its grace is measured by."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    store = Unreachable()
    switch = KillSwitch(SwitchStore(store), grace=30)
    kit = AgentKit("away", wal="memory:", gate=PreFlightGate(kill_switch=switch), settings=FAST)
    return store, now, kit


@pytest.mark.guarantee("HALT-3")
def test_what_was_read_last_counts_for_the_grace_and_then_everything_is_refused(away, world):
    store, now, kit = away
    send = acting(kit, world)
    with kit.transaction():
        send(1)
        store.trouble = StateUnavailable("down")
        now[0] += 29
        send(2)
        now[0] += 2
        with pytest.raises(Halted, match="cannot be read"):
            send(3)
        store.trouble = None
        send(4)
    assert world.done == [1, 2, 4]


@pytest.mark.guarantee("HALT-3")
def test_a_halt_that_was_read_holds_while_the_store_is_away(away, world):
    store, now, kit = away
    send = acting(kit, world)
    KillSwitch(SwitchStore(store)).halt("*", reason="r", by="b")
    with kit.transaction():
        with pytest.raises(Halted, match="by b"):
            send(1)
        store.trouble = StateUnavailable("down")
        now[0] += 5
        with pytest.raises(Halted, match="by b"):
            send(2)
    assert world.done == []


@pytest.mark.guarantee("HALT-3")
def test_a_process_that_never_read_the_store_refuses_from_its_first_step(away, world):
    store, _, kit = away
    send = acting(kit, world)
    store.trouble = StateUnavailable("down")
    with kit.transaction(), pytest.raises(Halted, match="cannot be read"):
        send(1)
    assert world.done == []


@pytest.mark.guarantee("HALT-3")
def test_a_damaged_document_refuses_at_once_also_within_the_grace(away, world):
    store, now, kit = away
    send = acting(kit, world)
    with kit.transaction():
        send(1)
        store.trouble = StateError("damaged")
        now[0] += 2
        with pytest.raises(Halted):
            send(2)
    assert world.done == [1]


@pytest.mark.guarantee("HALT-3")
def test_a_change_that_was_heard_of_and_cannot_be_read_ends_the_grace(away, world):
    store, now, kit = away
    send = acting(kit, world)
    with kit.transaction():
        send(1)
        KillSwitch(SwitchStore(store)).halt("*", reason="r", by="b")  # it is acknowledged
        store.trouble = StateUnavailable("locked")
        now[0] += 0.1  # no look from before it serves
        with pytest.raises(Halted, match="cannot be read"):
            send(2)
        store.trouble = None
        with pytest.raises(Halted, match="by b"):
            send(3)
    assert world.done == [1]


@pytest.mark.guarantee("HALT-2")
def test_what_may_be_quarantined_is_left_to_recovery(away, world):
    store, _, kit = away
    send = acting(kit, world)
    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        send(1)
        KillSwitch(SwitchStore(store)).quarantine(saga.id, reason="r", by="b")
        store.trouble = StateUnavailable("locked")
        raise RuntimeError("the run failed")
    assert (world.done, world.undone) == ([1], [])
    assert not caught.value.report.clean


@pytest.mark.guarantee("HALT-2")
def test_a_store_that_is_away_and_has_not_changed_keeps_nobody_from_undoing(away, world):
    store, now, kit = away
    send = acting(kit, world)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        send(1)
        store.trouble = StateUnavailable("locked")
        now[0] += 1000
        raise RuntimeError("the run failed")
    assert world.undone == [1]
    assert caught.value.report.clean


def _moved_away(log):
    for path in log.glob("state.sqlite*"):
        path.unlink()


def _emptied(log):
    for name in ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"):
        (log / name).unlink(missing_ok=True)


def _truncated(log):
    _emptied(log)
    (log / "state.sqlite").touch()


def _garbage(log):
    _emptied(log)
    (log / "state.sqlite").write_bytes(b"not a database at all" * 500)


@pytest.mark.guarantee("HALT-3")
@pytest.mark.parametrize("harm", [_emptied, _truncated, _garbage, _moved_away])
def test_an_emptied_or_corrupt_store_refuses_in_a_new_process(log, world, harm, run_python):
    halting = (
        "from agent_saga import FileSwitchStore, KillSwitch\n"
        f"KillSwitch(FileSwitchStore({str(log)!r})).halt('tool:x', reason='r', by='b')\n"
    )
    run_python(halting)
    harm(log)
    kit = AgentKit("new", wal=str(log), settings=FAST)
    send = acting(kit, world)
    with kit.transaction(), pytest.raises(Halted):
        send(1)
    assert world.done == []


@pytest.fixture
def run_python():
    import subprocess
    import sys

    def run(code):
        return subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout

    return run


# --- who acts ------------------------------------------------------------------------------------


def test_operators_who_act_at_once_lose_nothing(log):
    switches = [KillSwitch(FileSwitchStore(log)) for _ in range(8)]
    threads = [
        threading.Thread(target=one.halt, args=(f"tool:t{n}",), kwargs={"reason": "r", "by": "b"})
        for n, one in enumerate(switches)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(switches[0].switches().halts) == 8


@pytest.mark.parametrize(
    "given",
    [
        {"reason": "", "by": "b"},
        {"reason": "r", "by": " "},
        {"reason": None, "by": "b"},
        {"reason": "r", "by": "b", "ttl": 0},
        {"reason": "r", "by": "b", "ttl": float("nan")},
        {"reason": "r", "by": "b", "ttl": True},
        {"reason": "r", "by": "b", "ttl": 1e-9},
        {"reason": "r", "by": "b", "ttl": "60"},
        {"reason": "r", "by": "\u3164"},
        {"reason": "r", "by": "b", "drain": "false"},
        {"reason": "r", "by": "b", "ttl": -1},
    ],
)
def test_a_halt_without_a_reason_a_name_or_a_usable_time_is_refused(switch, log, given):
    with pytest.raises(ConfigurationError):
        switch.halt("*", **given)
    assert not log.exists()


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "30", None, True])
def test_a_grace_that_is_no_number_of_seconds_is_refused(grace):
    with pytest.raises(ConfigurationError):
        KillSwitch(SwitchStore(MemoryStateStore()), grace=grace)


def test_changes_are_in_the_log(switch, log):
    switch.halt("tool:a", reason="why", by="ann", ttl=60)
    switch.lift("tool:a", by="ben")
    switch.quarantine("s1", reason="odd", by="ann")
    switch.release_saga("s1", by="ben")
    found = [(r.event, r.data) for r in switch.store.wal.read_all() if not r.event.startswith("W")]
    told = dict(found)
    assert told["SWITCH_HALTED"]["scope"] == "tool:a"
    assert told["SWITCH_HALTED"]["until"] > told["SWITCH_HALTED"]["at"]
    assert told["SWITCH_LIFTED"]["by"] == "ben"
    assert told["QUARANTINE_SET"]["reason"] == "odd"
    assert told["QUARANTINE_LIFTED"]["saga"] == "s1"


def test_a_halt_says_whether_it_covers_a_declared_tool(kit, world, switch):
    acting(kit, world, name="known.tool")
    assert switch.halt("tool:known.*", reason="r", by="b").known
    done = switch.halt("tool:knwon.tool", reason="r", by="b")
    assert not done.known
    assert "tool:known.tool" in done.nearest


@pytest.mark.parametrize("announced", [True, False], ids=["announced later", "not announced"])
def test_one_look_serves_the_steps_that_were_announced_before_it_and_no_other(
    switch, log, monkeypatch, announced
):
    monkeypatch.setattr(module, "_LOOK_SERVES", 3600.0)
    monkeypatch.setattr(module, "REREAD", 3600.0)
    call = CallView("wire.send", ActionSemantics.COMPENSABLE, {}, frozenset())
    wait = switch.check(call)
    wait.then(wait.request.blocking(), None)
    assert switch.check(call) is None  # it looked, and nothing was set
    call.announced = 0.0
    KillSwitch(FileSwitchStore(log)).halt("*", by="ada", reason="stop")
    assert switch.recheck(call) is None  # it is among those in flight
    call.announced = time.monotonic() if announced else math.inf
    wait = switch.recheck(call)
    with pytest.raises(Halted):
        wait.then(wait.request.blocking(), None)


def test_a_reading_that_fell_due_serves_the_steps_that_come_while_it_lasts(switch, monkeypatch):
    call = CallView("wire.send", ActionSemantics.COMPENSABLE, {}, frozenset())
    wait = switch.check(call)
    wait.then(wait.request.blocking(), None)
    monkeypatch.setattr(module, "REREAD", 0.0)
    monkeypatch.setattr(module, "READING", 3600.0)
    reading = switch.check(call)
    assert reading is not None
    assert [switch.check(call) for _ in range(5)] == [None] * 5
    monkeypatch.setattr(module, "READING", 0.0)  # it lasts too long
    assert switch.check(call) is not None
    monkeypatch.setattr(module, "READING", 3600.0)
    switch.halt("*", by="ada", reason="stop")  # who is rung for waits for no reading
    wait = switch.check(call)
    with pytest.raises(Halted):
        wait.then(wait.request.blocking(), None)


def test_a_look_at_a_signal_sees_its_first_ring_and_every_later_one(tmp_path):
    signal = FileSignal(tmp_path / "signal")
    for rev in range(1, 4):
        seen = signal.seen()
        assert not signal.since(seen)()
        FileSignal(signal.path).ring(rev)
        assert signal.since(seen)()
        assert signal.seen() != seen
    signal.path.unlink()
    assert signal.since(seen)()
