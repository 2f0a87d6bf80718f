"""`saga_agent`: a clone of an agent whose tools are steps, with all that it leads to.

Rules of this part:

- Tools, agents that are tools, handoffs, and the tools of MCP servers are replaced in the clone;
  the agents that were given stay as they are.
- Every tool must be declared; one error names all that are not. Different tools of one name are
  refused, also those of two MCP servers. What the provider or the framework
  carries out itself cannot be wrapped: it is refused, unless it is declared to be a read.
- An agent that is a tool is a savepoint: when its run fails, what it did is undone before the outer
  model reads of the failure.
- The clone is of a subclass of the agent's class and can be cloned again. Tools that come to it
  later, whoever brings them, are steps, too; one that nobody declared ends the run.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any, Final

from agents import Agent, FunctionTool, Handoff

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.declarations import (
    Declaration,
    Declarations,
    Declared,
    checked,
    from_policy,
    undeclared,
)
from agent_saga.kit.frameworks.declared import check_named, is_a_read
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga_openai_agents import seams
from agent_saga_openai_agents import servers as told_servers
from agent_saga_openai_agents.calls import running
from agent_saga_openai_agents.effects import Effect
from agent_saga_openai_agents.nested import nested_tool
from agent_saga_openai_agents.tools import effect_of, is_wrapped, with_effect, wrap_as


def saga_agent(
    agent: Any,
    kit: AgentKit | None = None,
    *,
    tools: Declarations | None = None,
    on_tool_failure: str = "continue",
) -> Any:
    """Return a clone of an agent, to be run by `saga_run`, each of whose tool calls is a step.

    Args:
        agent: an `Agent` of the SDK.
        kit: whose boundaries its runs are; the process's defaults when not given.
        tools: a declaration for every tool of it and of the agents that it leads to, by name; tools
            that are wrapped already need none.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
        ConfigurationError: it is no agent, a declaration names no tool of it, different tools have
            one name, a tool cannot be wrapped, or there is nobody to ask.

    Without a boundary its tools are refused, unless they are reads: run it with `saga_run`.
    """
    check_policy(kit, on_tool_failure)
    if not isinstance(agent, Agent):
        raise ConfigurationError(
            f"saga_agent takes an Agent of the SDK, not {type(agent).__name__}."
        )
    if is_bounded(agent):
        raise ConfigurationError(f"The tools of {agent.name} are steps already.")
    care = Care(kit, checked(tools or {}), on_tool_failure)
    care.check(agent)
    return care.clone(agent)


def is_bounded(agent: object) -> bool:
    """Say whether an agent was made by `saga_agent`, or cloned from one that was."""
    return isinstance(agent, SagaAgent) and isinstance(agent.saga_care, Care)


class SagaAgent:
    """An agent whose tools are steps; made by `saga_agent`, together with the agent's class."""

    saga_care: Any

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        """Return the agent's tools as steps, with those that came to it later.

        Raises:
            UndeclaredTool: nothing says what some of them do to the world.
            ConfigurationError: one of them cannot be wrapped.
        """
        seams.keep_apart(run_context)
        tools = await super().get_all_tools(run_context)  # type: ignore[misc]
        run, wrapped = running.get(), self.saga_care.wrapped_late(tools)
        if run is not None and run.asks:
            return wrapped  # type: ignore[no-any-return]
        return [self.saga_care.unasked(tool) for tool in wrapped]

    async def get_mcp_tools(self, run_context: Any) -> list[Any]:
        """Return the tools of the agent's MCP servers, as steps.

        Raises:
            UndeclaredTool: nothing says what some of them do to the world.
        """
        tools = await super().get_mcp_tools(run_context)  # type: ignore[misc]
        return self.saga_care.wrapped_from_servers(tools)  # type: ignore[no-any-return]


