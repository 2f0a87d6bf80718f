"""What a program holds: the boundary that it enters, and the saga that it gets inside."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from agent_saga.domain import durations
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.report import RollbackReport, StepLine
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine import interrupts
from agent_saga.engine.boundary import Boundary, current_scope
from agent_saga.engine.loops import loop_is_running, refuse_blocking
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.retry import RetryPolicy
from agent_saga.engine.scope import Scope
from agent_saga.engine.taking import Origin, Taking
from agent_saga.engine.tool import declare, known, one_of
from agent_saga.engine.wrap import Invocation, checked_key
from agent_saga.errors import (
    AbortRequested,
    ConfigurationError,
    SagaClosed,
    SuspendRequested,
    text_of,
)
from agent_saga.plugins.importing import refuse_while_importing

F = TypeVar("F", bound=Callable[..., Any])

_entered_here: contextvars.ContextVar[tuple[tuple[list[Boundary], Boundary], ...]] = (
    contextvars.ContextVar("agent_saga_entered", default=())
)
"""What this context has entered and not left, outermost first: what its scope has in use, and it.

One variable for all boundaries: a context keeps every variable that was ever set in it, so with one
for each boundary a task that runs many sagas would grow with their number.
"""


class SagaHandle:
    """A saga, seen from inside one of its boundaries.

    Attributes:
        id: the saga's id, as it stands in the log.
        name: how people call it.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def id(self) -> str:
        """The saga's id, as it stands in the log."""
        return self._scope.saga.id

    @property
    def name(self) -> str:
        """How people call the saga."""
        return self._scope.saga.name

    @property
    def kept(self) -> list[StepLine]:
        """The steps that stand of ways that a resumed run has left (`abandoned="keep"`)."""
        return self._scope.saga.kept_ways()

    @property
    def report(self) -> RollbackReport | None:
        """The report of this boundary; None while it is open."""
        return self._scope.report

    def execute(
        self,
        *,
        tool: str,
        forward: Callable[..., Any],
        semantics: ActionSemantics | str | None = None,
        compensate: object = None,
        arguments: Mapping[str, Any] | None = None,
        key: str | None = None,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        **options: Any,
    ) -> Any:
        """Run one step; awaitable where an event loop is running, the value elsewhere.

        Args:
            tool: how log, rules and reports name it.
            forward: the effect; called without arguments (it may take `idempotency_key`).
            semantics: what the effect is; `compensate=` alone means COMPENSABLE.
            compensate: how the inverse is derived from the result.
            timeout: seconds for one attempt.
            retry: attempts within the step.
            **options: further options as for `safe_tool`.
            arguments: what rules and approvals read, and what identifies a blind retry.
            key: names the step; the same key in this saga is the same step.

        Raises:
            RefusedError: the step was refused before its effect.
            OutcomeUnknown: an equal earlier step ended without a known outcome.
            ConfigurationError: an argument cannot be used.
        """
        key = None if key is None else checked_key(key)
        if not isinstance(arguments, Mapping | None):
            raise ConfigurationError(
                f"arguments= of {tool} is a mapping, not {type(arguments).__name__}.",
                fix="Name what the step is called with: arguments={'amount': 5}.",
            )
        declared = declare(
            forward,
            name=tool,
            semantics=semantics,
            compensate=compensate,
            timeout=timeout,
            retry=retry,
            **known(options),
        )
        declared.declares = None  # the names that a step reads are the caller's, not `forward`'s
        call = Invocation(
            self._scope, declared, dict(arguments or {}), (), {}, key, named=arguments is not None
        )
        if loop_is_running():
            return call.start()
        return call.run()

    def abort(self, reason: str) -> NoReturn:
        """Undo the saga deliberately: leaves the boundary, which then unwinds.

        The boundary unwinds even if the program catches what this raises.

        Raises:
            AbortRequested: always, unless the saga has ended already.
            SagaClosed: the saga had ended; what it did is undone by `agent-saga undo`.
        """
        saga = self._scope.saga
        if saga.ended or saga.read_only or saga.state is SagaState.COMMITTED:
            self._refuse_at_the_end("aborted")
        saga.abort_reason = text_of(reason)
        raise AbortRequested(reason)

    def suspend(
        self,
        reason: str,
        *,
        deadline: float = 7 * 86_400.0,
        at_deadline: str = "undo",
        awaits: Any = None,
    ) -> NoReturn:
        """Leave the saga suspended: neither committed nor failed, until it is resumed by its id.

        The boundary then raises `SagaSuspended`, or fails with `NotSuspendable` if another process
        could not go on with it or undo all of it. From now on no step of the saga may start, and
        leaving a savepoint undoes nothing. A program that catches what this raises suspends all
        the same when its boundary ends, unless that fails for another reason.

        Args:
            reason: what it waits for.
            deadline: seconds until the wait is over; more than a century is a century.
            at_deadline: "undo", or "hold" to leave it to a human.
            awaits: plain data for whoever resumes it.

        Raises:
            SuspendRequested: always, unless the saga has ended already.
            SagaClosed, SagaUnwinding: the saga had ended, or is being left or undone.
        """
        saga = self._scope.saga
        if saga.ended or saga.read_only:
            self._refuse_at_the_end("suspended")
        if saga.suspend_request is None:
            saga.check_open(saga.root)
        request = SuspendRequested(
            reason,
            deadline=durations.at_most("deadline", deadline),
            at_deadline=one_of("at_deadline", at_deadline, ("undo", "hold")),
            awaits=awaits,
            saga=saga.id,
        )
        saga.suspend_request = request
        saga.root.shut()
        raise request

    def _refuse_at_the_end(self, what: str) -> NoReturn:
        raise SagaClosed(
            f"Saga {self.id} has ended ({self._scope.saga.state.value}); it cannot be {what}.",
            rule="closed",
            reason="a saga that has ended is only read",
        )

    def savepoint(self, name: str = "") -> SagaScope:
        """Return a savepoint: a boundary inside this one, whose failure undoes only itself.

        Enter it with `with` or `async with`; its failure raises, and a caller that catches that may
        go on. The outer boundary's failure undoes it too.

        Args:
            name: how the log names it.
        """
        saga = self._scope.saga
        return SagaScope(lambda: saga.engine, BoundaryOptions(name=name), self._scope)

    def bind(self, fn: F) -> F:
        """Return the function bound to this saga, to be run in a thread or task of your own.

        A thread does not inherit the boundary; a function that is bound does its tool calls in it.
        """

        @functools.wraps(fn)
        def bound(*args: Any, **kwargs: Any) -> Any:
            context = contextvars.copy_context()
            context.run(current_scope.set, self._scope)
            return context.run(fn, *args, **kwargs)

        return bound  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<Saga {self.id} {self._scope.saga.state.value}>"


