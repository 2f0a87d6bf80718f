"""Runs on threads with a checkpointer: interrupts, edits, crashes, and what is refused."""

from __future__ import annotations

import asyncio
import warnings
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from scripted import Scripted, call

from agent_saga import ConfigurationError, MemoryWAL, SagaAborted
from agent_saga.errors import OutcomeUnknown, ResultNotRecorded, SagaClosed
from agent_saga_langgraph import (
    SagaToolNode,
    compensable,
    last_report,
    planning,
    read_only,
    safe_tool,
    saga_agent,
    saga_run_sync,
    saga_stream_sync,
)
from agent_saga_langgraph.streams import tells_of_interrupt
from agent_saga_testing.integration.driver import QUICK

PROMPT = {"messages": [("user", "go on")]}
YES = Command(resume="yes")
WAITS = [call("book", "c1", item="seat"), call("ask", "c2", question="shall I?")]


def on(thread):
    return {"configurable": {"thread_id": thread}}


def agent(shop, script, **options):
    made = create_agent(
        Scripted(script=script), shop.tools, checkpointer=InMemorySaver(), **options
    )
    return saga_agent(made, shop.kit, tools=shop.declared)


def test_a_thread_has_one_saga_after_the_other(shop):
    run = agent(shop, [[call("book", "c1", item="seat")], "done", RuntimeError("down")])
    run.invoke(PROMPT, on("1"))
    first = last_report().saga_id
    with pytest.raises(SagaAborted) as failed:
        run.invoke(PROMPT, on("1"))
    assert failed.value.report.saga_id != first
    shop.world.assert_applied_once("seat")


def test_threads_are_apart(shop):
    run = agent(shop, [WAITS, WAITS, RuntimeError("down"), "done"])
    run.invoke(PROMPT, on("1"))
    run.invoke(PROMPT, on("2"))
    with pytest.raises(SagaAborted):
        run.invoke(YES, on("1"))
    assert run.invoke(YES, on("2"))["messages"][-1].text == "done"
    shop.world.assert_stands("seat")


def test_a_batch_is_one_saga_for_each_input(shop):
    made = create_agent(Scripted(script=["done", "done"]), shop.tools)
    run = saga_agent(made, shop.kit, tools=shop.declared)
    assert len(run.batch([PROMPT, PROMPT])) == 2


def test_a_stream_that_waits_is_suspended_and_gone_on_with(shop):
    run = agent(shop, [WAITS, "done"])
    assert any("__interrupt__" in item for item in run.stream(PROMPT, on("1")))
    assert last_report().outcome == "SUSPENDED"
    list(run.stream(YES, on("1")))
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat")


def test_an_async_stream_that_is_left_at_its_interrupt_is_suspended(shop):
    run = agent(shop, [WAITS, "done"])

    async def case():
        items = run.astream(PROMPT, on("1"), stream_mode=["updates", "values"])
        async for _, item in items:
            if "__interrupt__" in item:
                break
        await items.aclose()
        assert last_report().outcome == "SUSPENDED"
        assert (await run.ainvoke(YES, on("1")))["messages"][-1].text == "done"

    asyncio.run(case())
    shop.world.assert_applied_once("seat")


@pytest.mark.parametrize(
    "how",
    [
        {"version": "v2"},
        {"version": "v2", "stream_mode": "values"},
        {"stream_mode": "tasks"},
        {"stream_mode": "debug"},
        {"stream_mode": ["custom", "tasks"]},
        {"stream_mode": "values"},
        {"stream_mode": "updates", "subgraphs": True},
    ],
    ids=str,
)
def test_a_stream_in_any_form_that_is_left_at_its_interrupt_is_suspended(shop, how):
    run = agent(shop, [WAITS, "done"])
    items = run.stream(PROMPT, on("1"), **how)
    for item in items:
        if "Interrupt(" in str(item) or "'interrupts': [{" in str(item):
            break
    items.close()
    assert last_report().outcome == "SUSPENDED"
    assert run.invoke(YES, on("1"))["messages"][-1].text == "done"
    shop.world.assert_applied_once("seat")


@pytest.mark.parametrize(
    "item", [{"interrupts": ["mine"]}, ("values", {"interrupts": ["mine"]}), {"type": "x"}, "text"]
)
def test_a_user_s_own_words_tell_of_no_interrupt(item):
    assert not tells_of_interrupt(item)


