"""The rules that framework packages share: functions, declarations, failures, attempts, streams."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from agent_saga import (
    AgentKit,
    ApprovalPending,
    ConfigurationError,
    Halted,
    MemoryWAL,
    NotApplied,
    RefusedError,
    tool,
)
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict, ResultNotRecorded, UndeclaredTool
from agent_saga.kit.frameworks import (
    attempts,
    boundaries,
    declarations,
    declared,
    failures,
    functions,
    loops,
    streams,
)


class Step:
    """An effect that notes its calls."""

    def __init__(self, fn):
        self.tool = tool("REVERSIBLE")(fn)
        self.calls = []

    def run(self, args, kwargs):
        self.calls.append((args, kwargs))
        return "sync"

    async def arun(self, args, kwargs):
        self.calls.append((args, kwargs))
        return "async"


class TestFunctions:
    def test_a_model_is_not_shown_the_key_and_gives_none(self):
        def charge(amount: int, *, idempotency_key: str) -> str:
            """Charge."""

        shown = functions.without_key(charge)
        assert list(inspect.signature(shown).parameters) == ["amount"]
        assert (shown.__doc__, sorted(shown.__annotations__)) == ("Charge.", ["amount", "return"])
        step = tool("REVERSIBLE")(charge)
        given = {"amount": 1, "idempotency_key": "x"}
        assert functions.unkeyed(step, given) == {"amount": 1}

    def test_a_key_that_is_the_tools_own_argument_stays(self):
        step = tool("REVERSIBLE")(lambda **kwargs: kwargs)
        assert functions.unkeyed(step, {"idempotency_key": "x"}) == {"idempotency_key": "x"}
        fn = lambda item: item  # noqa: E731
        assert functions.without_key(fn) is fn

    def test_what_stands_in_its_place_looks_like_the_function_and_is_found_again(self):
        def book(item: str) -> str:
            """Book."""

        async def reserve(item: str) -> str:
            """Reserve."""

        first, second = Step(book), Step(reserve)
        booking = functions.in_place_of(book, first)
        assert (booking("seat"), booking.__name__) == ("sync", "book")
        assert asyncio.run(functions.in_place_of(reserve, second)(item="seat")) == "async"
        assert (first.calls, second.calls) == ([(("seat",), {})], [((), {"item": "seat"})])
        thing = type("T", (), {"func": staticmethod(booking), "other": None})()
        assert functions.effects_of(thing, ("func", "other", "missing")) == [first]

    def test_arguments_that_do_not_fit_are_no_call(self):
        called = []
        fits = functions.fitting(called.append, lambda value: value or "made")
        with pytest.raises(NotApplied, match="do not fit"):
            fits(1, 2)
        assert (called, fits(1), called) == ([1], "made", [1])

        async def fn(item):
            called.append(item)

        with pytest.raises(NotApplied):
            asyncio.run(functions.fitting(fn)(no="item"))
        asyncio.run(functions.fitting(fn)(2))
        assert called == [1, 2]


class Asks(Exception):
    pass


class TestDeclared:
    def test_a_read_that_failed_changed_nothing(self):
        given = declared.engine_options({"semantics": "REVERSIBLE", "not_applied_on": KeyError})
        assert given["not_applied_on"] == (KeyError, Exception)
        assert given["idempotent"] is True

    def test_a_tool_that_asks_first_did_nothing_when_it_asked(self):
        given = declared.engine_options({"asks_first": True, "compensate": "x"}, asks=Asks)
        assert given == {"compensate": "x", "not_applied_on": (Asks,)}
        kept = declared.engine_options({"asks_first": False}, asks=Asks, harmless=(KeyError,))
        assert kept == {"not_applied_on": (KeyError,)}
        assert declared.engine_options({"asks_first": True}) == {"asks_first": True}

    def test_undeclared_tools_are_all_named_and_wrapped_ones_need_nothing(self):
        known = {"read": declarations.read_only()}
        how = {"name": str.lower, "wrapped": str.isupper}
        found = declared.each_declared(["WIRE", "read"], known, None, **how)
        assert found == [("WIRE", None), ("read", known["read"])]
        with pytest.raises(UndeclaredTool, match="book, ship do to"):
            declared.each_declared(["book", "read", "ship", "book"], known, None, **how)

    def test_a_declaration_of_no_tool_is_a_mistake(self):
        with pytest.raises(ConfigurationError, match="no tool rad; the tools are book, read"):
            declared.check_named(["read", "book"], {"rad": declarations.read_only()})

    def test_what_is_declared_already_takes_nothing_more(self, kit):
        step = tool("REVERSIBLE")(len)
        with pytest.raises(ConfigurationError, match="takes no more options"):
            declared.check_undeclared(step, "REVERSIBLE", None, {})
        with pytest.raises(ConfigurationError, match="is declared already"):
            declared.engine_tool(step, kit, {})
        declared.check_undeclared(step, None, None, {})


class Failed(Exception):
    def __init__(self, step):
        super().__init__("it failed")
        self.agent_saga_step = step


class TestFailures:
    @pytest.mark.parametrize("error", [Halted, ReplayConflict, ResultNotRecorded, UndeclaredTool])
    def test_what_no_model_can_put_right_ends_a_run(self, error):
        assert issubclass(error, failures.FAULTS)

    @pytest.mark.parametrize("error", [RefusedError, ReplayConflict, ApprovalPending, Asks])
    def test_nobody_is_asked_about_what_is_no_failure(self, error):
        raised = error.__new__(error)
        raised.agent_saga_step = object()
        assert failures.failure_question(raised, "ask", (Asks,)) is None

    def test_a_failure_is_asked_about_where_that_was_asked_for(self):
        step = tool("REVERSIBLE")(len)
        error = Failed(step)
        assert failures.failure_question(error, "continue") is None
        assert failures.failure_question(Failed(None), "ask") is None
        question = failures.failure_question(error, "ask")
        assert question is not None
        question.close()

    def test_a_policy_needs_somebody_to_ask(self, kit):
        with pytest.raises(ConfigurationError, match="no approval provider") as refused:
            failures.check_policy(kit, "ask", "MyApprovals()")
        assert "approval_provider=MyApprovals()" in refused.value.fix
        with pytest.raises(ConfigurationError, match="on_tool_failure"):
            failures.check_policy(None, "explode")
        failures.check_policy(None, "rollback")

    def test_a_refusal_is_told_with_rule_and_reason(self):
        refusal = RefusedError("no", rule="limit", reason="too much")
        said = "wire was refused and had no effect (rule limit): too much"
        assert failures.told("wire", refusal) == said


class TestBoundaries:
    def test_a_tool_of_another_kit_is_refused(self, kit):
        other = AgentKit("other", wal=MemoryWAL())
        with boundaries.boundary(kit, "some") as saga:
            engines = boundaries.saga_of(saga)
            boundaries.check_kit(kit.safe_tool(len, semantics="REVERSIBLE"), engines)
            with pytest.raises(ConfigurationError, match="bound to another kit"):
                boundaries.check_kit(other.safe_tool(len, semantics="REVERSIBLE"), engines)


class TestAttempts:
    def test_what_an_undone_savepoint_had_to_keep_stands(self):
        assert {StepState.KEPT, StepState.COMMITTED, StepState.UNKNOWN} < set(attempts.STANDS)

    def test_one_object_for_each_saga_begun_anew_when_it_is_gone_on_with(self, kit):
        per_saga = attempts.PerSaga()
        with kit.transaction() as saga:
            engines = boundaries.saga_of(saga)
            first = per_saga.of(engines, object)
            assert per_saga.of(engines, object) is first
            assert per_saga.of(engines, object, anew=True) is not first


class TestStreams:
    def test_the_run_goes_no_further_than_what_was_taken(self):
        made = []

        async def case():
            seat = streams.Seat()

            async def run():
                for number in range(3):
                    made.append(number)
                    await seat.give(number)

            async for item in streams.SagaStream(streams.streamed(run, seat), seat):
                assert made == list(range(item + 1))

        asyncio.run(case())
        assert made == [0, 1, 2]

    def test_a_stream_that_is_closed_early_ends_its_run_before_the_close_returns(self):
        ended = []

        async def case():
            seat = streams.Seat()

            async def run():
                try:
                    await seat.give(1)
                    await seat.give(2)
                finally:
                    await asyncio.sleep(0)
                    ended.append(True)

            items = streams.SagaStream(streams.streamed(run, seat), seat)
            assert await anext(items) == 1
            await items.aclose()
            assert ended == [True]

        asyncio.run(case())

    def test_what_the_run_raises_comes_in_the_place_of_the_next_item(self):
        seats = []

        async def made():
            seats.append(streams.Seat())

            async def run():
                await seats[0].give(1)
                raise KeyError("no")

            async for item in streams.streamed(run, seats[0]):
                yield item

        items = streams.one_by_one("saga_stream", made())
        assert next(items) == 1
        with pytest.raises(KeyError):
            next(items)

    def test_a_loop_that_runs_is_not_blocked(self):
        async def case():
            async def nothing():
                """Never runs."""

            with pytest.raises(ConfigurationError, match="saga_run_sync was called where"):
                loops.blocking("saga_run", nothing())
            with pytest.raises(ConfigurationError, match="saga_stream_sync was called"):
                next(streams.one_by_one("saga_stream", None))

        asyncio.run(case())

    def test_a_run_without_a_loop_gets_one(self):
        async def three():
            return 3

        assert loops.blocking("saga_run", three()) == 3
