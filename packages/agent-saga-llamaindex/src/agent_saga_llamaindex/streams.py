"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first event to the last, and the program that takes
  the events is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns. One that is closed where the run waits is suspended.
- What the program tells the run when it is asked something, before it asks for the next event, is
  an answer, and the run goes on; else the run waits, and is suspended.
- An agent's model is asked again only when every event before was taken: an agent does not hurry
  ahead of the program that watches it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from workflows.events import InputRequiredEvent
from workflows.handler import WorkflowHandler

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks import streams
from agent_saga.kit.frameworks.streams import Seat, one_by_one, streamed
from agent_saga_llamaindex.running import Started
from agent_saga_llamaindex.waiting import followed

_LOOK = 0.005
_SETTLES = 30.0
"""Seconds after which a run that is left at a question, and comes to no rest, is cancelled."""


class SagaStream(streams.SagaStream):
    """A streamed run; iterate over it for the framework's events.

    Attributes:
        result: the framework's result, or `Waiting`; None before the run has ended well.
    """

    _seat: _Seat

    async def send_event(self, event: Any) -> None:
        """Tell the run something, when it has asked and before the next event is asked for.

        Args:
            event: an event, or `approve(by="…")` or `deny(by="…")`.

        Raises:
            ConfigurationError: nothing is going on, or nothing of the kind waits.
        """
        await self._seat.tell(event)


def saga_stream(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> SagaStream:
    """Stream a run of an agent or a workflow as one transaction; iterate over what it returns.

    Args:
        agent: as for `saga_run`.
        user_msg: what the agent is told; for a workflow, its start event, if it has one.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga.
        on_tool_failure: "continue", "rollback" or "ask"; the agent's when not given.
        options: further options of its `run`.

    Raises:
        SagaAborted: while it is iterated: the run failed and was undone.
    """
    seat = _Seat()

    async def run() -> None:
        started = Started(agent, user_msg, kit, key, on_tool_failure, options)
        await seat.follow(started)

    return SagaStream(streamed(run, seat), seat)


class _Seat(Seat):
    """A seat whose program may answer what the run asks, and may leave it where it waits."""

    def __init__(self) -> None:
        super().__init__()
        self._started: Started | None = None
        self._is_left = False
        self._goes_on = False
        self._last: Any = None

    async def follow(self, started: Started) -> None:
        """Carry a run out, and give each of its events."""
        self._started = started
        started.before_turn = self.caught_up

        async def following(handler: WorkflowHandler) -> Any:
            watch, goes_on = started.watch, started.goes_on
            return await followed(handler, watch, self.give, self._awaited, goes_on=goes_on)

        self.result = await started.carry_out(following)

    async def _awaited(self, event: Any) -> Any:
        """Await the framework's next event; meanwhile the program has all that were before."""
        self._starving.set()
        try:
            return await event
        finally:
            self._starving.clear()

    async def give(self, item: Any) -> None:
        """Give an event, and wait until the next one is asked for."""
        if not self._is_left:
            self._last = item
            await super().give(item)

    async def caught_up(self) -> None:
        """Wait until the program has taken every event and asks for another one."""
        if not self._is_left:
            await super().caught_up()
        if self._is_left:
            self._goes_on = True
            await asyncio.Event().wait()  # until it is cancelled: nobody takes what would come

    async def tell(self, event: Any) -> None:
        """Tell the run something.

        Raises:
            ConfigurationError: nothing is going on, or nothing of the kind waits.
        """
        if self._started is None:
            raise ConfigurationError("The stream has not begun; iterate over it first.")
        await self._started.tell(event)

    async def leave(self, task: asyncio.Task[Any]) -> None:
        """Cancel a run that goes on and wait until it was undone; one that waits is suspended."""
        if task.done():
            return
        self._is_left = True
        if isinstance(self._last, InputRequiredEvent):
            self.ask()
            await self._at_rest(task)
        if self._started is None or not self._started.watch.waits:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _at_rest(self, task: asyncio.Task[Any]) -> None:
        """Let what goes on beside a question come to its end, unless the run goes on after it."""
        looks = int(_SETTLES / _LOOK)
        while looks and not task.done() and not self._goes_on:
            if self._started is not None and self._started.watch.waits:
                return
            looks -= 1
            await asyncio.sleep(_LOOK)


def saga_stream_sync(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Iterator[Any]:
    """Stream a run as one transaction where no event loop runs; as `saga_stream`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone.
        ConfigurationError: an event loop is running on this thread.
    """
    stream = saga_stream(
        agent, user_msg, kit=kit, key=key, on_tool_failure=on_tool_failure, **options
    )
    yield from one_by_one("saga_stream", stream)
