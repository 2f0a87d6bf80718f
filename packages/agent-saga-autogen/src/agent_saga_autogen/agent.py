"""`saga_agent`: a clone of an agent or a team whose tools are steps.

Rules of this part:

- The agent that was given keeps its tools. Its clone, of a subclass of its class, shares what it
  remembers: its model, its model's context, its memory. A team is cloned before its first run.
- Every tool must be declared; one error names all that are not, before anything runs. Different
  tools of one name are refused. The tools of
  a workbench that keeps them to itself are known when a run begins.
- An agent that runs code, or that is carried out by a service, is refused: nothing of agent-saga
  would be called. An agent of a class of one's own is seen by the tools of agent-saga it calls.
- Handing over to another agent changes nothing but the conversation, and is no step. It does not
  fail: AutoGen would wait for ever for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_core.tools import BaseTool

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.declarations import (
    Declaration,
    Declarations,
    Declared,
    checked,
    from_policy,
)
from agent_saga.kit.frameworks.declared import check_named, each_declared
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga_autogen import seams
from agent_saga_autogen.binding import Binding
from agent_saga_autogen.calls import Path
from agent_saga_autogen.nested import nested_tool
from agent_saga_autogen.stepping import HandoffTool
from agent_saga_autogen.teams import Ends, team_under_care
from agent_saga_autogen.tools import RUNNERS, is_wrapped, wrap_as
from agent_saga_autogen.turns import SagaAgent, Stopped, under_care
from agent_saga_autogen.workbench import Guard, SagaWorkbench, StepWorkbench

_CARE = "_saga_care"


def saga_agent(
    agent: Any,
    kit: AgentKit | None = None,
    *,
    tools: Declarations | None = None,
    on_tool_failure: str = "continue",
) -> Any:
    """Return a clone of an agent or a team, to be run by `saga_run`, whose tool calls are steps.

    Args:
        agent: an `AssistantAgent`, an agent of another class, or a team that has not run yet.
        kit: whose boundaries its runs are; the process's defaults when not given.
        tools: a declaration for every tool, by name; tools that are wrapped already need none.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
        ConfigurationError: it is no agent, a declaration names no tool of it, it or a tool cannot
            be wrapped, or there is nobody to ask.

    Without a boundary its tools are refused, unless they are reads: run it with `saga_run`.
    """
    check_policy(kit, on_tool_failure, "AutoGenApprovals()")
    if not isinstance(agent, (ChatAgent, Team)):
        raise ConfigurationError(
            f"saga_agent takes an agent or a team of AutoGen, not {type(agent).__name__}.",
            fix="An agent of AutoGen's core calls its tools itself: make them saga_tools, and bind "
            "them to a boundary with `bind`.",
        )
    if is_bounded(agent):
        raise ConfigurationError("The tools of this agent are steps already.")
    care = Care(kit, checked(tools or {}), on_tool_failure)
    care.check(agent)
    return care.clone(agent)


def is_bounded(agent: object) -> bool:
    """Say whether an agent or a team was made by `saga_agent`."""
    return isinstance(agent, SagaAgent) or _CARE in getattr(agent, "__dict__", {})


def care_of(agent: Any) -> Care:
    """Return how an agent of `saga_agent` is put under care."""
    found: Care = vars(agent)[_CARE]
    return found


class Care:
    """How an agent, or the agents of a team, are put under care.

    Args:
        kit: whose boundaries the runs are.
        declared: a declaration for each tool, by name.
        on_tool_failure: what a tool failure means to a run.
    """

    def __init__(self, kit: AgentKit | None, declared: Declared, on_tool_failure: str) -> None:
        self.kit = kit
        self.on_tool_failure = on_tool_failure
        self._declared = declared
        self._binding = Binding()
        self._has_team = False
        self._members: list[Care] = []
        self._served: list[SagaWorkbench] = []
        self._benches: dict[Path, list[StepWorkbench | SagaWorkbench]] = {}
        self._teams: tuple[str, ...] = ()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let what is called meanwhile be called in the boundary that is open here.

        Raises:
            ConfigurationError: it is a team that runs already.
        """
        with contextlib.ExitStack() as stack:
            for binding in self._bindings() if self._has_team else ():
                stack.enter_context(binding.holding())
            yield  # an agent by itself runs in its caller's context

    def _bindings(self) -> list[Binding]:
        inner = [b for member in self._members for b in member._bindings()]  # noqa: SLF001 - alike
        return [self._binding, *inner]

    def behind(self, agents: Path, name: str) -> object:
        """Return what an agent's tool calls; None if that is not known.

        Args:
            agents: the agent, behind the teams that it is in.
            name: how the log names the tool.
        """
        found = [bench.saga_behind(name) for bench in self._benches.get(agents, ())]
        inner = [member.behind(agents, name) for member in self._members]
        return next((one for one in (*found, *inner) if one is not None), None)

    async def check_served(self) -> None:
        """See that the tools that workbenches keep to themselves are declared.

        Raises:
            UndeclaredTool, ConfigurationError: some are not, or a declaration names none of them.
        """
        for workbench in self._served:
            await workbench.check()

    def check(self, agent: Any) -> None:
        """Refuse what cannot be put under care.

        Raises:
            UndeclaredTool, ConfigurationError: so it is.
        """
        agents = list(_agents_in(agent))
        for one in agents:
            _check_seen(one)
        benches = [bench for one in agents for bench in _workbenches(one)]
        tools = [tool for bench in benches for tool in seams.static_tools(bench) or ()]
        tools = [tool for tool in tools if not isinstance(tool, RUNNERS)]
        if all(seams.static_tools(bench) is not None for bench in benches):
            check_named([tool.name for tool in tools], self._declared)
        each_declared(
            tools, self._declared, self.kit, name=_name_of, wrapped=is_wrapped, behind=seams.behind
        )

    def _declaration(self, name: str) -> Declaration | None:
        return self._declared.get(name) or from_policy(self.kit, name)

    def clone(self, agent: Any) -> Any:
        """Return the clone of an agent or a team."""
        made = self._team(agent) if isinstance(agent, Team) else self._agent(agent)
        vars(made)[_CARE] = self
        return made

    def _team(self, team: Any) -> Any:
        self._has_team = True
        members = [self._member(member) for member in seams.participants(team)]
        own, stops = seams.termination(team), Stopped(self._binding)
        ends = stops if own is None else Ends(own) | stops
        made = seams.with_participants(team, members, ends)
        return team_under_care(made, self._binding)

    def _member(self, member: Any) -> Any:
        if not is_bounded(member):
            with self._inside_of(member):
                return self.clone(member)
        self._members.append(care_of(member))
        self._served += care_of(member)._served  # noqa: SLF001 - alike
        return member

    @contextlib.contextmanager
    def _inside_of(self, member: Any) -> Iterator[None]:
        """Let agents that are cloned meanwhile be told from those of the same name elsewhere."""
        outer = self._teams
        name = str(getattr(member, "name", ""))  # older versions give teams none
        self._teams = (*outer, name) if isinstance(member, Team) else outer
        try:
            yield
        finally:
            self._teams = outer

    def _agent(self, agent: Any) -> Any:
        inner = {name: self._member(one) for name, one in _inner(agent).items()}
        made = seams.changed(agent, **inner)
        if isinstance(agent, AssistantAgent):
            guard = Guard(self._binding, (*self._teams, agent.name))
            benches = [self._workbench(one, guard) for one in seams.workbenches(agent)]
            self._benches[*self._teams, agent.name] = benches
            handoffs = [HandoffTool(tool) for tool in seams.handoffs(agent)]
            made = seams.with_workbenches(agent, benches, handoffs)
            guard.owner = under_care(made, self._binding)
            return guard.owner
        return under_care(made, self._binding, (*self._teams, agent.name))

    def _workbench(self, workbench: Any, guard: Guard) -> StepWorkbench | SagaWorkbench:
        tools = seams.static_tools(workbench)
        if tools is not None:
            made = [self._tool(tool) for tool in tools]
            return StepWorkbench(made, guard, seams.overrides(workbench))
        if not isinstance(workbench, SagaWorkbench):
            workbench = SagaWorkbench(workbench, tools=self._declared, kit=self.kit)
        bound: SagaWorkbench = workbench.of_agent(guard)
        self._served.append(bound)
        return bound

    def _tool(self, tool: BaseTool[Any, Any]) -> BaseTool[Any, Any]:
        if isinstance(tool, RUNNERS):
            made: BaseTool[Any, Any] = self._nested(tool)
            return made
        declaration = self._declaration(tool.name)
        if not is_wrapped(tool) and declaration is not None:
            tool = wrap_as(tool, declaration, self.kit)
        return tool

    def _nested(self, tool: Any) -> Any:
        runner = seams.of(tool, seams.RUNNER)
        care = care_of(runner) if is_bounded(runner) else self._inside()
        clone = runner if is_bounded(runner) else care.clone(runner)
        self._served += care._served  # noqa: SLF001 - alike
        return nested_tool(tool, clone, care)

    def _inside(self) -> Care:
        return Care(self.kit, self._declared, self.on_tool_failure)


