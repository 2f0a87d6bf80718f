"""Having a notifier tell people, whatever the notifier does.

Rules of this part:

- A notifier runs on a thread of its own that nothing waits for in the end: not the event loop, not
  the pool, and not the end of the process.
- What it raises, also what would end the program, means that people were not told. So does not
  coming back in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import one_line

if TYPE_CHECKING:
    from agent_saga.controls.humans.notice import Notice, Notifier

__all__ = ["TELLING", "told_in_time"]

TELLING: Final = 60.0
"""Seconds that a notifier has."""


class _NotTold(Exception):
    """What a notifier raised, as an error that ends nothing but the telling."""


async def told_in_time(notifier: Notifier, notice: Notice, seconds: float) -> None:
    """Have people told on a thread that nothing waits for, not even the end of the process.

    Raises:
        TimeoutError: it did not come back in time.
        Exception: the notifier raised.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()

    def end(trouble: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(trouble)

    def run() -> None:
        trouble: BaseException | None = None
        try:
            _told(notifier, notice)
        except BaseException as raised:
            trouble = raised
        with contextlib.suppress(RuntimeError):  # the loop that waited is closed
            loop.call_soon_threadsafe(end, trouble)

    context = contextvars.copy_context()
    threading.Thread(
        target=context.run, args=(run,), name="agent-saga-notifier", daemon=True
    ).start()
    async with asyncio.timeout(seconds):
        trouble = await ended
    if trouble is not None:
        raise _NotTold(one_line(trouble)) from trouble


def _told(notifier: Notifier, notice: Notice) -> None:
    """Tell people; blocks."""
    told = notifier.notify(notice)
    if inspect.isawaitable(told):
        asyncio.run(_finished(told))


async def _finished(told: Any) -> None:
    await told