class Care:
    """How an agent, and all that it leads to, is put under care.

    Args:
        kit: whose boundaries the runs are.
        declared: a declaration for each tool, by name.
        on_tool_failure: what a tool failure means to a run.

    Attributes:
        may_wait: tools may ask for an approval, so that a run stops for it.
    """

    def __init__(self, kit: AgentKit | None, declared: Declared, on_tool_failure: str) -> None:
        self.kit = kit
        self.on_tool_failure = on_tool_failure
        self.may_wait = False
        self._declared = declared
        self._clones: dict[int, tuple[Any, Any]] = {}
        self._unasked: dict[int, tuple[Any, Any]] = {}
        self._late: dict[int, tuple[Any, Any]] = {}
        self._remote: dict[str, Effect] = {}

    # --- what must be declared ------------------------------------------------------------------

    def check(self, agent: Any, *, late: bool = False) -> None:
        """Refuse tools that nobody declared, or that cannot be wrapped.

        Args:
            agent: the agent, looked at with all that it leads to.
            late: it came to the run later; there are other tools beside its own.

        Raises:
            UndeclaredTool, ConfigurationError: so it is.
        """
        agents = list(_reached(agent, {}))
        tools = [tool for one in agents for tool in one.tools if not _is_agent(tool)]
        names = {tool.name for tool in tools}
        every = [tool for one in agents for tool in one.tools]
        servers = [server for one in agents for server in one.mcp_servers]
        self.may_wait = self.may_wait or any(map(_asks, every)) or any(map(seams.may_ask, servers))
        missing = [t.name for t in tools if not is_wrapped(t) and self._declaration(t.name) is None]
        if missing:
            raise undeclared(list(dict.fromkeys(missing)))
        for tool in tools:
            self._check_fit(tool)
        if not (late or servers or any(map(_leads_nowhere, agents))) and not any(
            map(seams.brings_tools, agents)
        ):
            check_named(names, self._declared)

    def _check_fit(self, tool: Any) -> None:
        if not is_wrapped(tool):
            self._declared.check_meant(tool.name, tool, behind=seams.behind)
        declaration = self._declaration(tool.name)
        fits = isinstance(tool, FunctionTool) or is_a_read(declaration.options)  # type: ignore[union-attr]
        if not fits:
            raise ConfigurationError(
                f"{tool.name} ({type(tool).__name__}) cannot be wrapped: the provider or the "
                "framework carries it out, and nothing of agent-saga is called.",
                fix="Declare it read_only() if it changes nothing; else do it in a function of "
                "yours and make that a saga_tool.",
            )

    def _declaration(self, name: str) -> Declaration | None:
        return self._declared.get(name) or from_policy(self.kit, name)

    # --- clones ---------------------------------------------------------------------------------

    def clone(self, agent: Any) -> Any:
        """Return the clone of an agent; the same one each time."""
        if is_bounded(agent):
            return agent
        if id(agent) in self._clones:
            return self._clones[id(agent)][1]
        given = {f.name: getattr(agent, f.name) for f in dataclasses.fields(agent) if f.init}
        servers = [told_servers.told(server) for server in agent.mcp_servers]
        given.update(tools=[], handoffs=[], mcp_servers=servers, saga_care=self)
        made = _class_of(type(agent))(**given)
        self._clones[id(agent)] = (agent, made)
        made.tools = [self._tool(tool) for tool in agent.tools]
        made.handoffs = [self._handoff(one) for one in agent.handoffs]
        return made

    def _tool(self, tool: Any) -> Any:
        if is_wrapped(tool) or not isinstance(tool, FunctionTool):
            return tool
        inner = seams.agent_behind(tool)
        if inner is not None:
            return nested_tool(tool, inner, self.clone(inner))
        declaration = self._declaration(tool.name)
        if declaration is None:
            raise undeclared([tool.name])
        return wrap_as(tool, declaration, self.kit)

    def _handoff(self, handoff: Any) -> Any:
        if not isinstance(handoff, Handoff):
            return self.clone(handoff)
        invoke = handoff.on_invoke_handoff

        async def handed(ctx: Any, text: str) -> Any:
            agent = await invoke(ctx, text)
            if id(agent) not in self._clones and not is_bounded(agent):
                self.check(agent, late=True)
            return self.clone(agent)

        made = dataclasses.replace(handoff, on_invoke_handoff=handed)
        target = seams.agent_handed_to(handoff)
        if target is not None:
            made._agent_ref = weakref.ref(self.clone(target))  # noqa: SLF001 - see `seams`
        return made

    # --- tools that come later ------------------------------------------------------------------

    def wrapped_late(self, tools: list[Any]) -> list[Any]:
        """Return the tools that an agent has now, as steps.

        Raises:
            UndeclaredTool, ConfigurationError: some are not declared, or cannot be wrapped.
        """
        new = [tool for tool in tools if not is_wrapped(tool) and not _is_agent(tool)]
        missing = [tool.name for tool in new if self._declaration(tool.name) is None]
        if missing:
            raise undeclared(list(dict.fromkeys(missing)))
        for tool in new:
            self._check_fit(tool)
        return [self._found_late(tool) for tool in tools]

    def _found_late(self, tool: Any) -> Any:
        if is_wrapped(tool):
            return tool
        if id(tool) not in self._late:
            inner = seams.agent_behind(tool) if _is_agent(tool) else None
            if inner is not None:
                self.check(inner, late=True)
            self._late[id(tool)] = (tool, self._tool(tool))
        return self._late[id(tool)][1]

    def unasked(self, tool: Any) -> Any:
        """Return a tool as it is where the gate asks nothing: its own policy decides alone.

        The framework lets every call whose arguments it cannot read wait for a human, where it
        would have to ask a function whether to.
        """
        if not callable(getattr(tool, "needs_approval", None)):
            return tool
        policy = getattr(tool.on_invoke_tool, "saga_policy", tool.needs_approval)
        if callable(policy):
            return tool
        if id(tool) not in self._unasked:
            made = seams.copied(tool, needs_approval=policy)
            self._unasked[id(tool)] = (tool, made)
        return self._unasked[id(tool)][1]

    # --- tools of MCP servers -------------------------------------------------------------------

    def wrapped_from_servers(self, tools: list[Any]) -> list[Any]:
        """Return the tools that MCP servers offer now, as steps.

        Raises:
            UndeclaredTool: some have no declaration.
            ConfigurationError: another server offers one of the same name.
        """
        missing = [tool.name for tool in tools if self._declaration(tool.name) is None]
        if missing:
            raise undeclared(missing)
        for tool in tools:
            self._declared.check_meant(
                tool.name, tool, behind=seams.server_behind, fix=_TWO_SERVERS
            )
        return [with_effect(tool, self._effect(tool.name), remote=True) for tool in tools]

    def _effect(self, name: str) -> Effect:
        if name not in self._remote:
            declaration = self._declaration(name)
            options = {} if declaration is None else declaration.options
            self._remote[name] = effect_of(self.kit, {"name": name, "outside": "refuse", **options})
        return self._remote[name]


