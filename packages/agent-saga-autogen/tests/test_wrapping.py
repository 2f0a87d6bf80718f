"""Tools and workbenches by themselves: what is kept of them, recorded, refused."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench
from pydantic import BaseModel
from scripted import call

from agent_saga import (
    AgentKit,
    ConfigurationError,
    NoBoundary,
    PreFlightGate,
    Rule,
    SagaAborted,
    UndeclaredTool,
    tool_is,
)
from agent_saga_autogen import (
    SagaWorkbench,
    WorkbenchToolFailed,
    compensable,
    irreversible,
    read_only,
    safe_tool,
    saga_agent,
    saga_run,
    saga_tool,
    wrap_tool,
    wrap_tools,
)
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]
DOWN = OSError("the model is down")


def made(tool, **args):
    return asyncio.run(tool.run_json(args, CancellationToken(), call_id="c1"))


def run(shop, agent, **options):
    return asyncio.run(saga_run(agent, "go on", **{"kit": shop.kit, **options}))


def told(result):
    """Return what the model was told of its calls."""
    events = [
        event.content
        for event in result.messages
        if type(event).__name__ == "ToolCallExecutionEvent"
    ]
    return [(one.content, one.is_error) for content in events for one in content]


class Order(BaseModel):
    item: str
    number: int = 1


class OrderTool(BaseTool[Order, BaseModel]):
    """A tool of a class of its own."""

    def __init__(self, shop):
        super().__init__(Order, dict, "order", "Order items.")
        self.shop, self.state = shop, {"n": 0}

    async def run(self, args, cancellation_token):
        self.state["n"] += 1
        return self.shop.world.do(args.item)

    def return_value_as_string(self, value):
        return f"order {value['id']}"

    async def save_state_json(self):
        return self.state

    async def load_state_json(self, state):
        self.state = dict(state)


class TestAFunction:
    def test_keeps_its_schema(self, shop):
        def order(item: str, number: int = 1) -> dict:
            """Order items."""
            return shop.world.do(item)

        bare = FunctionTool(order, description="Order items.", strict=False)
        tool = saga_tool(order, compensate=shop.undo)
        assert tool.schema == bare.schema
        assert isinstance(tool, FunctionTool)
        wrapped = wrap_tool(bare, compensate=shop.undo)
        assert wrapped.schema == bare.schema
        assert wrapped.return_value_as_string({"a": 1}) == bare.return_value_as_string({"a": 1})

    def test_is_given_its_idempotency_key_which_the_model_is_not_shown(self, shop):
        keys = []

        @saga_tool(compensate=shop.undo, kit=shop.kit)
        async def order(item: str, idempotency_key: str) -> dict:
            """Order an item."""
            keys.append(idempotency_key)
            return shop.world.do(item)

        assert list(order.schema["parameters"]["properties"]) == ["item"]
        agent = shop.agent([call("order", item="lamp")], DOWN, tools=[order])
        with pytest.raises(SagaAborted):
            run(shop, agent)
        assert len(keys[0]) == 64
        shop.world.assert_restored()

    def test_may_be_declared_already(self, shop):
        @shop.kit.tool("COMPENSABLE")
        def order(item: str) -> dict:
            """Order an item."""
            return shop.world.do(item)

        @order.undo
        def cancel(result):
            shop.world.undo(result["id"], key="k")

        agent = shop.agent([call("order", item="lamp")], DOWN, tools=[saga_tool(order)])
        with pytest.raises(SagaAborted):
            run(shop, agent)
        shop.world.assert_restored()
        with pytest.raises(ConfigurationError, match="declared already"):
            saga_tool(order, compensate=shop.undo)

    def test_may_take_the_frameworks_cancellation_token(self, shop):
        seen = []

        async def order(item: str, cancellation_token: CancellationToken) -> dict:
            """Order an item."""
            seen.append(cancellation_token)
            return shop.world.do(item)

        tool = safe_tool(order, compensate=shop.undo, kit=shop.kit)
        assert list(tool.schema["parameters"]["properties"]) == ["item"]
        run(shop, shop.agent([call("order", item="lamp")], "done", tools=[tool]))
        assert isinstance(seen[0], CancellationToken)

    def test_is_given_what_the_schema_reads_and_records_it_as_plain_data(self, shop):
        def order(what: Order, urgent: bool = False) -> dict:
            """Order."""
            return shop.world.do(what.item)

        judged = []

        def judge(context):
            judged.append(dict(context.arguments))
            return False

        gate = PreFlightGate(rules=[Rule("looks", judge, reason="no")])
        kit = AgentKit("gated", wal=str(shop.folder / "gated"), gate=gate, settings=QUICK)
        tool = saga_tool(order, compensate=shop.undo, kit=kit)
        agent = shop.agent([call("order", what={"item": "lamp"})], "done", tools=[tool])
        run(shop, agent, kit=kit)
        assert judged[0] == {"what": {"item": "lamp", "number": 1}, "urgent": False}
        shop.world.assert_applied_once("lamp")

    def test_is_not_called_with_arguments_that_do_not_fit(self, shop):
        agent = shop.agent([call("book", item=[])], "done")
        result = run(shop, saga_agent(agent, shop.kit, tools=shop.declared))
        assert "valid string" in told(result)[0][0]
        shop.world.assert_untouched()

    def test_runs_without_a_boundary_as_the_bare_one_unless_it_is_irreversible(self, shop):
        assert made(safe_tool(shop.do, compensate=shop.undo), item="seat")["id"]
        with pytest.raises(NoBoundary):
            made(safe_tool(shop.do, "IRREVERSIBLE"), item="seat")
        shop.world.assert_applied_once("seat")

    def test_is_refused_in_the_boundary_of_another_kit(self, shop):
        other = AgentKit("other", wal=str(shop.folder / "other"), settings=QUICK)
        tool = safe_tool(shop.do, compensate=shop.undo, kit=other)
        with pytest.raises(SagaAborted, match="another kit"):
            run(shop, shop.agent(SEAT, "done", tools=[tool]))
        shop.world.assert_untouched()

    def test_cannot_be_dumped_or_wrapped_twice(self, shop):
        tool = safe_tool(shop.do, compensate=shop.undo)
        with pytest.raises(ConfigurationError, match="cannot be dumped"):
            tool.dump_component()
        with pytest.raises(ConfigurationError, match="already"):
            wrap_tool(tool, compensate=shop.undo)

    def test_in_a_plain_boundary_is_a_step_of_it(self, shop):
        tool = safe_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        async def case():
            async with shop.kit.transaction():
                await shop.agent(SEAT, "done", tools=[tool]).run(task="go on")
                raise OSError("the program fails")

        with pytest.raises(SagaAborted):
            asyncio.run(case())
        shop.world.assert_restored()


class TestATool:
    def test_of_a_class_of_its_own_is_a_step_at_its_run_json(self, shop):
        bare = OrderTool(shop)
        tool = wrap_tool(bare, compensate=shop.undo, kit=shop.kit)
        assert (tool.name, tool.description, tool.schema) == ("order", "Order items.", bare.schema)
        agent = shop.agent([call("order", item="lamp")], DOWN, tools=[tool])
        with pytest.raises(SagaAborted):
            run(shop, agent)
        shop.world.assert_restored()
        assert asyncio.run(tool.save_state_json()) == {"n": 1}
        asyncio.run(tool.load_state_json({"n": 5}))
        assert bare.state == {"n": 5}

    def test_of_a_class_of_its_own_shows_its_result_as_it_does(self, shop):
        tool = wrap_tool(OrderTool(shop), compensate=shop.undo)
        result = run(shop, shop.agent([call("order", item="lamp")], "done", tools=[tool]))
        assert told(result) == [("order 1", False)]

    def test_of_one_name_must_be_one_tool(self, shop):
        other = FunctionTool(shop.fail, description="Tell of a booking.", name="book")
        again = FunctionTool(shop.do, description="Book an item.")
        first, declared = shop.agent("done", tools=[shop.book]), {"book": shop.declared["book"]}
        for tool, fits in ((shop.book, True), (again, True), (other, False)):
            team = RoundRobinGroupChat([first, shop.agent("done", tools=[tool], name="B")])
            with contextlib.ExitStack() as refused:
                if not fits:
                    refused.enter_context(pytest.raises(ConfigurationError, match="Two different"))
                saga_agent(team, shop.kit, tools=declared)

    def test_must_be_declared(self, shop):
        with pytest.raises(UndeclaredTool, match="book, fails"):
            wrap_tools([shop.book, shop.fails], {})
        with pytest.raises(ConfigurationError, match="no tool buck"):
            wrap_tools([shop.book], {**shop.declared, "buck": read_only()})
        tools = wrap_tools([shop.book, shop.fails], shop.declared, kit=shop.kit)
        assert wrap_tools(tools, {}) == tools

    def test_that_a_rule_refuses_tells_the_model_rule_and_reason(self, shop):
        gate = PreFlightGate(rules=[Rule("no-seats", tool_is("book"), reason="none are left")])
        kit = AgentKit("gated", wal=str(shop.folder / "gated"), gate=gate, settings=QUICK)
        agent = saga_agent(shop.agent(SEAT, "done"), kit, tools=shop.declared)
        [(text, is_error)] = told(run(shop, agent, kit=kit))
        assert text == "book was refused and had no effect (rule no-seats): none are left"
        assert is_error

    def test_that_stands_for_ever_needs_somebody_to_ask(self, shop):
        tools = {"book": irreversible(), "fails": read_only()}
        agent = saga_agent(shop.agent(SEAT, "done"), shop.kit, tools=tools)
        assert told(run(shop, agent))[0][1]
        shop.world.assert_untouched()


class Served(StaticWorkbench):
    """A workbench that keeps its tools to itself, and can grow them."""

    grown = ()

    async def list_tools(self):
        return [tool.schema for tool in (*self._tools, *self.grown)]


class TestAWorkbench:
    @staticmethod
    def told_in_json(shop):
        class Json(FunctionTool):
            def return_value_as_string(self, value):
                return json.dumps(value)

        return Served([Json(shop.do, description="Book.", name="book"), shop.fails])

    def test_is_undone_by_what_its_answer_says(self, shop):
        bench = SagaWorkbench(self.told_in_json(shop), tools=shop.declared, kit=shop.kit)
        with pytest.raises(SagaAborted) as failed:
            run(shop, shop.agent(SEAT, DOWN, workbench=bench))
        assert failed.value.report.clean
        shop.world.assert_restored()

    def test_may_be_given_to_saga_agent_as_it_is(self, shop):
        agent = shop.agent(SEAT, DOWN, workbench=[self.told_in_json(shop)])
        with pytest.raises(SagaAborted):
            run(shop, saga_agent(agent, shop.kit, tools=shop.declared))
        shop.world.assert_restored()

    def test_must_be_the_only_one_with_tools_of_its_names(self, shop):
        one, other = self.told_in_json(shop), self.told_in_json(shop)
        agents = [
            shop.agent("done", workbench=one),
            shop.agent("done", name="B", workbench=other),
        ]
        team = RoundRobinGroupChat(agents, max_turns=2)
        with pytest.raises(ConfigurationError, match="Two different tools are named book") as no:
            run(shop, saga_agent(team, shop.kit, tools=shop.declared))
        assert "SagaWorkbench" in no.value.fix

    def test_must_have_its_tools_declared_before_anything_runs(self, shop):
        agent = shop.agent(SEAT, "done", workbench=self.told_in_json(shop))
        with pytest.raises(UndeclaredTool, match="book, fails"):
            run(shop, saga_agent(agent, shop.kit))
        with pytest.raises(ConfigurationError, match="no tool buck"):
            run(shop, saga_agent(agent, shop.kit, tools={**shop.declared, "buck": read_only()}))
        shop.world.assert_untouched()

    def test_ends_the_run_that_calls_a_tool_that_came_later(self, shop):
        inner = self.told_in_json(shop)
        agent = shop.agent(SEAT, [call("do", item="x")], SEAT, "done", workbench=inner)
        agent = saga_agent(agent, shop.kit, tools=shop.declared)

        async def case():
            run = saga_run(agent, "go on", kit=shop.kit)
            task = asyncio.ensure_future(run)
            while not shop.world.applications():
                await asyncio.sleep(0)
            inner.grown = [FunctionTool(shop.do, description="Do.", name="do")]
            with pytest.raises(SagaAborted) as failed:
                await task
            assert isinstance(failed.value.cause, UndeclaredTool)

        asyncio.run(case())
        shop.world.assert_restored()

    def test_that_answers_with_an_error_leaves_the_outcome_unknown(self, shop):
        tools = {"book": compensable(shop.undo), "fails": compensable(shop.undo)}
        bench = SagaWorkbench(self.told_in_json(shop), tools=tools, kit=shop.kit)
        agent = shop.agent([call("fails", item="x")], "done", workbench=bench)
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent, on_tool_failure="rollback")
        assert not failed.value.report.clean

    def test_may_say_that_its_errors_changed_nothing(self, shop):
        harmless = compensable(shop.undo, not_applied_on=WorkbenchToolFailed)
        bench = SagaWorkbench(
            self.told_in_json(shop), tools={"book": harmless, "fails": harmless}, kit=shop.kit
        )
        agent = shop.agent([call("fails", item="x")], "done", workbench=bench)
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent, on_tool_failure="rollback")
        assert failed.value.report.clean

    def test_gives_a_recorded_answer_again(self, shop):
        def agent():
            bench = SagaWorkbench(self.told_in_json(shop), tools=shop.declared, kit=shop.kit)
            return shop.agent([call("book", "c1", item="seat")], "done", workbench=bench)

        texts = [told(run(shop, agent(), key="k"))[0][0] for _ in range(2)]
        assert [json.loads(text)["id"] for text in texts] == [1, 1]
        shop.world.assert_applied_once("seat")

    def test_answers_to_arguments_that_are_no_object(self, shop):
        bench = SagaWorkbench(self.told_in_json(shop), tools=shop.declared, kit=shop.kit)
        odd = [FunctionCall(id="c1", name="book", arguments="[1]")]
        result = run(shop, shop.agent(odd, "done", workbench=bench))
        assert told(result)[0][1]
        shop.world.assert_untouched()

    def test_passes_on_everything_else(self, shop):
        bench = SagaWorkbench(self.told_in_json(shop), tools=shop.declared)

        async def case():
            async with bench:
                await bench.load_state(await bench.save_state())
                await bench.reset()

        asyncio.run(case())
        with pytest.raises(ConfigurationError, match="cannot be dumped"):
            bench.dump_component()
