"""What an agent under care does between the turns of its model: it counts them, waits, or ends.

Rules of this part:

- Nothing of a run that was stopped begins any more: no turn of a model, no other agent of a team.
  An agent that is stopped answers with a `StopMessage`, and a team that it is in ends by its
  termination condition: both can be used again.
- A turn begins with the event by which an agent tells of its model's calls.
- A turn some of whose calls wait for a human is set aside: its model is not told of it, and when
  the run is gone on with, those calls are made, and those alone. Calls that share an id cannot be
  told apart then, so none of them waits.
- A model's call that is cancelled, through the run's token or from inside, does not leave the agent
  as a cancellation, and nothing else does that is no `Exception`: a team whose agent ended with one
  would wait for ever.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from autogen_agentchat.base import Response, TerminationCondition
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    StopMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import CancellationToken

from agent_saga.errors import ConfigurationError, one_line
from agent_saga_autogen import seams
from agent_saga_autogen.binding import Binding
from agent_saga_autogen.calls import Path, Run
from agent_saga_autogen.effects import stop
from agent_saga_autogen.leaving import CallCancelled, Inside, as_exception
from agent_saga_autogen.waiting import set_aside

BINDING = "_saga_binding"
AGENTS = "_saga_agents"
WORKING = "_saga_working"
"""What an agent under care keeps: where it is called, its names, how often it is at work."""


class SagaAgent:
    """An agent whose tools are steps; made by `saga_agent`, together with the agent's class."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Tell no class of the program's of one that is ours."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        """Do what the agent's class does, until the run is stopped."""
        vars(self)[WORKING] += 1
        try:
            async with contextlib.aclosing(self._saga_told(messages, cancellation_token)) as events:
                async for event in events:
                    yield event
        finally:
            vars(self)[WORKING] -= 1

    async def _saga_told(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        name = str(self.name)  # type: ignore[attr-defined]
        binding: Binding = vars(self)[BINDING]
        run, path = binding.run(), (*binding.inside(), name)
        given = super().on_messages_stream(messages, cancellation_token)  # type: ignore[misc]
        events = binding.bound(given, vars(self)[AGENTS])
        if run is None:
            async for event in events:
                yield event
            return
        told: list[BaseAgentEvent | BaseChatMessage] = []
        if await _goes_on(run, path):
            with ending(run, name, cancellation_token) as inside:
                async with contextlib.aclosing(_turns(self, events, run, path)) as turns:
                    async for event in turns:
                        inside.gives()
                        yield event
                        inside.goes_on()
                        if isinstance(event, Response):
                            return
                        told.append(event)
        yield Response(chat_message=stopped(run, name), inner_messages=told)


async def _turns(agent: Any, events: Any, run: Run, path: Path) -> AsyncGenerator[Any, None]:
    """Give what an agent tells, until its run is stopped, or its turn waits."""
    turn = _Turn(path[-1])
    async with contextlib.aclosing(events):
        async for event in events:
            begins, ends = turn.begins(event), turn.ends(event)
            if begins:
                run.counts.turn(path)
                run.repeated[path[0]] = turn.repeated
            yield event
            if begins and run.stop is not None:
                return
            if ends and any(one is agent for one in run.waiters) and path[0] in run.waiting:
                await set_aside(agent, run, turn.calls, event.content)
                return
            if ends and not await _goes_on(run, path, begins=False):
                return


class _Turn:
    """Tells an agent's own turns from those of agents that are its tools, whose events it gives on.

    Args:
        name: the agent's.

    Attributes:
        calls: those of the turn that has begun, or began last.
    """

    def __init__(self, name: str) -> None:
        self.calls: list[Any] = []
        self._name = name
        self._open = False

    @property
    def repeated(self) -> frozenset[str]:
        """The ids that several calls of the turn have."""
        times = Counter(call.id for call in self.calls)
        return frozenset(one for one, number in times.items() if number > 1)

    def begins(self, event: Any) -> bool:
        """Say whether a turn of the agent begins."""
        own = isinstance(event, ToolCallRequestEvent) and event.source == self._name
        if not own or self._open:
            return False
        self.calls, self._open = list(event.content), True
        return True

    def ends(self, event: Any) -> bool:
        """Say whether the turn ends that has begun."""
        own = isinstance(event, ToolCallExecutionEvent) and event.source == self._name
        if not own or [r.call_id for r in event.content] != [c.id for c in self.calls]:
            return False
        self._open = False
        return True


@contextlib.contextmanager
def ending(
    run: Run | None, name: str, token: CancellationToken | None, *, tells: bool = False
) -> Iterator[Inside]:
    """Note in a run how an agent or a team of it ended; one that its token cancelled has ended.

    Args:
        run: the run; None where there is none.
        name: whose end it is.
        token: what cancels it.
        tells: it is a team, which tells of an agent's error in words alone.

    Raises:
        CallCancelled: it was cancelled from inside.
        CallLeft: it raised what is no `Exception`.
    """
    inside = Inside()
    try:
        yield inside
    except BaseException as error:
        if run is None or not inside.raised(error):
            raise
        lost = as_exception(error, name)
        if isinstance(lost, CallCancelled) and token is not None and token.is_cancelled():
            stop(run, lost)
            return
        if lost is not error:
            run.raised = lost
            raise lost from error
        if not tells and original(run, error) is error:
            run.raised = lost
        raise


def original(run: Run, error: Exception) -> Exception:
    """Return what an agent raised, where a team tells of it in words alone; else the error."""
    raised = run.raised
    if raised is None or not isinstance(error, RuntimeError):
        return error
    return raised if f"{type(raised).__name__}: {raised}" in str(error) else error


async def _goes_on(run: Run, path: Path, *, begins: bool = True) -> bool:
    """Say whether another turn may begin; wait until the program has taken what was before.

    Args:
        run: the run.
        path: the agent's.
        begins: it is the agent's first; such a one does not begin while the run waits, unless the
            agent is inside a call, which comes to its end.
    """
    if run.stop is None and run.before_turn is not None:
        await run.before_turn()
    return run.stop is None and not (begins and run.waiting and len(path) == 1)


def stopped(run: Run, source: str) -> StopMessage:
    """Return the last words of an agent or a team whose run was stopped, or waits."""
    if run.stop is not None:
        return StopMessage(content=f"The run was stopped: {one_line(run.stop)}", source=source)
    return StopMessage(content="The run waits for a human.", source=source)


class Stopped(TerminationCondition):
    """Ends a team whose run was stopped, or waits.

    Args:
        binding: the team's.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    @property
    def terminated(self) -> bool:
        """Whether the condition was reached; it is asked anew each time."""
        return False

    async def __call__(
        self, messages: Sequence[BaseAgentEvent | BaseChatMessage]
    ) -> StopMessage | None:
        """Return why the team ends, or None."""
        run = self._binding.run()
        waits = run is not None and bool(run.waiting) and not self._binding.inside()
        if run is None or not (run.stop or waits):
            return None
        return stopped(run, "agent_saga")

    async def reset(self) -> None:
        """Do nothing: another run has its own reasons."""

    def _to_config(self) -> Any:
        raise ConfigurationError(
            "A team of saga_agent cannot be dumped: loaded again, its calls would be no steps.",
            fix="Dump the team that it was made from.",
        )


def under_care(agent: Any, binding: Binding, agents: Path = ()) -> Any:
    """Return an agent with the same contents that counts its turns.

    Args:
        agent: the agent.
        binding: where it is called.
        agents: by what name its calls are known, if no workbench tells that.
    """
    more = {BINDING: binding, AGENTS: agents, WORKING: 0}
    return seams.made_as(agent, seams.class_of(SagaAgent, type(agent)), more)
