"""The drivers of the kit: an agent of LangChain in two ways, and a graph that is made by hand.

This file is loaded by other processes, too: it imports nothing beside it but `scripted`, which it
finds in its own folder.
"""

from __future__ import annotations

import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call

from agent_saga_langgraph import (
    GraphApprovals,
    SagaMiddleware,
    SagaToolNode,
    approve,
    compensable,
    deny,
    irreversible,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
)
from agent_saga_testing.integration.driver import AgentDriver, Call, Ended
from agent_saga_testing.integration.tools import LOOK
from agent_saga_testing.world import World

PROMPT = {"messages": [("user", "go on")]}
THREAD = {"configurable": {"thread_id": "thread"}}


class ShowsErrors(AgentMiddleware):
    """Makes every tool error text for the model."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            return shown(request, error)

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            return shown(request, error)


def shown(request, error):
    return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


class Recipe:
    """An agent, to be made once its checkpointer is open."""

    def __init__(self, kit, script, tools, options):
        turns = [_turn(turn) for turn in script]
        self.kit, self.options = kit, options
        self.model = Scripted(script=turns)
        self.tools = [_tool(tool) for tool in tools]
        self.declared = {tool.name: _declaration(tool) for tool in tools}


def _turn(turn):
    if isinstance(turn, (str, Exception)):
        return turn
    return [call(each.tool, each.id, **each.args) for each in turn if isinstance(each, Call)]


def _tool(tool):
    from inspect import iscoroutinefunction

    how = "coroutine" if iscoroutinefunction(tool.function) else "func"
    given = {how: tool.function, "name": tool.name, "description": tool.name}
    return StructuredTool.from_function(**given)


def _declaration(tool):
    if tool.semantics == "COMPENSABLE":
        return compensable(tool.compensate, timeout=tool.timeout)
    return irreversible() if tool.semantics == "IRREVERSIBLE" else read_only()


class LangGraphDriver(AgentDriver):
    """What all ways have in common; each says how it makes its graph."""

    def agent(self, kit, script, tools, options):
        return Recipe(kit, script, tools, options)

    def graph(self, recipe, checkpointer=None):
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, recipe):
        if not recipe.options.resumable:
            yield self.graph(recipe)
            return
        path = str(self.folder / "checkpoints.sqlite")
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            yield self.graph(recipe, saver)

    async def run(self, agent):
        return await self.given(agent, PROMPT)

    async def resume(self, agent, answer):
        return await self.given(agent, None if answer is None else Command(resume=answer))

    def approvals(self):
        return GraphApprovals()

    async def decide(self, agent, *, approved):
        answer = approve(by="ann") if approved else deny(by="ann", note="no")
        return await self.given(agent, Command(resume=answer))

    async def given(self, recipe, given):
        async with self.opened(recipe) as graph:
            return ended(await saga_run(graph, given, config(recipe), **self.how(recipe)))

    def run_sync(self, agent):
        graph = self.graph(agent)
        return ended(saga_run_sync(graph, PROMPT, config(agent), **self.how(agent)))

    async def stream(self, agent):
        async with self.opened(agent) as graph:
            items = saga_stream(graph, PROMPT, config(agent), **self.how(agent))
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()

    def how(self, recipe):
        options = recipe.options
        given = {"kit": recipe.kit, "on_tool_failure": options.on_tool_failure}
        return {**given, **named(recipe), **durability(recipe)}

    def asks(self):
        def ask(question: str) -> str:
            """Ask a human."""
            self.wait_for_effect()
            return str(interrupt(question))

        return ask

    def wait_for_effect(self):
        """Let the call beside this one take effect: an interrupt drops what has not begun."""
        world = World(self.folder / "world.sqlite", honours_keys=False)
        until = time.monotonic() + 60
        while not world.applications() and time.monotonic() < until:
            time.sleep(LOOK)

    def nested(self, agent):
        async def delegate(item: str) -> str:
            """Let another agent do it."""
            return (await self.run(agent)).text

        return delegate


def config(recipe):
    return THREAD if recipe.options.resumable else {}


def named(recipe):
    return {"key": recipe.options.key} if recipe.options.key else {}


def durability(recipe):
    return {"durability": "sync"} if recipe.options.resumable else {}


def ended(result):
    return Ended(result["messages"][-1].text, "__interrupt__" in result)


def middleware(recipe):
    options = recipe.options
    found = [ShowsErrors()] if options.shows_errors else []
    if options.tool_retries:
        found.append(
            ToolRetryMiddleware(
                max_retries=options.tool_retries, initial_delay=0.0, on_failure="error"
            )
        )
    if options.model_retries:
        found.append(
            ModelRetryMiddleware(
                max_retries=options.model_retries, initial_delay=0.0, on_failure="error"
            )
        )
    return found


class OneLineDriver(LangGraphDriver):
    """`saga_agent` round an agent of LangChain; its own methods are the boundary."""

    def graph(self, recipe, checkpointer=None):
        agent = create_agent(
            recipe.model, recipe.tools, middleware=middleware(recipe), checkpointer=checkpointer
        )
        return saga_agent(
            agent,
            recipe.kit,
            tools=recipe.declared,
            on_tool_failure=recipe.options.on_tool_failure,
        )

    async def given(self, recipe, given):
        async with self.opened(recipe) as agent:
            how = {**named(recipe), **durability(recipe)}
            return ended(await agent.ainvoke(given, config(recipe), **how))

    def run_sync(self, agent):
        return ended(self.graph(agent).invoke(PROMPT, config(agent)))

    async def stream(self, agent):
        async with self.opened(agent) as graph:
            items = graph.astream(PROMPT, config(agent))
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()


class MiddlewareDriver(LangGraphDriver):
    """An agent of LangChain that stays as it is, with `SagaMiddleware` and `saga_run`."""

    def graph(self, recipe, checkpointer=None):
        saga = SagaMiddleware(recipe.kit, tools=recipe.declared)
        return create_agent(
            recipe.model,
            recipe.tools,
            middleware=[*middleware(recipe), saga],
            checkpointer=checkpointer,
        )


class HandMadeDriver(LangGraphDriver):
    """A graph that is made by hand, with one `SagaToolNode` for all parallel calls."""

    def graph(self, recipe, checkpointer=None):
        options = recipe.options
        handles = {"handle_tool_errors": True} if options.shows_errors else {}

        async def model(state):
            return {"messages": [await recipe.model.ainvoke(state["messages"])]}

        def model_sync(state):
            return {"messages": [recipe.model.invoke(state["messages"])]}

        from langchain_core.runnables import RunnableLambda

        builder = StateGraph(MessagesState)
        builder.add_node(
            "model", RunnableLambda(model_sync, model), retry_policy=again(options.model_retries)
        )
        node = SagaToolNode(recipe.tools, kit=recipe.kit, declared=recipe.declared, **handles)
        builder.add_node("tools", node, retry_policy=again(options.tool_retries))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=checkpointer)


def again(times):
    if not times:
        return None
    return RetryPolicy(
        initial_interval=0.0, jitter=False, max_attempts=times + 1, retry_on=Exception
    )
