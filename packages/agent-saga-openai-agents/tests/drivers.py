"""The drivers of the kit: an agent put under care in one line, and one with wrapped tools.

This file is loaded by other processes, too: it imports nothing beside it but `scripted`, which it
finds in its own folder.
"""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from pathlib import Path

from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call

from agent_saga.errors import SagaSuspended
from agent_saga_openai_agents import (
    RunStateApprovals,
    approve,
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

set_tracing_disabled(True)


class Recipe:
    """An agent, and how it is run."""

    def __init__(self, agent, kit, options):
        self.agent, self.kit, self.options = agent, kit, options


def turn(said):
    if isinstance(said, (str, Exception)):
        return said
    return [call(each.tool, each.id, **each.args) for each in said if isinstance(each, Call)]


def declaration(tool):
    if tool.semantics == "COMPENSABLE":
        return compensable(tool.compensate, timeout=tool.timeout)
    return irreversible() if tool.semantics == "IRREVERSIBLE" else read_only()


def theirs(tool, options):
    """Return the options of `function_tool`."""
    given = {"name_override": tool.name}
    if not options.shows_errors:
        given["failure_error_function"] = None
    if tool.name == "ask":
        given["needs_approval"] = True
    return given


def settings(options):
    if not options.model_retries:
        return ModelSettings()
    retry = ModelRetrySettings(
        max_retries=options.model_retries,
        backoff={"initial_delay": 0.0, "jitter": False},
        policy=lambda context: True,
    )
    return ModelSettings(retry=retry)


class OpenAIAgentsDriver(AgentDriver):
    """What all ways have in common; each says how it makes its agent."""

    def made(self, kit, tools, options):
        raise NotImplementedError

    def agent(self, kit, script, tools, options):
        agent = self.made(kit, tools, options)
        agent.model = Scripted([turn(said) for said in script])
        agent.model_settings = settings(options)
        return Recipe(agent, kit, options)

    async def run(self, agent):
        return await self.given(agent, "go on")

    async def given(self, recipe, given):
        with self.how(recipe) as how:
            try:
                result = await saga_run(recipe.agent, given, **how)
            except SagaSuspended:
                return Ended("", waits=True)
            return self.ended(recipe, result)

    def ended(self, recipe, result):
        waits = bool(result.interruptions)
        if waits:
            self.place.write_text(result.to_state().to_string(), "utf-8")
        return Ended("" if waits else result.final_output, waits)

    @property
    def place(self):
        return self.folder / "state.json"

    async def state(self, recipe):
        return await RunState.from_string(recipe.agent, self.place.read_text("utf-8"))

    async def resume(self, agent, answer):
        if not self.place.exists():
            return await self.given(agent, [])
        state = await self.state(agent)
        for item in state.get_interruptions() if answer is not None else ():
            state.approve(item)
        return await self.given(agent, state)

    def approvals(self):
        return RunStateApprovals()

    async def decide(self, agent, *, approved):
        say = approve if approved else deny
        if not self.place.exists():
            return await self.given(agent, say(by="ann"))
        return await self.given(agent, say(await self.state(agent), by="ann"))

    def run_sync(self, agent):
        with self.how(agent) as how:
            return self.ended(agent, saga_run_sync(agent.agent, "go on", **how))

    async def stream(self, agent):
        with self.how(agent) as how:
            events = saga_stream(agent.agent, "go on", **how)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    @contextmanager
    def how(self, recipe):
        options = recipe.options
        given = {"kit": recipe.kit, "on_tool_failure": options.on_tool_failure}
        if options.key or options.resumable:
            given["key"] = options.key or "the-run"
        if not options.resumable:
            yield given
            return
        with closing(SQLiteSession("one", self.folder / "session.sqlite")) as session:
            yield {**given, "session": session}

    def asks(self):
        def ask(question: str) -> str:
            """Ask a human."""
            return "yes"

        return ask

    def nested(self, agent):
        async def delegate(item: str) -> str:
            """Let another agent do it."""
            return (await self.run(agent)).text

        return delegate


class OneLineDriver(OpenAIAgentsDriver):
    """`saga_agent` round an agent of the SDK."""

    def made(self, kit, tools, options):
        given = [function_tool(tool.function, **theirs(tool, options)) for tool in tools]
        agent = Agent(name="A", instructions="Do it.", tools=given)
        return saga_agent(agent, kit, tools={tool.name: declaration(tool) for tool in tools})


class OwnToolsDriver(OpenAIAgentsDriver):
    """An agent whose tools are made by `saga_tool`."""

    def made(self, kit, tools, options):
        given = [self._own(kit, tool, options) for tool in tools]
        return saga_agent(Agent(name="A", instructions="Do it.", tools=given), kit)

    def _own(self, kit, tool, options):
        """Return a tool; its own `timeout` is the SDK's, so the engine's is declared before."""
        declared = declaration(tool).options
        if declared.pop("timeout", None) is None:
            return saga_tool(tool.function, kit=kit, **declared, **theirs(tool, options))
        made = kit.safe_tool(tool.function, name=tool.name, timeout=tool.timeout, **declared)
        return saga_tool(made, **theirs(tool, options))