class SagaScope:
    """A boundary; enter it with `with` or `async with`.

    It can be used again and by several tasks at once; every use is a saga of its own, or a
    savepoint when it is entered inside another boundary.

    Args:
        engine: asked for the engine at every entry.
        options: how the boundary behaves.
        inside: the scope that it is a savepoint of; the current one when not given.
        origin: where the saga of a `saga_id` comes from; blocks.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        options: BoundaryOptions,
        inside: Scope | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._origin = origin
        self._engine = engine
        self._options = options
        self._inside = inside
        self._in_use: list[Boundary] = []
        self._last: RollbackReport | None = None

    @property
    def report(self) -> RollbackReport | None:
        """The report of the last use that ended; None before."""
        return self._last

    def _begin(self) -> Boundary:
        refuse_while_importing("opening a boundary")
        return Boundary(self._engine(), self._options, self._inside)

    def _checked_origin(self) -> Origin | None:
        if self._origin is None or self._options.detached or current_scope.get() is None:
            return self._origin
        raise ConfigurationError(
            "A boundary with a saga_id was entered inside another boundary.",
            fix="Give it detached=True: it is a saga of its own.",
        )

    def _entered(self, boundary: Boundary) -> None:
        _entered_here.set((*_still_open(), (self._in_use, boundary)))
        self._in_use.append(boundary)

    def _end(self) -> Boundary:
        """Return the boundary that is being left: the one of this context, else the only one."""
        entered = _still_open()
        boundaries = [one for in_use, one in entered if in_use is self._in_use]
        if not boundaries and len(self._in_use) == 1:
            boundaries = list(self._in_use)
        if not boundaries:
            raise ConfigurationError("A boundary was left that had not been entered here.")
        ended = boundaries[-1]
        _entered_here.set(tuple(one for one in entered if one[1] is not ended))
        try:
            self._in_use.remove(ended)
        except ValueError:
            raise ConfigurationError("A boundary was left by two threads at once.") from None
        return ended

    @interrupts.engine_code
    def __enter__(self) -> SagaHandle:
        """Open a synchronous boundary."""
        refuse_blocking()
        boundary = self._begin()
        origin = self._checked_origin()
        if origin is not None:
            boundary.given = origin(boundary.engine, self._options)
        handle = SagaHandle(boundary.enter())
        self._entered(boundary)
        held = interrupts.here()
        kept = held.taken() if held is not None else None
        if kept is not None:
            self.__exit__(type(kept), kept, None)
            raise kept
        return handle

    @interrupts.engine_code
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or undo and raise; see `engine.boundary`."""
        boundary = self._end()
        try:
            boundary.leave(error)
        finally:
            self._last = boundary.report

    async def __aenter__(self) -> SagaHandle:
        """Open an asynchronous boundary."""
        boundary = self._begin()
        origin = self._checked_origin()
        if origin is not None:
            boundary.given = await Taking(origin, boundary.engine, self._options).taken()
        handle = SagaHandle(boundary.enter_async())
        self._entered(boundary)
        return handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or undo and raise; see `engine.boundary`."""
        boundary = self._end()
        try:
            await boundary.leave_async(error)
        finally:
            self._last = boundary.report


def _still_open() -> list[tuple[list[Boundary], Boundary]]:
    """Return what this context has entered, without what was left in another one since."""
    return [(in_use, one) for in_use, one in _entered_here.get() if one in in_use]
