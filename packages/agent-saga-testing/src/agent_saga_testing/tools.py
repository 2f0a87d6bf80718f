"""Tools that lose their answer, fail before their effect, are slow, or are counted.

    charge = kit.tool("COMPENSABLE")(lost_answer(stripe_charge, on={1}))

Rules of this part:

- Each takes a function, sync or async, and returns one of the same kind, name and parameters, so
  that whatever wraps tools cannot tell them apart.
- Calls are counted from 1; `on` names the calls that are struck, None strikes all of them. Counting
  is safe among threads and tasks.
- Whether the effect happened is never in doubt: `lost_answer` runs it, `fails_before` does not.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Container, Iterator
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from agent_saga.errors import NotApplied

__all__ = [
    "CountedTool",
    "Hold",
    "ToolCall",
    "counted",
    "fails_before",
    "held",
    "lost_answer",
    "slow",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Error: TypeAlias = BaseException | type[BaseException]
Pause: TypeAlias = Callable[[int], Iterator[float]]
"""Given the number of a call, yields the seconds to sleep there; it may raise."""

LOOK = 0.002
"""Seconds between two looks at whether a held call may go on."""


class ToolCall(NamedTuple):
    """One call of a counted tool.

    Args:
        args: the positional arguments.
        kwargs: the arguments by name.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CountedTool(Protocol[P, R_co]):
    """A tool that remembers its calls in `calls`, in the order in which they began."""

    calls: list[ToolCall]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the tool."""


class Hold:
    """What holds the calls of a `held` tool back."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        """Let the held calls, and all later ones, go on."""
        self._released.set()

    def wait(self) -> Iterator[float]:
        """Sleep until released; used by the tool."""
        self.reached.set()
        while not self._released.is_set():
            yield LOOK


def lost_answer(
    fn: Callable[P, R],
    *,
    error: Error = ConnectionError,
    on: Container[int] | None = None,
) -> Callable[P, R]:
    """Return a tool whose effect happens and whose answer is lost.

    Args:
        fn: the tool, sync or async.
        error: what its caller gets instead, for example a `TimeoutError`.
        on: the numbers of the calls that lose their answer; None means all.
    """
    return _around(fn, _nothing, _raise(error, on))


def fails_before(
    fn: Callable[P, R],
    *,
    error: Error = NotApplied,
    on: Container[int] | None = None,
) -> Callable[P, R]:
    """Return a tool that fails before its effect.

    Args:
        fn: the tool, sync or async.
        error: what its caller gets; the default says that there was no effect.
        on: the numbers of the calls that fail; None means all.
    """
    return _around(fn, _raise(error, on), _nothing)


def slow(
    fn: Callable[P, R],
    *,
    before: float = 0.0,
    after: float = 0.0,
    on: Container[int] | None = None,
) -> Callable[P, R]:
    """Return a tool that takes its time.

    Args:
        fn: the tool, sync or async.
        before: seconds to sleep before the effect.
        after: seconds to sleep between the effect and the answer.
        on: the numbers of the calls that are slow; None means all.
    """
    return _around(fn, _sleep(before, on), _sleep(after, on))


def held(
    fn: Callable[P, R], *, after: bool = False, on: Container[int] | None = None
) -> tuple[Callable[P, R], Hold]:
    """Return a tool whose calls do not go on until they are released, and what releases them.

    Args:
        fn: the tool, sync or async.
        after: hold between the effect and the answer, instead of before the effect.
        on: the numbers of the calls that are held; None means all.
    """
    hold = Hold()

    def pause(number: int) -> Iterator[float]:
        if _struck(number, on):
            yield from hold.wait()

    return _around(fn, *((_nothing, pause) if after else (pause, _nothing))), hold


def counted(fn: Callable[P, R]) -> CountedTool[P, R]:
    """Return a tool that remembers every call in `calls`, whether it ends well or not."""
    calls: list[ToolCall] = []

    if _is_async(fn):

        @functools.wraps(fn)
        async def count_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            calls.append(ToolCall(args, dict(kwargs)))
            return await cast("Awaitable[Any]", fn(*args, **kwargs))

        tool: Any = count_async
    else:

        @functools.wraps(fn)
        def count(*args: P.args, **kwargs: P.kwargs) -> R:
            calls.append(ToolCall(args, dict(kwargs)))
            return fn(*args, **kwargs)

        tool = count
    tool.calls = calls
    return cast("CountedTool[P, R]", tool)


def _around(fn: Callable[P, R], before: Pause, after: Pause) -> Callable[P, R]:
    """Wrap a tool in what happens before its effect and before its answer."""
    numbers = _Numbers()
    if _is_async(fn):

        @functools.wraps(fn)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            number = numbers.next()
            for seconds in before(number):
                await asyncio.sleep(seconds)
            result = await cast("Awaitable[Any]", fn(*args, **kwargs))
            for seconds in after(number):
                await asyncio.sleep(seconds)
            return result

        return cast("Callable[P, R]", call_async)

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        number = numbers.next()
        for seconds in before(number):
            time.sleep(seconds)
        result = fn(*args, **kwargs)
        for seconds in after(number):
            time.sleep(seconds)
        return result

    return call


class _Numbers:
    """The numbers of calls, from 1, one for each."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            self._last += 1
            return self._last


def _is_async(fn: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - whether calling it gives a coroutine
    )


def _struck(number: int, on: Container[int] | None) -> bool:
    return on is None or number in on


def _nothing(_number: int) -> Iterator[float]:
    return iter(())


def _raise(error: Error, on: Container[int] | None) -> Pause:
    def pause(number: int) -> Iterator[float]:
        if _struck(number, on):
            raise error
        return iter(())

    return pause


def _sleep(seconds: float, on: Container[int] | None) -> Pause:
    def pause(number: int) -> Iterator[float]:
        return iter((seconds,) if seconds and _struck(number, on) else ())

    return pause
