"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first item to the last, and the program that takes
  the items is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- A stream that is closed after it told of an interrupt is not: the graph comes to its stop, and the
  saga waits. One without a checkpointer cannot wait, and is undone.
- An item is made when it is asked for: the run does not hurry ahead by more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.engine.quitting import kept
from agent_saga.errors import SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_langgraph.caches import caching, with_known_caches
from agent_saga_langgraph.planning import planned, planned_async
from agent_saga_langgraph.plans import Asked, durability_of
from agent_saga_langgraph.running import Run
from agent_saga_langgraph.telling import run_ended

_END = object()


async def saga_stream(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    on_branch: str = "refuse",
    **options: Any,
) -> AsyncIterator[Any]:
    """Stream a run of a graph or agent as one transaction.

    Args:
        graph: a compiled graph, or anything with `astream`.
        input: its input; `Command(resume=…)` or None goes on with a thread that waits.
        config: the framework's configuration.
        kit: whose boundary it is; the process's defaults when not given.
        key: an id of your own for the saga.
        on_tool_failure: "continue", "rollback" or "ask".
        on_branch: "refuse" or "keep"; see `saga_run`.
        options: further options of `astream`, for example `stream_mode`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone; it comes in the place of the next item.
        SagaClosed: the thread's saga was undone, or has ended.
    """
    seat, before = _Seat(), last_reports.get()
    asked = Asked(kit, key, on_tool_failure, on_branch, durability_of(options))

    async def run() -> None:
        """Run the graph in its boundary, and hand each item to the seat."""
        try:
            plan = await planned_async(graph, input, config, asked)
            state, seat.on_thread = Run(plan), plan.on_thread
            with contextlib.suppress(SagaSuspended):
                async with plan.scope() as saga:
                    with plan.entered(saga), caching(graph):
                        given = plan.given, with_known_caches(graph, plan.configured(config))
                        try:
                            async for item in graph.astream(*given, **options):
                                await seat.give(item)
                        except GraphBubbleUp as stopped:
                            state.stopped(stopped)
                    state.end(saga, waits=await plan.waits_async(graph, config))
            state.given(None)
        finally:
            run_ended(config, before, last_reports.get())
            seat.end(last_reports.get())

    task = asyncio.create_task(kept(run()))
    try:
        while (item := await seat.items.get()) is not _END:
            yield item
            seat.ask()
        ended = await task
        if ended is not None:
            raise ended.error
    finally:
        await seat.leave(task)
        last_reports.set(seat.report)


class _Seat:
    """Where a streamed run and the program that takes its items meet."""

    def __init__(self) -> None:
        self.items = asyncio.Queue[Any]()
        self.report: RollbackReport | None = None
        self.on_thread = False
        self._asked = asyncio.Queue[None]()
        self._left = False
        self._interrupted = False

    async def give(self, item: Any) -> None:
        """Give an item, and wait until the next one is asked for."""
        tells = self.on_thread and tells_of_interrupt(item)
        self._interrupted = self._interrupted or tells
        if not self._left:
            self.items.put_nowait(item)
            await self._asked.get()

    def ask(self) -> None:
        """Ask for the next item."""
        self._asked.put_nowait(None)

    def end(self, report: RollbackReport | None) -> None:
        """Say that there are no more items."""
        self.report = report
        self.items.put_nowait(_END)

    async def leave(self, task: asyncio.Task[Any]) -> None:
        """Cancel a run that goes on and wait until it was undone, or until it has stopped."""
        if task.done():
            return
        self._left = True
        if self._interrupted:
            self.ask()
            await task
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def tells_of_interrupt(item: Any) -> bool:
    """Say whether a streamed item, in any mode and form, tells of an interrupt."""
    parts = item if isinstance(item, tuple) else (item,)
    return any(isinstance(part, Mapping) and _interrupted(part) for part in parts)


def _interrupted(part: Mapping[str, Any]) -> bool:
    """Look into an item, and into what newer forms and the modes for debugging wrap it in."""
    if "__interrupt__" in part:
        return True
    if part.get("interrupts") and ("type" in part or {"id", "name"} <= part.keys()):
        return True
    inner = [part.get(key) for key in ("data", "payload") if "type" in part]
    return any(isinstance(one, Mapping) and _interrupted(one) for one in inner)


def saga_stream_sync(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    on_branch: str = "refuse",
    **options: Any,
) -> Iterator[Any]:
    """Stream a run of a graph or agent as one transaction; arguments as for `saga_stream`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone.
        ConfigurationError: an event loop is running on this thread.
    """
    asked = Asked(kit, key, on_tool_failure, on_branch, durability_of(options))

    def run() -> Generator[Any, None, None]:
        """Run the graph in its boundary, and yield each item."""
        plan = planned(graph, input, config, asked)
        state, interrupted, left = Run(plan), False, False
        with contextlib.suppress(SagaSuspended), plan.scope() as saga:
            with plan.entered(saga), caching(graph):
                given = plan.given, with_known_caches(graph, plan.configured(config))
                try:
                    for item in graph.stream(*given, **options):
                        interrupted = interrupted or tells_of_interrupt(item)
                        if left:
                            continue
                        try:
                            yield item
                        except GeneratorExit:
                            if not (interrupted and plan.on_thread):
                                raise
                            left = True
                except GraphBubbleUp as stopped:
                    state.stopped(stopped)
            state.end(saga, waits=plan.waits(graph, config))
        state.given(None)

    context, before = contextvars.copy_context(), last_reports.get()
    items = run()
    try:
        while (item := context.run(next, items, _END)) is not _END:
            yield item
    finally:
        context.run(items.close)
        last_reports.set(context.get(last_reports))
        run_ended(config, before, context.get(last_reports))
