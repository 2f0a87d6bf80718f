"""`saga_agent`: the same crew, agent or flow, each run a boundary.

Rules of this part:

- The tools of a crew's agents and tasks are replaced by wrapped ones: the crew that was given has
  them too. A flow calls tools in its own code: make those with `saga_tool` or `wrap_tool`.
- Every tool must be declared; one error names all that are not. Different tools of one name are
  refused, also one that reaches an agent only while it runs.
- What comes back is of a subclass of the given one's class, and shares its state: whatever else it
  can do it still does, and copies of a crew are boundaries, too. So each run of `kickoff_for_each`
  is a saga of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from crewai import Agent, Crew
from crewai.flow.flow import Flow

from agent_saga.engine.loops import loop_is_running
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.declarations import Declaration, Declarations, Declared, checked
from agent_saga_crewai.gate import agents_of
from agent_saga_crewai.models import sharing
from agent_saga_crewai.plans import Asked
from agent_saga_crewai.running import run_async, run_blocking, work_of
from agent_saga_crewai.tools import wrapped_all

_OPTIONS: Final = "_agent_saga_options"
_OURS: Final = ("key", "on_tool_failure", "resume")


def saga_agent(
    agent: Any,
    kit: AgentKit | None = None,
    *,
    tools: Declarations | None = None,
    on_tool_failure: str = "continue",
) -> Any:
    """Return the same crew, agent or flow, each of whose runs is a boundary.

    Args:
        agent: a `Crew`, an `Agent` or a `Flow`.
        kit: whose boundaries they are; the process's defaults when not given.
        tools: a declaration for every tool of the agents and tasks, by name, and for those that
            reach them only while they run, as from MCP servers; tools that are wrapped already need
            none.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
        ConfigurationError: it is nothing that CrewAI runs, different tools have one name, or there
            is nobody to ask.

    The tools are replaced in the crew that is given: without a boundary it warns once for each of
    them, and refuses those that are IRREVERSIBLE.
    """
    Asked(kit, on_tool_failure=on_tool_failure).check()
    if not isinstance(agent, (Agent, Crew, Flow)):
        raise ConfigurationError(
            f"saga_agent takes a Crew, an Agent or a Flow, not {type(agent).__name__}."
        )
    if isinstance(agent, SagaAgent):
        raise ConfigurationError("The runs are boundaries already.")
    declared = checked(tools or {})
    owners: list[Any] = [agent] if isinstance(agent, Agent) else []
    if isinstance(agent, Crew):
        owners = [*agents_of(agent), *agent.tasks]
    _wrap_all(owners, declared, kit)
    return _bounded(agent, {"kit": kit, "tools": declared, "on_tool_failure": on_tool_failure})


def _wrap_all(owners: list[Any], declared: Declared, kit: AgentKit | None) -> None:
    given = [tool for owner in owners for tool in owner.tools or ()]
    wrapped = {
        id(tool): copy for tool, copy in zip(given, wrapped_all(given, declared, kit), strict=True)
    }
    for tool in given:
        wrapped[id(wrapped[id(tool)])] = wrapped[id(tool)]
    for owner in owners:
        if owner.tools:
            owner.tools = [wrapped[id(tool)] for tool in owner.tools]


class SagaAgent:
    """A crew, an agent or a flow whose runs are boundaries; made by `saga_agent`."""

    @property
    def saga_plain(self) -> Any:
        """The same as it was given, whose runs are no boundaries."""
        return sharing(self, _base_of(type(self)))

    @property
    def saga_kit(self) -> AgentKit | None:
        """The kit whose boundaries its runs are."""
        return self._saga_options["kit"]  # type: ignore[no-any-return]

    @property
    def saga_tools(self) -> Mapping[str, Declaration]:
        """What its tools were declared to be."""
        return self._saga_options["tools"]  # type: ignore[no-any-return]

    @property
    def _saga_options(self) -> dict[str, Any]:
        return self.__dict__[_OPTIONS]  # type: ignore[no-any-return]

    def kickoff(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as `saga_run_sync` does; `key`, `resume` and `on_tool_failure` may be given.

        An agent by itself gives a coroutine where an event loop is running, as the framework's own
        does; so a method of a flow need not know.
        """
        if _streams(self):
            return _base_of(type(self)).kickoff(self, *args, **kwargs)
        if isinstance(self, Agent) and loop_is_running():
            return self.kickoff_async(*args, **kwargs)
        return run_blocking(*self._asked(args, kwargs))

    async def kickoff_async(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as `saga_run` does, in the framework's thread."""
        if _streams(self):
            return await _base_of(type(self)).kickoff_async(self, *args, **kwargs)
        return await run_async(*self._asked(args, kwargs), "kickoff_async")

    async def akickoff(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as `saga_run` does."""
        if _streams(self):
            return await _base_of(type(self)).akickoff(self, *args, **kwargs)
        return await run_async(*self._asked(args, kwargs), "akickoff")

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Asked]:
        options = self._saga_options
        given = {"on_tool_failure": options["on_tool_failure"], **kwargs}
        ours = {name: given.pop(name) for name in _OURS if name in given}
        asked = Asked(options["kit"], declared=options["tools"], **ours)
        inputs = args[0] if args else given.pop("messages", given.pop("inputs", None))
        if len(args) > 1:
            raise ConfigurationError("Give further arguments by name.")
        return work_of(self, inputs, asked.resume, given), asked


class SagaCrew(SagaAgent):
    """A crew whose runs are boundaries."""

    def copy(self) -> Any:
        """Return a copy of the crew, whose runs are boundaries, too."""
        return _bounded(_base_of(type(self)).copy(self), self._saga_options)

    def replay(self, task_id: str, inputs: dict[str, Any] | None = None) -> Any:
        """Run it again from a task on, as a boundary of its own."""
        work, asked = self._asked((inputs,), {})
        return run_blocking(work.replaying(task_id), asked)


class SagaFlow(SagaAgent):
    """A flow whose runs are boundaries."""

    def resume(self, feedback: str = "") -> Any:
        """Go on after a human's feedback, as `saga_run_sync` does."""
        return run_blocking(*self._asked((), {"resume": feedback}))

    async def resume_async(self, feedback: str = "") -> Any:
        """Go on after a human's feedback, as `saga_run` does."""
        return await run_async(*self._asked((), {"resume": feedback}))


def _streams(agent: Any) -> bool:
    return not isinstance(agent, Agent) and bool(agent.stream)


_classes: dict[type[Any], type[Any]] = {}


def _class_of(base: type[Any]) -> type[Any]:
    found = _classes.get(base)
    if found is None:
        body = {name: getattr(base, name) for name in ("__doc__", "__module__", "__qualname__")}
        kind = SagaFlow if issubclass(base, Flow) else SagaCrew if issubclass(base, Crew) else None
        made: Any = type(base)  # the framework's own metaclass
        found = _classes.setdefault(base, made(base.__name__, (kind or SagaAgent, base), body))
    return found


def _base_of(cls: type[Any]) -> type[Any]:
    return next(base for base in cls.__mro__ if not issubclass(base, SagaAgent))


def _bounded(agent: Any, options: dict[str, Any]) -> Any:
    bounded = sharing(agent, _class_of(type(agent)))
    agent.__dict__[_OPTIONS] = options
    return bounded
