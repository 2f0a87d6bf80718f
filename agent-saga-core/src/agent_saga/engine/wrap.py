"""A wrapped tool: the callable that users, agents and frameworks call.

Rules of this part:

- It follows asyncio: called on a thread whose event loop is running it returns an awaitable,
  elsewhere the value. `call` and `acall` are the exact forms.
- Outside a boundary it runs as the bare function, with one logged warning for each tool; an
  IRREVERSIBLE tool is refused there. `outside=` changes that.
- A boundary's kit wins: a tool that is bound to another kit is refused.
- An asynchronous tool in a synchronous boundary is refused before anything happens, unless it is
  declared `loop_free`.
- A coroutine that nobody awaited is found when the boundary ends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct

from agent_saga.engine import interrupts
from agent_saga.engine.admission import admit
from agent_saga.engine.bare import bare
from agent_saga.engine.boundary import current_scope, reset
from agent_saga.engine.derive import TemplateDeriver, undo_template
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.endings import leaving
from agent_saga.engine.protocol import repeated, step_protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.tool import Tool
from agent_saga.engine.within import WITHIN
from agent_saga.errors import ConfigurationError, NoBoundary
from agent_saga.observe.correlation import STEP_ID
from agent_saga.observe.logger import logger
from agent_saga.plugins.importing import refuse_while_importing
from agent_saga.plugins.registry import process_handlers

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

log = logger("agent_saga.tools")
_tokens = itertools.count(1).__next__
_running_loop = asyncio._get_running_loop  # noqa: SLF001 - the documented way, and cheap


class SagaTool(Generic[P, R]):
    """A tool inside agent-saga; call it like the function that it wraps.

    Args:
        tool: its declaration.
        kit: the kit that it is bound to, or None.
        outside: what it does outside a boundary when the tool itself does not say.
    """

    def __init__(
        self, tool: Tool, *, kit: object = None, outside: Callable[[], str] = lambda: "warn"
    ) -> None:
        functools.update_wrapper(self, tool.fn)  # first: it copies the function's own attributes
        self.tool = tool
        self.kit = kit
        self._default_outside = outside
        self._warned = False
        self._bound_to = getattr(tool.fn, "__self__", None)
        if tool.form.is_async:
            _mark_async(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the tool: an awaitable where an event loop is running, the value elsewhere."""
        return self.invoke(None, args, kwargs)  # type: ignore[no-any-return]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the tool and return its value; blocks this thread."""
        return self.invoke(None, args, kwargs, form="sync")

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the tool and return its value; never blocks the event loop."""
        answer = self.invoke(None, args, kwargs, form="async")
        return await answer if inspect.isawaitable(answer) else answer

    def keyed(self, key: str) -> Keyed:
        """Name the step: the same key in the same saga is the same step.

        Args:
            key: any text that identifies this effect, for example "order-17".
        """
        return Keyed(self, checked_key(key))

    # --- the short form --------------------------------------------------------------------------

    @overload
    def undo(self, fn: F) -> F: ...
    @overload
    def undo(
        self,
        fn: None = None,
        *,
        keep: Sequence[str] | None = None,
        idempotent: bool = False,
        null_safe: bool = False,
        window: float | None = None,
        irreversible: bool = False,
    ) -> Callable[[F], F]: ...
    def undo(
        self,
        fn: F | None = None,
        *,
        keep: Sequence[str] | None = None,
        idempotent: bool = False,
        null_safe: bool = False,
        window: float | None = None,
        irreversible: bool = False,
    ) -> Any:
        """Register the decorated function as this tool's named inverse.

        Args:
            fn: asks for any of `result`, `args`, `prepared`, `idempotency_key` by parameter name.
            keep: the fields of the result that are recorded for it.
            idempotent: repeated with the same key, it takes effect once; so it may be retried.
            null_safe: it does no harm when the effect never happened.
            window: seconds for which `idempotent` holds.
            irreversible: running it is itself an effect that nothing can undo; a human is asked
                before the tool runs.
        """

        def register(inverse: F) -> F:
            """Register the inverse under its name, and have the tool use it."""
            if self.tool.inverse is not None:
                raise ConfigurationError(
                    f"{self.tool.name} has an inverse already.",
                    fix="Give a tool one inverse: either compensate=… or @tool.undo.",
                )
            handler = process_handlers().compensators.add(
                self._handler_name("undo"),
                inverse,
                idempotent=idempotent,
                null_safe=null_safe,
                window=window,
                irreversible=irreversible,
                redefinable=True,
            )
            self.tool.set_inverse(TemplateDeriver(undo_template(handler, keep)))
            return inverse

        return register if fn is None else register(fn)

    def probe(self, fn: F) -> F:
        """Register the decorated function as this tool's prober; asked when an answer was lost."""
        name = self._handler_name("probe")
        process_handlers().probers.add(name, fn, redefinable=True)
        self.tool.set_prober(name)
        return fn

    def observe(self, fn: F) -> F:
        """Register the decorated function as this tool's reconciler: does the inverse hold?"""
        name = self._handler_name("undo")
        process_handlers().reconcilers.add(name, fn, redefinable=True)
        self.tool.set_reconciler(name)
        return fn

    def _handler_name(self, what: str) -> str:
        return f"{module_of(self.tool.fn)}.{self.tool.name}.{what}"

    # --- running ---------------------------------------------------------------------------------

    def invoke(
        self,
        key: str | None,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        form: str = "",
        owner: Sequence[Any] = (),
    ) -> Any:
        """Make a call as `__call__`, `call` and `acall` do.

        Args:
            key: the step's name, or None.
            args: positional arguments.
            kwargs: keyword arguments.
            form: "sync" or "async"; empty follows the thread's event loop.
            owner: the instance, where the tool is a method.
        """
        scope = current_scope.get()
        if scope is None:
            return self._outside(owner, args, kwargs)
        kit = scope.saga.kit
        if kit is not self.kit and kit is not None and self.kit is not None:
            raise ConfigurationError(
                f"{self.tool.name} is bound to another kit than the boundary that it is called in.",
                fix="Wrap the tool with the boundary's kit.",
            )
        form_of = self.tool.form
        arguments = kwargs  # nobody changes it: whoever adds to it makes a dict of their own
        if args or not form_of.by_name:
            arguments = form_of.named(args, kwargs, skip=len(owner))
        bound_to = self._bound_to
        if owner:
            bound_to, args = owner[0], (*owner, *args)
        call = Invocation(scope, self.tool, arguments, args, kwargs, key, True, bound_to)
        if form == "async" or (not form and _running_loop() is not None):
            return call.start()
        return call.run()

    def _outside(self, owner: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        tool = self.tool
        refuse_while_importing(f"calling {tool.name}")
        policy = self._outside_policy()
        if policy == "refuse":
            raise NoBoundary(
                f"{tool.name} was called outside any boundary; it did not run.",
                rule="outside",
                reason="nothing would undo it if the run fails",
                fix="Call it inside `with kit.transaction():` (or `async with`); in a thread of "
                "your own, hand the boundary over with `saga.bind(function)`.",
            )
        if policy == "warn" and not self._warned:
            self._warned = True
            log.warning(
                "%s runs outside any boundary: it is not logged, not gated and not undone. "
                "(Said once for each tool; outside='run' silences it, 'refuse' forbids it.)",
                tool.name,
            )
        if owner:
            args = (*owner, *args)
        if tool.form.takes_key:
            args, kwargs = tool.form.with_key(args, kwargs, os.urandom(32).hex())
        return bare(tool.form, tool.name, args, kwargs)

    def _outside_policy(self) -> str:
        tool = self.tool
        return tool.outside or ("refuse" if tool.irreversible else self._default_outside())

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind the tool to an instance when it is defined as a method."""
        return self if instance is None else Keyed(self, None, (instance,))

    def __repr__(self) -> str:
        return f"<SagaTool {self.tool.name} {self.tool.semantics.value}>"


class Keyed:
    """A tool with a step key, or bound to an instance; called like the tool."""

    __slots__ = ("_key", "_owner", "_tool")

    def __init__(
        self, tool: SagaTool[Any, Any], key: str | None, owner: Sequence[Any] = ()
    ) -> None:
        self._tool = tool
        self._key = key
        self._owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool: an awaitable where an event loop is running, the value elsewhere."""
        return self._tool.invoke(self._key, args, kwargs, owner=self._owner)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool and return its value; blocks this thread."""
        return self._tool.invoke(self._key, args, kwargs, form="sync", owner=self._owner)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool and return its value; never blocks the event loop."""
        answer = self._tool.invoke(self._key, args, kwargs, form="async", owner=self._owner)
        return await answer if inspect.isawaitable(answer) else answer

    def keyed(self, key: str) -> Keyed:
        """Name the step; see `SagaTool.keyed`."""
        return Keyed(self._tool, key, self._owner)


class Invocation(Struct, eq=False):
    """One call in a boundary, to be started on a loop or run on this thread.

    Attributes:
        scope: where it is made; tool, arguments, args, kwargs: what is called, and with what.
        key: the step's name, or None; named: the caller named the arguments.
        owner: the object whose method the tool is, if any.
    """

    scope: Scope
    tool: Tool
    arguments: dict[str, Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    key: str | None
    named: bool = True
    owner: object = None

    def start(self) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the call; the boundary notices if nobody awaits it."""
        token = _tokens()
        unawaited = self.scope.unawaited
        coroutine = self._run_async(unawaited, token)
        coroutine.__qualname__ = self.tool.name  # type: ignore[attr-defined]
        unawaited[token] = coroutine
        return coroutine

    async def _run_async(self, unawaited: dict[int, Any], token: int) -> Any:
        unawaited.pop(token, None)
        saga = self.scope.saga
        step, fresh = admit(self)
        before = STEP_ID.set(step.id)
        within = WITHIN.set(step) if self.tool.may_repeat else None
        driver = AsyncDriver(saga.engine)
        try:
            outcome = await driver.drive(step_protocol(step) if fresh else repeated(step, self))
        finally:
            reset(STEP_ID, before)
            if within is not None:
                reset(WITHIN, within)
        if outcome.error is not None:
            raise leaving(outcome.error, step)
        if driver.cut is not None:
            raise driver.cut
        return outcome.value

    @interrupts.engine_code
    def run(self) -> Any:
        """Make the call on this thread and return its value."""
        tool = self.tool
        if tool.form.is_async and not tool.loop_free:
            raise ConfigurationError(
                f"{tool.name} is asynchronous and was called where no event loop is running; "
                "it was not run.",
                fix="Use `async with` and `await`, or declare it loop_free=True if any event loop "
                "will do.",
            )
        saga = self.scope.saga
        step, fresh = admit(self)
        before = STEP_ID.set(step.id)
        within = WITHIN.set(step) if tool.may_repeat else None
        driver = SyncDriver(saga.engine)
        try:
            outcome = driver.drive(step_protocol(step) if fresh else repeated(step, self))
        finally:
            STEP_ID.reset(before)  # on a thread, a call ends in the context that it began in
            if within is not None:
                WITHIN.reset(within)
        held = driver.interrupts
        if held is not None and held.kept and (kept := held.taken()) is not None:
            raise kept
        if outcome.error is not None:
            raise leaving(outcome.error, step)
        return outcome.value


def checked_key(key: object) -> str:
    """Return a step's key.

    Raises:
        ConfigurationError: it is no text, or empty.
    """
    if not isinstance(key, str) or not key:
        raise ConfigurationError("A step's key is a text that is not empty.")
    return key


def module_of(fn: Callable[..., Any]) -> str:
    """Return the module's importable name, also for the program that is run as a script."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    module = getattr(fn, "__module__", None) or type(fn).__module__
    if module != "__main__":
        return module
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    path = getattr(main, "__file__", None)
    return _stem(path) if path else module


def _stem(path: str) -> str:
    from pathlib import Path  # noqa: PLC0415 - slow to load; only a script has no other name

    return Path(path).stem


def _mark_async(tool: SagaTool[Any, Any]) -> None:
    """Let `iscoroutinefunction` see that calling the tool returns an awaitable."""
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        mark(tool)
        return
    marker = getattr(asyncio.coroutines, "_is_coroutine", None)
    if marker is not None:
        vars(tool)["_is_coroutine"] = marker
