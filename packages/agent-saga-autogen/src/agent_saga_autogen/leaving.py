"""What code of others raises past `Exception`, and what AutoGen would then wait for, for ever.

Rules of this part:

- A tool, an agent or a team's manager that ends with a cancellation of its own, a `GeneratorExit`
  or another `BaseException` ends with an error in its place.
- It does so before it comes to a task or a future: Python closes every coroutine that waits for one
  that ended with a `GeneratorExit`, and nothing can be awaited there any more.
- What ends us from outside goes on as it is: a task that somebody cancels, a generator or coroutine
  that is closed.
- `KeyboardInterrupt` and `SystemExit` would end the event loop before anything is undone: they are
  held until that is done (see `agent_saga.engine.quitting`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from agent_saga.engine.quitting import LEAVES_A_TOOL, held
from agent_saga.kit.frameworks.failures import is_cancelled


class CallCancelled(Exception):
    """A call was cancelled before it had ended; what it did by then is not known."""


class CallLeft(Exception):
    """Something raised what is no `Exception`, past all that handle those; it ends the run."""


class Inside:
    """Tells what was raised by the code inside from what ends that code from outside."""

    __slots__ = ("_gives", "_task")

    def __init__(self) -> None:
        self._task = _task_here()
        self._gives = False

    def gives(self) -> None:
        """Note that a generator gives something now, and may be closed."""
        self._gives = True

    def goes_on(self) -> None:
        """Note that it goes on."""
        self._task = _task_here()
        self._gives = False

    def raised(self, error: BaseException) -> bool:
        """Say whether the code inside raised it."""
        if isinstance(error, asyncio.CancelledError):
            return not is_cancelled()
        if isinstance(error, GeneratorExit):
            return not self._gives and self._task is not None and _task_here() is self._task
        return True


@contextlib.contextmanager
def within(who: str, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """Let the code inside raise exceptions alone.

    Args:
        who: who runs it, in words.
        kind: what is replaced by an error in its place.

    Raises:
        CallCancelled, CallLeft: so it was.
    """
    inside = Inside()
    try:
        yield
    except kind as error:
        if isinstance(error, Exception) or not inside.raised(error):
            raise
        raise as_exception(error, who) from error


def as_exception(error: BaseException, who: str) -> Exception:
    """Return an error that says what somebody raised, with it as the cause.

    Args:
        error: what was raised.
        who: who raised it, in words.
    """
    if isinstance(error, LEAVES_A_TOOL):
        return held(error)
    if isinstance(error, asyncio.CancelledError):
        made: Exception = CallCancelled(f"{who} was cancelled before it had ended.")
    else:
        made = CallLeft(f"{who} raised {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def _task_here() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
