"""Turns that wait for a human: what is set aside of them, and how they are gone on with.

Rules of this part:

- What the calls of a waiting turn were told is taken out of the model's context, so that what the
  agent remembers ends with calls that nobody has answered.
- Gone on with, only the calls that waited are made; the results of those beside them are kept with
  the agent's state. The model is then told of all of them, in the order of its calls.
- A turn that still waits stays set aside. It hands over to no other agent: its model is told so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResult, FunctionExecutionResultMessage
from pydantic import ValidationError

from agent_saga.errors import ConfigurationError
from agent_saga_autogen import seams
from agent_saga_autogen.calls import Run

_RESULTS = "FunctionExecutionResultMessage"


class Turn(NamedTuple):
    """A turn of a model that waits.

    Attributes:
        calls: the calls that the model made.
        results: those of the calls that do not wait.
    """

    calls: list[FunctionCall]
    results: list[FunctionExecutionResult]

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.calls]
        return {"calls": calls, "results": [result.model_dump() for result in self.results]}

    def left(self) -> list[FunctionCall]:
        """Return the calls that have no result yet."""
        known = {result.call_id for result in self.results}
        return [call for call in self.calls if call.id not in known]

    def without(self, waiting: Container[str], results: Sequence[FunctionExecutionResult]) -> Turn:
        """Return it with the results of those calls that no longer wait."""
        return Turn(self.calls, [one for one in results if one.call_id not in waiting])


def turns_of(plain: object) -> dict[str, Turn]:
    """Return turns by their agents' names.

    Raises:
        ConfigurationError: they are none.
    """
    try:
        return {
            str(name): Turn(
                [FunctionCall(**call) for call in turn["calls"]],
                [FunctionExecutionResult.model_validate(one) for one in turn["results"]],
            )
            for name, turn in dict(plain).items()  # type: ignore[call-overload]
        }
    except (AttributeError, KeyError, TypeError, ValidationError, ValueError) as error:
        raise ConfigurationError(
            "The state is none that a waiting run has returned.",
            fix="Give saga_run the `state` of what it returned, as it was.",
        ) from error


async def set_aside(
    agent: Any,
    run: Run,
    calls: Sequence[FunctionCall],
    results: Sequence[FunctionExecutionResult],
) -> None:
    """Set an agent's turn aside; its model is not told of the results.

    Raises:
        ConfigurationError: the model's context does not show what it remembers.
    """
    name, context = str(agent.name), agent.model_context
    tools = [one for bench in seams.workbenches(agent) for one in await bench.list_tools()]
    known = {str(tool["name"]) for tool in tools}
    carried_out = [result for result in results if result.name in known]
    run.aside[name] = Turn(list(calls), []).without(run.waiting[name], carried_out)
    state: Mapping[str, Any] = await context.save_state()
    messages = list(state.get("messages") or ())
    if not messages or dict(messages[-1]).get("type") != _RESULTS:
        raise ConfigurationError(
            f"{name} cannot wait: its {type(context).__name__} does not show what it remembers.",
            fix="Use a model context of AutoGen, or an approval provider that returns its answer.",
        )
    await context.load_state({**state, "messages": messages[:-1]})


async def answered(
    agents: Sequence[Any], turns: Mapping[str, Turn], run: Run, token: CancellationToken
) -> list[ToolCallExecutionEvent]:
    """Make the calls that waited, and tell the models; return what they were told.

    Args:
        agents: those whose calls can wait.
        turns: what was set aside, by the agents' names.
        run: the run that goes on; what waits again is noted in it.
        token: cancels the calls.

    """
    told: list[ToolCallExecutionEvent] = []
    known = {str(agent.name): agent for agent in agents}
    for name, turn in turns.items():
        results = await _results(known[name], turn, token)
        if name in run.waiting:
            run.aside[name] = turn.without(run.waiting[name], results)
        elif run.stop is None:
            message = FunctionExecutionResultMessage(content=results)
            await known[name].model_context.add_message(message)
            told.append(ToolCallExecutionEvent(content=results, source=name))
    return told


async def _results(
    agent: Any, turn: Turn, token: CancellationToken
) -> list[FunctionExecutionResult]:
    known = {result.call_id: result for result in turn.results}
    made = await asyncio.gather(*[_made(agent, call, token) for call in turn.left()])
    known.update({result.call_id: result for result in made})
    return [known[call.id] for call in turn.calls]


async def _made(
    agent: Any, call: FunctionCall, token: CancellationToken
) -> FunctionExecutionResult:
    for workbench in seams.workbenches(agent):
        if any(str(tool["name"]) == call.name for tool in await workbench.list_tools()):
            result = await workbench.call_tool(
                call.name, json.loads(call.arguments), token, call_id=call.id
            )
            text, is_error = result.to_text(), result.is_error
            break
    else:
        text, is_error = f"{call.name} was not carried out, since the run waited; call it.", True
    return FunctionExecutionResult(content=text, name=call.name, call_id=call.id, is_error=is_error)
