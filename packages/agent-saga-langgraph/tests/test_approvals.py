"""The gate's questions as interrupts: what an answer counts for, and what it does not."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from scripted import Scripted, call

from agent_saga import AgentKit, ConfigurationError, PreFlightGate, Rule, SagaAborted, tool_is
from agent_saga_langgraph import (
    GraphApprovals,
    SagaMiddleware,
    SagaToolNode,
    approve,
    compensable,
    deny,
    last_report,
    safe_tool,
    saga_agent,
    saga_run_sync,
)
from agent_saga_testing.integration.driver import QUICK

PROMPT = {"messages": [("user", "go on")]}
THREAD = {"configurable": {"thread_id": "1"}}
SEAT = call("book", "c1", item="seat")
ROOM = call("book", "c2", item="room")
YES = Command(resume=approve(by="ann"))


@pytest.fixture
def asking(shop):
    """The shop's kit, whose gate asks about every booking."""
    rules = [Rule("bookings", tool_is("book"), then="ask", reason="somebody must pay")]
    gate = PreFlightGate(rules, approval_provider=GraphApprovals())
    shop.kit = AgentKit("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    return shop


def agent(shop, script, **options):
    made = create_agent(
        Scripted(script=script), shop.tools, checkpointer=InMemorySaver(), **options
    )
    return saga_agent(made, shop.kit, tools=shop.declared)


def waiting(run):
    return run.get_state(THREAD).interrupts


def test_a_question_tells_what_it_is_about(asking):
    run = agent(asking, [[SEAT], "done"])
    [asked] = run.invoke(PROMPT, THREAD)["__interrupt__"]
    assert asked.value["tool"] == "book"
    assert asked.value["reason"] == "somebody must pay"
    assert asked.value["arguments"] == {"item": "seat"}
    assert last_report().outcome == "SUSPENDED"
    asking.world.assert_untouched()


def test_the_note_of_a_denial_reaches_the_model(asking):
    run = agent(asking, [[SEAT], "a pity"])
    run.invoke(PROMPT, THREAD)
    result = run.invoke(Command(resume=deny(by="ann", note="too dear")), THREAD)
    assert "too dear" in result["messages"][-2].text
    assert result["messages"][-1].text == "a pity"
    asking.world.assert_untouched()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("yes", "something else"),
        ({"approved": "yes", "by": "ann"}, "something else"),
        ({"approved": True, "by": " "}, "does not say who"),
        ({"approved": True}, "does not say who"),
        ({"approved": True, "by": "ann", "id": "of another one"}, "another question"),
    ],
)
def test_what_is_no_answer_is_refused_and_nothing_is_lost(asking, answer, says):
    run = agent(asking, [[SEAT], "done"])
    run.invoke(PROMPT, THREAD)
    with pytest.raises(ConfigurationError, match=says) as refused:
        run.invoke(Command(resume=answer), THREAD)
    assert "approve(by=" in refused.value.fix
    assert run.invoke(YES, THREAD)["messages"][-1].text == "done"
    asking.world.assert_applied_once("seat")


def test_several_questions_are_answered_by_their_ids(asking):
    run = agent(asking, [[SEAT, ROOM], "done"])
    first, second = run.invoke(PROMPT, THREAD)["__interrupt__"]
    with pytest.raises(ConfigurationError, match="waits for 2 answers") as refused:
        run.invoke(YES, THREAD)
    assert first.id in refused.value.message
    answers = {first.id: approve(by="ann"), second.id: deny(by="bob")}
    assert run.invoke(Command(resume=answers), THREAD)["messages"][-1].text == "done"
    asking.world.assert_applied_once(first.value["arguments"]["item"])


def test_questions_can_be_answered_one_after_the_other(asking):
    run = agent(asking, [[SEAT, ROOM], "done"])
    run.invoke(PROMPT, THREAD)
    first = waiting(run)[0]
    run.invoke(Command(resume={first.id: approve(by="ann")}), THREAD)
    assert last_report().outcome == "SUSPENDED"
    asking.world.assert_applied_once(first.value["arguments"]["item"])
    run.invoke(YES, THREAD)
    assert last_report().outcome == "COMMITTED"
    asking.world.assert_applied_once("seat", "room")


