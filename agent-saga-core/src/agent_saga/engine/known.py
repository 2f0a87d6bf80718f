"""Telling the state store how a saga was left, where it knows of the saga.

Rules of this part:

- The store is told once the log holds durably how the saga was left, and which record says so. So a
  log from whose end records were taken is noticed, and nothing of the saga is run again.
- The store knows a saga to which its program gave an id, one that was suspended, and one that was
  taken over. Of any other it is told nothing: that costs each saga a write.
- The log is the truth. A store that could not be told is behind it, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.controls.control import Use
from agent_saga.engine.requests import Protocol
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga

log = logger("agent_saga.engine")


def tell_ended(saga: Saga, seq: int, *, settled: bool) -> Protocol[None]:
    """Tell the store that a saga has ended.

    Args:
        saga: the saga.
        seq: the record that says so; it is durable.
        settled: nothing is left to do about it.
    """
    claims = saga.engine.claims
    if claims is not None and (saga.key or saga.epoch > 1):
        yield from _told(saga, claims.ended(saga.id, saga.epoch, seq, settled=settled))


def tell_empty(saga: Saga) -> Protocol[None]:
    """Tell the store that a saga has ended of which nothing was recorded."""
    claims = saga.engine.claims
    if claims is not None and saga.key:
        yield from _told(saga, claims.empty(saga.id, saga.epoch))


def tell_suspended(saga: Saga, seq: int, deadline: int) -> Protocol[None]:
    """Tell the store that a saga is suspended.

    Args:
        saga: the saga.
        seq: the record that says so; it is durable.
        deadline: until when, in microseconds since the epoch.
    """
    claims = saga.engine.claims
    if claims is not None:
        yield from _told(saga, claims.suspended(saga.id, saga.epoch, seq, deadline))


def _told(saga: Saga, use: Use) -> Protocol[None]:
    ending = yield use
    if ending.error is not None:
        log.warning("how saga %s was left could not be stored: %s", saga.id, ending.error)
