"""How a run is followed, and how it is known that it waits for somebody.

Rules of this part:

- A run waits when nothing of it goes on by itself, and it has asked for an event that nobody has
  sent: a step waits for one, or it has written an `InputRequiredEvent`. A run that is merely at
  rest is left alone; LlamaIndex ends it when its time is up.
- That is looked at in the framework's own state, and not only where it says that it is idle: an
  answer may be on its way.
- A run ends when its result is there, whether or not its stream tells of that.
- What a run is told when it is gone on with, it is told once it is at rest, if steps of it wait for
  events of certain properties: LlamaIndex runs them again first, to hear which.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from workflows.context.serializers import JsonSerializer
from workflows.events import InputRequiredEvent, InternalDispatchEvent, WorkflowIdleEvent
from workflows.handler import WorkflowHandler

from agent_saga_llamaindex import seams

TURNS = 20
"""Turns of the loop after which an event has come to where it goes, also through a workflow."""

_END = object()


class Watch:
    """What a run has asked of the outside, and what it was told.

    Args:
        asked: what it asked before its context was taken, as text.

    Attributes:
        events: what it asked and nobody answered.
        to_send: what it is told when it goes on.
        waits: it was found to wait for somebody.
    """

    def __init__(self, asked: Sequence[str] = ()) -> None:
        self.events: list[Any] = []
        self.to_send: list[Any] = []
        self.waits = False
        for one in asked:
            with contextlib.suppress(Exception):
                self.events.append(JsonSerializer().deserialize(one))

    def note(self, event: Any) -> None:
        """Note an event of the run."""
        if isinstance(event, InputRequiredEvent) and event not in self.events:
            self.events.append(event)

    def told(self, event: Any) -> None:
        """Note that the run was told something: what it is an answer to no longer waits."""
        request = getattr(event, "request", None)
        same = [one for one in self.events if request and getattr(one, "request", None) == request]
        if same or self.events:
            self.events.remove(same[0] if same else self.events[0])

    def as_text(self) -> list[str]:
        """Return what waits for an answer, to be kept."""
        found = []
        for event in self.events:
            with contextlib.suppress(Exception):
                found.append(JsonSerializer().serialize(event))
        return found

    def send(self, handler: WorkflowHandler) -> bool:
        """Tell the run what it is told when it goes on; say whether that was something."""
        sent, self.to_send = self.to_send, []
        self.waits = self.waits and not sent
        for event in sent:
            handler.ctx.send_event(event)
        return bool(sent)

    async def rests(self, handler: WorkflowHandler) -> bool:
        """Say whether the run waits for somebody."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if handler.is_done():
            return False
        try:
            found = seams.taken(handler.ctx)
        except Exception:
            self.waits = bool(self.events)  # it cannot be put away, and whoever does that says so
            return self.waits
        asks = seams.waits(found) or bool(self.events or self.to_send)
        self.waits = seams.is_at_rest(found) and asks
        return self.waits


async def followed(
    handler: WorkflowHandler,
    watch: Watch,
    give: Callable[[Any], Awaitable[None]] | None = None,
    starving: Callable[[Any], Awaitable[Any]] | None = None,
    *,
    goes_on: bool = False,
) -> Any:
    """Return a run's result; None if it waits, which stands in the watch.

    Args:
        handler: the framework's.
        watch: notes what the run asks.
        goes_on: it began from a context that waited.
        give: is given each event for the program.
        starving: awaits the next event; for whoever must know that there is none yet.

    A cancellation of the caller does not hide how the run ends.
    """
    result = asyncio.ensure_future(_result(handler))
    result.add_done_callback(lambda done: done.cancelled() or done.exception())
    if goes_on and not seams.runs_again(seams.taken(handler.ctx)):
        watch.send(handler)
        if await watch.rests(handler):
            return None
    async with contextlib.aclosing(_events(handler, result, starving)) as events:
        async for event in events:
            if isinstance(event, WorkflowIdleEvent):
                if await watch.rests(handler) and not watch.send(handler):
                    return None
            elif not isinstance(event, InternalDispatchEvent):
                watch.note(event)
                if give is not None:
                    await give(event)
    return await asyncio.shield(result)


async def _result(handler: WorkflowHandler) -> Any:
    return await handler


async def _events(
    handler: WorkflowHandler,
    result: asyncio.Future[Any],
    starving: Callable[[Any], Awaitable[Any]] | None,
) -> AsyncGenerator[Any, None]:
    """Give a run's events, until it has ended; one that fails may not close its stream."""
    events = handler.stream_events(expose_internal=True)
    while True:
        following = asyncio.ensure_future(anext(events, _END))
        try:
            both = asyncio.wait({following, result}, return_when=asyncio.FIRST_COMPLETED)
            await (both if starving is None else starving(both))
            for _ in range(TURNS):
                if following.done():
                    break
                await asyncio.sleep(0)
        finally:
            if not following.done():
                following.cancel()
                with contextlib.suppress(BaseException):
                    await following
        if following.cancelled() or following.result() is _END:
            return
        yield following.result()
