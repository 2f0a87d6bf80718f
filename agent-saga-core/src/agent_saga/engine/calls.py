"""Making one call of the user's code on the current thread, and reading what came back.

A generator that comes back has not run: it is drained, here for plain ones and on the loop for
asynchronous ones; so is what `map` and its like return. A future of `concurrent.futures` is waited
for: its work may not have begun. An awaitable is handed to the driver, which knows where it may
run. What comes of one may not have run either, where an `await` was forgotten.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import types
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any, Final

from agent_saga.engine import interrupts
from agent_saga.engine.requests import Call, Ending
from agent_saga.errors import SagaForked, StepTimeout

PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple})
"""Types of values that are never pending; looking at them first is much quicker."""


_LAZY: Final = (
    types.GeneratorType,
    map,
    filter,
    zip,
    enumerate,
    itertools.accumulate,
    itertools.chain,
    itertools.compress,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.islice,
    itertools.pairwise,
    itertools.starmap,
    itertools.takewhile,
    itertools.zip_longest,
    type(iter(int, 1)),
)
_LATER: Final = (*_LAZY, Future)
UNRUN: Final = frozenset({types.CoroutineType, types.AsyncGeneratorType, *_LATER})
"""Types of values that nothing has run yet, also where an awaitable has brought them."""


@interrupts.user_code
def make(call: Call) -> Ending:
    """Make the call; never raises."""
    try:
        value = call.fn(*call.args, **call.kwargs)
        if type(value) not in PLAIN and isinstance(value, _LATER):
            value = value.result() if isinstance(value, Future) else list(value)
    except BaseException as error:
        return Ending(error=error)
    return Ending(value)


def in_its_turn(call: Call) -> Ending:
    """Make a call that waited for a thread, unless it was stopped meanwhile; never raises."""
    if call.stopped is not None:
        try:
            cut = call.stopped()
        except BaseException as error:
            cut = error
        if cut is not None:
            return Ending(error=cut, started=False)
    return make(call)


def pending(value: Any) -> bool:
    """Say whether a value still has to be awaited or drained on an event loop."""
    return inspect.isawaitable(value) or isinstance(value, types.AsyncGeneratorType)


async def finished(value: Any) -> Any:
    """Await an awaitable, or drain an asynchronous generator into a list."""
    if isinstance(value, AsyncIterator):
        return [item async for item in value]
    return await run(await value)


async def run(value: Any) -> Any:
    """Run what an awaitable has brought, as long as nothing has run it; return what comes of it."""
    while type(value) in UNRUN:
        if isinstance(value, Future):
            value = await asyncio.wrap_future(value)
        elif isinstance(value, _LAZY):
            value = list(value)
        else:
            value = await finished(value)
    return value


def discard(value: Any) -> None:
    """Drop a coroutine that will not be run, without a warning."""
    close = getattr(value, "close", None)
    if inspect.iscoroutine(value) and close is not None:
        close()


def left_in_child(answer: object = None) -> BaseException:
    """Return what leaves the engine in a forked child: what the call raised there, if it did."""
    raised = answer.error if isinstance(answer, Ending) else None
    return raised or SagaForked(
        "A forked child came back into a saga of its parent, which goes on with it.",
        fix="End the child where it was forked (os._exit), or start it with subprocess or "
        "multiprocessing.",
    )


def timed_out(call: Call, seconds: float) -> StepTimeout:
    """Return the error for a call that did not answer in time."""
    return StepTimeout(
        f"{call.what} did not answer within {seconds:g} s; whether it took effect is unknown."
    )
