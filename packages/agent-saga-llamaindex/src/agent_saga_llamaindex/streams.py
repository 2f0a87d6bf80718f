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
import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

from workflows.events import InputRequiredEvent
from workflows.handler import WorkflowHandler

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_llamaindex.running import Started, no_loop
from agent_saga_llamaindex.waiting import TURNS, followed

_END = object()
_LOOK = 0.005
_SETTLES = 30.0
"""Seconds after which a run that is left at a question, and comes to no rest, is cancelled."""


class SagaStream:
    """A streamed run; iterate over it for the framework's events.

    Attributes:
        result: the framework's result, or `Waiting`; None before the run has ended well.
    """

    def __init__(self, events: AsyncIterator[Any], seat: _Seat) -> None:
        self._events = events
        self._seat = seat

    @property
    def result(self) -> Any:
        """The framework's result, or `Waiting`; None before the run has ended well."""
        return self._seat.result

    async def send_event(self, event: Any) -> None:
        """Tell the run something, when it has asked and before the next event is asked for.

        Args:
            event: an event, or `approve(by="…")` or `deny(by="…")`.

        Raises:
            ConfigurationError: nothing is going on, or nothing of the kind waits.
        """
        await self._seat.tell(event)

    def __aiter__(self) -> SagaStream:
        return self

    async def __anext__(self) -> Any:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        """Cancel a run that goes on, and wait until it was undone; one that waits is suspended."""
        await self._events.aclose()  # type: ignore[attr-defined]


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
    return SagaStream(_events((agent, user_msg, kit, key, on_tool_failure, options), seat), seat)


async def _events(asked: tuple[Any, ...], seat: _Seat) -> AsyncIterator[Any]:
    async def run() -> None:
        try:
            started = seat.started = Started(*asked)
            started.before_turn = seat.caught_up
            seat.result = await started.carry_out(seat.follow)
        finally:
            seat.end(last_reports.get())

    task = asyncio.create_task(run())
    try:
        while (event := await seat.events.get()) is not _END:
            yield event
            seat.ask()
        await task
    finally:
        await seat.leave(task)
        last_reports.set(seat.report)


class _Seat:
    """Where a streamed run and the program that takes its events meet."""

    def __init__(self) -> None:
        self.events = asyncio.Queue[Any]()
        self.report: RollbackReport | None = None
        self.result: Any = None
        self.started: Started | None = None
        self._is_left = False
        self._goes_on = False
        self._last: Any = None
        self._asked = asyncio.Queue[None]()
        self._starving = asyncio.Event()

    async def follow(self, handler: WorkflowHandler) -> Any:
        """Give each event of a run; return its result."""
        assert self.started is not None  # noqa: S101 - it is what is followed
        started = self.started
        return await followed(handler, started.watch, self.give, self.next, goes_on=started.goes_on)

    async def next(self, event: Any) -> Any:
        """Await the framework's next event; meanwhile the program has all that were before."""
        self._starving.set()
        try:
            return await event
        finally:
            self._starving.clear()

    async def tell(self, event: Any) -> None:
        """Tell the run something.

        Raises:
            ConfigurationError: nothing is going on, or nothing of the kind waits.
        """
        if self.started is None:
            raise ConfigurationError("The stream has not begun; iterate over it first.")
        await self.started.tell(event)

    async def caught_up(self) -> None:
        """Wait until the program has taken every event and asks for another one."""
        while not self._is_left:
            await self._starving.wait()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if self._starving.is_set() and not self._is_left:
                return
        self._goes_on = True
        await asyncio.Event().wait()  # until it is cancelled: nobody takes what would come

    async def give(self, event: Any) -> None:
        """Give an event, and wait until the next one is asked for."""
        if self._is_left:
            return
        self._last = event
        self.events.put_nowait(event)
        await self._asked.get()

    def ask(self) -> None:
        """Ask for the next event."""
        self._asked.put_nowait(None)

    def end(self, report: RollbackReport | None) -> None:
        """Say that there are no more events."""
        self.report = report
        self.events.put_nowait(_END)

    async def leave(self, task: asyncio.Task[None]) -> None:
        """Cancel a run that goes on and wait until it was undone; one that waits is suspended."""
        if task.done():
            return
        self._is_left = True
        if isinstance(self._last, InputRequiredEvent):
            self.ask()
            await self._at_rest(task)
        if self.started is None or not self.started.watch.waits:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _at_rest(self, task: asyncio.Task[None]) -> None:
        """Let what goes on beside a question come to its end, unless the run goes on after it."""
        looks = int(_SETTLES / _LOOK)
        while looks and not task.done() and not self._goes_on:
            if self.started is not None and self.started.watch.waits:
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
    no_loop("saga_stream")
    stream = saga_stream(
        agent, user_msg, kit=kit, key=key, on_tool_failure=on_tool_failure, **options
    )
    context = contextvars.copy_context()

    async def following() -> Any:
        return await anext(stream, _END)

    with asyncio.Runner() as runner:
        try:
            while (event := runner.run(following(), context=context)) is not _END:
                yield event
        finally:
            runner.run(stream.aclose(), context=context)
            last_reports.set(context.get(last_reports))
