"""A streamed run as a boundary: `saga_stream` and `saga_stream_sync`.

Rules of this part:

- The boundary is round the whole run, from the first item to the last, and the program that takes
  the items is outside it.
- A stream that is closed early is a run that was cancelled: nothing goes on behind it, and what it
  did is undone before the close returns.
- An item is made when it is asked for: the run does not hurry ahead by more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp

from agent_saga.engine.boundary import last_reports
from agent_saga.errors import SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_langgraph.plans import nested_plan, planned, planned_async
from agent_saga_langgraph.running import Run

_END = object()


async def saga_stream(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    **options: Any,
) -> AsyncIterator[Any]:
    """Stream a run of a graph or agent as one transaction.

    Args:
        graph: a compiled graph, or anything with `astream`.
        input: its input; `Command(resume=…)` or None goes on with a thread that waits.
        config: the framework's configuration.
        kit: whose boundary it is; the process's defaults when not given.
        key: an id of your own for the saga.
        on_tool_failure: "continue" or "rollback".
        options: further options of `astream`, for example `stream_mode`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone; it comes in the place of the next item.
        SagaClosed: the thread's saga was undone, or has ended.
    """
    wanted, items = asyncio.Queue[object](), asyncio.Queue[Any]()
    reports: list[Any] = []

    async def run() -> None:
        try:
            plan = nested_plan(kit, on_tool_failure, key)
            if plan is None:
                plan = await planned_async(graph, input, config, kit, key, on_tool_failure)
            state = Run(plan)
            with contextlib.suppress(SagaSuspended):
                async with plan.scope() as saga:
                    state.begin(saga)
                    try:
                        async for item in graph.astream(input, plan.configured(config), **options):
                            items.put_nowait(item)
                            await wanted.get()
                    except GraphBubbleUp as stopped:
                        state.stopped(stopped)
                    state.end(saga, waits=await plan.waits_async(graph, config))
            state.given(None)
        finally:
            reports.append(last_reports.get())
            items.put_nowait(_END)

    task = asyncio.create_task(run())
    try:
        while (item := await items.get()) is not _END:
            yield item
            wanted.put_nowait(None)
        await task
    finally:
        await _stopped(task)
        last_reports.set(reports[0] if reports else None)


async def _stopped(task: asyncio.Task[None]) -> None:
    """Cancel a run that goes on, and wait until it was undone."""
    if task.done():
        return
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def saga_stream_sync(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    **options: Any,
) -> Iterator[Any]:
    """Stream a run of a graph or agent as one transaction; arguments as for `saga_stream`.

    Yields:
        What the framework yields.

    Raises:
        SagaAborted: the run failed and was undone.
        ConfigurationError: an event loop is running on this thread.
    """

    def run() -> Generator[Any, None, None]:
        plan = nested_plan(kit, on_tool_failure, key)
        if plan is None:
            plan = planned(graph, input, config, kit, key, on_tool_failure)
        state = Run(plan)
        with contextlib.suppress(SagaSuspended), plan.scope() as saga:
            state.begin(saga)
            try:
                yield from graph.stream(input, plan.configured(config), **options)
            except GraphBubbleUp as stopped:
                state.stopped(stopped)
            state.end(saga, waits=plan.waits(graph, config))
        state.given(None)

    context = contextvars.copy_context()
    items = run()
    try:
        while (item := context.run(next, items, _END)) is not _END:
            yield item
    finally:
        context.run(items.close)
        last_reports.set(context.get(last_reports))
