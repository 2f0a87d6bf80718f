"""One step in every way to drive it: what happens to the world, and how often."""

from __future__ import annotations

import pytest

from agent_saga import (
    AgentKit,
    CommittedUnsettled,
    Compensation,
    ConfigurationError,
    NotApplied,
    OutcomeUnknown,
    PreFlightGate,
    RetryPolicy,
    Rule,
    SagaAborted,
)


class Boom(Exception):
    pass


def test_a_boundary_that_ends_well_keeps_its_effects(mode, kit, world, charge, events):
    async def body(saga):
        await mode.call(charge, 5)
        await mode.call(charge, 7)

    assert mode.attempt(kit, body) is None
    assert world.amounts == [5, 7]
    assert world.refunds == []
    assert events()[-1] == "SAGA_COMMITTED"


def test_a_failure_undoes_every_step_the_last_one_first(mode, kit, world, charge):
    async def body(saga):
        for amount in (1, 2, 3):
            await mode.call(charge, amount)
        raise Boom("no")

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert isinstance(error.cause, Boom)
    assert isinstance(error.__cause__, Boom)
    assert error.report.clean
    assert world.refunds == ["ch3", "ch2", "ch1"]


def test_forward_and_inverse_get_different_keys_and_steps_do_too(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        await mode.call(charge, 2)
        raise Boom

    mode.attempt(kit, body)
    keys = [*world.keys, *world.undo_keys]
    assert len(set(keys)) == 4
    assert all(len(key) == 64 for key in keys)


def test_attempts_of_one_step_share_its_key_and_pause_as_told(mode, kit, world, monkeypatch):
    from agent_saga.engine.retry import RetryPolicy as Policy

    asked = []
    monkeypatch.setattr(Policy, "delay", lambda self, retry: asked.append(retry) or 0.0)
    keys = []

    def flaky(idempotency_key):
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise NotApplied("not yet")
        return {"id": "x"}

    tool = kit.safe_tool(mode.fn(flaky), "COMPENSABLE", retry=RetryPolicy(max_retries=5))

    async def body(saga):
        await mode.call(tool)

    assert mode.attempt(kit, body) is None
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert asked == [1, 2]


def test_an_effect_that_is_not_idempotent_is_not_repeated_after_an_unknown_ending(mode, kit):
    calls = []

    def lost():
        calls.append(1)
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", retry=RetryPolicy(5, base_delay=0))

    async def body(saga):
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert calls == [1]
    assert not error.report.clean
    assert len(error.report.orphaned) == 1


def test_an_error_that_its_author_listed_is_repeated(mode, kit):
    calls = []

    def lost():
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")
        return "ok"

    policy = RetryPolicy(5, base_delay=0, retry_on=ConnectionError)
    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", retry=policy)

    async def body(saga):
        await mode.call(tool)

    assert mode.attempt(kit, body) is None
    assert calls == [1, 1]


def test_excluded_errors_are_never_repeated(mode, kit):
    calls = []

    def never():
        calls.append(1)
        raise NotApplied("no")

    policy = RetryPolicy(5, base_delay=0, exclude_exceptions=NotApplied)
    tool = kit.safe_tool(mode.fn(never), "COMPENSABLE", retry=policy)

    async def body(saga):
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert calls == [1]
    assert error.report.clean


def test_an_idempotent_tool_is_repeated_with_the_same_key(mode, kit):
    keys = []

    def lost(idempotency_key):
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise RuntimeError("who knows")
        return "ok"

    policy = RetryPolicy(5, base_delay=0)
    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", idempotent=True, retry=policy)

    async def body(saga):
        await mode.call(tool)

    assert mode.attempt(kit, body) is None
    assert len(keys) == 3
    assert len(set(keys)) == 1


# --- fallback -------------------------------------------------------------------------------------


def test_a_fallback_runs_in_the_same_step_after_harmless_endings_only(mode, kit, world):
    def primary(amount):
        raise NotApplied("closed")

    tool = kit.safe_tool(
        mode.fn(primary),
        compensate=lambda r: Compensation(fn=world.refund, kwargs={"number": r["id"]}),
        fallback_action=mode.fn(world.charge),
        retry=RetryPolicy(1, base_delay=0),
    )

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.amounts == [5]
    assert world.standing == []
    assert error.report.clean


@pytest.mark.guarantee("FALL-1")
def test_a_fallback_never_runs_after_an_unknown_ending(mode, kit, world):
    def primary(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(
        mode.fn(primary), "COMPENSABLE", fallback_action=mode.fn(world.charge), name="primary"
    )

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert world.amounts == [5]
    assert isinstance(error, CommittedUnsettled)
    assert not error.report.clean


def test_a_fallback_has_a_key_of_its_own(mode, kit, world):
    seen = []

    def primary(idempotency_key):
        seen.append(idempotency_key)
        raise NotApplied

    def fallback(idempotency_key):
        seen.append(idempotency_key)

    tool = kit.safe_tool(mode.fn(primary), "COMPENSABLE", fallback_action=mode.fn(fallback))

    async def body(saga):
        await mode.call(tool)

    mode.attempt(kit, body)
    assert len(set(seen)) == 2


# --- harmless endings -----------------------------------------------------------------------------


@pytest.mark.guarantee("ARGS-1")
def test_an_argument_error_before_the_body_costs_nobody_a_case(mode, kit, world):
    async def as_coroutine(amount):
        return world.charge(amount)

    tool = kit.safe_tool(as_coroutine if mode.name == "async" else world.charge, "COMPENSABLE")

    async def body(saga):
        with pytest.raises(TypeError):
            await mode.call(tool, 5, colour="red")
        with pytest.raises(TypeError):
            await mode.call(tool)

    assert mode.attempt(kit, body) is None
    assert world.charges == []


@pytest.mark.guarantee("ARGS-1")
def test_a_type_error_from_inside_the_body_is_unknown(mode, kit, world):
    def inner(amount):
        world.charge(amount)
        return len(5)

    tool = kit.safe_tool(mode.fn(inner), "COMPENSABLE")

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert not error.report.clean
    assert len(error.report.orphaned) == 1


def test_what_the_author_declared_harmless_is_not_applied(mode, kit):
    def closed():
        raise LookupError("no such customer")

    tool = kit.safe_tool(mode.fn(closed), "COMPENSABLE", not_applied_on=LookupError)

    async def body(saga):
        with pytest.raises(KeyError):
            await mode.call(
                kit.safe_tool(mode.fn(_key_error), "COMPENSABLE", not_applied_on=(LookupError,))
            )
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert error.report.clean
    assert len(error.report.not_applied) == 2


def _key_error():
    raise KeyError("x")


# --- prepare and provisional ----------------------------------------------------------------------


def test_prepared_data_reaches_the_inverse_and_is_durable_with_the_intent(mode, kit, wal):
    row = {"colour": "red"}

    def write(colour):
        row["colour"] = colour

    tool = kit.safe_tool(
        mode.fn(write), "COMPENSABLE", prepare=mode.fn(lambda args: dict(row)), name="write"
    )

    @tool.undo
    def restore(prepared):
        row.update(prepared)

    async def body(saga):
        await mode.call(tool, "blue")
        assert row == {"colour": "blue"}
        raise Boom

    assert mode.attempt(kit, body).report.clean
    assert row == {"colour": "red"}
    intents = [r.data for r in wal.read_all() if r.event == "STEP_INTENT"]
    assert intents[0]["prepared"] == {"colour": "red"}


def test_a_prepare_that_fails_refuses_the_effect(mode, kit, world):
    def broken(args):
        raise Boom("cannot read")

    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", prepare=mode.fn(broken))

    async def body(saga):
        with pytest.raises(Boom):
            await mode.call(tool, 5)

    assert mode.attempt(kit, body) is None
    assert world.charges == []


def test_prepared_data_that_the_log_cannot_carry_refuses_the_effect(mode, kit, world):
    tool = kit.safe_tool(
        mode.fn(world.charge), "COMPENSABLE", prepare=mode.fn(lambda args: object())
    )

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert "recorded" in str(error.cause)
    assert world.charges == []
    assert error.report.clean


def test_a_provisional_inverse_undoes_a_call_whose_answer_was_lost(mode, kit, world):
    def lost(amount, idempotency_key):
        world.charge(amount, idempotency_key)
        raise RuntimeError("the answer was lost")

    def cancel(key):
        world.refunds.extend(
            [n for (n, _), k in zip(world.charges, world.keys, strict=True) if k == key]
        )

    tool = kit.safe_tool(
        mode.fn(lost),
        "COMPENSABLE",
        provisional=lambda idempotency_key: Compensation(
            fn=cancel, kwargs={"key": idempotency_key}
        ),
    )

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert error.report.clean
    assert world.standing == []


# --- keys and blind retries -----------------------------------------------------------------------


@pytest.mark.guarantee("KEY-1")
def test_the_same_key_is_the_same_step(mode, kit, world, charge):
    async def body(saga):
        first = await mode.call(charge.keyed("order-17"), 5)
        again = await mode.call(charge.keyed("order-17"), 5)
        assert first == again
        other = await mode.call(charge.keyed("order-18"), 5)
        assert other != first

    assert mode.attempt(kit, body) is None
    assert world.amounts == [5, 5]


def test_the_same_key_with_other_arguments_is_a_conflict(mode, kit, world, charge):
    from agent_saga import ReplayConflict

    async def body(saga):
        await mode.call(charge.keyed("order-17"), 5)
        with pytest.raises(ReplayConflict):
            await mode.call(charge.keyed("order-17"), 6)

    assert mode.attempt(kit, body) is None
    assert world.amounts == [5]


def test_a_keyed_step_that_had_no_effect_runs_again_with_the_same_key(mode, kit):
    keys = []

    def flaky(idempotency_key):
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise NotApplied("no")
        return "ok"

    tool = kit.safe_tool(mode.fn(flaky), "COMPENSABLE")

    async def body(saga):
        with pytest.raises(NotApplied):
            await mode.call(tool.keyed("a"))
        assert await mode.call(tool.keyed("a")) == "ok"

    assert mode.attempt(kit, body) is None
    assert keys[0] == keys[1]


@pytest.mark.guarantee("ONCE-1")
def test_a_blind_retry_of_a_lost_answer_does_not_run_again(mode, kit, world):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE")

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, 5)
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, amount=5)

    error = mode.attempt(kit, body)
    assert world.amounts == [5]
    assert isinstance(error, CommittedUnsettled)


