"""Agents of LangChain: the middleware, human approval beside it, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from scripted import Scripted, call

from agent_saga import (
    ConfigurationError,
    FileSwitchStore,
    Halted,
    KillSwitch,
    NoBoundary,
    Policy,
    PreFlightGate,
    SagaAborted,
)
from agent_saga.errors import UndeclaredTool
from agent_saga_langgraph import (
    SagaMiddleware,
    SagaToolNode,
    irreversible,
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_run,
    saga_run_sync,
    tool_node_kwargs,
    wrap_tool,
)
from agent_saga_testing.integration.driver import QUICK

PROMPT = {"messages": [("user", "go on")]}
THREAD = {"configurable": {"thread_id": "1"}}
SEAT = [call("book", "c1", item="seat")]


def with_middleware(shop, script, declared=None, first=(), **options):
    saga = SagaMiddleware(shop.kit, tools=shop.declared if declared is None else declared)
    model = Scripted(script=script)
    return create_agent(model, shop.tools, middleware=[*first, saga], **options)


def decide(*decisions):
    return Command(resume={"decisions": list(decisions)})


def test_the_middleware_refuses_an_effect_without_a_boundary(shop):
    agent = with_middleware(shop, [SEAT, "done"])
    with pytest.raises(NoBoundary) as refused:
        agent.invoke(PROMPT)
    assert "saga_run" in refused.value.fix
    assert "saga_agent" in refused.value.fix
    shop.world.assert_untouched()


def test_the_middleware_lets_a_read_run_without_a_boundary(shop):
    script = [[call("fails", "c1", item="x")]]
    with pytest.raises(RuntimeError, match="no such item"):
        with_middleware(shop, script).invoke(PROMPT)


def test_the_middleware_refuses_a_tool_that_nobody_declared(shop):
    agent = with_middleware(shop, [SEAT, "done"], declared={"ask": read_only()})
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(agent, PROMPT, kit=shop.kit)
    assert isinstance(failed.value.cause, UndeclaredTool)
    shop.world.assert_untouched()


def test_a_tool_that_is_wrapped_already_is_one_step(shop):
    agent = with_middleware(shop, [SEAT, RuntimeError("down")])
    saga_agent(agent, shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(agent, PROMPT, kit=shop.kit)
    assert len(failed.value.report.compensated) == 1
    shop.world.assert_restored()


def test_a_tool_node_of_ones_own_makes_steps(shop):
    node = ToolNode(shop.tools, **tool_node_kwargs(shop.kit, tools=shop.declared))
    calls = {"messages": [Scripted(script=[SEAT]).invoke("")]}

    @entrypoint()
    def workflow(given):
        return node.invoke(given)

    with pytest.raises(SagaAborted, match="later"), shop.kit.transaction():
        workflow.invoke(calls)
        raise RuntimeError("something later fails")
    shop.world.assert_restored()


def test_a_human_in_the_loop_approves_edits_and_rejects(shop):
    human = HumanInTheLoopMiddleware(interrupt_on={"book": True})
    turns = [
        [call("book", "c1", item="seat")],
        [call("book", "c2", item="room")],
        [call("book", "c3", item="car")],
        "done",
    ]
    agent = with_middleware(shop, turns, first=[human], checkpointer=InMemorySaver())
    edited = {"name": "book", "args": {"item": "better room"}}
    answers = [
        decide({"type": "approve"}),
        decide({"type": "edit", "edited_action": edited}),
        decide({"type": "reject", "message": "no car"}),
    ]

    async def case():
        await saga_run(agent, PROMPT, THREAD, kit=shop.kit)
        for answer in answers:
            assert last_report().outcome == "SUSPENDED"
            result = await saga_run(agent, answer, THREAD, kit=shop.kit)
        assert last_report().outcome == "COMMITTED"
        return result

    assert asyncio.run(case())["messages"][-1].text == "done"
    shop.world.assert_stands("seat", "better room")


def test_tasks_of_a_functional_graph_are_steps_and_run_once(shop):
    book = safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    ask = safe_tool(shop.ask.func, semantics="REVERSIBLE", kit=shop.kit)

    @task
    def stage(item):
        return book.invoke({"item": item})["id"]

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(items):
        done = [stage(item).result() for item in items]
        book.invoke({"item": "inline"})
        ask.invoke({"question": "go on?"})
        return done

    saga_run_sync(workflow, ["a", "b"], THREAD, kit=shop.kit)
    assert last_report().outcome == "SUSPENDED"
    saga_run_sync(workflow, Command(resume="yes"), THREAD, kit=shop.kit)
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("a", "b", "inline")


def test_a_tool_that_cannot_be_undone_is_refused_without_a_human(shop):
    declared = {**shop.declared, "book": irreversible()}
    agent = create_agent(Scripted(script=[SEAT, "done"]), shop.tools)
    run = saga_agent(agent, shop.kit, tools=declared)
    said = run.invoke(PROMPT)["messages"][-2]
    assert said.status == "error"
    assert "refused and had no effect" in said.text
    shop.world.assert_untouched()


def test_a_halt_leaves_the_run_as_an_error_and_is_no_text_for_the_model(shop):
    agent = create_agent(Scripted(script=[SEAT, "done"]), shop.tools)
    run = saga_agent(agent, shop.kit, tools=shop.declared)
    switch = KillSwitch(FileSwitchStore(shop.kit.runtime.wal.path))
    switch.halt("tool:book", reason="fraud", by="soc")
    with pytest.raises(SagaAborted) as aborted:
        run.invoke(PROMPT)
    assert isinstance(aborted.value.cause, Halted)
    shop.world.assert_untouched()
    switch.lift("tool:book", by="soc")
    again = create_agent(Scripted(script=[SEAT, "done"]), shop.tools)
    saga_agent(again, shop.kit, tools=shop.declared).invoke(PROMPT)
    shop.world.assert_applied_once("seat")


def test_an_agent_must_declare_all_its_tools_at_once(shop):
    agent = create_agent(Scripted(script=["done"]), shop.tools)
    with pytest.raises(UndeclaredTool, match="book, ask, fails"):
        saga_agent(agent, shop.kit)
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        saga_agent(agent, shop.kit, tools=shop.declared, on_tool_failure="ask")


def test_an_agent_stays_what_it_was(shop):
    agent = create_agent(Scripted(script=["done"]), shop.tools, name="clerk")
    run = saga_agent(agent, shop.kit, tools=shop.declared).with_config(tags=["night"])
    assert run.name == "clerk"
    assert set(run.get_graph().nodes) == set(agent.get_graph().nodes)
    assert run.config["tags"] == ["night"]


def test_agents_share_one_saga_inside_a_boundary(shop):
    first = create_agent(Scripted(script=[SEAT, "done"]), shop.tools)
    second = create_agent(Scripted(script=[RuntimeError("down")]), shop.tools)
    one = saga_agent(first, shop.kit, tools=shop.declared)
    two = saga_agent(second, shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        one.invoke(PROMPT)
        shop.world.assert_applied_once("seat")
        two.invoke(PROMPT)
    shop.world.assert_restored()


def test_a_key_inside_a_boundary_is_refused(shop):
    agent = create_agent(Scripted(script=["done"]), [])
    with pytest.raises(SagaAborted, match="part of that saga"), shop.kit.transaction():
        saga_run_sync(agent, PROMPT, kit=shop.kit, key="mine")


def test_a_boundary_with_another_kit_inside_is_refused(shop, tmp_path):
    gate = PreFlightGate()
    other = type(shop.kit)("other", wal=str(tmp_path / "other"), gate=gate, settings=QUICK)
    agent = create_agent(Scripted(script=["done"]), [])
    with pytest.raises(SagaAborted, match="another kit"), shop.kit.transaction():
        saga_run_sync(agent, PROMPT, kit=other)


POLICY = {
    "tools": {
        "book": {
            "semantics": "COMPENSABLE",
            "compensate": {"handler": "shop.cancel", "kwargs": {"effect": "$.id"}},
        },
        "ask": {"semantics": "REVERSIBLE"},
        "fails": {"semantics": "READ_ONLY"},
        "elsewhere": {"semantics": "IRREVERSIBLE"},
    }
}


@pytest.mark.parametrize("how", ["agent", "middleware", "node", "one tool"])
def test_a_policy_declares_what_the_code_leaves_out(shop, how):
    gate = PreFlightGate(policy=Policy(POLICY))
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    script = Scripted(script=[SEAT, RuntimeError("down")])
    if how == "agent":
        agent = saga_agent(create_agent(script, shop.tools), kit)
    elif how == "middleware":
        agent = create_agent(script, shop.tools, middleware=[SagaMiddleware(kit)])
    elif how == "one tool":
        agent = create_agent(script, [wrap_tool(shop.book, kit=kit)])
    else:
        wrapped = SagaToolNode(shop.tools, kit=kit).tools_by_name
        agent = create_agent(script, list(wrapped.values()))
    run = agent.invoke if how == "agent" else lambda given: saga_run_sync(agent, given, kit=kit)
    with pytest.raises(SagaAborted) as failed:
        run(PROMPT)
    assert [line.tool for line in failed.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_a_tool_that_neither_code_nor_policy_declares_is_named(shop):
    gate = PreFlightGate(policy=Policy({"tools": {"book": POLICY["tools"]["book"]}}))
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    agent = create_agent(Scripted(script=["done"]), shop.tools)
    with pytest.raises(UndeclaredTool, match="ask, fails"):
        saga_agent(agent, kit)
