"""Tools as steps: what a wrapped tool keeps, what an agent is told, what is refused."""

from __future__ import annotations

import asyncio

import pytest
from crewai import Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
from pydantic import BaseModel, Field
from scripted import call

from agent_saga import (
    ConfigurationError,
    NoBoundary,
    Policy,
    PreFlightGate,
    RetryPolicy,
    Rule,
    SagaAborted,
    tool_is,
)
from agent_saga.errors import NotApplied, OutcomeUnknown, UndeclaredSemantics, UndeclaredTool
from agent_saga_crewai import (
    ToolReported,
    compensable,
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_run_sync,
    saga_tool,
    wrap_tool,
    wrap_tools,
)
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]


class Order(BaseModel):
    item: str = Field(description="what is ordered")


class OrderTool(BaseTool):
    name: str = "order"
    description: str = "Order an item."
    args_schema: type[BaseModel] = Order
    secret: str = ""
    world: object = None

    def _run(self, item: str) -> dict:
        return {**self.world.do(item), "secret": self.secret}


class BothTool(BaseTool):
    name: str = "both"
    description: str = "Order an item, either way."
    world: object = None

    def _run(self, item: str) -> dict:
        return self.world.do(item)

    async def _arun(self, item: str) -> dict:
        return self.world.do(f"{item} later")


class TestToolsOfOneName:
    """A declaration by name is for one tool."""

    def crew(self, shop, *tools):
        agents = [shop.agent(tools=[one], role=f"clerk {n}") for n, one in enumerate(tools)]
        task = Task(agent=agents[0], description="go on", expected_output="a word")
        return Crew(agents=agents, tasks=[task])

    def test_are_refused_where_they_differ(self, shop):
        one, other = OrderTool(world=shop.world), OrderTool(world=shop.world, secret="x")
        with pytest.raises(ConfigurationError, match="Two different tools are named order"):
            saga_agent(self.crew(shop, one, other), shop.kit, tools={"order": read_only()})
        with pytest.raises(ConfigurationError, match="Two different tools are named order"):
            wrap_tools([one, other], {"order": read_only()})

    def test_are_one_where_they_are_equal(self, shop):
        one, other = OrderTool(world=shop.world), OrderTool(world=shop.world)
        assert saga_agent(self.crew(shop, one, other), shop.kit, tools={"order": read_only()})

    def test_may_differ_where_one_is_wrapped_by_itself(self, shop):
        one, other = OrderTool(world=shop.world), OrderTool(world=shop.world, secret="x")
        crew = self.crew(shop, one, wrap_tool(other, semantics="REVERSIBLE", name="other"))
        assert saga_agent(crew, shop.kit, tools={"order": compensable(shop.undo)})

    def test_that_come_while_it_runs_are_refused_too(self, shop):
        @tool("book")
        def tell(item: str) -> str:
            """Tell of a booking."""
            raise AssertionError("it must not run")

        class Trip(Flow):
            @start()
            def first(self):
                shop.crew(SEAT, "done", tools=[shop.book]).kickoff()

            @listen(first)
            def second(self):
                shop.crew(SEAT, "done", tools=[tell]).kickoff()

        with pytest.raises(SagaAborted) as failed:
            saga_agent(Trip(), shop.kit, tools={"book": compensable(shop.undo)}).kickoff()
        assert isinstance(failed.value.cause, ConfigurationError)
        assert failed.value.report.clean
        shop.world.assert_restored()


def described(one):
    return (
        one.name,
        one.description,
        one.formatted_description,
        one.args_schema,
        one.result_schema,
        one.result_as_answer,
        one.max_usage_count,
        one.tool_failure_policy,
        type(one),
        one.tool_type,
    )


@tool("order_one", result_as_answer=True, max_usage_count=7)
def decorated(item: str) -> dict:
    """Order an item."""
    return {"item": item}