def _agents_in(agent: Any) -> Iterator[Any]:
    """Give an agent and those that it leads to, without those that are put under care already."""
    if isinstance(agent, Team):
        inner = seams.participants(agent)
    else:
        yield agent
        inner = list(_inner(agent).values())
        benches = _workbenches(agent)
        tools = [tool for bench in benches for tool in seams.static_tools(bench) or ()]
        inner += [seams.of(tool, seams.RUNNER) for tool in tools if isinstance(tool, RUNNERS)]
    for one in inner:
        if not is_bounded(one):
            yield from _agents_in(one)


def _inner(agent: Any) -> dict[str, Any]:
    """Return the agent or team that an agent runs in its own place, by the name it has there."""
    found = {name: getattr(agent, name, None) for name in seams.INNER}
    return {name: one for name, one in found.items() if isinstance(one, (ChatAgent, Team))}


def waiters_of(agent: Any) -> tuple[Any, ...]:
    """Return the agents whose calls can wait for a human: the one that is run, or its members.

    What other agents remember of a turn is not theirs to keep: an agent that runs a team takes its
    conversation from it when it has ended.
    """
    members = seams.participants(agent) if isinstance(agent, Team) else [agent]
    return tuple(m for m in members if isinstance(m, AssistantAgent) and isinstance(m, SagaAgent))


def _name_of(tool: BaseTool[Any, Any]) -> str:
    return tool.name


def _workbenches(agent: Any) -> list[Any]:
    return seams.workbenches(agent) if isinstance(agent, AssistantAgent) else []


def _check_seen(agent: Any) -> None:
    """Refuse an agent whose calls nobody sees.

    Raises:
        ConfigurationError: so it is.
    """
    foreign = type(agent).__module__.startswith("autogen_ext.")
    runs_code = isinstance(agent, CodeExecutorAgent)
    if runs_code or (foreign and not isinstance(agent, AssistantAgent)):
        raise ConfigurationError(
            f"{agent.name} ({type(agent).__name__}) cannot be wrapped: it does to the world what "
            "it likes, and nothing of agent-saga is called.",
            fix="Use an AssistantAgent with tools that do the same.",
        )
