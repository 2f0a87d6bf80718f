"""Undoing: order, keys, bounded attempts, probers and reconcilers, and what a report says of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agent_saga import (
    AgentKit,
    Applied,
    CannotTell,
    CommittedUnsettled,
    Compensation,
    NotApplied,
    Observation,
    SagaAborted,
    compensator,
    reconciler,
)


class Boom(Exception):
    pass


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.guarantee("ORDER-1")
def test_parallel_steps_are_undone_in_the_reverse_of_their_outcomes(kit, world):
    order = []

    async def act(name, pauses):
        for _ in range(pauses):
            await asyncio.sleep(0.002)
        order.append(name)
        return name

    tool = kit.safe_tool(act, "COMPENSABLE", name="act")
    undone = []

    @tool.undo
    def undo(result):
        undone.append(result)

    async def main():
        with contextlib.suppress(SagaAborted):
            async with kit.transaction():
                await asyncio.gather(tool("a", 9), tool("b", 1), tool("c", 5))
                await tool("d", 0)
                raise Boom

    asyncio.run(main())
    assert order == ["b", "c", "a", "d"]
    assert undone == order[::-1]


@pytest.mark.guarantee("ORDER-1")
def test_unknown_steps_are_undone_before_those_with_an_outcome(mode, kit):
    undone = []

    def act(name):
        if name == "lost":
            raise RuntimeError("the answer was lost")
        return name

    plain = kit.safe_tool(mode.fn(act), "COMPENSABLE", name="plain")

    @plain.undo
    def undo(args):
        undone.append(args["name"])

    @plain.probe
    def find(args):
        return Applied(args["name"])

    async def body(saga):
        await mode.call(plain, "first")
        with contextlib.suppress(RuntimeError):
            await mode.call(plain, "lost")
        await mode.call(plain, "last")
        raise Boom

    error = mode.attempt(kit, body)
    assert undone == ["lost", "last", "first"]
    assert error.report.clean


# --- attempts and keys ----------------------------------------------------------------------------


@pytest.mark.guarantee("UNDO-1")
def test_an_inverse_with_an_unknown_ending_is_not_repeated(mode, kit, world, charge):
    runs = []

    def inverse(number):
        runs.append(number)
        raise RuntimeError("who knows")

    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=inverse, kwargs={"number": r["id"]}),
    )

    async def body(saga):
        await mode.call(charge, 1)
        await mode.call(tool, 2)
        raise Boom

    error = mode.attempt(kit, body)
    assert runs == ["ch2"]
    assert error.report.outcome == "STUCK"
    assert [line.tool for line in error.report.failed] == ["charge"]
    assert [line.tool for line in error.report.unresolved] == ["charge"]
    assert world.refunds == []


def test_after_stuck_continue_undoes_the_rest(mode, wal, fast, world):
    kit = AgentKit("on", wal=wal, settings=fast.replace(after_stuck="continue"))

    def broken(number):
        raise RuntimeError("who knows")

    good = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=world.refund, kwargs={"number": r["id"]}),
        name="good",
    )
    bad = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=broken, kwargs={"number": r["id"]}),
        name="bad",
    )

    async def body(saga):
        await mode.call(good, 1)
        await mode.call(bad, 2)
        await mode.call(good, 3)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == ["ch3", "ch1"]
    assert error.report.outcome == "STUCK"


def test_an_idempotent_inverse_is_repeated_with_the_same_key(mode, kit, world):
    keys = []

    @compensator("once.more", idempotent=True)
    def refund(number, *, idempotency_key):
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("lost")
        world.refund(number)

    tool = kit.safe_tool(mode.fn(world.charge), compensate=refund.using(number="$.id"))

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert error.report.clean


def test_an_inverse_that_says_it_had_no_effect_is_repeated_and_bounded(mode, kit, world):
    runs = []

    def refund(number):
        runs.append(number)
        raise NotApplied("closed")

    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=refund, kwargs={"number": r["id"]}),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert runs == ["ch1"] * 3
    assert not error.report.clean


@pytest.mark.parametrize("answer", [NotApplied, NotApplied("closed")])
def test_a_not_applied_that_an_inverse_returns_is_no_success(mode, kit, world, answer):
    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=lambda: answer, kwargs={}),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    assert not mode.attempt(kit, body).report.clean


def test_an_observation_that_the_inverse_does_not_hold_is_no_success(mode, kit, world):
    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=lambda: Observation(reversed_=False), kwargs={}),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    assert not mode.attempt(kit, body).report.clean


@pytest.mark.parametrize(
    ("seen", "runs", "clean"),
    [
        (Observation(reversed_=True), 1, True),
        (Observation(reversed_=None), 1, False),
        (Observation(reversed_=False), 3, False),
        ("nonsense", 1, False),
        (RuntimeError("cannot look"), 1, False),
    ],
)
def test_a_reconciler_settles_a_failed_inverse(mode, kit, world, seen, runs, clean):
    calls = []

    @compensator("watched")
    def refund(number):
        calls.append(number)
        raise RuntimeError("an answer of the provider")

    @reconciler("watched")
    def look(number):
        if isinstance(seen, Exception):
            raise seen
        return seen

    tool = kit.safe_tool(mode.fn(world.charge), compensate=refund.using(number="$.id"))

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert len(calls) == runs
    assert error.report.clean is clean


def test_a_registered_handler_wins_over_fn_in_process_too(mode, kit, world):
    ran = []

    @compensator("the.one")
    def registered(number):
        ran.append("registered")

    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(
            fn=lambda number: ran.append("fn"), handler="the.one", kwargs={"number": r["id"]}
        ),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    mode.attempt(kit, body)
    assert ran == ["registered"]


def test_an_inverse_gets_what_really_happened_whatever_the_program_did_to_it(mode, kit, world):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="mutable")

    @tool.undo
    def refund(result, args):
        world.refund(result["id"])
        assert args["amount"] == [5]

    amounts = [5]

    async def body(saga):
        result = await mode.call(tool, amounts)
        result["id"] = "another"
        amounts.append(6)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == ["ch1"]
    assert error.report.clean


def test_an_inverse_that_hangs_is_bounded(mode, wal, fast, world):
    import threading

    kit = AgentKit("bounded", wal=wal, settings=fast.replace(inverse_timeout=0.05))
    go = threading.Event()

    def refund(number):
        go.wait(20)

    async def refund_async(number):
        await asyncio.sleep(20)

    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(
            fn=refund_async if mode.name == "async" else refund, kwargs={"number": r["id"]}
        ),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    go.set()
    assert error.report.outcome == "STUCK"
    assert "may or may not" in str(error)


@pytest.mark.parametrize(
    "inverse",
    [
        lambda r: None,
        lambda r: {"kwargs": {}},
        lambda r: {"handler": "nobody.knows", "kwargs": {}},
        lambda r: 1 / 0,
        lambda r: Compensation(fn=_generator),
        lambda r: _coroutine(),
    ],
)
def test_an_inverse_that_cannot_be_derived_or_run_leaves_an_orphan(
    mode, kit, world, charge, inverse
):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", inverse, name="underivable")

    async def body(saga):
        await mode.call(charge, 1)
        await mode.call(tool, 2)
        await mode.call(charge, 3)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.standing == ["ch2"]
    assert [line.tool for line in error.report.orphaned] == ["underivable"]
    assert error.report.outcome == "PARTIAL"


def _generator(number=""):
    yield number


async def _coroutine():
    return None


def test_an_inverse_that_says_nothing_needs_undoing_is_clean(mode, kit):
    tool = kit.safe_tool(
        mode.fn(lambda: None), compensate=lambda r: Compensation.none("it was a draft")
    )

    async def body(saga):
        await mode.call(tool)
        raise Boom

    assert mode.attempt(kit, body).report.clean


def test_an_inverse_with_wrong_arguments_fails_and_is_not_repeated(mode, kit, world):
    runs = []

    def refund(number):
        runs.append(number)

    tool = kit.safe_tool(
        mode.fn(world.charge), compensate=lambda r: Compensation(fn=refund, kwargs={"wrong": 1})
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert runs == []
    assert not error.report.clean


# --- probers --------------------------------------------------------------------------------------


ANSWERS = {
    "applied": (Applied({"id": "ch1"}), True, True),
    "not applied": (NotApplied("nothing there"), True, False),
    "not applied, final": (NotApplied("spent", final=True), True, False),
    "cannot tell": (CannotTell("no access"), False, False),
    "nonsense": ("yes", False, False),
    "none": (None, False, False),
    "raises": (RuntimeError("down"), False, False),
    "raises not applied": (NotApplied("nothing there"), True, False),
}


@pytest.mark.parametrize("lost", [RuntimeError, ConnectionError])
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_a_prober_says_settles_an_unknown_step(mode, kit, world, answer, lost):
    told, settles, undoes = ANSWERS[answer]

    def pay(amount):
        if undoes or not settles:
            world.charge(amount)
        raise lost("the answer was lost")

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", name="pay")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    @tool.probe
    def find(args, idempotency_key):
        if isinstance(told, RuntimeError) or answer.startswith("raises"):
            raise told
        return told

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert error.report.clean is settles
    assert (world.standing == []) is settles


SAYS_NO = {"prober": lambda args: NotApplied(), "settle_after": 60.0}
"""A prober's "no" that is not final, also on a machine that pauses for a while."""