@pytest.mark.parametrize("kind", ["class", "decorated", "coroutine"])
def test_a_wrapped_tool_shows_what_the_tool_does(shop, kind):
    @tool
    async def later(item: str) -> dict:
        """Order an item, later."""
        return shop.world.do(item)

    given = {
        "class": OrderTool(world=shop.world, tool_failure_policy="raise"),
        "decorated": decorated,
        "coroutine": later,
    }[kind]
    before = described(given)
    wrapped = wrap_tool(given, compensate=shop.undo, kit=shop.kit)
    assert described(wrapped) == before == described(given)
    assert wrapped.model_dump(exclude={"cache_function", "func"}) == given.model_dump(
        exclude={"cache_function", "func"}
    )
    assert wrapped.cache_function({}, "x") is False
    assert given.cache_function({}, "x") is True
    assert wrap_tool(given, semantics="REVERSIBLE", kit=shop.kit).cache_function({}, "x") is True


@pytest.mark.parametrize("native", [True, False])
def test_a_tool_of_a_class_is_a_step_with_its_own_state(shop, native):
    given = OrderTool(world=shop.world, secret="s3")
    wrapped = wrap_tool(given, compensate=shop.undo, kit=shop.kit)
    crew = shop.crew(
        [call("order", item="lamp")],
        ValueError("down"),
        tools=[wrapped],
        native=native,
        max_retry_limit=0,
    )
    with pytest.raises(SagaAborted) as aborted:
        saga_run_sync(crew, kit=shop.kit)
    assert [line.tool for line in aborted.value.report.compensated] == ["order"]
    shop.world.assert_restored()
    assert given.run(item="chair")["secret"] == "s3"


def test_both_ways_of_a_tool_are_steps(shop):
    both = wrap_tool(BothTool(world=shop.world), compensate=shop.undo, kit=shop.kit)

    async def case():
        async with shop.kit.transaction():
            both.run(item="lamp")
            await both.arun(item="lamp")
            raise RuntimeError("the run fails")

    with pytest.raises(SagaAborted) as aborted:
        asyncio.run(case())
    assert len(aborted.value.report.compensated) == 2
    shop.world.assert_restored()


def test_outside_a_boundary_a_tool_runs_and_an_irreversible_one_is_refused(shop):
    assert wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit).run(item="seat")["id"]
    with pytest.raises(NoBoundary):
        wrap_tool(shop.book, semantics="IRREVERSIBLE", kit=shop.kit).run(item="room")
    shop.world.assert_applied_once("seat")


def test_code_that_calls_a_tool_gets_its_exception(shop):
    fails = wrap_tool(shop.fails, semantics="REVERSIBLE", kit=shop.kit)
    with shop.kit.transaction(), pytest.raises(RuntimeError, match="no such item"):
        fails.run(item="x")


def test_a_tool_inside_a_tool_raises_and_the_agent_is_told_once(shop):
    fails = wrap_tool(shop.fails, semantics="REVERSIBLE", kit=shop.kit)
    seen = []

    @saga_tool("REVERSIBLE", kit=shop.kit)
    def outer(item: str) -> str:
        """Try another tool."""
        try:
            fails.run(item=item)
        except RuntimeError as error:
            seen.append(str(error))
        return "tried"

    saga_run_sync(shop.crew([call("outer", item="x")], "done", tools=[outer]), kit=shop.kit)
    assert seen == ["no such item"]


@pytest.mark.parametrize("native", [True, False])
def test_an_agent_is_told_of_a_failure_and_the_framework_records_it(shop, native):
    crew = shop.crew([call("fails", item="x")], "done", native=native)
    result = saga_agent(crew, shop.kit, tools=shop.declared).kickoff()
    [failure] = result.tasks_output[0].tool_failures
    assert (failure.message, failure.failure.reason) == (
        "no such item",
        ToolFailureReason.EXCEPTION,
    )
    assert "no such item" in str(crew.agents[0].llm.seen[-1])


