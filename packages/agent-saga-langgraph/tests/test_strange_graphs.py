"""Strange and legal graphs: fan-outs with retries and interrupts, graphs gone on with by hand.

The world counts, and nothing is told to stand beside the run.
"""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from scripted import Deciding, call
from test_repeats import AGAIN, PROMPT, THREAD, Again, State, reported

from agent_saga import AgentKit, PreFlightGate, Rule, tool_is
from agent_saga_langgraph import GraphApprovals, SagaToolNode, approve, saga_run
from agent_saga_langgraph.tools import wrap_as
from agent_saga_testing.integration.driver import QUICK


@pytest.fixture
def run(shop):
    return Again(shop, "interrupt")


def ended(run, graph, result):
    """Answer one question after the other."""
    while result.get("__interrupt__"):
        last = result["__interrupt__"][-1]
        result = run.run(graph, Command(resume={last.id: "yes"}))
    assert run.report.outcome == "COMMITTED"
    assert not run.report.notes
    return result["log"]


def test_a_fan_out_some_of_which_fail_and_some_ask(run):
    begun = []

    def node(state):
        item = state["item"]
        begun.append(item)
        first = run.book(item)
        if item in "bc" and begun.count(item) == 1:
            raise ConnectionError("not now")
        if item in "cd":
            interrupt(item)
        return {"log": [first, run.book(item)]}

    builder = StateGraph(State)
    builder.add_node("node", node, retry_policy=AGAIN)
    builder.add_conditional_edges(
        START, lambda _: [Send("node", {"item": item}) for item in "abcd"]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    log = ended(run, graph, run.run(graph, {"log": []}))
    assert len(set(log)) == 8
    run.assert_booked(*"aabbccdd")


def test_branches_that_ask_twice_and_are_answered_in_any_order(run):
    def branch(name):
        def node(state):
            first = run.book("box")
            interrupt(f"{name} 1")
            second = run.book("box")
            interrupt(f"{name} 2")
            return {"log": [first, second]}

        return node

    builder = StateGraph(State)
    for name in "xyz":
        builder.add_node(name, branch(name))
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=InMemorySaver())
    log = ended(run, graph, run.run(graph, {"log": []}))
    assert len(set(log)) == 6
    run.assert_booked(*["box"] * 6)


@pytest.mark.parametrize("stored", [False, True])
def test_a_retry_inside_a_retry(run, stored):
    begun = {"inner": 0, "outer": 0}

    def inner(state):
        begun["inner"] += 1
        booked = run.book("box")
        if begun["inner"] in (1, 3):
            raise ConnectionError("inside")
        return {"log": [booked]}

    builder = StateGraph(State)
    builder.add_node("one", inner, retry_policy=AGAIN)
    builder.add_node("two", inner, retry_policy=AGAIN)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")

    def outer(state):
        begun["outer"] += 1
        log = [*builder.compile().invoke({"log": []})["log"], run.book("box")]
        if begun["outer"] == 1:
            raise ConnectionError("outside")
        return {"log": log}

    log = run.run(run.graph(outer, stored=stored), {"log": []})["log"]
    assert len(set(log)) == 3
    run.assert_booked("box", "box", "box")


def test_agents_that_run_at_once_in_a_node_that_is_repeated(shop):
    run, begun = Again(shop, "none"), []

    async def node(state):
        begun.append(1)
        agents = [run.agent("box", "box") for _ in range(3)]
        await asyncio.gather(*[agent.ainvoke(PROMPT) for agent in agents])
        if len(begun) == 1:
            raise ConnectionError("not now")
        return {"log": ["done"]}

    builder = StateGraph(State)
    builder.add_node("node", node, retry_policy=AGAIN)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=InMemorySaver())
    ran = saga_run(graph, {"log": []}, THREAD, kit=shop.kit)
    _, report = asyncio.run(reported(ran))
    assert not report.notes
    run.assert_booked(*["box"] * 6)


def test_a_graph_with_a_history_of_its_own_in_a_graph_that_is_run_twice(run):
    def asks(state):
        first = run.book("box")
        interrupt("go on?")
        return {"log": [first, run.book("box")]}

    inner = StateGraph(State)
    inner.add_node("one", lambda _: {"log": [run.book("box")]})
    inner.add_node("two", asks)
    inner.add_edge(START, "one")
    inner.add_edge("one", "two")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_node("last", lambda _: {"log": [run.book("box")]})
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "last")
    graph = builder.compile(checkpointer=InMemorySaver())
    for turn in (1, 2):
        run.through(graph)
        run.assert_booked(*["box"] * 4 * turn)


@pytest.mark.parametrize("one_node", [False, True])
def test_an_agent_on_a_thread_of_its_own_that_is_gone_on_with_by_hand(run, one_node):
    shop, mine = run.shop, {"configurable": {"thread_id": "mine"}}
    asks = wrap_as(shop.ask, shop.declared["ask"], shop.kit)
    turns = [[call("book", item="seat")], [call("ask", question="?")], [call("book", item="seat")]]
    if one_node:
        turns[:2] = [turns[0] + turns[1]]
    inner = _agent(Deciding(script=[*turns, "done"]), [run.tool, asks], one_node=one_node)

    def node(state):
        if not inner.get_state(mine).next:
            inner.invoke(PROMPT, mine)
        answer = interrupt("go on?")
        said = inner.invoke(Command(resume=answer), mine)["messages"]
        return {"log": [message.text for message in said if message.name == "book"]}

    log = run.through(run.graph(node))["log"]
    assert len(set(log)) == 2
    run.assert_booked("seat", "seat")


