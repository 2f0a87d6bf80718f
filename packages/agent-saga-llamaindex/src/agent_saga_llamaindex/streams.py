"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first event to the last, and the program that takes
  the events is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- An agent's model is asked again only when every event before was taken: an agent does not hurry
  ahead of the program that watches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

from workflows.handler import WorkflowHandler

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_llamaindex.running import Started, awaited, no_loop

_END = object()
_TURNS = 20
"""Turns of the loop after which an event has come to the program, also through a workflow."""


class SagaStream:
    """A streamed run; iterate over it for the framework's events.

    Attributes:
        result: the framework's result; None before the run has ended well.
    """

    def __init__(self, events: AsyncIterator[Any], seat: _Seat) -> None:
        self._events = events
        self._seat = seat

    @property
    def result(self) -> Any:
        """The framework's result; None before the run has ended well."""
        return self._seat.result

    def __aiter__(self) -> SagaStream:
        return self

    async def __anext__(self) -> Any:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        """Cancel a run that goes on, and wait until it was undone."""
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
            started = Started(*asked)
            started.plan.run.before_turn = seat.caught_up
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
        self._asked = asyncio.Queue[None]()
        self._starving = asyncio.Event()

    async def follow(self, handler: WorkflowHandler) -> Any:
        """Give each event of a run; return its result."""
        events = handler.stream_events().__aiter__()
        while (event := await self.next(events)) is not _END:
            await self.give(event)
        return await awaited(handler)

    async def next(self, events: Any) -> Any:
        """Return the framework's next event; meanwhile the program has all that were before."""
        self._starving.set()
        try:
            return await anext(events, _END)
        finally:
            self._starving.clear()

    async def caught_up(self) -> None:
        """Wait until the program has taken every event and asks for another one."""
        while True:
            await self._starving.wait()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._starving.is_set():
                return

    async def give(self, event: Any) -> None:
        """Give an event, and wait until the next one is asked for."""
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
        """Cancel a run that goes on and wait until it was undone."""
        if task.done():
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