def test_a_failure_that_the_framework_raises_is_raised_from_what_the_tool_raised(shop):
    crew = shop.crew(SEAT, [call("fails", item="x")], task={"tool_failure_policy": "raise"})
    with pytest.raises(SagaAborted) as aborted:
        saga_agent(crew, shop.kit, tools=shop.declared).kickoff()
    assert isinstance(aborted.value.cause.__cause__, RuntimeError)
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-16")
def test_a_tool_that_says_itself_that_it_failed_has_an_unknown_outcome(shop):
    @saga_tool(compensate=shop.undo, kit=shop.kit)
    def mail(text: str) -> dict:
        """Send a mail."""
        shop.world.do(text)
        return ToolFailure(message="the queue said no", code="busy")

    crew = shop.crew([call("mail", text="hi")], [call("mail", text="hi")], "done", tools=[mail])
    result = saga_run_sync(crew, kit=shop.kit)
    codes = [failure.failure.code for failure in result.tasks_output[0].tool_failures]
    assert codes == ["busy", OutcomeUnknown.__name__]
    assert shop.world.attempts() == 1
    assert not last_report().clean


def test_a_tool_may_declare_that_its_own_failure_means_that_nothing_happened(shop):
    said = iter([ToolFailure(message="full"), None])

    @saga_tool(compensate=shop.undo, kit=shop.kit, not_applied_on=(ToolReported,))
    def mail(text: str) -> dict:
        """Send a mail."""
        return next(said) or shop.world.do(text)

    crew = shop.crew([call("mail", text="hi")], [call("mail", text="hi")], "done", tools=[mail])
    saga_run_sync(crew, kit=shop.kit)
    assert last_report().clean
    shop.world.assert_applied_once("hi")


def test_what_a_rule_refuses_is_text_and_never_the_last_word(shop):
    gate = PreFlightGate(rules=[Rule("none", tool_is("order_one"), reason="none are left")])
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    answers = wrap_tool(decorated, semantics="REVERSIBLE", kit=kit)
    assert (
        saga_run_sync(
            shop.crew([call("order_one", item="x")], "sorry", tools=[answers]), kit=kit
        ).raw
        == "sorry"
    )
    plain = safe_tool(decorated.func, "REVERSIBLE", kit=kit, name="order_one")
    crew = shop.crew([call("order_one", item="x")], "sorry", tools=[plain])
    result = saga_run_sync(crew, kit=kit)
    assert result.tasks_output[0].tool_failures == []
    assert "was refused and had no effect (rule none)" in str(crew.agents[0].llm.seen[-1])


def test_a_step_is_tried_again_inside_itself_where_that_was_asked_for(shop):
    shop.world.fail_before(1, error=NotApplied)
    again = compensable(shop.undo, retry=RetryPolicy(max_retries=2, base_delay=0.0))
    crew = shop.crew(SEAT, "done", native=False)
    saga_agent(crew, shop.kit, tools={**shop.declared, "book": again}).kickoff()
    shop.world.assert_applied_once("seat")


def test_arguments_that_do_not_fit_had_no_effect(shop):
    @tool
    def book(item: str, colour: str = "red") -> dict:
        """Book an item."""
        return shop.world.do(item)

    def narrow(item: str) -> dict:
        """Book an item."""
        return shop.world.do(item)

    book.func = narrow
    wrapped = wrap_tool(book, compensate=shop.undo, kit=shop.kit)
    saga_run_sync(shop.crew(SEAT, "done", tools=[wrapped]), kit=shop.kit)
    assert last_report().clean
    shop.world.assert_untouched()


def test_the_idempotency_key_is_given_by_the_engine_and_hidden_from_the_model(shop):
    keys = []

    def book(item: str, *, idempotency_key: str) -> dict:
        """Book an item."""
        keys.append(idempotency_key)
        return shop.world.do(item)

    async def reserve(item: str, idempotency_key: str = "mine") -> dict:
        """Book an item."""
        keys.append(idempotency_key)
        return shop.world.do(item)

    given = {"compensate": shop.undo, "kit": shop.kit}
    booked, reserved = safe_tool(book, **given), safe_tool(reserve, **given)
    shown = wrap_tool(tool(reserve), **given)
    for one in (booked, reserved):
        assert set(one.args_schema.model_fields) == {"item"}

    async def case():
        async with shop.kit.transaction():
            booked.run(item="a")
            await reserved.arun(item="b")
            await shown.arun(item="c", idempotency_key="the model's")

    asyncio.run(case())
    assert len(set(keys)) == 3
    assert all(len(key) == 64 for key in keys)


