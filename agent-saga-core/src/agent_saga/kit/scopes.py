"""The boundary as users write it: `with` and `async with`, and `@saga` on a function.

The object that `saga_scope()` and `kit.transaction()` return can be used again; every use is a
saga of its own, or a savepoint when it is entered inside another boundary.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from agent_saga.controls.gate import PreFlightGate
from agent_saga.domain.report import RollbackReport
from agent_saga.engine import calls
from agent_saga.engine.boundary import current_scope, last_reports
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.tool import checked_name
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.callables import is_async_callable
from agent_saga.runtime.composition import Runtime, on_crash_options, process_runtime
from agent_saga.wal.base import BaseWAL

F = TypeVar("F", bound=Callable[..., Any])


def saga_scope(
    *,
    name: str = "",
    gate: PreFlightGate | None = None,
    wal: BaseWAL | str | None = None,
    labels: Mapping[str, Any] | None = None,
    reraise: bool = False,
    on_unsettled: str | None = None,
    detached: bool = False,
    commit: str = "pipelined",
    saga_id: str | None = None,
    resume: bool = False,
    suspendable: bool = False,
    on_crash: str | None = None,
    resume_grace: float | None = None,
    fork_at: str | None = None,
    abandoned: str | None = None,
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
        commit: "pipelined", or "durable" to wait for the disk before any caller sees a result.
        saga_id: an id of your own, used once; needs a log in files.
        resume: go on with the saga of this id if there is one: recorded results are given again
            and do not run.
        suspendable: refuse, before its effect, a step that another process could not undo.
        on_crash: if its process dies, recovery undoes it ("undo"), or holds it first for its
            program to go on with ("hold"); the setting when not given.
        resume_grace: for how many seconds it is held; then it is undone.
        fork_at: with `resume`: leave what was recorded after this step (its id, the beginning of
            it, or its tool; "begin" is before the first) and go another way.
        abandoned: with `fork_at`: what becomes of the steps after it: "undo" them before anything
            else, or "keep" them as steps of this saga.

    Raises:
        ConfigurationError: an option does not fit, such as `resume` without a `saga_id`.
        ForkRefused: on entering, when it cannot go another way as asked; nothing was run.
        DuplicateSaga: on entering, when the id was used and `resume` is not given.
        SagaSuspended: on leaving, after `saga.suspend(…)`.
        SagaAborted: on leaving, when the boundary failed; see its report.
        CommittedUnsettled: on leaving, when a call has no known outcome.

    A crash inside leaves a durable record of every effect that may have happened.
    """
    own = wal is not None or gate is not None
    runtime = Runtime(wal=wal, gate=gate) if own else process_runtime()
    options = BoundaryOptions(
        name=name,
        labels=labels,
        reraise=reraise,
        on_unsettled=on_unsettled or runtime.settings.on_unsettled,
        detached=detached,
        commit=commit,
        saga_id=saga_id,
        resume=resume,
        suspendable=suspendable,
        fork_at=fork_at,
        abandoned=abandoned,
        **on_crash_options(runtime.settings, on_crash, resume_grace),
    )

    def engine() -> Engine:
        outer = current_scope.get()
        if own or detached or outer is None:
            return runtime.engine()
        return outer.saga.engine

    return SagaScope(engine, options, origin=runtime.origin if saga_id is not None else None)


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
    return _async_saga(fn, options) if is_async_callable(fn) else _sync_saga(fn, options)


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
            result = fn(*args, **kwargs)
            if calls.pending(result) or inspect.isgenerator(result):
                calls.discard(result)
                raise ConfigurationError(
                    f"{options['name']} returned something that has not run yet, so its boundary "
                    "would have ended before it.",
                    fix="Decorate the coroutine function itself, or open the boundary inside it.",
                )
            return result

    return run


def current_saga() -> SagaHandle | None:
    """Return the saga that the running code is inside of, or None."""
    scope = current_scope.get()
    return SagaHandle(scope) if scope is not None else None


def last_report() -> RollbackReport | None:
    """Return the report of the last boundary that ended in this context, or None."""
    return last_reports.get()
