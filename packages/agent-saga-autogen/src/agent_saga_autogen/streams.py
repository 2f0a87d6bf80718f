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

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from autogen_core import CancellationToken

from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.streams import END, SagaStream, Seat, one_by_one, streamed
from agent_saga_autogen.running import Started

__all__ = ["SagaStream", "saga_stream", "saga_stream_sync"]


def saga_stream(
    agent: Any,
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    state: Mapping[str, Any] | None = None,
    resume: object = None,
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
        state: the state of a `Waiting`, which is gone on with.
        resume: the answer to what it waits for.
        cancellation_token: cancels the run.
        options: further options of its `run_stream`.

    Its `result` is what `saga_run` returns, once it has ended.

    Raises:
        SagaAborted: while it is iterated: the run failed and was undone.
        CancelledError: while it is iterated: the run was cancelled, and was undone.
    """
    seat = _Seat()

    async def run() -> None:
        how = (kit, key, on_tool_failure, state, resume)
        started = Started(agent, task, how, options)
        started.before_turn, started.release = seat.caught_up, seat.release
        seat.result = await started.carry_out(
            cancellation_token, lambda: seat.follow(started.events())
        )

    return SagaStream(streamed(run, seat), seat)


class _Seat(Seat):
    """A seat that a run can leave without waiting for the program."""

    def __init__(self) -> None:
        super().__init__()
        self._released = False

    async def follow(self, given: Any) -> Any:
        """Give each event of a run; return its result."""
        result: Any = None
        async with contextlib.aclosing(given) as events:
            while (event := await self.following(events)) is not END:
                result = event
                await self.give(event)
        return result

    async def give(self, item: Any) -> None:
        """Give an event, and wait until the next one is asked for."""
        if not self._released:
            await super().give(item)

    async def caught_up(self) -> None:
        """Wait until the program has taken every event and asks for another one."""
        if not self._released:
            await super().caught_up()

    def release(self) -> None:
        """Let the run come to its end, whether the program takes its events or not."""
        self._released = True
        self._starving.set()
        self.ask()


def saga_stream_sync(
    agent: Any,
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    state: Mapping[str, Any] | None = None,
    resume: object = None,
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
    given: dict[str, Any] = {"kit": kit, "key": key, "on_tool_failure": on_tool_failure}
    given.update(state=state, resume=resume, cancellation_token=cancellation_token, **options)
    return one_by_one("saga_stream", saga_stream(agent, task, **given))
