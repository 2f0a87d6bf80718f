"""A boundary as a context manager, synchronous and asynchronous: `with` and `async with`.

Rules of this part:

- Entering inside another boundary makes a savepoint of it, unless it is detached.
- Leaving well commits the root; a savepoint is left as part of the outer saga. A shut boundary with
  calls that nobody awaited fails with `ToolNotAwaited`; if it fails anyway, a note names them.
- Leaving a savepoint because the saga is to be suspended undoes nothing: it keeps its place.
- Leaving with an exception unwinds. From an `Exception` the caller gets `SagaAborted`, raised from
  it; `CancelledError`, `KeyboardInterrupt` and `SystemExit` pass on unchanged, with the report in
  their notes and in `saga_report`. `reraise=True` treats every exception so.
- A boundary that cannot finish here (its coroutine is closed, or something ends the committing or
  undoing that nothing foresees) releases the saga to recovery.
- Unwinding runs in a task of its own: a cancellation of the caller does not reach it, and is
  passed on afterwards. What handlers call meanwhile is no step of any saga.
- In a forked child leaving does nothing: the saga and its undoing are the parent's.
"""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING, TypeVar

from agent_saga.domain.lifecycle import SagaState, ScopeState
from agent_saga.domain.report import RollbackReport
from agent_saga.engine import active, interrupts, journal
from agent_saga.engine.commit import Committed, commit
from agent_saga.engine.drive_async import AsyncDriver, drive_shielded
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.loops import refuse_blocking
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.quitting import ending_behind
from agent_saga.engine.releasing import forked, give_up, hand_back_left, release
from agent_saga.engine.requests import first_of
from agent_saga.engine.saga import Saga
from agent_saga.engine.scope import Scope, left_behind
from agent_saga.engine.suspend import asked_for, left_to_recovery, suspend
from agent_saga.engine.telling import (
    UNSETTLED,
    aborted,
    annotated,
    cause_of,
    noted,
    suspended,
    told_later,
    told_unawaited,
    unsettled,
)
from agent_saga.engine.unwind import unwind
from agent_saga.errors import (
    AbortRequested,
    ConfigurationError,
    RefusedError,
    SagaAborted,
    SuspendRequested,
    WALError,
)
from agent_saga.observe.correlation import SAGA_ID
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.ports import Engine

T = TypeVar("T")

_BEGINS_ANEW = (ScopeState.NEW, ScopeState.UNDONE, ScopeState.PARTIAL, ScopeState.STUCK)

log = logger("agent_saga.engine")

current_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar(
    "agent_saga_scope", default=None
)


def reset(variable: contextvars.ContextVar[T], token: contextvars.Token[T]) -> None:
    """Set a variable back; does nothing in another context, as when a coroutine is closed."""
    try:
        variable.reset(token)
    except ValueError:
        log.debug("%s was set in another context", variable.name)


