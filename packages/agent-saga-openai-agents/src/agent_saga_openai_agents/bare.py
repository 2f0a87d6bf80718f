"""Runs of the plain `Runner` inside a boundary: a tool of theirs that is no step does not run.

Rules of this part:

- A program, or the body of a tool, may run an agent by `Runner.run`, which knows of no boundary. So
  the framework's default runner is replaced by one that listens, inside a boundary, to the tools
  of such runs. Outside boundaries, and for an agent that is under care, it changes nothing.
- A call of a tool that is no step is refused before it is made; see `agent_saga.kit.frameworks`.
  An agent that is a tool may be called: its own run is listened to.
- A runner of the program's own is the one that runs; one that it sets later is not listened to.
"""

from __future__ import annotations

from typing import Any

from agents import RunHooks

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import UndeclaredTool
from agent_saga.kit.frameworks.unseen import is_covered, may_run, refusal
from agent_saga_openai_agents import seams
from agent_saga_openai_agents.effects import RunLeft
from agent_saga_openai_agents.invoking import Invoker


class _Refused(RunLeft):
    """A tool of a plain run is no step."""


class _Hooks(RunHooks[Any]):
    """The hooks of a run, which also refuse calls of tools that are no steps.

    Args:
        own: those that the caller has given.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_") and name != "on_tool_start":
            return getattr(super().__getattribute__("_own"), name)
        return super().__getattribute__(name)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Refuse a call before it is made, or tell the caller's hooks of it.

        Raises:
            RunLeft: nobody declared the tool.
        """
        scope = current_scope.get()
        if scope is not None and not (_is_seen(agent, tool) or is_covered(scope)):
            kit: Any = scope.saga.kit
            if not may_run(kit, tool.name):
                raise _Refused(_undeclared(tool.name))
        await self._own.on_tool_start(context, agent, tool)


def _is_seen(agent: Any, tool: Any) -> bool:
    """Say whether a tool is a step, or is seen in another way: by its own run, or its agent."""
    is_step = isinstance(getattr(tool, "on_invoke_tool", None), Invoker)
    return is_step or seams.agent_behind(tool) is not None or hasattr(agent, "saga_care")


def _undeclared(name: str) -> UndeclaredTool:
    return refusal(
        name,
        f"Put the agent under care: saga_agent(agent, kit, tools={{{name!r}: compensable(…)}}), "
        f"and run it with saga_run; or make the tool a step: wrap_tool({name}, …).",
    )


class Listening:
    """The framework's default runner, whose runs inside a boundary are listened to.

    Args:
        own: the runner that runs.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002
        """Run an agent as the framework does.

        Raises:
            UndeclaredTool: the run called a tool that is no step.
        """
        try:
            return await self._own.run(starting_agent, input, **_heard(options))
        except _Refused as refused:
            raise refused.cause from None

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002
        """Run an agent where no event loop runs; errors as for `run`."""
        try:
            return self._own.run_sync(starting_agent, input, **_heard(options))
        except _Refused as refused:
            raise refused.cause from None

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002
        """Stream a run of an agent."""
        return self._own.run_streamed(starting_agent, input, **_heard(options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_own"], name)


def _heard(options: dict[str, Any]) -> dict[str, Any]:
    """Return a run's options, with hooks that listen where nobody else does."""
    if current_scope.get() is None:
        return options
    own = options.get("hooks")
    return {**options, "hooks": _Hooks(RunHooks() if own is None else own)}


def listen() -> None:
    """Have plain runs listened to from here on; done once."""
    seams.put_round_the_runner(Listening)
