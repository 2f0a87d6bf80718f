"""The seam: every control is asked in its place, by every driver, and hands back what it took."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agent_saga import AgentKit, Approval, Compensation, RefusedError, RetryPolicy, Rule
from agent_saga.controls.control import Control, Wait, transaction
from agent_saga.controls.installed import INSTALLED
from agent_saga.errors import ConfigurationError, SagaAborted
from agent_saga.state.base import one
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.sqlite import SQLiteStateStore

KEY = "seam/count"


class Counting(Control):
    """Takes one for each call from a store, and hands it back."""

    name = "counting"

    def __init__(self, store, refuse=None):
        self.store = store
        self.refuse = refuse
        self.seen = []

    def _add(self, number):
        def rule(doc):
            total = (doc or {"n": 0})["n"] + number
            return {"n": total}, total

        return transaction(self.store, [KEY], one(KEY, rule), durable=False)

    @property
    def total(self):
        return (self.store.get(KEY) or {"n": 0})["n"]

    def check(self, call):
        self.seen.append("check")
        if call.held is not None:
            return None

        def then(answer, error):
            if error is not None or self.refuse == "check":
                raise RefusedError("no", rule="counting", reason=str(error), control="switch")
            call.hold(self.name, answer)

        return Wait(self._add(1), then)

    def recheck(self, call):
        self.seen.append("recheck")
        if self.refuse == "recheck":
            raise RefusedError("no", rule="counting", reason="at last")

    def release(self, call):
        self.seen.append("release")
        return self._add(-1)

    def ended(self, call, ending, error=None):
        self.seen.append(ending)

    def recorded(self, call):
        return {"total": call.held[self.name]}


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStateStore() if request.param == "memory" else SQLiteStateStore(tmp_path / "s")
    with made:
        yield made


@pytest.fixture
def install():
    before = INSTALLED.get("switch"), INSTALLED.get("breaker")

    def put(control, place="switch"):
        INSTALLED.put(place, control)
        return control

    yield put
    for place, control in zip(("switch", "breaker"), before, strict=True):
        INSTALLED.put(place, control)


@pytest.fixture(params=["sync", "async"])
def drive(request):
    """Call a tool once inside a boundary of a kit."""

    def run(kit, tool, *args):
        if request.param == "sync":
            with kit.transaction():
                return tool(*args)

        async def main():
            async with kit.transaction():
                return await tool(*args)

        return asyncio.run(main())

    return run


def test_a_control_waits_for_its_store_and_is_asked_in_order(install, store, gated, world, drive):
    control = install(Counting(store))
    kit = gated(Rule("big", lambda view: control.seen.append("rule") or False))
    drive(kit, kit.safe_tool(world.wire, "COMPENSABLE"), 5)
    assert control.seen == ["check", "rule", "recheck", "applied"]
    assert (world.amounts, control.total) == ([5], 1)


def test_a_refusal_after_a_control_hands_back_what_it_took(install, store, gated, world, drive):
    control = install(Counting(store))
    kit = gated(Rule("no", lambda view: True))
    with pytest.raises(SagaAborted) as caught:
        drive(kit, kit.safe_tool(world.wire, "COMPENSABLE"), 5)
    assert caught.value.cause.rule == "no"
    assert (world.amounts, control.total) == ([], 0)


def test_a_refusal_directly_before_the_call_hands_back_too(
    install, store, gated, world, drive, wal
):
    control = install(Counting(store, refuse="recheck"))
    kit = gated()
    with pytest.raises(SagaAborted) as caught:
        drive(kit, kit.safe_tool(world.wire, "COMPENSABLE"), 5)
    assert caught.value.report.clean
    assert (world.amounts, control.total) == ([], 0)
    told = next(r.data for r in wal.read_all() if r.event == "STEP_NOT_APPLIED")
    assert "at last" in str(told)


def test_the_announcement_says_what_was_taken(install, store, gated, world, drive, wal):
    install(Counting(store))
    kit = gated()
    drive(kit, kit.safe_tool(world.wire, "COMPENSABLE"), 5)
    drive(kit, kit.safe_tool(world.wire, "REVERSIBLE"), 5)
    told = {r.event: r.data for r in wal.read_all() if r.step}
    assert told["STEP_INTENT"]["counting"] == {"total": 1}
    committed = [r.data for r in wal.read_all() if r.event == "STEP_COMMITTED"]
    assert committed[1]["counting"] == {"total": 2}


def test_a_disk_that_refuses_the_announcement_hands_back(install, store, gated, world, wal):
    from agent_saga.errors import WALFull

    control = install(Counting(store))
    kit = gated()
    append = wal.append

    def full(event, **fields):
        if event == "STEP_INTENT":
            raise WALFull("no room")
        return append(event, **fields)

    wal.append = full
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(WALFull):
        tool(5)
    assert (world.amounts, control.total) == ([], 0)


def test_a_retry_is_judged_again_and_takes_nothing_twice(install, store, gated, world, drive):
    control = install(Counting(store))
    kit = gated()
    calls = []

    def flaky(amount):
        calls.append(amount)
        if len(calls) == 1:
            raise ValueError
        return world.wire(amount)

    tool = kit.safe_tool(
        flaky,
        compensate=lambda r: Compensation.none("test"),
        retry=RetryPolicy(max_retries=2, base_delay=0.001, retry_on=(ValueError,)),
    )
    drive(kit, tool, 5)
    assert control.seen == ["check", "recheck", "unknown", "check", "applied"]
    assert control.total == 1


def test_a_human_s_no_hands_back(install, store, gated, world, drive):
    control = install(Counting(store))

    class No:
        def ask(self, request):
            return Approval(False, "ann")

    kit = gated(provider=No())
    with pytest.raises(SagaAborted):
        drive(kit, kit.safe_tool(world.wire, "IRREVERSIBLE"), 5)
    assert (world.amounts, control.total) == ([], 0)


def test_a_call_cancelled_while_a_store_answers_hands_back(install, gated, world, tmp_path):
    """A cancelled use is carried out to its end, so nothing is left taken."""
    with SQLiteStateStore(tmp_path / "s") as store:
        control = install(Counting(store))
        go, asked = threading.Event(), threading.Event()

        def slow(doc):
            asked.set()
            go.wait(10)
            return doc, None

        kit = gated()
        tool = kit.safe_tool(world.wire, "COMPENSABLE")

        async def main():
            blocker = threading.Thread(
                target=lambda: store.transact([KEY], one(KEY, slow), timeout=20)
            )
            blocker.start()
            await asyncio.to_thread(asked.wait)
            async with kit.transaction():
                task = asyncio.ensure_future(tool(5))
                await asyncio.sleep(0.02)
                task.cancel()
                await asyncio.sleep(0)
                go.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            blocker.join()

        asyncio.run(main())
        assert (world.amounts, control.total) == ([], 0)


def test_compensations_meet_no_control(install, store, gated, world):
    control = install(Counting(store))
    kit = gated()
    undone = []
    tool = kit.safe_tool(
        world.wire, compensate=lambda r: Compensation(fn=lambda: undone.append(r["amount"]))
    )
    with pytest.raises(SagaAborted), kit.transaction():
        tool(5)
        control.refuse = "check"
        raise ValueError
    assert undone == [5]


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize("driver", ["sync", "async"])
@pytest.mark.parametrize("kind", ["async raises", "async hangs", "sync hangs", "async none"])
def test_a_slow_rule_that_gives_no_answer_refuses(gated, world, kind, driver):
    stop = threading.Event()

    async def raises(view):
        raise ConnectionError("the policy engine is down")

    async def hangs(view):
        await asyncio.sleep(30)
        return False

    def blocks(view):
        stop.wait(10)
        return False

    async def none(view):
        return None

    when = {
        "async raises": raises,
        "async hangs": hangs,
        "sync hangs": blocks,
        "async none": none,
    }[kind]
    kit = gated(Rule("engine", when, timeout=0.05))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")

    async def main():
        async with kit.transaction():
            with pytest.raises(RefusedError, match="could not be evaluated"):
                await tool(5)

    if driver == "async":
        asyncio.run(main())
    else:
        with kit.transaction(), pytest.raises(RefusedError, match="could not be evaluated"):
            tool(5)
    stop.set()
    assert world.amounts == []


@pytest.mark.parametrize("then", ["refuse", "ask", "allow"])
def test_a_coroutine_function_is_a_rule(gated, world, drive, then):
    async def over(view):
        await asyncio.sleep(0)
        return view.arguments["amount"] > 3

    class Yes:
        def ask(self, request):
            return Approval(True, "ann")

    kit = gated(Rule("over", over, then), provider=Yes())
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    drive(kit, tool, 3)
    if then == "refuse":
        with pytest.raises(SagaAborted):
            drive(kit, tool, 4)
    else:
        drive(kit, tool, 4)
    assert world.amounts == ([3] if then == "refuse" else [3, 4])


def test_what_is_installed_reaches_the_boundaries_that_open_later(install, gated, world):
    kit = gated()
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(1)
    install(Counting(MemoryStateStore(), refuse="check"))
    with kit.transaction(), pytest.raises(RefusedError):
        tool(2)
    install(None)
    with kit.transaction():
        tool(3)
    assert world.amounts == [1, 3]


def test_only_a_control_can_be_installed_and_only_in_a_place(install):
    with pytest.raises(ConfigurationError):
        install(object())
    with pytest.raises(ConfigurationError):
        install(Counting(MemoryStateStore()), "somewhere")


def test_a_refusal_is_an_explainable_record(gated, world, wal):
    kit = gated(Rule("no-wires", lambda view: True, reason="not today"))
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    with kit.transaction(), pytest.raises(RefusedError):
        tool(5)
    told = next(r.data for r in wal.read_all() if r.event == "STEP_REFUSED")
    assert told["decision"] == {
        "verdict": "refuse",
        "control": "rules",
        "rule": "no-wires",
        "reason": "not today",
    }


def test_a_kit_without_controls_builds_nothing_for_a_call(wal, world):
    kit = AgentKit("plain", wal=wal)
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction() as saga:
        tool(5)
        assert [step.call for step in saga._scope.saga.steps.values()] == [None]


def test_a_control_s_trouble_after_the_call_is_said_and_changes_nothing(
    install, gated, world, caplog
):
    class Broken(Counting):
        def ended(self, call, ending, error=None):
            return transaction(_Down(), [KEY], None, durable=False)

    class Raising(Counting):
        def ended(self, call, ending, error=None):
            raise ValueError(ending)

    for control in (Broken, Raising):
        install(control(MemoryStateStore()))
        kit = gated()
        tool = kit.safe_tool(world.wire, "COMPENSABLE")
        with kit.transaction() as saga:
            tool(5)
        assert saga.report.clean
        assert "did not learn" in caplog.text
        caplog.clear()
    assert world.amounts == [5, 5]


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize("where", ["check", "then", "recheck", "release"])
def test_a_control_that_raises_anything_else_refuses(install, store, gated, world, drive, where):
    class Raising(Counting):
        def check(self, call):
            if where == "check":
                raise ValueError(where)
            wait = super().check(call)
            then = wait.then

            def broken(answer, error):
                then(answer, error)
                if where == "then":
                    raise ValueError(where)

            wait.then = broken
            return wait

        def recheck(self, call):
            if where in ("recheck", "release"):
                raise ValueError(where)

        def release(self, call):
            if where == "release":
                raise ValueError(where)
            return super().release(call)

    control = install(Raising(store))
    kit = gated()
    with pytest.raises(SagaAborted) as caught:
        drive(kit, kit.safe_tool(world.wire, "COMPENSABLE"), 5)
    assert isinstance(caught.value.cause, RefusedError)
    assert caught.value.report.clean
    assert world.amounts == []
    assert control.total == (1 if where == "release" else 0)


class _Down:
    def transact(self, *args, **kwargs):
        time.sleep(0)
        raise OSError("down")
