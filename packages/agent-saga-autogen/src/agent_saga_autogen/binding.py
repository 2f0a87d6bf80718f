"""Which boundary a tool is called in, where the framework has lost it.

Rules of this part:

- A runtime that was started elsewhere runs its handlers in the context that it was started in: the
  boundary that they see there is none, or one of earlier. So a binding keeps the boundary's own
  context, and what is called by another one is called in that: a tool, and a whole agent.
- A context that is the boundary's, or inside it, is left as it is: a savepoint in it is seen.
- What a runtime still calls after the boundary has ended is refused by it, unless another boundary
  is open where it is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.scope import Scope
from agent_saga.errors import ConfigurationError
from agent_saga_autogen.calls import Call, Path, Run, called, calling, inside, running
from agent_saga_autogen.leaving import within

T = TypeVar("T")
_END: Final = object()


class Binding:
    """Where the tools that share it are called; a boundary is put in when it begins."""

    __slots__ = ("_context", "_held", "_scope")

    def __init__(self) -> None:
        self._scope: Scope | None = None
        self._context: contextvars.Context | None = None
        self._held = False

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Bind to the boundary that is open here.

        Raises:
            ConfigurationError: there is none, or another one goes on.
        """
        scope = current_scope.get()
        if scope is None:
            raise ConfigurationError(
                "There is no boundary here that tools could be bound to.",
                fix="Bind them inside `async with kit.transaction():`.",
            )
        if self._held:
            raise ConfigurationError(
                "The team or tool is bound to a boundary that has not ended yet.",
                fix="Wait for that run, or make another team for this one.",
            )
        self._scope, self._context, self._held = scope, contextvars.copy_context(), True
        try:
            yield
        finally:
            self._held = False

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call something in the boundary; in a context of its own where this one is another."""
        bound = self._lost()
        if bound is None:
            return await function()
        return await asyncio.get_running_loop().create_task(_awaited(function), context=bound)

    def bound(self, events: AsyncGenerator[T, None], agents: Path = ()) -> AsyncGenerator[T, None]:
        """Return a generator that does the same in the boundary, where this context is another.

        Args:
            events: does it.
            agents: what is called meanwhile is called by these, inside those that are here.
        """
        context, given = self._lost(), _spoken(events, agents) if agents else events
        return given if context is None else _stepped(given, context)

    @property
    def is_lost(self) -> bool:
        """Whether the boundary is not that of the context here."""
        return self._lost() is not None

    def run(self) -> Run | None:
        """Return the run that is called here."""
        bound = self._lost()
        return running.get() if bound is None else bound.get(running)

    def inside(self) -> Path:
        """Return the path of what is called here."""
        bound = self._lost()
        call = calling.get() if bound is None else bound.get(calling)
        return () if call is None else call.inside

    def _lost(self) -> contextvars.Context | None:
        """Return the context that belongs here; None where this one does."""
        scope, here = self._scope, current_scope.get()
        if scope is None or self._context is None:
            return None
        if here is not None and here.saga is scope.saga and here.within(scope):
            return None
        if here is not None and here.open and not self._held:
            return None
        return self._context.copy()


@contextlib.contextmanager
def bind(*tools: Any) -> Iterator[None]:
    """Let tools belong to the boundary that is open here, whoever calls them.

    Args:
        tools: tools and workbenches of this package.

    Raises:
        ConfigurationError: no boundary is open here, one of them is none of this package, or is
            bound to a boundary that has not ended.

    Needed where a runtime of AutoGen that was started elsewhere calls them, since its context
    variables are not those of the boundary. A call behind the boundary's end is refused.
    """
    bindings = _bindings(tools)
    with contextlib.ExitStack() as stack:
        for binding in bindings:
            stack.enter_context(binding.holding())
        yield


def _bindings(tools: Iterable[Any]) -> list[Binding]:
    found: list[Binding] = []
    for tool in tools:
        binding = getattr(tool, "saga_binding", None)
        if not isinstance(binding, Binding):
            raise ConfigurationError(
                f"{type(tool).__name__} cannot be bound: its calls are no steps.",
                fix="Bind what saga_tool, wrap_tool or SagaWorkbench returned.",
            )
        if not any(binding is one for one in found):
            found.append(binding)
    return found


async def _spoken(events: AsyncGenerator[T, None], agents: Path) -> AsyncGenerator[T, None]:
    """Take each event as a part of what some agents do; between the events nothing is theirs."""
    try:
        while True:
            with called(_by(agents)):
                event = await anext(events, _END)
            if event is _END:
                return
            yield event  # type: ignore[misc]
    finally:
        with called(_by(agents)):
            await events.aclose()


def _by(agents: Path) -> Call:
    here = inside()
    return here._replace(agents=(*here.agents, *agents))


async def _stepped(
    events: AsyncGenerator[T, None], context: contextvars.Context
) -> AsyncGenerator[T, None]:
    """Take each event in a task of its own; the context is one for all of them."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            try:
                event = await loop.create_task(_next(events), context=context)
            except StopAsyncIteration:
                return
            yield event
    finally:
        await loop.create_task(events.aclose(), context=context)


async def _next(events: AsyncGenerator[T, None]) -> T:
    with within("What was called", GeneratorExit):
        return await anext(events)


async def _awaited(function: Callable[[], Awaitable[T]]) -> T:
    with within("What was called", GeneratorExit):
        return await function()