def test_a_blind_retry_gets_the_result_that_a_prober_finds(mode, kit, world):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", name="lost")

    @tool.probe
    def find(args, idempotency_key):
        from agent_saga import Applied

        return Applied({"id": "ch1"})

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)
        assert await mode.call(tool, 5) == {"id": "ch1"}
        raise Boom

    error = mode.attempt(kit, body)
    assert world.amounts == [5]
    assert world.standing == []
    assert error.report.clean


def test_repeatable_declares_equal_calls_to_be_different_ones(mode, kit, world):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", repeatable=True)

    async def body(saga):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert world.amounts == [5, 5]
    assert len(error.report.unsettled) == 2


def test_a_retry_that_names_a_default_is_still_a_blind_retry(mode, kit, world):
    def lost(amount, currency="usd"):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE")

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, 5, currency="usd")
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, amount=5)

    mode.attempt(kit, body)
    assert world.amounts == [5]


def test_equal_calls_that_ended_well_are_two_steps(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 5)
        await mode.call(charge, 5)

    assert mode.attempt(kit, body) is None
    assert world.amounts == [5, 5]


def test_a_method_is_retried_blindly_only_on_the_same_object(mode, kit, world):
    class Account:
        def __init__(self, name):
            self.name = name
            self.calls = 0

        @kit.tool("COMPENSABLE")
        def pay(self, amount):
            self.calls += 1
            world.charge(amount)
            if self.name == "bad":
                raise RuntimeError("the answer was lost")
            return self.name

    bad, good = Account("bad"), Account("good")

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(bad.pay, 5)
        assert await mode.call(good.pay, 5) == "good"
        with pytest.raises(OutcomeUnknown):
            await mode.call(bad.pay, 5)

    mode.attempt(kit, body)
    assert (bad.calls, good.calls) == (1, 1)


