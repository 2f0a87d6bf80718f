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

from collections.abc import Iterator
from typing import Any

from agents import Runner

from agent_saga.errors import SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.streams import END, SagaStream, Seat, streamed
from agent_saga_openai_agents import seams
from agent_saga_openai_agents.running import Started, blocking, start


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
    seat = Seat()

    async def run() -> None:
        started = await start(agent, input, kit, key, on_tool_failure, options)
        await _run(started, seat)

    return SagaStream(streamed(run, seat), seat)


async def _run(started: Started, seat: Seat) -> None:
    try:
        async with started.boundary() as saga:
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


async def _take(started: Started, seat: Seat) -> None:
    result = Runner.run_streamed(started.agent, started.plan.given, **started.options)
    seat.result = result
    try:
        events = result.stream_events().__aiter__()
        while (event := await seat.following(events)) is not END:
            await seat.give(event)
    except BaseException:
        result.cancel()
        raise


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
        return await anext(stream, END)

    try:
        while (event := blocking("saga_stream", following())) is not END:
            yield event
    finally:
        blocking("saga_stream", stream.aclose())
