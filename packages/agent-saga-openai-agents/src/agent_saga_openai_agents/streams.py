"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first event to the last, and the program that takes
  the events is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- So is a run whose `result.cancel()` was called; after `result.cancel("after_turn")` it ends with
  its turn, and is kept.
- The model is asked again only when every event before was taken: a run does not hurry ahead of the
  program that watches it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agents import Runner

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.errors import SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_openai_agents import seams
from agent_saga_openai_agents.running import Started, blocking, start

_END = object()


class SagaStream:
    """A streamed run; iterate over it for the framework's events.

    Attributes:
        result: the framework's `RunResultStreaming`, once the run has begun: its `final_output`,
            its `interruptions`, its `to_state()`.
    """

    def __init__(self, events: AsyncIterator[Any], seat: _Seat) -> None:
        self._events = events
        self._seat = seat

    @property
    def result(self) -> Any:
        """The framework's result; None before the run has begun."""
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
    input: Any,  # noqa: A002 - the framework's own name
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> SagaStream:
    """Stream a run of an agent as one transaction; iterate over what it returns.

    Args:
        agent: a `saga_agent`, or an agent all of whose tools are wrapped or in the gate's policy.
        input: as for `saga_run`.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga.
        on_tool_failure: "continue", "rollback" or "ask"; the agent's when not given.
        options: further options of `Runner.run_streamed`.

    Raises:
        SagaAborted: while it is iterated: the run failed and was undone.
        SagaSuspended: while it is iterated: a tool failed and a human is asked.
    """
    seat = _Seat()
    asked = (agent, input, kit, key, on_tool_failure, options)
    return SagaStream(_events(asked, seat), seat)


async def _events(asked: tuple[Any, ...], seat: _Seat) -> AsyncIterator[Any]:
    async def run() -> None:
        try:
            await _run(await start(*asked), seat)
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


async def _run(started: Started, seat: _Seat) -> None:
    try:
        async with started.plan.scope() as saga:
            with started.entered(saga):
                started.plan.run.before_turn = seat.caught_up
                with started.failing():
                    await _take(started, seat)
            if seams.was_cut_off(seat.result):
                saga.abort("the stream was cancelled")
            await started.end(saga, seat.result)
    except SagaSuspended:
        if not getattr(seat.result, "interruptions", None):
            raise


async def _take(started: Started, seat: _Seat) -> None:
    result = Runner.run_streamed(started.agent, started.plan.given, **started.options)
    seat.result = result
    try:
        events = result.stream_events().__aiter__()
        while (event := await seat.next(events)) is not _END:
            await seat.give(event)
    except BaseException:
        result.cancel()
        raise


class _Seat:
    """Where a streamed run and the program that takes its events meet."""

    def __init__(self) -> None:
        self.events = asyncio.Queue[Any]()
        self.report: RollbackReport | None = None
        self.result: Any = None
        self._asked = asyncio.Queue[None]()
        self._starving = asyncio.Event()

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
            for _ in range(3):  # an event that was just made wakes whoever waits for it first
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
    input: Any,  # noqa: A002 - the framework's own name
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Iterator[Any]:
    """Stream a run of an agent as one transaction where no event loop runs; as `saga_stream`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone.
        ConfigurationError: an event loop is running on this thread.
    """
    stream = saga_stream(agent, input, kit=kit, key=key, on_tool_failure=on_tool_failure, **options)

    async def following() -> Any:
        return await anext(stream, _END)

    try:
        while (event := blocking("saga_stream", following())) is not _END:
            yield event
    finally:
        blocking("saga_stream", stream.aclose())
