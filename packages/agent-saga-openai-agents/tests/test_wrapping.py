"""Tools as steps: nothing of the tool is lost, and a step ends as its function did."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from agents import (
    Agent,
    FunctionTool,
    Runner,
    ToolGuardrailFunctionOutput,
    WebSearchTool,
    function_tool,
    tool_input_guardrail,
)
from agents.tool_context import ToolContext
from scripted import Scripted, call

from agent_saga import ConfigurationError, Policy, PreFlightGate, SagaAborted
from agent_saga.errors import NoBoundary, UndeclaredTool
from agent_saga_openai_agents import (
    compensable,
    irreversible,
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_run,
    saga_tool,
    seams,
    wrap_tool,
    wrap_tools,
)


def agent_of(shop, script, given, **options):
    return saga_agent(Agent(name="A", model=Scripted(script), tools=given), shop.kit, **options)


def run(agent, **options):
    async def case():
        return await saga_run(agent, "go on", **options), last_report()

    result, run.report = asyncio.run(case())
    return result


class TestWhatATool:
    """Is, it stays."""

    def test_wrapping_keeps_everything_that_the_model_sees(self, shop):
        wrapped = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
        for field in dataclasses.fields(FunctionTool):
            if field.name not in ("on_invoke_tool", "needs_approval"):
                assert getattr(wrapped, field.name) == getattr(shop.book, field.name), field.name
        assert type(wrapped) is FunctionTool

    def test_a_tool_of_ones_own_is_made_as_the_framework_makes_it(self, shop):
        def pay(ctx: ToolContext, amount: int, note: str = "none") -> str:
            """Pay.

            Args:
                amount: how much.
            """
            return f"{amount} {note} {ctx.tool_call_id}"

        theirs = function_tool(pay, strict_mode=False, description_override="Pay now")
        ours = saga_tool(
            pay, semantics="REVERSIBLE", strict_mode=False, description_override="Pay now"
        )
        assert ours.params_json_schema == theirs.params_json_schema
        assert (ours.name, ours.description) == ("pay", "Pay now")
        agent = agent_of(shop, [[call("pay", "c1", amount=5)], "done"], [ours])
        assert [i.output for i in run(agent).new_items if i.type == "tool_call_output_item"] == [
            "5 none c1"
        ]

    def test_the_decorator_and_the_common_name_do_the_same(self, shop):
        @saga_tool(compensate=shop.undo, kit=shop.kit, name_override="order")
        async def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        def order(item: str) -> dict:
            """Order an item."""
            return shop.world.do(item)

        assert book.name == "order"
        same = safe_tool(order, compensate=shop.undo, kit=shop.kit, name="same")
        assert same.name == "same"
        run(agent_of(shop, [[call("order", "c1", item="seat")], "done"], [book]))
        shop.world.assert_applied_once("seat")

    def test_a_declared_function_is_made_a_tool(self, shop):
        @shop.kit.tool("COMPENSABLE", compensate=shop.undo)
        def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        with pytest.raises(ConfigurationError, match="declared already"):
            saga_tool(book, semantics="REVERSIBLE")
        with pytest.raises(SagaAborted):
            run(agent_of(shop, [[call("book", "c1", item="seat")], OSError()], [saga_tool(book)]))
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
        assert "idempotency_key" not in json.dumps(tool.params_json_schema)
        calls = [call("book", "c1", item="seat"), call("book", "c2", item="room")]
        run(agent_of(shop, [calls, "done"], [tool]))
        assert len({len(key) for key in keys} | {64}) == 1
        assert len(set(keys)) == 2

    def test_guardrails_of_a_tool_run_before_its_step(self, shop):
        @tool_input_guardrail
        async def closed(data):
            return ToolGuardrailFunctionOutput.reject_content("closed on Sundays")

        tool = dataclasses.replace(shop.book, tool_input_guardrails=[closed])
        agent = agent_of(
            shop,
            [[call("book", "c1", item="seat")], "done"],
            [tool],
            tools={"book": shop.declared["book"]},
        )
        result = run(agent)
        assert "closed on Sundays" in json.dumps(result.to_input_list())
        shop.world.assert_untouched()

    def test_arguments_that_do_not_fit_cost_nobody_a_case(self, shop):
        bad = [call("book", "c1", things=1)]
        agent = agent_of(shop, [bad, "done"], [shop.book], tools={"book": shop.declared["book"]})
        assert run(agent).final_output == "done"
        assert run.report.clean
        shop.world.assert_untouched()

    def test_a_tool_that_was_made_by_hand_is_a_step(self, shop):
        async def invoke(ctx, text):
            return json.dumps(shop.world.do(json.loads(text)["item"]))

        tool = FunctionTool("book", "Book.", shop.book.params_json_schema, invoke)
        undo = compensable(
            lambda result: {
                "handler": "shop.cancel",
                "kwargs": {"effect": json.loads(result)["id"]},
            }
        )
        agent = agent_of(
            shop, [[call("book", "c1", item="seat")], OSError()], [tool], tools={"book": undo}
        )
        with pytest.raises(SagaAborted) as failed:
            run(agent)
        assert [line.tool for line in failed.value.report.compensated] == ["book"]
        shop.world.assert_restored()


class TestDeclaring:
    def test_all_undeclared_tools_are_named_at_once(self, shop):
        with pytest.raises(UndeclaredTool, match="book, fails"):
            saga_agent(Agent(name="A", tools=[shop.book, shop.fails]), shop.kit)
        with pytest.raises(UndeclaredTool, match="book, fails"):
            wrap_tools([shop.book, shop.fails], {}, kit=shop.kit)
        with pytest.raises(UndeclaredTool, match="book"):
            run(Agent(name="A", model=Scripted([]), tools=[shop.book]), kit=shop.kit)

    def test_a_declaration_without_a_tool_is_named(self, shop):
        with pytest.raises(ConfigurationError, match="There is no tool boook"):
            saga_agent(Agent(name="A"), shop.kit, tools={"boook": read_only()})
        with pytest.raises(ConfigurationError, match="There is no tool boook"):
            wrap_tools([shop.book], {**shop.declared, "boook": read_only()}, kit=shop.kit)

    def test_the_policy_declares_what_the_code_leaves_out(self, shop, tmp_path):
        path = tmp_path / "policy.toml"
        path.write_text('[tools.book]\nsemantics = "IRREVERSIBLE"\n', "utf-8")
        from agent_saga import AgentKit

        gate = PreFlightGate(policy=Policy.load(path))
        kit = AgentKit("policed", wal=str(tmp_path / "other"), gate=gate)
        agent = Agent(
            name="A", model=Scripted([[call("book", "c1", item="seat")], "done"]), tools=[shop.book]
        )
        result = run(saga_agent(agent, kit))
        assert "refused" in json.dumps(result.to_input_list())
        shop.world.assert_untouched()

    def test_wrapping_twice_is_refused(self, shop):
        wrapped = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
        with pytest.raises(ConfigurationError, match="already"):
            wrap_tool(wrapped, compensate=shop.undo)
        assert wrap_tools([wrapped], {}, kit=shop.kit) == [wrapped]
        agent = saga_agent(Agent(name="A", tools=[wrapped]), shop.kit)
        with pytest.raises(ConfigurationError, match="already"):
            saga_agent(agent, shop.kit)

    def test_what_the_provider_carries_out_is_refused_unless_it_is_a_read(self, shop):
        agent = Agent(name="A", tools=[WebSearchTool()])
        name = WebSearchTool().name
        with pytest.raises(UndeclaredTool, match=name):
            saga_agent(agent, shop.kit)
        with pytest.raises(ConfigurationError, match="cannot be wrapped"):
            saga_agent(agent, shop.kit, tools={name: irreversible()})
        assert saga_agent(agent, shop.kit, tools={name: read_only()}).tools == agent.tools
        with pytest.raises(ConfigurationError, match="WebSearchTool cannot be wrapped"):
            wrap_tool(WebSearchTool(), semantics="REVERSIBLE")

    def test_only_an_agent_is_taken(self, shop):
        with pytest.raises(ConfigurationError, match="an Agent of the SDK, not str"):
            saga_agent("agent", shop.kit)

    def test_a_tool_of_another_kit_is_refused(self, shop, tmp_path):
        from agent_saga import AgentKit

        other = AgentKit("other", wal=str(tmp_path / "elsewhere"))
        tool = wrap_tool(shop.book, compensate=shop.undo, kit=other)
        with pytest.raises(SagaAborted) as failed:
            run(agent_of(shop, [[call("book", "c1", item="seat")], "done"], [tool]))
        assert isinstance(failed.value.cause, ConfigurationError)
        shop.world.assert_untouched()


class TestOutsideABoundary:
    def test_a_tool_of_an_agent_under_care_is_refused_by_the_plain_runner(self, shop):
        agent = agent_of(
            shop,
            [[call("book", "c1", item="seat")], "done"],
            [shop.book],
            tools={"book": shop.declared["book"]},
        )
        with pytest.raises(Exception, match="outside any boundary") as refused:
            asyncio.run(Runner.run(agent, "go on"))
        assert isinstance(refused.value.cause, NoBoundary)
        shop.world.assert_untouched()

    def test_a_wrapped_tool_runs_with_a_warning(self, shop, caplog):
        tool = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
        agent = Agent(
            name="A", model=Scripted([[call("book", "c1", item="seat")], "done"]), tools=[tool]
        )
        assert asyncio.run(Runner.run(agent, "go on")).final_output == "done"
        assert "runs outside any boundary" in caplog.text
        shop.world.assert_applied_once("seat")


class TestAVersionThatShowsLess:
    """The framework's unpromised names: without them nothing is hidden, and it is said."""

    def test_a_tool_whose_endings_cannot_be_seen_is_refused(self, shop, monkeypatch):
        monkeypatch.setattr(seams, "_IMPLEMENTATION", "gone")
        with pytest.raises(ConfigurationError, match="would hide its errors"):
            wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    def test_tools_of_ones_own_do_not_need_them(self, shop, monkeypatch):
        monkeypatch.setattr(seams, "_IMPLEMENTATION", "gone")
        monkeypatch.setattr(seams, "_SYNCHRONOUS", "gone")

        @saga_tool(compensate=shop.undo, kit=shop.kit)
        def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        with pytest.raises(SagaAborted):
            run(agent_of(shop, [[call("book", "c1", item="seat")], OSError()], [book]))
        shop.world.assert_restored()

    def test_an_agent_behind_a_tool_is_asked_for_in_another_way(self, shop, monkeypatch):
        inner = Agent(name="inner", tools=[shop.book])
        outer = Agent(name="outer", tools=[inner.as_tool("ask_inner", "Ask.")])
        monkeypatch.setattr(seams, "running_instead", lambda *_: None)
        with pytest.raises(ConfigurationError, match="saga_agent first") as refused:
            saga_agent(outer, shop.kit, tools={"book": shop.declared["book"]})
        assert "as_tool" in refused.value.fix