def test_execute_without_named_arguments_never_gets_another_call_s_result(mode, kit, world):
    from agent_saga import Applied

    def lost():
        world.charge(1)
        raise RuntimeError("the answer was lost")

    async def body(saga):
        prober = lambda args: Applied({"id": "ch1"})  # noqa: E731
        with pytest.raises(RuntimeError):
            await mode.call(
                saga.execute,
                tool="pay",
                forward=mode.fn(lost),
                semantics="COMPENSABLE",
                prober=prober,
            )
        with pytest.raises(OutcomeUnknown):
            await mode.call(
                saga.execute,
                tool="pay",
                forward=mode.fn(lambda: world.charge(2)),
                semantics="COMPENSABLE",
                prober=prober,
            )

    mode.attempt(kit, body)
    assert world.amounts == [1]


# --- idempotent tools and their windows -----------------------------------------------------------


def test_a_window_counts_from_the_first_use_of_the_key(mode, kit, world, clock):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", idempotent=True, window=10)

    async def body(saga):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await mode.call(tool, 5)
            clock.advance(6)
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, 5)

    mode.attempt(kit, body)
    assert world.amounts == [5, 5]


def test_a_window_that_closes_during_a_pause_ends_the_attempts(mode, kit, world, clock):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    policy = RetryPolicy(5, base_delay=0.0)
    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", idempotent=True, window=10, retry=policy)
    clock.step = 4.0

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)

    mode.attempt(kit, body)
    assert 1 <= len(world.charges) < 4