def test_a_tool_of_a_kit_becomes_one_with_its_undo(shop):
    @shop.kit.tool("COMPENSABLE")
    def reserve(item: str) -> dict:
        """Reserve an item."""
        return shop.world.do(item)

    @reserve.undo
    def release(result):
        shop.world.undo(result["id"])

    made = safe_tool(reserve)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        made.run(item="seat")
        raise RuntimeError("the run fails")
    shop.world.assert_restored()
    with pytest.raises(ConfigurationError, match="declared already"):
        safe_tool(reserve, semantics="REVERSIBLE")


def test_what_does_not_fit_is_refused(shop, tmp_path):
    wrapped = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
    with pytest.raises(ConfigurationError, match="already"):
        wrap_tool(wrapped, semantics="REVERSIBLE")
    assert wrap_tools([wrapped], {}) == [wrapped]
    with pytest.raises(UndeclaredSemantics):
        wrap_tool(shop.book)
    with pytest.raises(UndeclaredTool) as missing:
        wrap_tools([shop.book, shop.fails], {})
    assert '"book": compensable' in missing.value.fix
    with pytest.raises(ConfigurationError, match="There is no tool bokk"):
        wrap_tools([shop.book], {"bokk": read_only()})
    with pytest.raises(ConfigurationError, match="says nothing"):
        wrap_tools([shop.book], {"book": "COMPENSABLE"})
    with pytest.raises(UndeclaredSemantics):
        saga_tool(shop.book.func)
    with pytest.raises(ConfigurationError, match="docstring"):
        safe_tool(lambda item: item, "REVERSIBLE")
    other = type(shop.kit)("other", wal=str(tmp_path / "other"))
    foreign = wrap_tool(shop.book, compensate=shop.undo, kit=other)
    with pytest.raises(SagaAborted, match="another kit"):
        saga_run_sync(shop.crew(SEAT, "done", tools=[foreign]), kit=shop.kit)
    shop.world.assert_untouched()


POLICY = {
    "tools": {
        "book": {
            "semantics": "COMPENSABLE",
            "compensate": {"handler": "shop.cancel", "kwargs": {"effect": "$.id"}},
        },
        "fails": {"semantics": "READ_ONLY"},
    }
}


@pytest.mark.parametrize("how", ["agent", "run", "one tool"])
def test_a_policy_declares_what_the_code_leaves_out(shop, how):
    gate = PreFlightGate(policy=Policy(POLICY))
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    tools = [wrap_tool(shop.book, kit=kit)] if how == "one tool" else None
    crew = shop.crew(SEAT, ValueError("down"), tools=tools, max_retry_limit=0)
    run = saga_agent(crew, kit).kickoff if how == "agent" else lambda: saga_run_sync(crew, kit=kit)
    with pytest.raises(SagaAborted) as aborted:
        run()
    assert [line.tool for line in aborted.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_a_tool_is_found_where_the_framework_names_it_otherwise(shop, monkeypatch):
    """CrewAI keeps the tool under a private name; without that name nothing else changes."""
    from types import SimpleNamespace

    from agent_saga_crewai.effects import effects_of, tool_of

    by_function = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
    by_class = wrap_tool(OrderTool(world=shop.world), compensate=shop.undo, kit=shop.kit)
    for wrapped in (by_function, by_class):
        shown = wrapped.to_structured_tool()
        assert tool_of(SimpleNamespace(tool=shown)) is wrapped
        renamed = SimpleNamespace(func=shown.func, name=shown.name)
        assert effects_of(tool_of(SimpleNamespace(tool=renamed)))