@pytest.mark.guarantee("PROBE-1")
def test_a_committing_boundary_does_not_believe_a_no_that_is_not_final(mode, kit, world):
    def pay(amount):
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", **SAYS_NO)

    async def body(saga):
        with contextlib.suppress(ConnectionError):
            await mode.call(tool, 5)

    assert isinstance(mode.attempt(kit, body), CommittedUnsettled)


def test_an_error_raised_from_a_lost_connection_is_no_answer(mode, kit, world):
    def pay(amount):
        try:
            raise ConnectionResetError("gone")
        except ConnectionResetError as error:
            raise RuntimeError("payment failed") from error

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", **SAYS_NO)

    async def body(saga):
        with contextlib.suppress(RuntimeError):
            await mode.call(tool, 5)

    assert isinstance(mode.attempt(kit, body), CommittedUnsettled)


def test_what_the_author_lists_is_no_answer(mode, kit):
    class Gone(Exception):
        pass

    def pay(amount):
        raise Gone

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", **SAYS_NO, no_answer_on=Gone)

    async def body(saga):
        with contextlib.suppress(Gone):
            await mode.call(tool, 5)

    assert isinstance(mode.attempt(kit, body), CommittedUnsettled)


@pytest.mark.guarantee("PROBE-1")
def test_one_attempt_without_an_answer_keeps_the_step_from_being_answered(mode, kit):
    from agent_saga import RetryPolicy

    calls = []

    def pay(amount):
        calls.append(amount)
        raise ConnectionError("lost") if len(calls) == 1 else NotApplied("busy")

    tool = kit.safe_tool(
        mode.fn(pay),
        "COMPENSABLE",
        **SAYS_NO,
        retry=RetryPolicy(1, base_delay=0, retry_on=ConnectionError),
    )

    async def body(saga):
        with contextlib.suppress(NotApplied):
            await mode.call(tool, 5)

    assert isinstance(mode.attempt(kit, body), CommittedUnsettled)
    assert calls == [5, 5]