def _agent(model, tools, *, one_node):
    if not one_node:
        return create_agent(model, tools, checkpointer=InMemorySaver())
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", SagaToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__"
    )
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


def test_tasks_at_once_that_fail_and_a_workflow_that_asks_twice(run):
    begun = []

    @task(retry_policy=AGAIN)
    def stage(number):
        begun.append(number)
        booked = run.book("box")
        if begun.count(number) == 1:
            raise ConnectionError("not now")
        return booked

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(given):
        stages = [stage(number) for number in range(3)]
        booked = [one.result() for one in stages]
        interrupt("go on?")
        booked += [stage(3).result(), run.book("box")]
        interrupt("really?")
        return booked

    run.run(workflow, {"log": []})
    run.run(workflow, Command(resume="yes"))
    assert len(set(run.run(workflow, Command(resume="yes")))) == 5
    run.assert_booked(*["box"] * 5)


def test_an_edit_between_two_interrupts(run):
    def node(state):
        first = run.book("box")
        interrupt("1")
        second = run.book("box")
        interrupt("2")
        return {"log": [first, second]}

    graph = run.graph(node)
    run.run(graph, {"log": []})
    run.run(graph, Command(resume="yes"))
    graph.update_state(THREAD, {"item": "edited"}, as_node="__start__")
    log = ended(run, graph, run.run(graph, None))
    assert len(set(log)) == 2
    run.assert_booked("box", "box")


@pytest.mark.parametrize("how", ["retry", "interrupt"])
def test_a_graph_in_a_graph_in_a_graph_that_stops_at_each_level(shop, how):
    run = Again(shop, how)
    asks = wrap_as(shop.ask, shop.declared["ask"], shop.kit)
    seat, question = call("book", item="seat"), call("ask", question="?")
    turns = [[seat, seat], [seat, question] if how == "interrupt" else [seat], "done"]

    def lowest(state):
        agent = create_agent(Deciding(script=turns), [run.tool, asks])
        said = agent.invoke(PROMPT)["messages"]
        return {"log": [message.text for message in said if message.name == "book"]}

    lower = StateGraph(State)
    lower.add_node("lowest", lowest)
    lower.add_edge(START, "lowest")

    def middle(state):
        return {"log": [*lower.compile().invoke({"log": []})["log"], run.book("seat")]}

    upper = StateGraph(State)
    upper.add_node("one", middle)
    upper.add_node("two", middle)
    upper.add_edge(START, "one")
    upper.add_edge("one", "two")

    def node(state):
        log = upper.compile().invoke({"log": []})["log"]
        run.stop()
        return {"log": [*log, run.book("seat")]}

    log = run.through(run.graph(node))["log"]
    assert len(set(log)) == 9
    run.assert_booked(*["seat"] * 9)


@pytest.mark.parametrize("command", [Command(update={"item": "x"}), Command(goto="b")], ids=str)
def test_a_command_that_answers_nothing_keeps_what_a_branch_beside_has_done(run, command):
    def asks(state):
        booked = run.book("asks")
        if not state.get("item"):
            interrupt("go on?")
        return {"log": [booked]}

    builder = StateGraph(State)
    builder.add_node("a", lambda _: {"log": [run.book("a")]})
    builder.add_node("asks", asks)
    builder.add_node("b", lambda _: {"log": [run.book("b")]})
    builder.add_edge(START, "a")
    builder.add_edge(START, "asks")
    graph = builder.compile(checkpointer=InMemorySaver())
    run.run(graph, {"log": []})
    log = ended(run, graph, run.run(graph, command))
    assert len(log) == run.shop.world.applications() == len(set(log))


# --- a question about a call that a model asks for anew -------------------------------------------


@pytest.mark.parametrize("inside", ["", "agent", "agent that keeps nothing"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_human_is_asked_once_about_each_call(shop, inside, times, asynchronous):
    rules = [Rule("bookings", tool_is("book"), then="ask", reason="somebody must pay")]
    gate = PreFlightGate(rules, approval_provider=GraphApprovals())
    shop.kit = AgentKit("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    run = Again(shop, "none", asynchronous=asynchronous)
    turns = [[call("book", item="seat")]] * times

    def node(state):
        if inside:
            keeps = None if inside == "agent" else False
            model = Deciding(script=[*turns, "done"])
            create_agent(model, [run.tool], checkpointer=keeps).invoke(PROMPT)
        else:
            for _ in turns:
                run.book("seat")
        return {"log": ["done"]}

    graph = run.graph(node)
    result, asked = run.run(graph, {"log": []}), 0
    while result.get("__interrupt__") and asked <= times:
        asked += 1
        result = run.run(graph, Command(resume=approve(by="ann")))
    assert asked == times
    run.assert_booked(*["seat"] * times)
