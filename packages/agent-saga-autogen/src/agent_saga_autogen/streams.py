"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first event to the last, and the program that takes
  the events is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- A model is asked again only when every event before was taken: neither an agent nor a team hurries
  ahead of the program that watches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

from autogen_core import CancellationToken

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_autogen.running import Started, no_loop

_END = object()
_TURNS = 20
"""Turns of the loop after which an event has come to the program, also through a runtime."""


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
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    cancellation_token: CancellationToken | None = None,
    **options: Any,
) -> SagaStream:
    """Stream a run of an agent or a team as one transaction; iterate over what it returns.

    Args:
        agent: as for `saga_run`.
        task: as for `saga_run`.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga.
        on_tool_failure: "continue", "rollback" or "ask"; the agent's when not given.
        cancellation_token: cancels the run.
        options: further options of its `run_stream`.

    Raises:
        SagaAborted: while it is iterated: the run failed and was undone.
        CancelledError: while it is iterated: the run was cancelled, and was undone.
    """
    seat = _Seat()
    asked = (agent, task, kit, key, on_tool_failure, options)
    return SagaStream(_events(asked, cancellation_token, seat), seat)


async def _events(
    asked: tuple[Any, ...], token: CancellationToken | None, seat: _Seat
) -> AsyncIterator[Any]:
    async def run() -> None:
        try:
            started = Started(*asked)
            started.plan.run.before_turn = seat.caught_up
            started.release = seat.release
            seat.result = await started.carry_out(token, lambda: seat.follow(started.events()))
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
        self._released = False

    async def follow(self, given: Any) -> Any:
        """Give each event of a run; return its result."""
        result: Any = None
        async with contextlib.aclosing(given) as events:
            while (event := await self.next(events)) is not _END:
                result = event
                await self.give(event)
        return result

    async def next(self, events: Any) -> Any:
        """Return the framework's next event; meanwhile the program has all that were before."""
        self._starving.set()
        try:
            return await anext(events, _END)
        finally:
            self._starving.clear()

    async def caught_up(self) -> None:
        """Wait until the program has taken every event and asks for another one."""
        while not self._released:
            await self._starving.wait()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._starving.is_set():
                return

    async def give(self, event: Any) -> None:
        """Give an event, and wait until the next one is asked for."""
        self.events.put_nowait(event)
        if not self._released:
            await self._asked.get()

    def release(self) -> None:
        """Let the run come to its end, whether the program takes its events or not."""
        self._released = True
        self._starving.set()
        self.ask()

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
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    cancellation_token: CancellationToken | None = None,
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
    given: dict[str, Any] = {"kit": kit, "key": key, "on_tool_failure": on_tool_failure}
    given.update(cancellation_token=cancellation_token, **options)
    stream = saga_stream(agent, task, **given)
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