def test_a_repeat_that_ends_harmlessly_does_not_settle_the_call_before_it(mode, kit, world):
    def pay(amount):
        if world.charges:
            raise NotApplied("seen this key before")
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", idempotent=True)

    async def body(saga):
        for _ in range(2):
            with contextlib.suppress(RuntimeError, NotApplied):
                await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert world.standing == ["ch1"]
    assert isinstance(error, CommittedUnsettled)


def test_the_setting_release_leaves_a_saga_to_recovery_instead_of_waiting(
    mode, wal, fast, world, events
):
    kit = AgentKit("release", wal=wal, settings=fast.replace(settle_unknown="release"))

    def pay(amount):
        world.charge(amount)
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE", **SAYS_NO, name="p")

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert error.report.outcome == "RELEASED"
    assert not error.report.clean
    assert events()[-1] == "SAGA_RELEASED"


@pytest.mark.guarantee("NULL-1")
@pytest.mark.parametrize("null_safe", [False, True])
def test_an_inverse_runs_without_knowledge_only_if_it_does_no_harm(mode, kit, world, null_safe):
    ran = []

    @compensator("cancel.order", null_safe=null_safe)
    def cancel(order):
        ran.append(order)

    def order(number):
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(order), compensate=cancel.using(order="$args.number"))

    async def body(saga):
        await mode.call(tool, "o1")

    error = mode.attempt(kit, body)
    assert ran == (["o1"] if null_safe else [])
    assert error.report.clean is null_safe


