"""An agent is served as any compiled graph: what a LangGraph server does to one, done by hand.

A server is given the name of a compiled graph. It copies the graph with a checkpointer of its own,
streams its runs with configurations of its own, resumes threads, and lists states and histories.
"""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command
from scripted import Scripted, call

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_langgraph import SagaMiddleware, last_report, saga_agent, saga_run

PROMPT = {"messages": [("user", "go on")]}
SEAT = call("book", "c1", item="seat")
ASK = call("ask", "c2", question="shall I?")


def on(thread):
    return {"configurable": {"thread_id": thread}}


def agent(shop, *script, **options):
    made = create_agent(Scripted(script=list(script)), shop.tools, name="clerk", **options)
    return saga_agent(made, shop.kit, tools=shop.declared)


def served(graph):
    """The graph as a server runs it."""
    assert isinstance(graph, Pregel)
    return graph.copy(update={"checkpointer": InMemorySaver()})


def test_a_served_agent_waits_and_goes_on_and_its_runs_are_boundaries(shop):
    run = served(agent(shop, [SEAT, ASK], RuntimeError("down")))

    async def case():
        modes = ["values", "updates", "messages", "custom", "debug"]
        items = [i async for i in run.astream(PROMPT, on("1"), stream_mode=modes)]
        assert {mode for mode, _ in items} >= {"values", "updates"}
        assert (await run.aget_state(on("1"))).interrupts
        shop.world.assert_applied_once("seat")
        with pytest.raises(SagaAborted):
            async for _ in run.astream(Command(resume="yes"), on("1"), stream_mode="values"):
                pass

    asyncio.run(case())
    shop.world.assert_restored()


def test_events_of_a_served_agent_come_from_a_boundary(shop):
    run = served(agent(shop, [SEAT], RuntimeError("down")))

    async def case():
        async for _ in run.astream_events(PROMPT, on("1"), version="v2"):
            pass

    with pytest.raises(SagaAborted):
        asyncio.run(case())
    shop.world.assert_restored()


def test_threads_at_once_are_sagas_of_their_own(shop):
    run = served(agent(shop, [SEAT], [SEAT], [SEAT], "done", "done", "done"))

    async def case():
        return await run.abatch([PROMPT] * 3, [on(str(number)) for number in range(3)])

    assert len(asyncio.run(case())) == 3
    shop.world.assert_stands("seat", "seat", "seat")


def test_a_copy_is_the_same_agent(shop):
    run = agent(shop, "done").with_config(tags=["night"])
    assert (run.name, run.config["tags"], run.saga_kit) == ("clerk", ["night"], shop.kit)
    copied = run.copy(update={"name": "porter"})
    assert copied.name == "porter"
    copied.invoke(PROMPT)
    assert last_report().outcome == "COMMITTED"


def test_a_graph_round_it_sees_a_graph(shop):
    inner = agent(shop, [SEAT], RuntimeError("down"))
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile()
    assert [name for name, _ in graph.get_subgraphs()] == ["inner"]
    with pytest.raises(SagaAborted):
        asyncio.run(saga_run(graph, PROMPT, kit=shop.kit))
    shop.world.assert_restored()


def test_what_is_no_graph_is_refused(shop):
    with pytest.raises(ConfigurationError, match="compiled graph"):
        saga_agent(lambda state: state, shop.kit)
    with pytest.raises(ConfigurationError, match="already"):
        saga_agent(agent(shop, "done"), shop.kit, tools=shop.declared)


def test_a_server_without_our_boundary_refuses_effects(shop):
    saga = SagaMiddleware(shop.kit, tools=shop.declared)
    made = create_agent(Scripted(script=[[SEAT], "done"]), shop.tools, middleware=[saga])
    with pytest.raises(Exception, match="outside any boundary"):
        asyncio.run(served(made).ainvoke(PROMPT, on("1")))
    shop.world.assert_untouched()
