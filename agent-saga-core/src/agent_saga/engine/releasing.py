"""Giving a saga up to recovery, where nothing in this process will finish it.

Rules of this part:

- That it was released is recorded if the log still takes records and the saga is not fenced.
- Where that fails, as when the disk or the descriptors are used up for a while, nobody else may act
  on the saga while this process lives. It is remembered, and recorded before the next saga of this
  process, or by the next pass of a recovery daemon in it. Else recovery finds it when this process
  has died.
- A record that was appended is not appended again: whether it reached the disk is waited for only.
  Of several threads that try, one has what is remembered of a saga; so no lock is held, which a
  forked child would find locked for ever.
- What another process has taken over is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from agent_saga.domain.lifecycle import SagaState, saga_after
from agent_saga.domain.records import Ev
from agent_saga.errors import AgentSagaError, SagaForked
from agent_saga.observe.logger import logger
from agent_saga.wal.encoding import masked

if TYPE_CHECKING:
    from agent_saga.engine.scope import Scope
    from agent_saga.wal.base import BaseWAL

log = logger("agent_saga.engine")


class _Left(Struct, frozen=True):
    """A saga that could not be handed back.

    Attributes:
        writer: the writer that owns it; a forked child has another one.
        epoch: the epoch in which it does.
        cause: why it was given up.
        appended: its record was, and may not have reached the disk.
    """

    writer: str
    epoch: int
    cause: str
    appended: bool = False


_left: Final[WeakKeyDictionary[BaseWAL, dict[str, _Left]]] = WeakKeyDictionary()


def release(scope: Scope, cause: str) -> None:
    """Give a saga up to recovery: nothing in this process will act on it any more."""
    saga = scope.saga
    with saga.lock:
        before, saga.released = saga.released, True
    saga.root.fence()
    if before or saga.state not in (SagaState.RUNNING, SagaState.UNWINDING):
        return
    if saga.begun:
        hand_back(saga.engine.wal, saga.id, saga.epoch, cause)
        saga.state = saga_after(saga.state, Ev.SAGA_RELEASED)


def hand_back(wal: BaseWAL, saga: str, epoch: int, cause: str) -> None:
    """Record that a saga of this process was released; what cannot be recorded is tried again.

    Args:
        wal: the log, whose writer owns the saga.
        saga: its id.
        epoch: the epoch in which this process owns it.
        cause: why it is given up.
    """
    left = _taken(wal, saga) or _Left(wal.writer, epoch, cause)
    trouble = _recorded(wal, saga, left)
    if trouble is not None:
        log.warning("that saga %s was released could not be recorded: %s", saga, trouble)


def hand_back_left(wal: BaseWAL) -> None:
    """Try again to hand back what could not be handed back before."""
    for saga in list(_left.get(wal, ())):
        left = _taken(wal, saga)
        if left is not None and left.writer == wal.writer:
            _recorded(wal, saga, left)


def is_left(wal: BaseWAL, saga: str, epoch: int) -> bool:
    """Say whether a saga that this process owns in an epoch could not be handed back yet."""
    left = _left.get(wal, {}).get(saga)
    return left is not None and (left.writer, left.epoch) == (wal.writer, epoch)


def _recorded(wal: BaseWAL, saga: str, left: _Left) -> Exception | None:
    """Record a release, or remember it and return why it could not be recorded."""
    done = False
    try:
        if not left.appended:
            wal.check_fence(saga, left.epoch)
            payload, _ = masked({"cause": left.cause})
            wal.append(Ev.SAGA_RELEASED, saga=saga, epoch=left.epoch, payload=payload)
            left = replace(left, appended=True)
        wal.drain()
        wal.start_sync()
        done = True
    except (AgentSagaError, OSError) as trouble:
        return trouble
    finally:
        # Also if something ends the program here: until then it may begin another saga.
        if not (done or wal.is_fenced(saga, left.epoch)):
            _left.setdefault(wal, {})[saga] = left
    return None


def _taken(wal: BaseWAL, saga: str) -> _Left | None:
    """Take out what is remembered of a saga, so that nobody else tries to record it meanwhile."""
    return _left.get(wal, {}).pop(saga, None)


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
