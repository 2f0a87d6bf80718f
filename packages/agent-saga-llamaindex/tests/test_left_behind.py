"""What a run that was undone leaves behind: in its context, and of a program that ends."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step
from scripted import Scripted, call
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import SagaAborted
from agent_saga_llamaindex import read_only, saga_agent, saga_run, saga_stream

AGAIN = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3))
SEAT = [call("book", "c1", item="seat")]


def told(agent):
    llm = getattr(agent, "llm", None) or agent.agents["A"].llm
    return " ".join(llm.seen[-1])


def function_agent(shop, *script):
    return shop.agent(*script, name="A", tools=[shop.book])


def react_agent(shop, *script):
    return ReActAgent(name="A", tools=[shop.book], llm=Scripted.of(*script, native=False))


def several(shop, *script):
    agent = FunctionAgent(
        name="A", description="a", tools=[shop.book], llm=Scripted.of(*script), can_handoff_to=[]
    )
    return AgentWorkflow(agents=[agent])


KINDS = (function_agent, react_agent, several)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bare_framework_shows_what_a_failed_run_did_to_the_next_one(shop, kind):
    agent = kind(shop, SEAT, OSError("down"), "done")

    async def case():
        context = Context(agent)
        with pytest.raises(OSError, match="down"):
            await agent.run("go on", ctx=context)
        await agent.run("again", ctx=context)

    asyncio.run(case())
    assert "seat" in told(agent)


@pytest.mark.guarantee("LLAMAINDEX-12")
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_run_of_a_context_is_told_of_no_effect_that_was_undone(shop, kind):
    agent = saga_agent(
        kind(shop, SEAT, OSError("down"), "done"), shop.kit, tools=shop.declared_book
    )

    async def case():
        context = Context(agent)
        with pytest.raises(SagaAborted, match="down"):
            await saga_run(agent, "go on", ctx=context)
        shop.world.assert_restored()
        await saga_run(agent, "again", ctx=context)

    asyncio.run(case())
    assert "seat" not in told(agent)


def workflow_of(body):
    class Own(Workflow):
        @step(retry_policy=AGAIN)
        async def only(self, event: StartEvent) -> StopEvent:
            await body()
            return StopEvent(result="done")

    return Own(timeout=20)


async def streamed(workflow, kit):
    async for _ in saga_stream(workflow, kit=kit):
        pass


async def ran(workflow, kit):
    await saga_run(workflow, kit=kit)


@pytest.mark.parametrize("run", [ran, streamed])
@pytest.mark.parametrize("by", ["the step", "a function of the kit"])
def test_a_step_that_ends_the_program_undoes_the_run_first(shop, run, by):
    book = shop.kit.safe_tool(shop.do, "COMPENSABLE", compensate=shop.undo, name="book")
    begun = []

    def leave():
        raise SystemExit("all")

    leaves = shop.kit.safe_tool(leave, "REVERSIBLE", name="leaves")

    async def body():
        begun.append(await book(item="seat"))
        await leaves() if by != "the step" else leave()

    loop = asyncio.new_event_loop()  # `asyncio.run` would cancel what is left, and help
    try:
        with pytest.raises(SystemExit, match="all"):
            loop.run_until_complete(run(workflow_of(body), shop.kit))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    assert len(begun) == 1
    shop.world.assert_restored()


class Asks(BaseTool):
    """A tool that is no function: it can only be a read, and is no step."""

    @property
    def metadata(self):
        return ToolMetadata(name="asks", description="Ask.")

    def __call__(self, input):  # noqa: A002 - the framework's name
        raise RuntimeError(f"nobody answers about {input}")


def fails_behind_it(output):
    raise RuntimeError(f"nobody is told of {output}")


@pytest.mark.guarantee("LLAMAINDEX-10")
@pytest.mark.parametrize("what", ["a callback", "a read that is no step"])
@pytest.mark.parametrize("policy", ["rollback", "continue"])
def test_a_tool_that_fails_outside_of_a_step_has_failed_too(shop, what, policy):
    tools, turns = [shop.book, Asks()], [SEAT, [call("asks", input="seat")]]
    if what == "a callback":
        tools, turns = [FunctionTool.from_defaults(shop.do, callback=fails_behind_it)], [SEAT]
    declared = {"book": shop.declared["book"], "asks": read_only()}
    agent = saga_agent(
        shop.agent(*turns, "done", tools=tools),
        shop.kit,
        tools={tool.metadata.name: declared[tool.metadata.name] for tool in tools},
        on_tool_failure=policy,
    )
    if policy == "continue":
        asyncio.run(saga_run(agent, "go on"))
        shop.world.assert_applied_once("seat")
        return
    with pytest.raises(SagaAborted, match="nobody"):
        asyncio.run(saga_run(agent, "go on"))
    shop.world.assert_restored()
