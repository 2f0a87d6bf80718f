"""Giving a saga up to recovery, where nothing in this process will finish it.

That it was released is recorded if the log still takes records and the saga is not fenced; else
recovery finds it when this process has died.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.errors import AgentSagaError, SagaForked, WALError
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.scope import Scope

log = logger("agent_saga.engine")


def release(scope: Scope, cause: str) -> None:
    """Give a saga up to recovery: nothing in this process will act on it any more."""
    saga = scope.saga
    saga.root.fence()
    saga.released = True
    if saga.state not in (SagaState.RUNNING, SagaState.UNWINDING):
        return
    try:
        saga.engine.wal.check_fence(saga.id, saga.epoch)
        journal.saga_event(saga, Ev.SAGA_RELEASED, cause=cause)
        saga.engine.wal.drain()
        saga.engine.wal.start_sync()
    except (WALError, AgentSagaError) as trouble:
        log.warning("that saga %s was released could not be recorded: %s", saga.id, trouble)


def forked(scope: Scope) -> bool:
    """Say whether this is a forked child, whose copy of the boundary means nothing."""
    try:
        scope.saga.check_fork()
    except SagaForked as error:
        log.warning("%s Leaving the child's copy of the boundary does nothing.", error.message)
        return True
    return False


def give_up(scope: Scope, broken: BaseException) -> None:
    """Release a saga that nobody here will finish, unless it is the parent's."""
    if not forked(scope):
        closed = isinstance(broken, GeneratorExit)
        release(scope, "its coroutine was closed" if closed else type(broken).__name__)
