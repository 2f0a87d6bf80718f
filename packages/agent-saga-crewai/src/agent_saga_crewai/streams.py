"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first item to the last, and the program that takes
  the items is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- No tool call begins before what the model said until then was taken, and the next item is asked
  for: the run does not hurry ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

from crewai.events import crewai_event_bus

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.streams import TURNS, Seat, one_by_one, streamed
from agent_saga_crewai.asking import Waiting
from agent_saga_crewai.models import sharing
from agent_saga_crewai.plans import Asked
from agent_saga_crewai.running import declared_of, run_async, work_of
from agent_saga_crewai.runs import RunEnded, current_run
from agent_saga_crewai.works import Work, waits


async def saga_stream(
    agent: Any,
    inputs: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    resume: Any = None,
    **options: Any,
) -> AsyncIterator[Any]:
    """Stream a run of a crew or a flow as one transaction.

    Args:
        agent: a `Crew` or a `Flow`; its `stream` need not be set.
        inputs: its inputs.
        kit: whose boundary it is; the process's defaults when not given.
        key: an id of your own for the run; see `saga_run`.
        on_tool_failure: "continue", "rollback" or "ask".
        resume: the answer to what the run waits for; see `saga_run`.
        options: further options of `akickoff`.

    Yields:
        What the framework yields; last, if the run waits for a human, what `saga_run` would return.

    Raises:
        SagaAborted: the run failed and was undone; it comes in the place of the next item.
        SagaClosed: the run's saga was undone.
    """
    seat = _Seat()
    asked = Asked(kit, key, on_tool_failure, resume, declared_of(agent))
    work = _Streamed(work_of(agent, inputs, resume, options), seat)

    async def run() -> None:
        result = await run_async(work, asked)
        if isinstance(result, Waiting) or waits(result):
            await seat.give(result)

    async with contextlib.aclosing(streamed(run, seat)) as items:
        async for item in items:
            yield item


def saga_stream_sync(
    agent: Any,
    inputs: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    resume: Any = None,
    **options: Any,
) -> Iterator[Any]:
    """Stream a run of a crew or a flow as one transaction; arguments as for `saga_stream`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone.
        ConfigurationError: an event loop is running on this thread.
    """
    how = {"kit": kit, "key": key, "on_tool_failure": on_tool_failure, "resume": resume}
    yield from one_by_one("saga_stream", saga_stream(agent, inputs, **how, **options))


class _Streamed(Work):
    """Something that CrewAI runs and streams.

    Args:
        work: what runs.
        seat: where its items go.
    """

    def __init__(self, work: Work, seat: _Seat) -> None:
        super().__init__(work.agent, work.inputs, work.feedback, work.options)
        if not hasattr(self.agent, "stream"):
            raise ConfigurationError(
                "An agent by itself does not stream.", fix="Put it into a crew with one task."
            )
        self._seat = seat

    @property
    def streams(self) -> bool:
        """It is run to its end here."""
        return False

    async def start_async(self, how: str = "akickoff") -> Any:
        """Run it on the event loop, and give what it yields."""
        run = current_run()
        if run is not None:
            run.pace = self._seat.pace
        shown = sharing(self.agent, type(self.agent))
        object.__setattr__(shown, "__dict__", {**self.agent.__dict__, "stream": True})
        given, self.agent = self.agent, shown
        output = await super().start_async(how)
        if not isinstance(output, AsyncIterable):  # a flow that goes on after feedback
            return output
        async for item in output:
            await self._seat.give(item)
        given.__dict__.update({**shown.__dict__, "stream": given.stream})
        return output.result  # type: ignore[attr-defined]


class _Seat(Seat):
    """A seat for a run whose threads wait until all was taken, rather than the run itself."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._left = False

    async def next(self) -> Any:
        """Return the next item, for the program."""
        self._wanted.set()
        item = await super().next()
        self._wanted.clear()
        return item

    async def give(self, item: Any) -> None:
        """Give an item."""
        if not self._left:
            self._items.put_nowait(item)

    def pace(self) -> None:
        """Wait, on a thread of the run, until all was taken and more is asked for."""
        crewai_event_bus.flush()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody asks any more
            asyncio.run_coroutine_threadsafe(self._taken(), self._loop).result()
        if self._left:
            raise RunEnded("the stream was closed")

    async def _taken(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        while not self._left and not (self._wanted.is_set() and self._items.empty()):
            await self._wanted.wait()
            await asyncio.sleep(0)

    async def leave(self, task: asyncio.Task[None]) -> None:
        """Cancel a run that goes on, and wait until it was undone."""
        self._left = True
        self._wanted.set()
        await super().leave(task)
