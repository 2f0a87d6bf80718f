"""What tells a log from others, also when it is moved or another one takes its place.

The identity is a document in the state store that belongs to the log, made when it is first asked
for. In checkpoints it stands before the log's address, which is for people.
"""

from __future__ import annotations

import platform
import uuid
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from agent_saga.state.base import one

if TYPE_CHECKING:
    from agent_saga.kit.frameworks.recorded import Recorded
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc

_KEY: Final = "langgraph-log"
_known: WeakKeyDictionary[StateStore, str] = WeakKeyDictionary()


def mark_of(recorded: Recorded) -> str:
    """Return how checkpoints name a log. Blocks."""
    return f"{_identity(recorded.store)} {recorded.address} on {platform.node()}"


def identity_in(mark: str) -> str:
    """Return the identity that a mark holds."""
    return mark.partition(" ")[0]


def told(mark: str) -> str:
    """Return what a person is told of the log."""
    return mark.partition(" ")[2]


def _identity(store: StateStore) -> str:
    found = _known.get(store)
    if found is None:
        fresh = uuid.uuid4().hex

        def keep(doc: Doc | None) -> tuple[Doc | None, str]:
            kept = doc or {"identity": fresh}
            return kept, str(kept["identity"])

        found = _known[store] = store.transact([_KEY], one(_KEY, keep), durable=True)
    return found
