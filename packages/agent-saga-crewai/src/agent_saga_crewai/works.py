"""What CrewAI can run, and how: a crew, an agent by itself, a flow.

Rules of this part:

- A crew and an agent begin from their inputs; after a crash or a wait they begin again.
- A flow has an id of its own. After a human's feedback it goes on behind the method that asked;
  after anything else it begins again with its id.
- A checkpoint of CrewAI's own is not restored inside a boundary: what the run remembers then may no
  longer be true. A key does what it is for.
- What streams is run by `saga_stream` alone: it would return before it has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crewai import Agent, Crew
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.declarations import Declarations, from_policy, undeclared
from agent_saga_crewai.gate import agents_of
from agent_saga_crewai.models import watched
from agent_saga_crewai.tools import is_wrapped


class Work:
    """Something that CrewAI runs, with what it is given.

    Args:
        agent: a crew, an agent, or a flow, whose runs are no boundaries.
        inputs: what it is run with.
        feedback: a human's, with which a flow goes on; None begins it.
        options: further options of the framework's method.
    """

    def __init__(
        self, agent: Any, inputs: Any, feedback: str | None, options: Mapping[str, Any]
    ) -> None:
        if not isinstance(agent, (Agent, Crew, Flow)):
            raise ConfigurationError(
                f"A run is of a Crew, an Agent or a Flow, not {type(agent).__name__}."
            )
        if isinstance(agent, Agent) and inputs is None:
            raise ConfigurationError("An agent by itself is run with a message.")
        _check_begins(options)
        self.agent: Any = agent
        self.inputs = inputs
        self.feedback = feedback
        self.options = dict(options)
        self._task = ""

    def replaying(self, task: str) -> Work:
        """Run the crew again from a task on, rather than from its beginning."""
        self._task = task
        return self

    @property
    def is_flow(self) -> bool:
        """Whether it is a flow."""
        return isinstance(self.agent, Flow)

    @property
    def goes_on(self) -> bool:
        """Whether it goes on behind what it did, rather than beginning again."""
        return self.feedback is not None

    @property
    def answers(self) -> str:
        """Which asking for feedback it goes on from; empty if it begins."""
        return asked_at(self.agent.pending_feedback) if self.goes_on else ""

    @property
    def streams(self) -> bool:
        """Whether the framework would return before it has run."""
        return not isinstance(self.agent, Agent) and bool(self.agent.stream)

    @property
    def own_id(self) -> str:
        """The id that the framework knows the run by; empty where it knows none."""
        if not self.is_flow or not self.can_pause:
            return ""
        given = self.inputs.get("id") if isinstance(self.inputs, Mapping) else None
        return str(given or self.agent.flow_id)

    @property
    def can_pause(self) -> bool:
        """Whether a flow may be gone on with: it keeps its state, or asks humans.

        The framework keeps what the decorators said under a name of its own, which is not promised.
        Without it a flow counts as one that can be gone on with.
        """
        if self.agent.persistence is not None:
            return True
        known = getattr(self.agent, "_definition", None)
        methods = getattr(known, "methods", None)
        if not isinstance(methods, Mapping):
            return True
        persisted = getattr(known, "persist", None) is not None
        return persisted or any(
            getattr(one, name, None) is not None
            for one in methods.values()
            for name in ("human_feedback", "persist")
        )

    def prepare(self, declared: Declarations, kit: AgentKit | None) -> None:
        """Watch the models, and look whether all tools are declared.

        Raises:
            UndeclaredTool: some are not; the error names all of them.
        """
        agents = agents_of(self.agent) if isinstance(self.agent, Crew) else []
        agents += [self.agent] if isinstance(self.agent, Agent) else []
        for agent in agents:
            watched(agent)
        missing = [
            tool.name
            for tool in tools_of(self.agent)
            if not is_wrapped(tool)
            and tool.name not in declared
            and from_policy(kit, tool.name) is None
        ]
        if missing:
            raise undeclared(list(dict.fromkeys(missing)))

    def start(self) -> Any:
        """Run it, blocking."""
        if self.feedback is not None:
            return self.agent.resume(self.feedback)
        if self._task:
            return self.agent.replay(self._task, self.inputs)
        return self.agent.kickoff(self.inputs, **self.options)

    async def start_async(self, how: str = "akickoff") -> Any:
        """Run it on the event loop.

        Args:
            how: the framework's method.
        """
        if self.feedback is not None:
            return await self.agent.resume_async(self.feedback)
        method = "kickoff_async" if isinstance(self.agent, Agent) else how
        return await getattr(self.agent, method)(self.inputs, **self.options)


def _check_begins(options: Mapping[str, Any]) -> None:
    """Refuse a run that CrewAI would restore from a checkpoint of its own.

    Raises:
        ConfigurationError: so it would.
    """
    if getattr(options.get("from_checkpoint"), "restore_from", None) is not None:
        raise ConfigurationError(
            "A run that CrewAI restores from a checkpoint remembers effects that no saga can "
            "vouch for: they may have been undone.",
            fix="Run it under a key: after a crash it is gone on with, and repeats no effect.",
        )


def waits(result: Any) -> bool:
    """Say whether what a run returned says that it waits for a human's feedback."""
    return isinstance(result, HumanFeedbackPending)


def asked_at(context: Any) -> str:
    """Return what tells one asking for feedback from another one of the same flow."""
    return str(context.requested_at.isoformat())


def tools_of(agent: Any) -> list[Any]:
    """Return the tools of a crew or an agent, as far as they are known before it runs."""
    if isinstance(agent, Agent):
        return list(agent.tools or ())
    if not isinstance(agent, Crew):
        return []
    found = [tool for one in agents_of(agent) for tool in one.tools or ()]
    return [*found, *[tool for task in agent.tasks for tool in task.tools or ()]]
