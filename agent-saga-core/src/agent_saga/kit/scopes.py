"""The boundary as users write it: `with` and `async with`, and `@saga` on a function.

The object that `saga_scope()` and `kit.transaction()` return can be used again; every use is a
saga of its own, or a savepoint when it is entered inside another boundary.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from agent_saga.controls.gate import PreFlightGate
from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import Boundary, BoundaryOptions, current_scope, last_reports
from agent_saga.engine.handle import SagaHandle
from agent_saga.engine.tool import checked_name
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.importing import refuse_while_importing
from agent_saga.runtime.composition import Runtime, process_runtime
from agent_saga.wal.base import BaseWAL

F = TypeVar("F", bound=Callable[..., Any])


class SagaScope:
    """A boundary; enter it with `with` or `async with`.

    Args:
        runtime: what it runs on.
        options: how it behaves.
    """

    def __init__(self, runtime: Runtime, options: BoundaryOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._open: contextvars.ContextVar[tuple[Boundary, ...]] = contextvars.ContextVar(
            "agent_saga_open", default=()
        )
        self._last: RollbackReport | None = None

    @property
    def report(self) -> RollbackReport | None:
        """The report of the last use that ended; None before."""
        return self._last

    def _begin(self) -> Boundary:
        refuse_while_importing("opening a boundary")
        boundary = Boundary(self._runtime.engine(), self._options)
        self._open.set((*self._open.get(), boundary))
        return boundary

    def _end(self) -> Boundary:
        boundaries = self._open.get()
        if not boundaries:
            raise ConfigurationError("A boundary was left that had not been entered here.")
        self._open.set(boundaries[:-1])
        return boundaries[-1]

    def __enter__(self) -> SagaHandle:
        """Open a synchronous boundary."""
        return SagaHandle(self._begin().enter())

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
        return SagaHandle(self._begin().enter_async())

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


def saga_scope(
    *,
    name: str = "",
    gate: PreFlightGate | None = None,
    wal: BaseWAL | str | None = None,
    labels: Mapping[str, Any] | None = None,
    reraise: bool = False,
    on_unsettled: str | None = None,
    detached: bool = False,
) -> SagaScope:
    """Return a boundary: what fails inside it is undone.

    Args:
        name: how people call it.
        gate: judges the calls inside; only IRREVERSIBLE ones are asked about when not given.
        wal: a log, an address or a path; the default log when not given.
        labels: plain data recorded with it.
        reraise: raise the cause itself, the report in its notes and in `.saga_report`.
        on_unsettled: "raise" `CommittedUnsettled`, or "warn"; the setting when not given.
        detached: an independent saga even inside another boundary.

    Raises:
        SagaAborted: on leaving, when the boundary failed; see its report.
        CommittedUnsettled: on leaving, when a call has no known outcome.

    A crash inside leaves a durable record of every effect that may have happened.
    """
    runtime = _runtime(gate, wal)
    options = BoundaryOptions(
        name=name,
        labels=labels,
        reraise=reraise,
        on_unsettled=on_unsettled or runtime.settings.on_unsettled,
        detached=detached,
    )
    return SagaScope(runtime, options)


def _runtime(gate: PreFlightGate | None, wal: BaseWAL | str | None) -> Runtime:
    if wal is None and gate is None:
        outer = current_scope.get()
        kit = outer.saga.kit if outer is not None else None
        runtime = getattr(kit, "runtime", None)
        return runtime if isinstance(runtime, Runtime) else process_runtime()
    return Runtime(wal=wal, gate=gate)


@overload
def saga(fn: F) -> F: ...
@overload
def saga(fn: None = None, **options: Any) -> Callable[[F], F]: ...
def saga(fn: Any = None, **options: Any) -> Any:
    """Make every call of the decorated function a boundary of its own.

    Args:
        fn: a function or a coroutine function.
        options: as for `saga_scope`; the name is the function's when not given.
    """
    if fn is None:
        return functools.partial(saga, **options)
    if not callable(fn):
        raise ConfigurationError("@saga decorates a function; options are given by name.")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigurationError(
            "@saga cannot decorate a generator: its body runs after the call.",
            fix="Open the boundary inside it, or around the loop that uses it.",
        )
    options.setdefault("name", checked_name(getattr(fn, "__qualname__", "saga")))
    return _async_saga(fn, options) if inspect.iscoroutinefunction(fn) else _sync_saga(fn, options)


def _async_saga(fn: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def run(*args: Any, **kwargs: Any) -> Any:
        async with saga_scope(**options):
            return await fn(*args, **kwargs)

    return run


def _sync_saga(fn: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        with saga_scope(**options):
            return fn(*args, **kwargs)

    return run


def current_saga() -> SagaHandle | None:
    """Return the saga that the running code is inside of, or None."""
    scope = current_scope.get()
    return SagaHandle(scope) if scope is not None else None


def last_report() -> RollbackReport | None:
    """Return the report of the last boundary that ended in this context, or None."""
    return last_reports.get()