@pytest.mark.guarantee("NULL-1")
def test_no_inverse_runs_for_a_step_that_had_no_effect(mode, kit, world):
    ran = []

    def closed():
        raise NotApplied("closed")

    tool = kit.safe_tool(mode.fn(closed), "COMPENSABLE", name="closed")

    @tool.undo(null_safe=True)
    def undo():
        ran.append(1)

    async def body(saga):
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert ran == []
    assert error.report.clean
    assert len(error.report.not_applied) == 1


def test_a_nested_tool_s_no_effect_says_nothing_about_the_outer_one(mode, kit, world):
    if mode.name == "async":

        async def inner():
            raise NotApplied("closed")

        inner_tool = kit.safe_tool(inner, "COMPENSABLE", name="inner")

        async def outer(amount):
            world.charge(amount)
            await inner_tool()

    else:

        def inner():
            raise NotApplied("closed")

        inner_tool = kit.safe_tool(inner, "COMPENSABLE", name="inner")

        def outer(amount):
            world.charge(amount)
            inner_tool.call()

    tool = kit.safe_tool(outer, "COMPENSABLE", name="outer")

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert world.standing == ["ch1"]
    assert not error.report.clean
    assert [line.tool for line in error.report.orphaned] == ["outer"]


# --- what is said ---------------------------------------------------------------------------------


def test_unsettled_steps_may_be_a_warning_instead_of_an_error(mode, kit, world, caplog):
    def lost(amount):
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE")

    async def body(saga):
        with contextlib.suppress(RuntimeError):
            await mode.call(tool, 5)

    scope = kit.transaction(on_unsettled="warn")

    async def whole():
        async with mode.open(scope) as saga:
            await body(saga)

    mode.run(whole())
    assert not scope.report.clean
    assert "not everything in it is settled" in caplog.text


def test_a_boundary_without_steps_leaves_no_trace(mode, kit, wal):
    async def body(saga):
        pass

    async def failing(saga):
        raise Boom

    assert mode.attempt(kit, body) is None
    assert mode.attempt(kit, failing).report.clean
    assert list(wal.read_all()) == []


def test_reads_never_become_orphans(mode, kit, world):
    read = kit.safe_tool(mode.fn(world.charge), "REVERSIBLE")
    lost = kit.safe_tool(mode.fn(lambda: 1 / 0), "REVERSIBLE", name="lost")

    async def body(saga):
        await mode.call(read, 1)
        await mode.call(lost)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, ZeroDivisionError)
    assert error.report.clean


def test_an_inverse_of_a_read_is_run(mode, kit, world):
    scratch = kit.safe_tool(
        mode.fn(world.charge),
        "REVERSIBLE",
        lambda r: Compensation(fn=world.refund, kwargs={"number": r["id"]}),
    )

    async def body(saga):
        await mode.call(scratch, 1)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.standing == []
    assert error.report.clean
