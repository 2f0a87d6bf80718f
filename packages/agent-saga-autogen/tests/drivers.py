"""The drivers of the kit: an agent in several ways, and teams of one.

This file is loaded by other processes, too: it imports nothing beside it but `scripted`, which it
finds in its own folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sys
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool, StaticWorkbench

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call

from agent_saga import RetryPolicy
from agent_saga_autogen import (
    AutoGenApprovals,
    SagaWorkbench,
    Waiting,
    approve,
    ask_human,
    compensable,
    deny,
    irreversible,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_tool,
)
from agent_saga_testing.integration.driver import AgentDriver, Call, Ended
from agent_saga_testing.integration.elsewhere import agent_of
from agent_saga_testing.integration.tools import Tools


class Recipe:
    """An agent, and how it is run."""

    def __init__(self, agent, kit, options):
        self.agent, self.kit, self.options = agent, kit, options


class TeamRecipe(Recipe):
    """A team, and how it is run; another object for each run."""

    @property
    def agent(self):
        return self._made()

    @agent.setter
    def agent(self, made):
        self._made = made


def turn(said):
    if isinstance(said, (str, Exception)):
        return said
    return [call(each.tool, each.id, **each.args) for each in said if isinstance(each, Call)]


def declaration(tool, options):
    more = {}
    if options.tool_retries:  # AutoGen repeats no tool by itself; the declaration may
        more["retry"] = RetryPolicy(max_retries=options.tool_retries, base_delay=0.0)
    if tool.semantics == "COMPENSABLE":
        return compensable(tool.compensate, timeout=tool.timeout, **more)
    return irreversible(**more) if tool.semantics == "IRREVERSIBLE" else read_only(**more)


def bare(tool):
    return FunctionTool(tool.function, description=tool.function.__doc__, name=tool.name)


class AssistantDriver(AgentDriver):
    """`saga_agent` round an `AssistantAgent`."""

    def made(self, kit, tools, options, model):
        agent = self.assistant(model, tools=[bare(tool) for tool in tools])
        return saga_agent(agent, kit, tools={t.name: declaration(t, options) for t in tools})

    def assistant(self, model, **options):
        return AssistantAgent("A", model, max_tool_iterations=20, **options)

    def agent(self, kit, script, tools, options):
        model = Scripted(*map(turn, script), retries=options.model_retries)
        return Recipe(self.made(kit, tools, options, model), kit, options)

    def how(self, recipe):
        options = recipe.options
        given = {"kit": recipe.kit, "on_tool_failure": options.on_tool_failure}
        if options.on_tool_failure == "continue" and not options.shows_errors:
            given["on_tool_failure"] = "rollback"  # AutoGen shows its model every error
        if options.key or options.resumable:
            given["key"] = options.key or "the-run"
        return given

    @property
    def place(self):
        return self.folder / "state.json"

    def ended(self, result):
        if isinstance(result, Waiting):
            self.place.write_text(json.dumps(result.state), "utf-8")
            return Ended("", waits=True)
        return Ended(result.messages[-1].content)

    async def run(self, agent):
        return await self.given(agent, "go on")

    async def given(self, recipe, task=None, **more):
        return self.ended(await saga_run(recipe.agent, task, **self.how(recipe), **more))

    def run_sync(self, agent):
        return self.ended(saga_run_sync(agent.agent, "go on", **self.how(agent)))

    async def resume(self, agent, answer):
        if not self.place.exists():
            return await self.run(agent)
        return await self.given(agent, state=json.loads(self.place.read_text()), resume=answer)

    def approvals(self):
        return AutoGenApprovals()

    async def decide(self, agent, *, approved):
        return await self.resume(agent, approve(by="ann") if approved else deny(by="ann"))

    async def stream(self, agent):
        events = saga_stream(agent.agent, "go on", **self.how(agent))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    def asks(self):
        def ask(question: str) -> str:
            """Ask a human."""
            return ask_human(question)

        return ask

    def nested(self, agent):
        async def delegate(item: str) -> str:
            """Let another agent do it."""
            return (await self.run(agent)).text

        return delegate


class OwnToolsDriver(AssistantDriver):
    """An agent whose tools are made by `saga_tool`."""

    def made(self, kit, tools, options, model):
        given = [
            saga_tool(tool.function, name=tool.name, kit=kit, **declaration(tool, options).options)
            for tool in tools
        ]
        return saga_agent(self.assistant(model, tools=given), kit)


class Served(StaticWorkbench):
    """A workbench that keeps its tools to itself, as one of an MCP server does."""

    async def list_tools(self):
        return await super().list_tools()


class WorkbenchDriver(AssistantDriver):
    """An agent whose tools are those of a `SagaWorkbench`; their results are texts."""

    def made(self, kit, tools, options, model):
        inner = Served([_Json(tool) for tool in tools])
        declared = {tool.name: declaration(tool, options) for tool in tools}
        bench = SagaWorkbench(inner, tools=declared, kit=kit)
        return saga_agent(self.assistant(model, workbench=bench), kit)


class _Json(FunctionTool):
    def __init__(self, tool):
        super().__init__(tool.function, description=tool.function.__doc__, name=tool.name)

    def return_value_as_string(self, value):
        return json.dumps(value)


class TeamDriver(AssistantDriver):
    """`saga_agent` round a team of one."""

    def agent(self, kit, script, tools, options):
        model = Scripted(*map(turn, script), retries=options.model_retries)

        def made():  # a team is bound to the loop that it first ran in
            return self.made(kit, tools, options, model)

        return TeamRecipe(made, kit, options)

    def made(self, kit, tools, options, model):
        agent = self.assistant(model, tools=[bare(tool) for tool in tools])
        declared = {tool.name: declaration(tool, options) for tool in tools}
        return saga_agent(RoundRobinGroupChat([agent], max_turns=1), kit, tools=declared)


class ForeignRuntimeDriver(AssistantDriver):
    """A team in a runtime that was started before the run, outside its boundary."""

    def made(self, kit, tools, options, model):
        agent = self.assistant(model, tools=[bare(tool) for tool in tools])
        declared = {tool.name: declaration(tool, options) for tool in tools}
        return saga_agent(agent, kit, tools=declared)

    @contextlib.asynccontextmanager
    async def team_of(self, recipe):
        runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=True)
        asyncio.get_running_loop().call_soon(runtime.start, context=contextvars.Context())
        await asyncio.sleep(0)
        try:
            yield RoundRobinGroupChat([recipe.agent], max_turns=1, runtime=runtime)
        finally:
            await runtime.stop()

    async def given(self, recipe, task=None, **more):
        async with self.team_of(recipe) as team:
            return self.ended(await saga_run(team, task, **self.how(recipe), **more))

    def run_sync(self, agent):
        return asyncio.run(self.run(agent))

    async def stream(self, agent):
        async with self.team_of(agent) as team:
            events = saga_stream(team, "go on", **self.how(agent))
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()


def approve_in(folder, driver, script):
    """Go on with a run that waits for an approval; for another process, which may die."""
    made = globals()[driver](folder)
    return asyncio.run(made.decide(agent_of(made, Tools(folder), script), approved=True)).text