@pytest.mark.guarantee("WINDOW-1")
def test_a_window_that_closes_while_a_repetition_is_judged_ends_it(mode, wal, fast, world, clock):
    def lost(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    def judged_for_long(call):
        clock.advance(6)
        return False

    gate = PreFlightGate(rules=[Rule("slow", judged_for_long, "refuse", "never")])
    kit = AgentKit("slow", wal=wal, settings=fast, gate=gate)
    kit.runtime.engine().clock = clock
    tool = kit.safe_tool(mode.fn(lost), "COMPENSABLE", idempotent=True, window=10)

    async def body(saga):
        with pytest.raises(RuntimeError):
            await mode.call(tool, 5)
        clock.advance(5)
        with pytest.raises(OutcomeUnknown):
            await mode.call(tool, 5)

    mode.attempt(kit, body)
    assert world.amounts == [5]


@pytest.mark.parametrize("second", [RuntimeError, NotApplied])
def test_a_window_that_closes_between_two_attempts_of_an_inverse_ends_them(
    mode, kit, world, clock, second
):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="pay")

    @tool.undo(idempotent=True, window=10)
    def refund(result, idempotency_key):
        world.refund(result["id"], idempotency_key)
        clock.advance(6)
        raise RuntimeError("lost") if len(world.refunds) == 1 else second("lost")

    async def body(saga):
        await mode.call(tool, 5)
        raise Boom

    error = mode.attempt(kit, body)
    assert len(world.refunds) == 2
    assert not error.report.clean


def test_a_durable_step_is_durable_before_its_caller_sees_the_result(mode, tmp_path, fast, world):
    from agent_saga import AgentKit, FileWAL

    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("durable", wal=wal, settings=fast)
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", commit="durable")

    async def body(saga):
        await mode.call(tool, 5)
        events = [r.event for r in FileWAL(tmp_path / "log").read_all()]
        assert "STEP_COMMITTED" in events
        assert wal.synced >= events.index("STEP_COMMITTED") + 1

    assert mode.attempt(kit, body) is None
    wal.close()


class Clock:
    """Stands still, or goes on by a step at every look."""

    def __init__(self):
        self.now = 0.0
        self.step = 0.0

    def advance(self, seconds):
        self.now += seconds

    def monotonic(self):
        self.now += self.step
        return self.now

    def now_us(self):
        return int(self.now * 1_000_000)


@pytest.fixture
def clock(kit):
    clock = Clock()
    kit.runtime.engine().clock = clock
    return clock


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"max_retries": True},
        {"backoff_type": "random"},
        {"base_delay": -1},
        {"base_delay": float("nan")},
        {"max_delay": float("inf")},
        {"max_delay": "5"},
        {"retry_on": "ValueError"},
        {"exclude_exceptions": (ValueError, 5)},
    ],
)
def test_a_policy_that_cannot_work_is_refused(arguments):
    with pytest.raises(ConfigurationError):
        RetryPolicy(**arguments)


def test_the_pauses_of_a_policy():
    linear = RetryPolicy(9, "linear", base_delay=1.0, max_delay=3.5)
    assert [linear.delay(n) for n in (1, 2, 3, 4, 9)] == [1.0, 2.0, 3.0, 3.5, 3.5]
    doubling = RetryPolicy(9, "exponential", base_delay=1.0, max_delay=10.0)
    assert [doubling.delay(n) for n in (1, 2, 3, 4, 5, 9999)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