class Boundary:
    """One use of a boundary.

    Args:
        engine: the parts to run on.
        options: how it behaves.
        inside: the scope that it is a savepoint of; the current one when not given.
        saga: the saga whose root it is, when it was identified or resumed.
    """

    def __init__(
        self,
        engine: Engine,
        options: BoundaryOptions,
        inside: Scope | None = None,
        saga: Saga | None = None,
    ) -> None:
        self.given = saga
        self.engine = engine
        self.options = options
        self.inside = inside
        self.scope: Scope | None = None
        self.report: RollbackReport | None = None
        self._log_token: contextvars.Token[str] | None = None
        self._interrupts = False

    # --- entering --------------------------------------------------------------------------------

    def _open(self, *, is_async: bool) -> Scope:
        if self.scope is not None:
            raise ConfigurationError("A boundary was entered twice; open a new one instead.")
        options = self.options
        outer = self._outer()
        if outer is None or options.detached:
            hand_back_left(self.engine.wal)
            saga = self.given or Saga(self.engine, options.name, options.labels, is_async=is_async)
            saga.root.is_async = is_async
            saga.suspendable = options.suspendable
            saga.hold = options.hold
            saga.kit = options.kit
            saga.durable = options.durable
            active.opened(saga)
            scope = saga.root
        else:
            scope = self._savepoint(outer, is_async=is_async)
        self.scope = scope
        scope.entered_from, scope.left = current_scope.get(), False
        scope.token = current_scope.set(scope)
        self._log_token = SAGA_ID.set(scope.saga.id)
        return scope

    def _outer(self) -> Scope | None:
        current = current_scope.get()
        inside = self.inside
        if current is not None and current.left:
            current = left_behind(current_scope)
        if inside is None:
            return current
        deeper = current is not None and current.saga is inside.saga and current.within(inside)
        return current if deeper else inside

    def _savepoint(self, outer: Scope, *, is_async: bool) -> Scope:
        if outer.saga.engine is not self.engine:
            raise ConfigurationError(
                "A boundary inside another one has another kit, log or gate.",
                fix="Use the outer boundary's kit, or detached=True for an independent saga.",
            )
        scope = outer.saga.open_savepoint(outer, self.options.name, is_async=is_async)
        if scope.state in _BEGINS_ANEW and not outer.saga.read_only:
            journal.scope_opened(scope)
        return scope

    def _close_context(self) -> None:
        """Make the scope outside current again, whatever order boundaries are left in.

        Interleaved generators leave an outer boundary before an inner one. What is current in
        another context, as when a coroutine is closed, stays; so does, in a task that an outer
        boundary began, that boundary when it was left: no further call belongs anywhere there.
        """
        scope, current = self.scope, current_scope.get()
        if scope is None:
            return
        scope.left = True
        if current is not None and current.saga is scope.saga and current.within(scope):
            current_scope.set(scope.entered_from)
            left_behind(current_scope)
        left_before = scope.entered_from is not None and scope.entered_from.left
        if left_before:
            outer = current_scope.get()
            SAGA_ID.set("" if outer is None else outer.saga.id)
        elif self._log_token is not None:
            reset(SAGA_ID, self._log_token)

    def enter(self) -> Scope:
        """Enter as a synchronous boundary.

        Raises:
            ConfigurationError: an event loop is running on this thread, which it would block.
        """
        refuse_blocking()
        self._interrupts = interrupts.install()
        try:
            return self._open(is_async=False)
        except BaseException:
            self._give_interrupts_back()
            raise

    def enter_async(self) -> Scope:
        """Enter as an asynchronous boundary."""
        return self._open(is_async=True)

    # --- leaving ---------------------------------------------------------------------------------

    def leave(self, error: BaseException | None) -> bool:
        """Leave a synchronous boundary; commit or unwind, then raise what the caller must see."""
        scope = self._scope()
        self._close_context()
        outside = current_scope.set(None)
        try:
            if forked(scope) or scope.saga.read_only:
                return False
            failure = self._failure(scope, error)
            request = scope.saga.suspend_request
            if request is not None and failure is request:
                if scope.parent is not None:
                    return False
                try:
                    trouble = SyncDriver(self.engine).drive(suspend(scope.saga, request))
                except BaseException as broken:
                    give_up(scope, broken)
                    raise
                failure = self._suspended(scope, request, trouble)
            if failure is None:
                failure = self._left_well(scope, self._committed(scope))
            if failure is None:
                return False
            driver = SyncDriver(self.engine, shielded=True)
            try:
                report = driver.drive(unwind(scope, cause_of(failure)))
            except BaseException as broken:
                give_up(scope, broken)
                raise
            held = interrupts.here()
            kept = held.taken() if held is not None else None
            return self._raise(scope, report, first_of(driver.cut, first_of(kept, failure)), error)
        finally:
            reset(current_scope, outside)
            self._give_interrupts_back()

    async def leave_async(self, error: BaseException | None) -> bool:
        """Leave an asynchronous boundary; commit or unwind, then raise what the caller must see."""
        scope = self._scope()
        self._close_context()
        outside = current_scope.set(None)
        try:
            if forked(scope) or scope.saga.read_only:
                return False
            if isinstance(error, GeneratorExit):
                scope.drop_unawaited()
                release(scope, "its coroutine was closed")
                return False
            return await self._leave_async(scope, error)
        finally:
            reset(current_scope, outside)
            self._give_interrupts_back()  # where it was entered with `with`

    async def _leave_async(self, scope: Scope, error: BaseException | None) -> bool:
        failure = self._failure(scope, error)
        request = scope.saga.suspend_request
        if request is not None and failure is request:
            if scope.parent is not None:
                return False
            try:
                trouble = await AsyncDriver(self.engine).drive(suspend(scope.saga, request))
            except BaseException as broken:
                give_up(scope, broken)
                raise
            failure = self._suspended(scope, request, trouble)
        if failure is None:
            failure = self._left_well(scope, await self._committed_async(scope))
        if failure is None:
            return False
        try:
            report, cut = await drive_shielded(self.engine, unwind(scope, cause_of(failure)))
        except BaseException as broken:
            give_up(scope, broken)
            raise
        if cut is not None and isinstance(failure, Exception):
            failure = cut
        return self._raise(scope, report, failure, error)

    def _suspended(
        self, scope: Scope, request: SuspendRequested, trouble: BaseException | None
    ) -> BaseException:
        """Tell the caller that the saga is suspended; return what made it fail instead."""
        if trouble is not None and scope.saga.state is not SagaState.SUSPENDED:
            return trouble
        if isinstance(trouble, (WALError, RefusedError)):
            report = left_to_recovery(scope.saga, trouble)
            self._ended(scope, report)
            raise aborted(report, trouble) from trouble
        report = scope.saga.new_report()
        report.outcome = "SUSPENDED"
        self._ended(scope, report)
        if trouble is not None:
            raise annotated(trouble, report)
        raise suspended(report, request.message, scope.saga.key or scope.saga.id) from request

    def _give_interrupts_back(self) -> None:
        if self._interrupts:
            self._interrupts = False
            interrupts.remove()

    def _scope(self) -> Scope:
        if self.scope is None:
            raise ConfigurationError("A boundary was left that had not been entered.")
        return self.scope

    def _failure(self, scope: Scope, error: BaseException | None) -> BaseException | None:
        """Return what makes the boundary fail, or None; a surprise leaves it to recovery."""
        try:
            return self._told_failure(scope, error)
        except BaseException as broken:
            give_up(scope, broken)
            raise

    def _told_failure(self, scope: Scope, error: BaseException | None) -> BaseException | None:
        not_awaited = told_unawaited(scope.drop_unawaited())
        request = asked_for(scope.saga, error)
        if request is not None:
            return request
        if error is not None:
            if scope.parent is None:
                error = ending_behind(error) or error
            if not_awaited is not None:
                noted(error, str(not_awaited))
            return error
        if scope.parent is None and scope.saga.abort_reason is not None:
            return AbortRequested(scope.saga.abort_reason)
        if scope.parent is None and scope.saga.suspend_request is not None:
            return scope.saga.suspend_request
        return not_awaited

    def _committed(self, scope: Scope) -> Committed | None:
        if scope.parent is not None:
            return None
        try:
            return SyncDriver(self.engine).drive(commit(scope.saga))
        except BaseException as broken:
            give_up(scope, broken)
            raise

    async def _committed_async(self, scope: Scope) -> Committed | None:
        if scope.parent is not None:
            return None
        try:
            return await AsyncDriver(self.engine).drive(commit(scope.saga))
        except BaseException as broken:
            give_up(scope, broken)
            raise

    def _left_well(self, scope: Scope, result: Committed | None) -> BaseException | None:
        """Finish a boundary that was left well; return what makes it fail after all."""
        if result is None:
            scope.shut()
            if scope.state is ScopeState.OPEN:
                journal.scope_closed(scope, "LEFT")
            return None
        report = result.report
        if not result.done:
            if report.outcome != "RELEASED":
                return first_of(result.cut, ConfigurationError("it could not be committed"))
            self._ended(scope, report)
            raise aborted(report, first_of(result.cut, ConfigurationError("not committed")))
        self._ended(scope, report)
        if result.cut is not None:
            raise annotated(result.cut, report)
        if not report.clean:
            if self.options.on_unsettled == "raise":
                raise unsettled(report)
            log.warning("%s %s", UNSETTLED, report.headline())
        return None

    def _raise(
        self,
        scope: Scope,
        report: RollbackReport,
        failure: BaseException,
        error: BaseException | None,
    ) -> bool:
        self._ended(scope, report)
        level = logging.INFO if report.clean else logging.ERROR
        if log.isEnabledFor(level):
            log.log(level, "%s", report.headline())
        if self.options.reraise or not isinstance(failure, Exception):
            annotated(failure, report)
            if failure is error:
                return False
            raise failure
        cause = failure.cause if isinstance(failure, SagaAborted) else failure
        raise aborted(report, cause) from failure

    def _ended(self, scope: Scope, report: RollbackReport) -> None:
        self.report = report
        scope.report = report
        if scope.parent is None:
            scope.saga.ended_with(report)
        elif scope.saga.report is not None:
            told_later(scope.saga.report, report)
        last_reports.set(report)


last_reports: contextvars.ContextVar[RollbackReport | None] = contextvars.ContextVar(
    "agent_saga_last_report", default=None
)
