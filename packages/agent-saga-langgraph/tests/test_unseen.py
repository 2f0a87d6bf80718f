"""Tools that no wrapper announces: found where they can be found, else refused before they run."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from scripted import Scripted, call

from agent_saga import ConfigurationError, Policy, PreFlightGate, SagaAborted
from agent_saga.errors import UndeclaredTool
from agent_saga_langgraph import (
    SagaMiddleware,
    compensable,
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_boundary,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
    wrap_tool,
)
from agent_saga_langgraph.tries import Runs
from agent_saga_langgraph.unseen import _listener
from agent_saga_testing.integration.driver import QUICK

PROMPT = {"messages": [("user", "go on")]}
THREAD = {"configurable": {"thread_id": "1"}}
BOOKED = [call("book", "c1", item="seat")]


def graph(tools, script=(BOOKED, "done"), after=None, **options):
    """A hand-made agent whose node of tools is what is given."""
    model = Scripted(script=list(script))
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda s: "tools" if s["messages"][-1].tool_calls else (after or "__end__")
    )
    builder.add_edge("tools", "model")
    if after:
        builder.add_node("fails", fails)
    return builder.compile(**options)


def fails(state):
    raise RuntimeError("the node failed")


def in_a_function(node):
    def run(state):
        return node.invoke(state)

    return run


def in_a_method(node):
    class Clerk:
        def __init__(self):
            self.nodes = {"tools": [node]}

        def run(self, state):
            return self.nodes["tools"][0].invoke(state)

    return Clerk().run


HIDDEN = {
    "a sequence": lambda node: RunnableLambda(lambda state: state) | node,
    "with_config": lambda node: node.with_config(tags=["night"]),
    "with_retry": lambda node: node.with_retry(stop_after_attempt=2),
    "with_fallbacks": lambda node: node.with_fallbacks([RunnableLambda(fails)]),
    "both": lambda node: (
        RunnableLambda(lambda state: state) | node.with_retry().with_config(tags=["x"])
    ),
    "a parallel": lambda node: {"out": node} | RunnableLambda(lambda got: got["out"]),
    "a lambda": lambda node: RunnableLambda(in_a_function(node)),
    "a function": in_a_function,
    "a method": in_a_method,
    "a graph in a function": lambda node: in_a_function(
        StateGraph(MessagesState).add_node("t", node).add_edge(START, "t").compile()
    ),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_a_tool_node_inside_something_else_is_found(shop, how):
    made = graph(HIDDEN[how](ToolNode(shop.tools)), after="fails")
    run = saga_agent(made, shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted) as failed:
        run.invoke(PROMPT)
    assert [line.tool for line in failed.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_tools_of_one_name_in_several_nodes_stay_what_they_are(shop):
    def other(item: str) -> dict:
        """Book at another place."""
        return shop.world.do(f"other {item}")

    plain = StructuredTool.from_function(other, name="book")
    own = wrap_tool(plain, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    with pytest.raises(ConfigurationError, match="Two different tools are named book"):
        saga_agent(two_of_a_name(shop, plain), shop.kit, tools={"book": shop.declared["book"]})
    run = saga_agent(two_of_a_name(shop, own), shop.kit, tools={"book": shop.declared["book"]})
    run.invoke(PROMPT)
    shop.world.assert_stands("other seat", "seat")


def two_of_a_name(shop, tool):
    inner = create_agent(Scripted(script=[BOOKED, "inner done"]), [tool])
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_node("outer", graph(ToolNode([shop.book])))
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "outer")
    return builder.compile()


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("on_a_loop", [True, False])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_that_nobody_declared_does_not_run(shop, handled, on_a_loop, streamed):
    made = graph(ToolNode(shop.tools, handle_tool_errors=handled))

    async def loop():
        if not streamed:
            return await saga_run(made, PROMPT, kit=shop.kit)
        return [item async for item in saga_stream(made, PROMPT, kit=shop.kit)]

    def thread():
        if not streamed:
            return saga_run_sync(made, PROMPT, kit=shop.kit)
        return list(saga_stream_sync(made, PROMPT, kit=shop.kit))

    with pytest.raises(SagaAborted) as failed:
        asyncio.run(loop()) if on_a_loop else thread()
    assert isinstance(failed.value.cause, UndeclaredTool)
    assert "book" in failed.value.cause.message
    assert "SagaMiddleware" in failed.value.cause.fix
    shop.world.assert_untouched()


@pytest.mark.guarantee("LANGGRAPH-9")
def test_a_node_that_calls_a_tool_itself_is_refused(shop):
    def books(state):
        shop.book.invoke({"item": "seat"})

    for made in (books, saga_boundary(books, shop.kit)):
        builder = StateGraph(MessagesState).add_node("books", made).add_edge(START, "books")
        with pytest.raises(SagaAborted):
            saga_run_sync(builder.compile(), PROMPT, kit=shop.kit)
    with pytest.raises(SagaAborted):
        builder.compile().invoke(PROMPT)
    shop.world.assert_untouched()


def test_a_task_that_calls_a_tool_itself_is_refused(shop):
    @task
    def books(item):
        return shop.book.invoke({"item": item})

    @entrypoint(checkpointer=InMemorySaver())
    def clerk(item):
        return books(item).result()

    with pytest.raises(SagaAborted):
        saga_run_sync(clerk, "seat", THREAD, kit=shop.kit)
    shop.world.assert_untouched()


class Brings(AgentMiddleware):
    """Gives the model a tool that the agent was not made with."""

    def __init__(self, brought):
        super().__init__()
        self.brought = brought

    def wrap_model_call(self, request, handler):
        return handler(request.override(tools=[*request.tools, self.brought]))

    def wrap_tool_call(self, request, handler):
        ours = request.tool_call["name"] == self.brought.name
        return handler(request.override(tool=self.brought) if ours else request)


def test_a_tool_that_a_middleware_brings_is_refused_unless_it_is_declared(shop):
    @tool
    def pay(item: str) -> dict:
        """Pay for an item."""
        return shop.world.do(item)

    def agent(*middleware):
        model = Scripted(script=[[call("pay", item="bill")], RuntimeError("down")])
        return create_agent(model, shop.tools, middleware=[Brings(pay), *middleware])

    with pytest.raises(SagaAborted) as failed:
        saga_agent(agent(), shop.kit, tools=shop.declared).invoke(PROMPT)
    assert isinstance(failed.value.cause, UndeclaredTool)
    shop.world.assert_untouched()
    declared = {"pay": compensable(shop.cancel.using(effect="$.id"))}
    last = SagaMiddleware(shop.kit, tools={**shop.declared, **declared})
    with pytest.raises(SagaAborted):
        saga_agent(agent(last), shop.kit, tools=shop.declared).invoke(PROMPT)
    assert shop.world.undone() == ["bill"]


def test_what_a_step_calls_is_the_step_s(shop):
    def trip(item: str) -> dict:
        """Book by the tool of somebody else."""
        return shop.book.invoke({"item": item})

    @shop.kit.tool("COMPENSABLE", compensate=shop.cancel.using(effect="$.id"))
    def journey(item):
        return shop.book.invoke({"item": item})

    whole = safe_tool(trip, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

    def node(state):
        whole.invoke({"item": "seat"})
        journey("room")

    builder = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    saga_run_sync(builder.compile(), PROMPT, kit=shop.kit)
    assert last_report().clean
    shop.world.assert_stands("seat", "room")


def nested(shop, inner):
    """An agent whose tool calls another agent."""

    @tool
    def ask_clerk(question: str) -> str:
        """Ask the clerk."""
        return inner.invoke(PROMPT)["messages"][-1].text

    script = [[call("ask_clerk", question="a seat?")], RuntimeError("down")]
    made = create_agent(Scripted(script=script), [ask_clerk])
    return saga_agent(made, shop.kit, tools={"ask_clerk": read_only()})


@pytest.mark.guarantee("LANGGRAPH-9")
def test_what_an_agent_inside_a_tool_does_is_no_secret(shop):
    def clerk():
        return create_agent(Scripted(script=[BOOKED, "done"]), shop.tools)

    with pytest.raises(SagaAborted) as failed:
        nested(shop, clerk()).invoke(PROMPT)
    assert isinstance(failed.value.cause, UndeclaredTool)
    assert "saga_agent" in failed.value.cause.fix
    shop.world.assert_untouched()
    with pytest.raises(SagaAborted, match="down"):
        nested(shop, saga_agent(clerk(), shop.kit, tools=shop.declared)).invoke(PROMPT)
    assert shop.world.undone() == ["seat"]


def test_a_boundary_of_the_program_refuses_it_too(shop):
    made = graph(ToolNode(shop.tools, handle_tool_errors=True))
    with pytest.raises(SagaAborted), shop.kit.transaction():
        made.invoke(PROMPT)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.book.invoke({"item": "seat"})
    shop.world.assert_untouched()


def test_what_the_policy_calls_a_read_may_run(shop):
    @tool
    def look(item: str) -> str:
        """Look at an item."""
        return item

    policy = Policy({"tools": {"look": {"semantics": "REVERSIBLE"}}})
    kit = type(shop.kit)(
        "shop", wal=str(shop.folder / "log"), gate=PreFlightGate(policy=policy), settings=QUICK
    )
    made = graph(ToolNode([look]), script=[[call("look", item="lamp")], "done"])
    result = saga_run_sync(made, PROMPT, kit=kit)
    assert result["messages"][-2].text == "lamp"


def test_outside_a_boundary_nothing_is_looked_at(shop):
    shop.book.invoke({"item": "seat"})
    graph(ToolNode(shop.tools)).invoke(PROMPT)
    shop.world.assert_stands("seat", "seat")


def test_a_name_that_is_no_tool_of_the_agent_says_where_it_belongs(shop):
    made = graph(ToolNode(shop.tools))
    with pytest.raises(Exception, match="no tool look") as refused:
        saga_agent(made, shop.kit, tools={**shop.declared, "look": read_only()})
    assert "SagaMiddleware" in refused.value.fix


@pytest.mark.parametrize("how", ["read to its end", "failed", "closed", "left"])
def test_nothing_is_kept_of_a_run_that_ends_behind_its_boundary(shop, how):
    def behind(numbers):
        for number in numbers:
            yield number
            if how == "failed":
                raise ValueError("no")

    def read(stream):
        with pytest.raises(ValueError, match="no") if how == "failed" else nullcontext():
            list(stream)

    chain = RunnableLambda(lambda x: x) | RunnableGenerator(behind)
    listener = _listener.get()
    listener._runs = Runs()  # other tests may be in the midst of theirs
    with shop.kit.transaction():
        stream = chain.stream(1)
        next(stream)
    assert listener._runs._tries
    if how == "closed":
        stream.close()
    elif how == "left":
        del stream
        gc.collect()
    else:
        read(stream)
    assert not listener._runs._tries
    assert not listener._runs.last
