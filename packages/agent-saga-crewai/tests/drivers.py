"""The drivers of the kit: a crew in three ways, and a crew inside a flow.

This file is loaded by other processes, too: it imports nothing beside it but `scripted` and
`quiet`, which it finds in its own folder.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call  # noqa: I001 - first: it sets the framework up

from crewai import Agent, Crew, Task
from crewai.flow.flow import Flow, start
from crewai.tools import tool as made
from crewai.tools.base_tool import Tool

from agent_saga import RetryPolicy
from agent_saga_crewai import (
    CrewApprovals,
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
)
from agent_saga_testing.integration.driver import AgentDriver, Call, Ended

KEY = "the run"


class Recipe:
    """A crew, to be made for each of its runs; the model goes on with its script."""

    def __init__(self, driver, kit, script, tools, options):
        self.kit, self.options = kit, options
        turns = [_turn(turn, native=driver.native) for turn in script]
        self.model = Scripted.of(*turns, native=driver.native)
        self.tools = [_tool(tool) for tool in tools]
        self.declared = {tool.name: _declaration(tool, options) for tool in tools}

    def crew(self):
        """Return a crew as its author made it."""
        options = self.options
        agent = Agent(
            role="clerk",
            goal="do it",
            backstory="you do",
            llm=self.model,
            tools=self.tools,
            max_retry_limit=options.model_retries,
        )
        task = Task(
            description="go on",
            expected_output="a word",
            agent=agent,
            tool_failure_policy="warn" if options.shows_errors else "raise",
        )
        return Crew(agents=[agent], tasks=[task])

    def agent(self):
        """Return the crew under the package's care."""
        how = self.options.on_tool_failure
        return saga_agent(self.crew(), self.kit, tools=self.declared, on_tool_failure=how)

    def given(self):
        """Return the options of a run."""
        key = self.options.key or (KEY if self.options.resumable else None)
        return {} if key is None else {"key": key}


def _turn(turn, *, native):
    if isinstance(turn, (str, Exception)):
        return turn
    calls = [call(each.tool, each.id, **each.args) for each in turn if isinstance(each, Call)]
    if native:
        return calls
    known = {}
    return list({known.setdefault(c["id"], id(c)): c for c in calls}.values())


def _tool(tool):
    named: Tool = made(tool.name)(tool.function)
    return named


def _declaration(tool, options):
    more = {}
    if options.tool_retries:  # CrewAI's own repeating of a failed call is what the package ends
        more["retry"] = RetryPolicy(max_retries=options.tool_retries, base_delay=0.0)
    if tool.semantics == "COMPENSABLE":
        return compensable(tool.compensate, timeout=tool.timeout, **more)
    return irreversible(**more) if tool.semantics == "IRREVERSIBLE" else read_only(**more)


@contextlib.contextmanager
def unheard():
    """Keep what CrewAI prints away from the standard output."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


class CrewDriver(AgentDriver):
    """`saga_agent` round a crew whose model calls tools natively."""

    native = True

    def agent(self, kit, script, tools, options):
        return Recipe(self, kit, script, tools, options)

    async def given(self, recipe, **given):
        with unheard():
            return ended(await recipe.agent().akickoff(**recipe.given(), **given))

    async def run(self, agent):
        return await self.given(agent)

    def run_sync(self, agent):
        with unheard():
            return ended(agent.agent().kickoff(**agent.given()))

    async def resume(self, agent, answer):
        return await self.given(agent, resume=answer)

    def approvals(self):
        return CrewApprovals()

    async def decide(self, agent, *, approved):
        answer = approve(by="ann") if approved else deny(by="ann", note="no")
        return await self.given(agent, resume=answer)

    async def stream(self, agent):
        how = {"kit": agent.kit, "on_tool_failure": agent.options.on_tool_failure}
        with unheard():
            items = saga_stream(agent.agent(), **how, **agent.given())
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()

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


class ThreadDriver(CrewDriver):
    """`saga_agent` round a crew that CrewAI runs in a thread."""

    async def given(self, recipe, **given):
        with unheard():
            return ended(await recipe.agent().kickoff_async(**recipe.given(), **given))


class TextDriver(CrewDriver):
    """`saga_run` of a crew whose model calls tools by text."""

    native = False

    async def given(self, recipe, **given):
        how = {"kit": recipe.kit, "on_tool_failure": recipe.options.on_tool_failure}
        with unheard():
            return ended(await saga_run(recipe.agent(), **how, **recipe.given(), **given))


class FlowDriver(CrewDriver):
    """`saga_run` of a flow that runs a crew in a method."""

    def flow(self, recipe):
        class Clerk(Flow):
            @start()
            async def act(self):
                return (await recipe.crew().akickoff()).raw

        wrapped = recipe.agent()
        recipe.tools = wrapped.agents[0].tools
        return Clerk()

    async def given(self, recipe, **given):
        how = {"kit": recipe.kit, "on_tool_failure": recipe.options.on_tool_failure}
        with unheard():
            return ended(await saga_run(self.flow(recipe), **how, **recipe.given(), **given))

    def run_sync(self, agent):
        how = {"kit": agent.kit, "on_tool_failure": agent.options.on_tool_failure}
        with unheard():
            return ended(saga_run_sync(self.flow(agent), **how, **agent.given()))

    async def stream(self, agent):
        how = {"kit": agent.kit, "on_tool_failure": agent.options.on_tool_failure}
        with unheard():
            items = saga_stream(self.flow(agent), **how, **agent.given())
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()


def ended(result):
    if isinstance(result, Waiting):
        return Ended("", True)
    return Ended(getattr(result, "raw", result))