_TWO_SERVERS: Final = (
    "Hide one of them with the server's tool_filter, or give each agent "
    "mcp_config={'include_server_in_tool_names': True} and declare the longer names."
)


def _is_agent(tool: Any) -> bool:
    return isinstance(tool, FunctionTool) and seams.agent_behind(tool) is not None


def _asks(tool: Any) -> bool:
    policy = getattr(tool, "needs_approval", False)
    own = getattr(getattr(tool, "on_invoke_tool", None), "saga_policy", policy)
    return own is not False or getattr(tool, "tool_config", {}).get("require_approval") is not None


def _leads_nowhere(agent: Any) -> bool:
    """Say whether an agent hands over to one that shows only when it runs."""
    handoffs = [one for one in agent.handoffs if isinstance(one, Handoff)]
    return any(seams.agent_handed_to(one) is None for one in handoffs)


def _reached(agent: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """Give an agent and all that it leads to, as far as that shows before it runs."""
    if id(agent) in seen or is_bounded(agent):
        return
    seen[id(agent)] = agent
    yield agent
    behind = [seams.agent_behind(t) for t in agent.tools if _is_agent(t)]
    handed = [seams.agent_handed_to(h) if isinstance(h, Handoff) else h for h in agent.handoffs]
    for one in [*behind, *handed]:
        if one is not None:
            yield from _reached(one, seen)


_classes: dict[type[Any], type[Any]] = {}


def _class_of(base: type[Any]) -> type[Any]:
    found = _classes.get(base)
    if found is None:
        care = dataclasses.field(default=None, repr=False, compare=False, kw_only=True)
        made = dataclasses.make_dataclass(
            base.__name__, [("saga_care", Any, care)], bases=(SagaAgent, base)
        )
        made.__doc__, made.__module__ = base.__doc__, base.__module__
        found = _classes.setdefault(base, made)
    return found