def test_one_tool_node_asks_about_its_calls_one_after_the_other(asking):
    builder = StateGraph(MessagesState)
    builder.add_node("tools", SagaToolNode(asking.tools, kit=asking.kit, declared=asking.declared))
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    given = {"messages": [AIMessage("", tool_calls=[SEAT, ROOM, call("book", "c3", item="car")])]}
    saga_run_sync(graph, given, THREAD, kit=asking.kit)
    for _ in range(3):
        assert last_report().outcome == "SUSPENDED"
        saga_run_sync(graph, YES, THREAD, kit=asking.kit)
    assert last_report().outcome == "COMMITTED"
    asking.world.assert_applied_once("seat", "room", "car")


def test_an_approval_does_not_count_for_arguments_that_changed_meanwhile(asking):
    run = agent(asking, [[SEAT], "done"])
    run.invoke(PROMPT, THREAD)
    said = run.get_state(THREAD).values["messages"][-1]
    changed = said.model_copy(
        update={"tool_calls": [call("book", "c1", item="the whole aeroplane")]}
    )
    run.update_state(THREAD, {"messages": [changed]}, as_node="model")
    run.invoke(None, THREAD)
    [asked] = waiting(run)
    assert asked.value["arguments"] == {"item": "the whole aeroplane"}
    asking.world.assert_untouched()


def test_an_answer_to_the_question_before_an_edit_does_not_count_after_it(asking):
    run = agent(asking, [[SEAT], "done"])
    run.invoke(PROMPT, THREAD)
    said = run.get_state(THREAD).values["messages"][-1]
    changed = said.model_copy(update={"tool_calls": [call("book", "c1", item="everything")]})
    run.update_state(THREAD, {"messages": [changed]}, as_node="model")
    run.invoke(YES, THREAD)
    asking.world.assert_untouched()


def test_an_interrupt_behind_an_approved_call_gets_its_own_answer(asking):
    book = safe_tool(
        asking.book.func, compensate=asking.cancel.using(effect="$.id"), kit=asking.kit
    )
    heard = []

    def node(state):
        book.invoke({"item": "seat"})
        heard.append(interrupt("how many bags?"))
        book.invoke({"item": "room"})
        heard.append(interrupt("breakfast?"))

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, PROMPT, THREAD, kit=asking.kit)
    for answer in (approve(by="ann"), "two", approve(by="ann"), "yes"):
        assert last_report().outcome == "SUSPENDED"
        saga_run_sync(graph, Command(resume=answer), THREAD, kit=asking.kit)
    assert last_report().outcome == "COMMITTED"
    assert heard[-2:] == ["two", "yes"]
    asking.world.assert_applied_once("seat", "room")


def test_several_rules_ask_one_after_the_other(shop):
    rules = [Rule(name, tool_is("book"), then="ask") for name in ("payment", "travel")]
    gate = PreFlightGate(rules, approval_provider=GraphApprovals())
    shop.kit = AgentKit("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    run = agent(shop, [[SEAT], "done"])
    run.invoke(PROMPT, THREAD)
    asked = []
    while waiting(run):
        asked.append(waiting(run)[0].value["rule"])
        run.invoke(YES, THREAD)
    assert asked == ["payment", "travel"]
    shop.world.assert_applied_once("seat")


def test_without_a_checkpointer_nobody_can_be_asked(asking):
    made = create_agent(Scripted(script=[[SEAT], "done"]), asking.tools)
    run = saga_agent(made, asking.kit, tools=asking.declared)
    said = run.invoke(PROMPT)["messages"][-2]
    assert said.status == "error"
    assert "cannot wait" in said.text
    asking.world.assert_untouched()


def test_a_denied_call_stays_denied_when_its_node_runs_again(asking):
    runs = []

    def flaky(request, execute):
        answer = execute(request)
        runs.append(answer.text)
        if len(runs) < 3:
            raise ConnectionError("after the call")
        return answer

    builder = StateGraph(MessagesState)
    node = SagaToolNode(
        asking.tools,
        kit=asking.kit,
        declared=asking.declared,
        wrap_tool_call=flaky,
        handle_tool_errors=False,
    )
    again = RetryPolicy(initial_interval=0, jitter=False, retry_on=ConnectionError)
    builder.add_node("tools", node, retry_policy=again)
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, {"messages": [AIMessage("", tool_calls=[SEAT])]}, THREAD, kit=asking.kit)
    saga_run_sync(graph, Command(resume=deny(by="ann")), THREAD, kit=asking.kit)
    assert len(runs) == 3
    assert all("refused" in text for text in runs)
    asking.world.assert_untouched()