def test_a_result_that_cannot_be_given_again_ends_the_run_past_a_node_that_tells_errors(shop):
    """As text, a model would answer it with the same call: another step, and another effect."""

    def books(item: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Book an item."""
        shop.world.do(item)
        return Command(update={"messages": [ToolMessage("booked", tool_call_id=tool_call_id)]})

    builder = StateGraph(MessagesState)
    both = [call("books", "c1", item="seat"), call("ask", "c2", question="sure?")]
    model = Scripted(script=[both, [call("books", "c3", item="seat")], "done"])
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    declared = {"books": compensable(shop.cancel.using(effect="$args.item")), "ask": read_only()}
    tools = [StructuredTool.from_function(books), shop.ask]
    node = SagaToolNode(tools, kit=shop.kit, declared=declared, handle_tool_errors=True)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda s: "tools" if s["messages"][-1].tool_calls else "__end__"
    )
    builder.add_edge("tools", "model")
    graph = builder.compile(checkpointer=InMemorySaver())
    waits = saga_run_sync(graph, PROMPT, on("1"), kit=shop.kit)
    assert "__interrupt__" in waits, waits
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(graph, YES, on("1"), kit=shop.kit)
    assert isinstance(failed.value.cause, ResultNotRecorded)
    assert shop.world.attempts() == 1


@pytest.mark.guarantee("LANGGRAPH-17")
def test_a_breakpoint_suspends_though_the_result_does_not_say_so(shop):
    run = agent(shop, [[call("book", "c1", item="seat")], "done"], interrupt_before=["tools"])
    assert "__interrupt__" not in run.invoke(PROMPT, on("1"))
    assert last_report().outcome == "SUSPENDED"
    assert run.invoke(None, on("1"))["messages"][-1].text == "done"
    shop.world.assert_applied_once("seat")


def test_an_edit_of_a_waiting_state_repeats_no_effect(shop):
    builder = StateGraph(MessagesState)
    model = Scripted(script=[WAITS, "done"])
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", SagaToolNode(shop.tools, kit=shop.kit, declared=shop.declared))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda s: "tools" if s["messages"][-1].tool_calls else "__end__"
    )
    builder.add_edge("tools", "model")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, PROMPT, on("1"), kit=shop.kit)
    said = graph.get_state(on("1")).values["messages"][-1]
    graph.update_state(on("1"), {"messages": [said]}, as_node="model")
    saga_run_sync(graph, None, on("1"), kit=shop.kit)
    saga_run_sync(graph, YES, on("1"), kit=shop.kit)
    shop.world.assert_applied_once("seat")


def test_a_new_message_on_a_thread_that_waits_stays_in_its_saga(shop):
    run = agent(shop, [WAITS, [call("book", "c3", item="room")], RuntimeError("down")])
    run.invoke(PROMPT, on("1"))
    with pytest.raises(SagaAborted):
        run.invoke(PROMPT, on("1"))
    assert shop.world.undone() == ["room", "seat"]


def test_a_thread_whose_saga_was_undone_says_the_way_out(shop):
    run = agent(shop, [WAITS, RuntimeError("down"), "done"])
    run.invoke(PROMPT, on("1"))
    with pytest.raises(SagaAborted):
        run.invoke(YES, on("1"))
    with pytest.raises(SagaClosed) as refused:
        run.invoke(PROMPT, on("1"))
    assert "another thread_id" in refused.value.fix
    assert run.invoke(PROMPT, on("1"), key="again")["messages"][-1].text == "done"


def test_a_key_names_the_saga(shop):
    made = create_agent(Scripted(script=[[call("book", item="seat")], "done"] * 2), shop.tools)
    run = saga_agent(made, shop.kit, tools=shop.declared)
    for _ in range(2):
        assert run.invoke(PROMPT, key="order-17")["messages"][-1].text == "done"
    shop.world.assert_applied_once("seat")


def test_a_log_that_no_other_process_can_read_is_refused(shop):
    kit = type(shop.kit)("shop", wal=MemoryWAL(), settings=QUICK)
    made = create_agent(Scripted(script=["done"]), [], checkpointer=InMemorySaver())
    with pytest.raises(ConfigurationError, match="log in files"):
        saga_run_sync(made, PROMPT, on("1"), kit=kit)
    with pytest.raises(ConfigurationError, match="names no thread"):
        saga_run_sync(made, PROMPT, kit=shop.kit)


def test_a_tool_that_asks_before_its_effect_runs_after_the_answer(shop):
    def transfer(item: str) -> dict:
        """Ask, then act."""
        interrupt(f"transfer {item}?")
        return shop.world.do(item)

    given = {"compensate": shop.cancel.using(effect="$.id"), "kit": shop.kit}
    for asks_first in (True, False):
        name = f"asks_first={asks_first}"
        tool = safe_tool(transfer, asks_first=asks_first, **given)
        script = [[call("transfer", "c1", item=name)], "done"]
        made = create_agent(Scripted(script=script), [tool], checkpointer=InMemorySaver())
        run = saga_agent(made, shop.kit)
        run.invoke(PROMPT, on(name))
        if asks_first:
            run.invoke(YES, on(name))
            continue
        with pytest.raises(SagaAborted) as failed:
            run.invoke(YES, on(name))
        assert isinstance(failed.value.cause, OutcomeUnknown)
    shop.world.assert_stands("asks_first=True")


def test_equal_calls_of_a_fan_out_are_each_an_effect_and_once(shop):
    book = safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

    def pack(state):
        book.invoke({"item": "box"})
        book.invoke({"item": "box"})
        if state["ask"]:
            interrupt("go on?")

    builder = StateGraph(dict)
    builder.add_node("pack", pack)
    builder.add_conditional_edges(
        START, lambda _: [Send("pack", {"ask": False}), Send("pack", {"ask": True})]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, {}, on("1"), kit=shop.kit)
    assert last_report().outcome == "SUSPENDED"
    saga_run_sync(graph, YES, on("1"), kit=shop.kit)
    assert last_report().outcome == "COMMITTED"
    assert shop.world.applications() == 4


def test_an_interrupt_in_a_subgraph_suspends_the_outermost_run(shop):
    inner = create_agent(Scripted(script=[WAITS, "inner done"]), shop.tools)
    saga_agent(inner, shop.kit, tools=shop.declared)
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=InMemorySaver())
    list(saga_stream_sync(graph, PROMPT, on("1"), kit=shop.kit))
    assert last_report().outcome == "SUSPENDED"
    list(saga_stream_sync(graph, YES, on("1"), kit=shop.kit))
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat")


def test_an_agent_with_boundaries_inside_a_graph_without_one_is_refused(shop):
    inner = saga_agent(
        create_agent(Scripted(script=[WAITS]), shop.tools), shop.kit, tools=shop.declared
    )
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(ConfigurationError, match="inside another graph"):
        graph.invoke(PROMPT, on("1"))
    shop.world.assert_untouched()


def test_what_a_new_message_drops_is_not_kept_without_the_graph_knowing(shop):
    run = agent(shop, [WAITS, "never mind"])
    run.invoke(PROMPT, on("1"))
    with pytest.raises(SagaAborted, match="took another way"):
        run.invoke(PROMPT, on("1"))
    shop.world.assert_restored()


def test_what_a_new_message_drops_and_the_model_calls_again_is_the_same_call(shop):
    run = agent(shop, [WAITS, [call("book", item="seat")], "done"])
    run.invoke(PROMPT, on("1"))
    assert run.invoke(PROMPT, on("1"))["messages"][-1].text == "done"
    shop.world.assert_applied_once("seat")


def test_a_call_that_was_met_again_stays_met_however_often_the_thread_waits(shop):
    asks = [call("ask", question="sure?")]
    run = agent(shop, [WAITS, [call("book", item="seat"), *asks], asks, "done"])
    for given in (PROMPT, PROMPT, YES, YES):
        result = run.invoke(given, on("1"))
    assert result["messages"][-1].text == "done"
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat")


def test_declarations_reach_the_engine(shop):
    assert compensable(None, timeout=3).options["timeout"] == 3


def test_a_durability_that_stores_nothing_on_the_way_is_warned_of_once(shop, caplog):
    planning._say_exit.cache_clear()
    run = agent(shop, ["done", "done"])
    for thread in ("1", "2"):
        run.invoke(PROMPT, on(thread), durability="exit")
    told = [record for record in caplog.records if "durability='exit'" in record.getMessage()]
    assert len(told) == 1


def test_it_is_warned_of_by_its_older_name_too(shop, caplog):
    planning._say_exit.cache_clear()
    with warnings.catch_warnings(action="ignore"):  # LangGraph says that the name is deprecated
        agent(shop, ["done"]).invoke(PROMPT, on("1"), checkpoint_during=True)
        assert "durability='exit'" not in caplog.text
        agent(shop, ["done"]).invoke(PROMPT, on("2"), checkpoint_during=False)
    assert "durability='exit'" in caplog.text
