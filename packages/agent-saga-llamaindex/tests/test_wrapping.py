"""Tools as steps: nothing of the tool is lost, and a step ends as its function did."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.tools.types import AsyncBaseTool, ToolOutput
from llama_index.core.workflow import Context
from scripted import Scripted, call

from agent_saga import ConfigurationError, Policy, PreFlightGate, SagaAborted
from agent_saga.errors import NoBoundary, UndeclaredTool
from agent_saga_llamaindex import (
    compensable,
    irreversible,
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_run,
    saga_tool,
    wrap_tool,
    wrap_tools,
)


def run(agent, **options):
    async def case():
        return await saga_run(agent, "go on", **options), last_report()

    result, run.report = asyncio.run(case())
    return result


def outputs(result):
    return [one.tool_output for one in result.tool_calls]


class TestToolsOfOneName:
    """A declaration by name is for one tool."""

    def team(self, shop, *tools):
        agents = [
            shop.agent(tools=[one], name=f"A{n}", description="a clerk")
            for n, one in enumerate(tools)
        ]
        return AgentWorkflow(agents=agents, root_agent="A0")

    def test_are_refused_where_they_differ(self, shop):
        other = FunctionTool.from_defaults(shop.fail, name="book")
        with pytest.raises(ConfigurationError, match="Two different tools are named book"):
            saga_agent(self.team(shop, shop.book, other), shop.kit, tools={"book": read_only()})
        with pytest.raises(ConfigurationError, match="Two different tools are named book"):
            wrap_tools([shop.book, other], {"book": read_only()})

    def test_are_one_where_they_call_one_function(self, shop):
        again = FunctionTool.from_defaults(shop.do)
        assert saga_agent(self.team(shop, shop.book, again), shop.kit, tools={"book": read_only()})

    def test_may_differ_where_one_is_wrapped_by_itself(self, shop):
        other = wrap_tool(
            FunctionTool.from_defaults(shop.fail, name="book"), semantics="REVERSIBLE", name="other"
        )
        made = saga_agent(self.team(shop, shop.book, other), shop.kit, tools=shop.declared_book)
        assert made.agents["A1"].tools == [other]

    def test_that_a_retriever_finds_later_are_refused_too(self, shop):
        class Finds:
            async def aretrieve(self, _):
                return [FunctionTool.from_defaults(shop.fail, name="book")]

        agent = shop.agent("done", tools=[shop.book])
        object.__setattr__(agent, "tool_retriever", Finds())
        with pytest.raises(SagaAborted) as failed:
            run(saga_agent(agent, shop.kit, tools=shop.declared_book))
        assert isinstance(failed.value.cause, ConfigurationError)


class TestWhatATool:
    """Is, it stays."""

    def test_wrapping_keeps_everything_that_the_model_sees(self, shop):
        wrapped = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
        assert wrapped.metadata is shop.book.metadata
        assert wrapped.metadata.get_parameters_dict() == shop.book.metadata.get_parameters_dict()
        assert type(wrapped) is FunctionTool
        assert wrapped.real_fn.__name__ == "book"

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_the_workflows_context_reaches_the_function_and_stands_in_no_record(
        self, shop, asynchronous
    ):
        def note(ctx: Context, item: str) -> str:
            """Note an item."""
            return f"{item} {type(ctx).__name__}"

        async def note_later(ctx: Context, item: str) -> str:
            """Note an item."""
            return note(ctx, item)

        fn = note_later if asynchronous else note
        fn.__annotations__["ctx"] = Context  # LlamaIndex does not see one that is written as text
        tool = FunctionTool.from_defaults(fn, name="note")
        wrapped = wrap_tool(tool, semantics="REVERSIBLE", kit=shop.kit)
        assert (wrapped.requires_context, wrapped.ctx_param_name) == (True, "ctx")
        made = saga_tool(fn, name="made", semantics="REVERSIBLE", kit=shop.kit)
        assert "ctx" not in json.dumps(made.metadata.get_parameters_dict())
        calls = [call("note", "c1", item="a"), call("made", "c2", item="b")]
        result = run(saga_agent(shop.agent(calls, "done", tools=[wrapped, made]), shop.kit))
        # Synchronous ones run side by side, and come in the order in which they end.
        assert sorted(out.content for out in outputs(result)) == ["a Context", "b Context"]

    def test_callbacks_and_partial_parameters_are_the_tools_own(self, shop):
        def book(item: str, shop_name: str) -> dict:
            """Book an item."""
            return shop.world.do(f"{item} at {shop_name}")

        tool = FunctionTool.from_defaults(
            book, partial_params={"shop_name": "mine"}, callback=lambda made: f"no {made['id']}"
        )
        wrapped = wrap_tool(tool, compensate=shop.undo, kit=shop.kit)
        agent = shop.agent([call("book", "c1", item="seat")], "done", tools=[wrapped])
        [output] = outputs(run(saga_agent(agent, shop.kit)))
        assert output.content == "no 1"
        shop.world.assert_applied_once("seat at mine")

    def test_a_function_beside_a_coroutine_function_is_a_step_too(self, shop):
        async def later(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        tool = FunctionTool.from_defaults(shop.do, async_fn=later)
        wrapped = wrap_tool(tool, compensate=shop.undo, kit=shop.kit)
        with pytest.raises(ValueError, match="no"), shop.kit.transaction(reraise=True):
            wrapped.call(item="seat")
            raise ValueError("no")
        agent = shop.agent([call("book", "c1", item="room")], OSError("down"), tools=[wrapped])
        with pytest.raises(SagaAborted):
            run(saga_agent(agent, shop.kit))
        assert shop.world.undone() == ["seat", "room"]

    def test_the_tools_of_a_spec_are_wrapped_together(self, shop):
        class Spec(BaseToolSpec):
            spec_functions: ClassVar = ["book", "look"]

            def book(self, item: str) -> dict:
                """Book an item."""
                return shop.world.do(item)

            async def look(self, item: str) -> str:
                """Look at an item."""
                return item

        with pytest.raises(UndeclaredTool, match="look"):
            wrap_tools(Spec(), {"book": compensable(shop.undo)}, kit=shop.kit)
        with pytest.raises(ConfigurationError, match="There is no tool sell"):
            wrap_tools(Spec(), {"sell": read_only()}, kit=shop.kit)
        declared = {"book": compensable(shop.undo), "look": read_only()}
        tools = wrap_tools(Spec(), declared, kit=shop.kit)
        assert wrap_tools(tools, {}, kit=shop.kit) == tools
        agent = shop.agent([call("book", "c1", item="seat")], OSError("down"), tools=tools)
        with pytest.raises(SagaAborted):
            run(saga_agent(agent, shop.kit))
        shop.world.assert_restored()

    def test_the_decorator_and_the_common_name_do_the_same(self, shop):
        @saga_tool(compensate=shop.undo, kit=shop.kit, name="order", return_direct=True)
        async def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        assert (book.metadata.name, book.metadata.return_direct) == ("order", True)
        same = safe_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="same")
        assert same.metadata.name == "same"
        run(saga_agent(shop.agent([call("order", "c1", item="seat")], tools=[book]), shop.kit))
        shop.world.assert_applied_once("seat")

    def test_a_declared_function_is_made_a_tool(self, shop):
        @shop.kit.tool("COMPENSABLE", compensate=shop.undo)
        def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        with pytest.raises(ConfigurationError, match="declared already"):
            saga_tool(book, semantics="REVERSIBLE")
        agent = shop.agent([call("book", "c1", item="seat")], OSError(), tools=[saga_tool(book)])
        with pytest.raises(SagaAborted):
            run(saga_agent(agent, shop.kit))
        shop.world.assert_restored()

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_the_idempotency_key_is_the_engines(self, shop, asynchronous):
        keys = []

        def book(item: str, idempotency_key: str) -> dict:
            """Book an item."""
            keys.append(idempotency_key)
            return shop.world.do(item)

        async def book_later(item: str, idempotency_key: str) -> dict:
            """Book an item."""
            return book(item, idempotency_key)

        fn = book_later if asynchronous else book
        tool = saga_tool(fn, name="book", compensate=shop.undo, kit=shop.kit)
        assert "idempotency_key" not in json.dumps(tool.metadata.get_parameters_dict())
        calls = [call("book", "c1", item="seat"), call("book", "c2", item="room")]
        run(saga_agent(shop.agent(calls, "done", tools=[tool]), shop.kit))
        assert len({len(key) for key in keys} | {64}) == 1
        assert len(set(keys)) == 2

    def test_arguments_that_do_not_fit_cost_nobody_a_case(self, shop):
        agent = shop.agent([call("book", "c1", things=1)], "done")
        result = run(saga_agent(agent, shop.kit, tools=shop.declared))
        assert "do not fit" in outputs(result)[0].content
        assert run.report.clean


class TestWhatCannotBeWrapped:
    """Is refused by name, unless it changes nothing."""

    class Remote(AsyncBaseTool):
        metadata = ToolMetadata(name="remote", description="Do something elsewhere.")

        def call(self, input):  # noqa: A002 - the framework's name
            return ToolOutput(content="yes", tool_name="remote", raw_input={}, raw_output="yes")

        async def acall(self, input):  # noqa: A002 - the framework's name
            return self.call(input)

    def test_a_tool_that_is_no_function(self, shop):
        agent = shop.agent([call("remote", "c1", input="x")], "done", tools=[self.Remote()])
        with pytest.raises(ConfigurationError, match=r"remote \(Remote\) cannot be wrapped"):
            saga_agent(agent, shop.kit, tools={"remote": irreversible()})
        result = run(saga_agent(agent, shop.kit, tools={"remote": read_only()}))
        assert outputs(result)[0].content == "yes"

    @pytest.mark.guarantee("LLAMAINDEX-17")
    def test_a_tool_whose_class_calls_past_its_function(self, shop):
        class Special(FunctionTool):
            async def acall(self, *args, **kwargs):
                return await super().acall(*args, **kwargs)

        tool = Special.from_defaults(shop.do)
        with pytest.raises(ConfigurationError, match=r"book \(Special\) cannot be wrapped"):
            wrap_tool(tool, compensate=shop.undo, kit=shop.kit)

    @pytest.mark.guarantee("LLAMAINDEX-18")
    def test_an_agent_that_runs_code(self, shop):
        agent = CodeActAgent(code_execute_fn=lambda code: code, llm=Scripted.of(), tools=[])
        with pytest.raises(ConfigurationError, match="the code that its model writes"):
            saga_agent(agent, shop.kit)

    def test_what_is_no_agent_or_wrapped_already(self, shop):
        with pytest.raises(ConfigurationError, match="takes an agent of LlamaIndex, not str"):
            saga_agent("agent", shop.kit)
        with pytest.raises(ConfigurationError, match="saga_run takes an agent or a workflow"):
            run("agent")
        agent = saga_agent(shop.agent(), shop.kit, tools=shop.declared)
        with pytest.raises(ConfigurationError, match="steps already"):
            saga_agent(agent, shop.kit)
        with pytest.raises(ConfigurationError, match="a tool of agent-saga already"):
            wrap_tool(agent.tools[0], compensate=shop.undo)


class TestDeclarations:
    """Every tool has one; all that are missing are named at once."""

    def test_all_tools_without_one_are_named(self, shop):
        with pytest.raises(UndeclaredTool, match="book, fails"):
            saga_agent(shop.agent(), shop.kit)
        with pytest.raises(ConfigurationError, match="There is no tool sell"):
            saga_agent(shop.agent(), shop.kit, tools={**shop.declared, "sell": read_only()})

    def test_the_policy_of_the_gate_declares_what_the_code_leaves_out(self, shop):
        policy = {
            "tools": {"book": {"semantics": "REVERSIBLE"}, "fails": {"semantics": "REVERSIBLE"}}
        }
        kit = type(shop.kit)(
            "other", wal=str(shop.folder / "other"), gate=PreFlightGate(policy=Policy(policy))
        )
        assert run(saga_agent(shop.agent("done"), kit)).response.content == "done"

    @pytest.mark.guarantee("LLAMAINDEX-15")
    def test_tools_that_are_found_meanwhile_are_steps_or_refused(self, shop):
        class Retriever:
            async def aretrieve(self, text):
                return [shop.book]

        def agent(*script, tools):
            made = shop.agent(*script, tools=[])
            made.__dict__["tool_retriever"] = Retriever()
            return saga_agent(made, shop.kit, tools=tools)

        known = {"book": compensable(shop.undo)}
        with pytest.raises(SagaAborted):
            run(agent([call("book", "c1", item="seat")], OSError("down"), tools=known))
        shop.world.assert_restored()
        with pytest.raises(SagaAborted, match="Nothing says what book does"):
            run(agent([call("book", "c1", item="seat")], "done", tools={}))
        assert shop.world.applications() == 1

    @pytest.mark.guarantee("LLAMAINDEX-16")
    def test_without_a_boundary_an_effect_is_refused(self, shop):
        agent = saga_agent(
            shop.agent([call("book", "c1", item="seat")], "done"), shop.kit, tools=shop.declared
        )

        async def case():
            return await agent.run("go on")

        result = asyncio.run(case())
        assert isinstance(outputs(result)[0].exception, NoBoundary)
        shop.world.assert_untouched()

    def test_the_agent_that_was_given_stays_as_it_is(self, shop):
        agent = shop.agent("done")
        clone = saga_agent(agent, shop.kit, tools=shop.declared)
        assert agent.tools == [shop.book, shop.fails]
        assert isinstance(clone, FunctionAgent)
        assert (clone.workflow_name, type(clone).__name__) == (
            agent.workflow_name,
            "FunctionAgent",
        )
