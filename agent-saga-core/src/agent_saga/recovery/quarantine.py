"""Sagas that a person has quarantined: recovery keeps its hands off them.

Fails closed: while nobody can tell what is quarantined, nothing is claimed.
"""

from __future__ import annotations

import contextlib

from agent_saga.controls.switch.document import Entry
from agent_saga.controls.switch.refusals import quarantined
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.errors import StateError
from agent_saga.state.address import open_state
from agent_saga.state.base import StateStore

__all__ = ["check_not_quarantined", "quarantined_in", "quarantined_sagas"]


def quarantined_sagas(store: StateStore) -> dict[str, Entry]:
    """Return the quarantined sagas of a log by id.

    Raises:
        StateError: it cannot be told which are.
    """
    return dict(SwitchStore(store).read().quarantined)


def check_not_quarantined(store: StateStore, saga: str, log: str = "") -> None:
    """Refuse to take a quarantined saga over.

    Args:
        store: where that stands.
        saga: the saga's id.
        log: the path of its log, for the command that lifts it.

    Raises:
        Quarantined: it is quarantined.
        StateError: it cannot be told.
    """
    entry = quarantined_sagas(store).get(saga)
    if entry is not None:
        raise quarantined(entry, log)


def quarantined_in(path: str) -> dict[str, Entry]:
    """Return what is quarantined in the log at a path, for people to read.

    Nothing while that cannot be read, which recovery tells of.
    """
    with open_state(f"file:{path}") as store, contextlib.suppress(StateError):
        return quarantined_sagas(store)
    return {}
