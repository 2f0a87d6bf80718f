"""An agent that is a tool: its run is a savepoint of the run that calls it.

Rules of this part:

- When its run fails, what it did is undone, and then the framework tells the outer model.
- Where a tool failure undoes a run, so does this one. And so does the failure of a run that was
  gone on with: what it did before it waited is no longer a savepoint, and would stand.
- What leaves a run leaves the outer one, too; a run that waits leaves its savepoint open.
"""

from __future__ import annotations

from typing import Any

from agents import FunctionTool

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import ConfigurationError, SagaAborted
from agent_saga.kit.scopes import saga_scope
from agent_saga_openai_agents import seams
from agent_saga_openai_agents.attempts import attempts_of
from agent_saga_openai_agents.calls import Call, calling, running
from agent_saga_openai_agents.effects import RunLeft
from agent_saga_openai_agents.invoking import Invoker


def nested_tool(tool: FunctionTool, agent: Any, clone: Any) -> FunctionTool:
    """Return a copy of an agent's tool that runs the agent's clone, as a savepoint.

    Args:
        tool: what `agent.as_tool(…)` made.
        agent: the agent that it runs.
        clone: the one to run instead.

    Raises:
        ConfigurationError: this version of the framework does not let the agent be replaced.
    """
    invoker: Any = tool.on_invoke_tool
    function = seams.implementation(invoker)
    if function is not None and clone is not agent:
        function = seams.running_instead(function, agent, clone)
    if function is None:
        raise ConfigurationError(
            f"The agent behind the tool {tool.name} cannot be replaced in this version of the SDK.",
            fix=f"Make it a saga_agent first: saga_agent({agent.name}, kit, tools=…).as_tool(…).",
        )
    run = function

    async def savepoint(ctx: Any, text: str) -> Any:
        call = calling.get()
        if current_scope.get() is None or call is None:
            return await run(ctx, text)
        return await _in_savepoint(tool.name, call, run, ctx, text)

    made = seams.copied(tool, on_invoke_tool=seams.with_implementation(invoker, savepoint))
    made._agent_instance = clone  # noqa: SLF001 - see `seams`
    return seams.copied(made, on_invoke_tool=Invoker(made.on_invoke_tool, tool.name))


async def _in_savepoint(
    name: str, call: Call, run: seams.Implementation, ctx: Any, text: str
) -> Any:
    outer, state = current_scope.get(), running.get()
    again = outer is not None and attempts_of(outer.saga).began_inside(outer.saga, call.inside)
    rolls_back = state is not None and state.on_tool_failure == "rollback"
    try:
        async with saga_scope(name=name):
            try:
                return await run(ctx, text)
            except RunLeft as left:
                call.left = left
                raise left.cause  # noqa: B904 - as it was raised first
    except SagaAborted as aborted:
        cause = aborted.cause
        if call.left is None and (again or rolls_back) and isinstance(cause, Exception):
            call.left = RunLeft(cause)
        raise
