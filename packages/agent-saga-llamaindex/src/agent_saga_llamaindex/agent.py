"""`saga_agent`: a clone of an agent, or of a workflow of agents, whose tools are steps.

Rules of this part:

- The agent that was given stays as it is. The clone is of a subclass of its class.
- Every tool must be declared; one error names all that are not. Different tools of one name are
  refused. Tools that a retriever finds while
  the agent runs are wrapped when they are found, and refused if nobody declared them.
- A tool that is no `FunctionTool` cannot be wrapped: it is refused, unless it is declared to be a
  read. So is an agent that runs code of its model.
- The handoff of an `AgentWorkflow` changes nothing but the workflow's own state, and is no step.
"""

from __future__ import annotations

import copy
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent, CodeActAgent
from llama_index.core.tools import BaseTool

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
from agent_saga.kit.frameworks.declared import check_named
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.asking import APPROVALS
from agent_saga_llamaindex.steps import SagaWorkflow, seen_class
from agent_saga_llamaindex.tools import behind, is_wrapped, name_of, wrap_as

_CARE = "_saga_care"


def saga_agent(
    agent: Any,
    kit: AgentKit | None = None,
    *,
    tools: Declarations | None = None,
    on_tool_failure: str = "continue",
) -> Any:
    """Return a clone of an agent, to be run by `saga_run`, each of whose tool calls is a step.

    Args:
        agent: a `FunctionAgent`, a `ReActAgent`, an agent of a class of your own, or an
            `AgentWorkflow` of several.
        kit: whose boundaries its runs are; the process's defaults when not given.
        tools: a declaration for every tool, by name; tools that are wrapped already need none.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
        ConfigurationError: it is no agent, a declaration names no tool of it, a tool cannot be
            wrapped, or there is nobody to ask.

    Without a boundary its tools are refused, unless they are reads: run it with `saga_run`.
    """
    check_policy(kit, on_tool_failure, APPROVALS)
    if not isinstance(agent, (BaseWorkflowAgent, AgentWorkflow)):
        raise ConfigurationError(
            f"saga_agent takes an agent of LlamaIndex, not {type(agent).__name__}.",
            fix="A workflow of your own has no list of tools: make the functions that its steps "
            "call saga_tools, or wrap them with kit.tool, and run it with saga_run.",
        )
    if is_bounded(agent):
        raise ConfigurationError("The tools of this agent are steps already.")
    care = Care(kit, checked(tools or {}), on_tool_failure)
    care.check(agent)
    return care.clone(agent)


def is_bounded(agent: object) -> bool:
    """Say whether an agent was made by `saga_agent`."""
    return isinstance(agent, SagaAgent)


def care_of(agent: Any) -> Care:
    """Return how an agent of `saga_agent` is put under care."""
    found: Care = vars(agent)[_CARE]
    return found


class SagaAgent(SagaWorkflow):
    """An agent whose tools are steps; made by `saga_agent`, together with the agent's class."""

    async def get_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the agent's tools, those that were found for this turn as steps, too.

        Raises:
            UndeclaredTool: nothing says what some of them do to the world.
        """
        found = await super().get_tools(*args, **kwargs)  # type: ignore[misc]
        return care_of(self).wrapped(found)


class Care:
    """How an agent, or several in one workflow, are put under care.

    Args:
        kit: whose boundaries the runs are.
        declared: a declaration for each tool, by name.
        on_tool_failure: what a tool failure means to a run.
    """

    def __init__(self, kit: AgentKit | None, declared: Declared, on_tool_failure: str) -> None:
        self.kit = kit
        self.on_tool_failure = on_tool_failure
        self._declared = declared
        self._found: dict[int, tuple[BaseTool, BaseTool]] = {}

    def check(self, agent: Any) -> None:
        """Refuse what cannot be put under care.

        Raises:
            UndeclaredTool, ConfigurationError: so it is.
        """
        agents = _agents_in(agent)
        for one in agents:
            if isinstance(one, CodeActAgent):
                raise ConfigurationError(
                    f"{one.name} cannot be wrapped: the code that its model writes does to the "
                    "world what it likes, and nothing of agent-saga is called.",
                    fix="Use a FunctionAgent or a ReActAgent with tools.",
                )
        tools = [tool for one in agents for tool in one.tools or ()]
        if not any(one.tool_retriever is not None for one in agents):
            check_named(map(name_of, tools), self._declared)
        self._check_declared(tools)

    def _check_declared(self, tools: list[Any]) -> None:
        unknown = [t for t in tools if not is_wrapped(t) and self._declaration(name_of(t)) is None]
        missing = [name_of(tool) for tool in unknown if name_of(tool) != seams.HANDOFF]
        if missing:
            raise undeclared(list(dict.fromkeys(missing)))
        for tool in tools:
            if not is_wrapped(tool) and name_of(tool) != seams.HANDOFF:
                self._declared.check_meant(name_of(tool), tool, behind=behind)

    def _declaration(self, name: str) -> Declaration | None:
        return self._declared.get(name) or from_policy(self.kit, name)

    def clone(self, agent: Any) -> Any:
        """Return the clone of an agent, or of a workflow of agents."""
        made = copy.copy(agent)
        object.__setattr__(made, "__class__", seen_class(type(agent), SagaAgent))
        vars(made)[_CARE] = self
        if isinstance(agent, AgentWorkflow):
            made.agents = {name: self.clone(one) for name, one in agent.agents.items()}
        elif agent.tools is not None:
            made.tools = [self._wrapped(tool) for tool in agent.tools]
        return made

    def wrapped(self, tools: Any) -> list[BaseTool]:
        """Return the tools of a turn, as steps.

        Raises:
            UndeclaredTool: some have no declaration.
        """
        self._check_declared(list(tools))
        return [self._wrapped(tool) for tool in tools]

    def _wrapped(self, tool: Any) -> BaseTool:
        declaration = self._declaration(name_of(tool))
        if is_wrapped(tool) or declaration is None:
            return tool  # type: ignore[no-any-return]
        kept = self._found.get(id(tool))
        if kept is None:
            kept = self._found[id(tool)] = (tool, wrap_as(tool, declaration, self.kit))
        return kept[1]


def _agents_in(agent: Any) -> list[Any]:
    return list(agent.agents.values()) if isinstance(agent, AgentWorkflow) else [agent]
