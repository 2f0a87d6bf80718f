"""Ctrl-C at every line of the engine: nothing is half done, and the interrupt is never lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading

import pytest

from agent_saga import AgentKit, Compensation, MemoryWAL, SagaAborted, Settings, current_saga
from agent_saga.engine import interrupts
from agent_saga.engine.boundary import current_scope

ENGINE = "agent_saga/engine/"


class Boom(Exception):
    pass


def leave(*_):
    sys.exit(15)


def too_late(*_):
    raise TimeoutError("the alarm")


PROGRAMS = {
    "ctrl-c": (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    "ctrl-c of its own": (signal.SIGINT, leave, SystemExit),
    "exits": (signal.SIGTERM, leave, SystemExit),
    "alarm": (signal.SIGALRM, too_late, TimeoutError),
}
"""What programs do with a signal: its number, its handler, and what that raises."""


class At:
    """Raises a signal at the n-th line that runs in the engine or the log."""

    def __init__(self, number, signum=signal.SIGINT, where=ENGINE):
        self.number = number
        self.signum = signum
        self.where = where
        self.seen = 0
        self.struck = ""

    def __call__(self, frame, event, arg):
        if self.where not in frame.f_code.co_filename:
            return None
        return self.line

    def line(self, frame, event, arg):
        if event == "line":
            self.seen += 1
            if self.seen == self.number:
                self.struck = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                signal.raise_signal(self.signum)
        return self.line

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *error):
        sys.settrace(None)


@pytest.fixture
def no_tracer(monkeypatch):
    """The handler sees the frame that the signal met, not the tracer's own."""
    handle = interrupts.Interrupts.handle

    def without_tracer(self, signum, frame):
        while frame.f_code is At.line.__code__:
            frame = frame.f_back
        handle(self, signum, frame)

    monkeypatch.setattr(interrupts.Interrupts, "handle", without_tracer)


def make(world, fast, *, fails):
    kit = AgentKit("interrupted", wal=MemoryWAL(), settings=fast)

    def pay(amount, idempotency_key):
        return world.charge(amount, idempotency_key)

    def inverse(result):
        return Compensation(fn=world.refund, kwargs={"number": result["id"]})

    tool = kit.safe_tool(pay, compensate=inverse)

    def agent():
        with kit.transaction():
            tool(1)
            tool(2)
            if fails:
                raise Boom

    return agent


def lines_of(agent):
    with At(0) as at, contextlib.suppress(Exception):
        agent()
    return at.seen


def _run(agent, number, signum):
    """Interrupt at a line; return what came out, and where it struck."""
    error = None
    with At(number, signum) as at:
        try:
            agent()
        except BaseException as raised:
            error = raised
    return error, at.struck


@pytest.fixture(params=PROGRAMS)
def program(request):
    signum, handler, raised = PROGRAMS[request.param]
    before = signal.signal(signum, handler)
    yield signum, handler, raised
    signal.signal(signum, before)


@pytest.mark.guarantee("INT-1")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("part", range(4))
def test_an_interrupt_at_every_line(world, fast, no_tracer, fails, part, program):
    signum, handler, raised = program
    probe = type(world)()
    total = lines_of(make(probe, fast, fails=fails))
    assert total > 300
    for number in range(1 + 5 * part, total, 20):
        fresh = type(world)()
        error, struck = _run(make(fresh, fast, fails=fails), number, signum)
        if not struck:
            break
        where = f"line {number} ({struck}): {error!r}"
        assert interrupts.main.installed == 0, where
        assert interrupts.main.kept == [], where
        assert signal.getsignal(signum) is handler, where
        assert signal.getsignal(signal.SIGINT) is not interrupts.main.handle, where
        assert current_scope.get() is None, where
        assert isinstance(getattr(error, "cause", error), raised), where
        assert len(set(fresh.refunds)) == len(fresh.refunds), where
        report = getattr(error, "saga_report", getattr(error, "report", None))
        if fails or fresh.refunds:
            assert fresh.standing == [], where
        if report is not None and report.outcome == "ROLLED_BACK" and report.clean:
            assert fresh.standing == [], where


@pytest.mark.parametrize("struck_by", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_an_interrupt_while_signals_change_hands_leaves_them_with_the_program(
    world, fast, no_tracer, struck_by
):
    handlers = {signal.SIGINT: leave, signal.SIGTERM: leave, signal.SIGALRM: too_late}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        number, struck = 1, "the first line"
        while struck:
            at = At(number, struck_by, "engine/interrupts.py")
            with contextlib.suppress(BaseException), at:
                make(type(world)(), fast, fails=False)()
            struck = at.struck
            where = f"line {number} ({struck})"
            assert {each: signal.getsignal(each) for each in handlers} == handlers, where
            assert interrupts.main.installed == 0, where
            assert interrupts.main.kept == [], where
            number += 1
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert number > 30


@pytest.fixture
def kit(wal, fast):
    """One whose inverses run on this thread, where signals are handled."""
    return AgentKit("interrupted", wal=wal, settings=fast.replace(inverse_timeout=60.0))


def test_an_interrupt_during_the_undoing_waits_for_its_end(world, kit, program):
    signum, _, raised = program
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="pay_slowly")

    @tool.undo
    def refund(result):
        if result["id"] == "ch2":
            signal.raise_signal(signum)
        world.refund(result["id"])

    with pytest.raises((raised, SagaAborted)) as caught, kit.transaction() as saga:
        tool(1)
        tool(2)
        raise Boom
    assert world.standing == []
    assert getattr(caught.value, "saga_report", saga.report).clean
    assert isinstance(getattr(caught.value, "cause", caught.value), raised)