class RunsToolsAgain(AgentMiddleware):
    """Sends the agent back to its tools once, with the calls of its last message."""

    def __init__(self):
        super().__init__()
        self.sent = False

    def after_model(self, state, runtime):
        last = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
        if last.tool_calls or self.sent:
            return None
        self.sent = True
        again = AIMessage("", tool_calls=[SEAT])
        return {"messages": [again], "jump_to": "tools"}

    after_model.__can_jump_to__ = ("tools",)


def test_a_call_that_a_human_rejected_is_asked_about_again_when_a_middleware_repeats_it(asking):
    human = HumanInTheLoopMiddleware(interrupt_on={"book": True})
    saga = SagaMiddleware(asking.kit, tools=asking.declared)
    made = create_agent(
        Scripted(script=[[SEAT], "no then", "done"]),
        asking.tools,
        middleware=[RunsToolsAgain(), human, saga],
        checkpointer=InMemorySaver(),
    )
    saga_run_sync(made, PROMPT, THREAD, kit=asking.kit)
    rejected = Command(resume={"decisions": [{"type": "reject", "message": "no"}]})
    saga_run_sync(made, rejected, THREAD, kit=asking.kit)
    while made.get_state(THREAD).interrupts:
        [asked] = made.get_state(THREAD).interrupts
        assert asked.value.get("tool") == "book"
        saga_run_sync(made, Command(resume=deny(by="ann")), THREAD, kit=asking.kit)
    asking.world.assert_untouched()


def test_a_human_in_the_loop_edits_and_the_gate_asks_about_what_was_edited(asking):
    human = HumanInTheLoopMiddleware(interrupt_on={"book": True})
    saga = SagaMiddleware(asking.kit, tools=asking.declared)
    made = create_agent(
        Scripted(script=[[SEAT], "done"]),
        asking.tools,
        middleware=[human, saga],
        checkpointer=InMemorySaver(),
    )
    saga_run_sync(made, PROMPT, THREAD, kit=asking.kit)
    edit = {"type": "edit", "edited_action": {"name": "book", "args": {"item": "better seat"}}}
    result = saga_run_sync(made, Command(resume={"decisions": [edit]}), THREAD, kit=asking.kit)
    assert result["__interrupt__"][0].value["arguments"] == {"item": "better seat"}
    saga_run_sync(made, YES, THREAD, kit=asking.kit)
    assert last_report().outcome == "COMMITTED"
    asking.world.assert_applied_once("better seat")


def test_a_question_in_a_subgraph_is_answered_at_the_outermost_run(asking):
    inner = create_agent(Scripted(script=[[SEAT], "inner done"]), asking.tools)
    saga_agent(inner, asking.kit, tools=asking.declared)
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, PROMPT, THREAD, kit=asking.kit)
    assert last_report().outcome == "SUSPENDED"
    saga_run_sync(graph, YES, THREAD, kit=asking.kit)
    assert last_report().outcome == "COMMITTED"
    asking.world.assert_applied_once("seat")


def test_a_tool_failure_that_a_human_lets_pass_goes_on_as_the_framework_does(asking):
    made = create_agent(
        Scripted(script=[[call("fails", "c1", item="x")], "done"]),
        asking.tools,
        checkpointer=InMemorySaver(),
    )
    run = saga_agent(made, asking.kit, tools=asking.declared, on_tool_failure="ask")
    [asked] = run.invoke(PROMPT, THREAD)["__interrupt__"]
    assert "no such item" in asked.value["reason"]
    with pytest.raises(SagaAborted, match="no such item"):
        run.invoke(YES, THREAD)


def test_a_harmless_failure_that_a_human_did_not_let_pass_undoes_though_it_would_succeed_now(shop):
    gate = PreFlightGate(approval_provider=GraphApprovals())
    shop.kit = AgentKit("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    runs = []

    def recovers(item: str) -> str:
        """Fail once."""
        runs.append(item)
        if len(runs) == 1:
            raise RuntimeError("not now")
        return item

    tool = safe_tool(recovers, "REVERSIBLE", kit=shop.kit)
    script = [[SEAT], [call("recovers", "c2", item="x")], "done"]
    made = create_agent(Scripted(script=script), [shop.book, tool], checkpointer=InMemorySaver())
    declared = {"book": compensable(shop.cancel.using(effect="$.id"))}
    run = saga_agent(made, shop.kit, tools=declared, on_tool_failure="ask")
    run.invoke(PROMPT, THREAD)
    with pytest.raises(SagaAborted, match="ann said no"):
        run.invoke(Command(resume=deny(by="ann")), THREAD)
    assert runs == ["x"]
    shop.world.assert_restored()
