"""The drivers of the kit: an agent in several ways, and a workflow that runs one.

This file is loaded by other processes, too: it imports nothing beside it but `scripted`, which it
finds in its own folder.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call

from agent_saga import RetryPolicy
from agent_saga_llamaindex import (
    EventApprovals,
    Waiting,
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


class Recipe:
    """An agent, and how it is run."""

    def __init__(self, agent, kit, options):
        self.agent, self.kit, self.options = agent, kit, options


def turn(said):
    if isinstance(said, (str, Exception)):
        return said
    return [call(each.tool, each.id, **each.args) for each in said if isinstance(each, Call)]


def declaration(tool, options):
    more = {}
    if options.tool_retries:  # LlamaIndex repeats no tool by itself; the declaration may
        more["retry"] = RetryPolicy(max_retries=options.tool_retries, base_delay=0.0)
    if tool.semantics == "COMPENSABLE":
        return compensable(tool.compensate, timeout=tool.timeout, **more)
    return irreversible(**more) if tool.semantics == "IRREVERSIBLE" else read_only(**more)


def asks():
    async def ask(ctx: Context, question: str) -> str:
        """Ask a human."""
        asked = InputRequiredEvent(prefix=question)
        told = await ctx.wait_for_event(HumanResponseEvent, waiter_event=asked, waiter_id=question)
        return told.response

    ask.__annotations__["ctx"] = Context
    return ask


class FunctionAgentDriver(AgentDriver):
    """`saga_agent` round a `FunctionAgent`."""

    agent_class = FunctionAgent
    native = True

    def made(self, kit, tools, options, model):
        given = [FunctionTool.from_defaults(tool.function, name=tool.name) for tool in tools]
        agent = self.agent_class(tools=given, llm=model)
        declared = {tool.name: declaration(tool, options) for tool in tools}
        return saga_agent(agent, kit, tools=declared)

    def agent(self, kit, script, tools, options):
        turns = self.turns([turn(said) for said in script])
        model = Scripted.of(*turns, retries=options.model_retries, native=self.native)
        return Recipe(self.made(kit, tools, options, model), kit, options)

    def turns(self, script):
        return script

    def how(self, recipe):
        options = recipe.options
        given = {"kit": recipe.kit, "on_tool_failure": options.on_tool_failure}
        if options.on_tool_failure == "continue" and not options.shows_errors:
            given["on_tool_failure"] = "rollback"  # LlamaIndex shows its model every error
        if options.key or options.resumable:
            given["key"] = options.key or "the-run"
        return given

    async def run(self, agent):
        if agent.options.resumable:
            return await self.given(agent, "go on", Context(agent.agent))
        return Ended(str(await saga_run(agent.agent, "go on", **self.how(agent))))

    def run_sync(self, agent):
        return Ended(str(saga_run_sync(agent.agent, "go on", **self.how(agent))))

    async def given(self, recipe, given, context):
        """Run with a context, and keep it wherever the run is, as a program does that may die."""
        events = saga_stream(recipe.agent, given, ctx=context, **self.how(recipe))
        async for _ in events:
            self.keep(context)
        if isinstance(events.result, Waiting):
            self.place.write_text(json.dumps(events.result.context), "utf-8")
            return Ended("", waits=True)
        return Ended(str(events.result))

    @property
    def place(self):
        return self.folder / "context.json"

    def keep(self, context):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = context.to_dict()
        if kept["is_running"]:
            self.place.with_suffix(".new").write_text(json.dumps(kept), "utf-8")
            self.place.with_suffix(".new").replace(self.place)

    async def resume(self, agent, answer):
        given = None if answer is None else HumanResponseEvent(response=answer)
        return await self.given(agent, given, self.kept(agent))

    def kept(self, recipe):
        return Context.from_dict(recipe.agent, json.loads(self.place.read_text("utf-8")))

    def approvals(self):
        return EventApprovals()

    async def decide(self, agent, *, approved):
        say = approve if approved else deny
        return await self.given(agent, say(by="ann"), self.kept(agent))

    async def stream(self, agent):
        events = saga_stream(agent.agent, "go on", **self.how(agent))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    def asks(self):
        return asks()

    def nested(self, agent):
        async def delegate(item: str) -> str:
            """Let another agent do it."""
            return (await self.run(agent)).text

        return delegate


class OwnToolsDriver(FunctionAgentDriver):
    """An `AgentWorkflow` of one agent whose tools are made by `saga_tool`."""

    def made(self, kit, tools, options, model):
        given = [
            saga_tool(tool.function, name=tool.name, kit=kit, **declaration(tool, options).options)
            for tool in tools
        ]
        return saga_agent(AgentWorkflow([FunctionAgent(tools=given, llm=model)]), kit)


class ReActDriver(FunctionAgentDriver):
    """`saga_agent` round a `ReActAgent`, whose model calls tools by text, one at a time."""

    agent_class = ReActAgent
    native = False

    def turns(self, script):
        several = [[[one] for one in said] if isinstance(said, list) else [said] for said in script]
        return [said for one in several for said in one]


class Clerk(Workflow):
    """A workflow of one's own that runs an agent in a step."""

    def __init__(self, agent):
        super().__init__(timeout=None)
        self.agent = agent

    @step
    async def act(self, ctx: Context, ev: StartEvent) -> StopEvent:
        handler = self.agent.run("go on")
        async for event in handler.stream_events():
            if not isinstance(event, StopEvent):
                ctx.write_event_to_stream(event)
        return StopEvent(result=str(await handler))


class WorkflowDriver(FunctionAgentDriver):
    """`saga_run` of a workflow that runs an agent in a step."""

    def made(self, kit, tools, options, model):
        return Clerk(super().made(kit, tools, options, model))
