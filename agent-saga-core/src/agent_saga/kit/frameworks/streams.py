"""A streamed run as a boundary, whatever the framework streams.

Rules of this part:

- The boundary is round the whole run, from the first item to the last, and the program that takes
  the items is outside it: the run goes on in a task of its own.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- What ends the program is raised where the items are taken, and not in the task of the run.
- The report of the run is the program's last report, however the stream ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.engine.quitting import kept
from agent_saga.kit.frameworks.loops import no_loop

END: Final = object()
"""Comes behind the last item."""
TURNS: Final = 20
"""Turns of the loop after which an item has come to the program, also through a framework."""


class Seat:
    """Where a streamed run and the program that takes its items meet.

    Attributes:
        result: the framework's result, as soon as the package knows it.
        report: the run's, once it has ended.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.report: RollbackReport | None = None
        self._items = asyncio.Queue[Any]()
        self._asked = asyncio.Queue[None]()
        self._starving = asyncio.Event()

    # --- for the run -----------------------------------------------------------------------------

    async def give(self, item: Any) -> None:
        """Give an item, and wait until the next one is asked for."""
        self._items.put_nowait(item)
        await self._asked.get()

    async def following(self, items: Any) -> Any:
        """Return the framework's next item; meanwhile the program has all that were before."""
        self._starving.set()
        try:
            return await anext(items, END)
        finally:
            self._starving.clear()

    async def caught_up(self) -> None:
        """Wait until the program has taken every item and asks for another one."""
        while True:
            await self._starving.wait()
            for _ in range(TURNS):  # an item that was just made wakes whoever waits for it first
                await asyncio.sleep(0)
            if self._starving.is_set():
                return

    def end(self, report: RollbackReport | None) -> None:
        """Say that there are no more items."""
        self.report = report
        self._items.put_nowait(END)

    # --- for the program -------------------------------------------------------------------------

    async def next(self) -> Any:
        """Return the next item, or `END`."""
        return await self._items.get()

    def ask(self) -> None:
        """Let the run go on behind the item that was taken."""
        self._asked.put_nowait(None)

    async def leave(self, task: asyncio.Task[Any]) -> None:
        """Cancel a run that goes on, and wait until it was undone."""
        if task.done():
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def streamed(run: Callable[[], Awaitable[None]], seat: Seat) -> AsyncGenerator[Any, None]:
    """Give the items of a run, which goes on in a task of its own.

    Args:
        run: carries it out, and gives its items to the seat.
        seat: where it does.

    Yields:
        The items.

    Raises:
        Exception: what the run raised, in the place of the next item.
    """

    async def going_on() -> Any:
        try:
            return await kept(run())
        finally:
            seat.end(last_reports.get())

    task = asyncio.create_task(going_on())
    try:
        while (item := await seat.next()) is not END:
            yield item
            seat.ask()
        ended = await task
        if ended is not None:
            raise ended.error
    finally:
        await seat.leave(task)
        last_reports.set(seat.report)


class SagaStream:
    """A streamed run; iterate over it for the framework's items.

    Args:
        items: the items.
        seat: where they come from.
    """

    def __init__(self, items: AsyncIterator[Any], seat: Seat) -> None:
        self._items = items
        self._seat = seat

    @property
    def result(self) -> Any:
        """The framework's result; None as long as there is none."""
        return self._seat.result

    def __aiter__(self) -> SagaStream:
        return self

    async def __anext__(self) -> Any:
        return await self._items.__anext__()

    async def aclose(self) -> None:
        """Cancel a run that goes on, and wait until it was undone."""
        await self._items.aclose()  # type: ignore[attr-defined]


def one_by_one(name: str, items: Any) -> Iterator[Any]:
    """Give the items of a stream where no event loop runs.

    Args:
        name: what the caller called, without its `_sync`.
        items: the stream.

    Yields:
        The items.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    no_loop(name)
    context = contextvars.copy_context()

    async def following() -> Any:
        return await anext(items, END)

    with asyncio.Runner() as runner:
        try:
            while (item := runner.run(following(), context=context)) is not END:
                yield item
        finally:
            runner.run(items.aclose(), context=context)
            last_reports.set(context.get(last_reports))