def test_a_second_interrupt_during_the_undoing_releases_the_saga(world, kit, events):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="pay_slowly")

    @tool.undo
    def refund(result):
        world.refund(result["id"])
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught, kit.transaction():
        tool(1)
        tool(2)
        raise Boom
    report = caught.value.saga_report
    assert world.refunds == ["ch2"]
    assert report.outcome == "RELEASED"
    assert not report.clean
    assert [line.tool for line in report.unresolved] == ["pay_slowly"]
    assert events()[-1] == "SAGA_RELEASED"


def test_a_released_saga_is_not_undone_by_an_outer_boundary_either(world, kit, events):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="pay_slowly")

    @tool.undo
    def refund(result):
        world.refund(result["id"])
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught, kit.transaction() as saga:
        tool(1)
        with saga.savepoint("inner"):
            tool(2)
            tool(3)
            raise Boom
    assert world.refunds == ["ch3"]
    assert not caught.value.saga_report.clean
    assert caught.value.saga_report.outcome == "RELEASED"
    assert events()[-1] == "SAGA_RELEASED"


def test_a_tool_is_interrupted_at_once(world, kit):
    def wait():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not interrupted")

    tool = kit.safe_tool(wait, "REVERSIBLE")
    with pytest.raises(KeyboardInterrupt), kit.transaction():
        tool()


def test_an_async_tool_on_a_private_loop_is_interrupted_at_once(kit):
    async def wait():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not interrupted")

    tool = kit.safe_tool(wait, "REVERSIBLE", loop_free=True)
    with pytest.raises(KeyboardInterrupt), kit.transaction():
        tool()


PATIENT = Settings(settle=60, inverse_delay=0.0)


@pytest.mark.parametrize("fast", [PATIENT], ids=["patient"])
def test_a_tool_on_the_pool_is_given_up_and_found_again(kit, world):
    go = threading.Event()

    def pay(amount):
        signal.raise_signal(signal.SIGINT)
        go.wait(10)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", timeout=30, name="pooled")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    threading.Timer(0.05, go.set).start()
    with pytest.raises(KeyboardInterrupt) as caught, kit.transaction():
        tool(5)
    assert world.standing == []
    assert caught.value.saga_report.clean


def test_a_program_s_own_handler_answers_at_once(kit, world):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with kit.transaction():
            signal.raise_signal(signal.SIGINT)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_put_in_place_meanwhile_stays(kit):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGTERM, leave)
        with kit.transaction():
            signal.signal(signal.SIGTERM, too_late)
            signal.signal(signal.SIGINT, too_late)
        assert signal.getsignal(signal.SIGTERM) is too_late
        assert signal.getsignal(signal.SIGINT) is too_late
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def test_a_handler_of_ours_that_a_program_puts_back_later_is_its_own(kit):
    before = signal.signal(signal.SIGTERM, leave)
    try:
        with kit.transaction():
            ours = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, ours)
        with pytest.raises(SystemExit), kit.transaction():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_boundary_in_another_thread_takes_no_interrupts(kit):
    entered = []

    def agent():
        with kit.transaction():
            entered.append(signal.getsignal(signal.SIGINT))
            entered.append(current_saga() is not None)

    thread = threading.Thread(target=agent)
    thread.start()
    thread.join()
    assert entered == [signal.default_int_handler, True]


def test_the_interrupt_that_ends_a_sync_generator_s_boundary_is_a_plain_close(kit, world):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="generated")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    def steps():
        with kit.transaction():
            tool(1)
            yield 1

    run = steps()
    next(run)
    run.close()
    assert world.standing == []


def test_a_second_interrupt_on_an_event_loop_leaves_the_saga_to_recovery(world, kit, events):
    """`asyncio.run` makes the first one a cancellation, and ends the loop with the second one."""
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="pay_slowly")
    sagas = []

    @tool.undo
    async def refund(result):
        world.refund(result["id"])
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)

    async def case():
        async with kit.transaction() as saga:
            sagas.append(saga)
            await tool(1)
            await tool(2)
            raise Boom

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(case())
    report = sagas[0].report
    assert world.refunds == ["ch2"]
    assert not report.clean
    assert [line.tool for line in report.standing] == ["pay_slowly", "pay_slowly"]
    assert events()[-1] == "SAGA_RELEASED"
