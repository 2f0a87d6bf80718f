"""What is kept of steps that were met again where a crash had lost their superstep.

The log says where a step was made. A graph that goes on after a crash asks for it again in another
superstep, and is given its result: from then on that superstep tells of it. A process that goes on
after the next crash must know so: else it would give the result once more, to a call that is
another one, or take what the state tells of for lost.

Rules of this part:

- It is noted durably before the result is given. A suspended saga keeps the same in the log.
- The note of a saga goes when the saga has ended; that is looked at when another note is made.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain import identity
from agent_saga.state.base import Change
from agent_saga_langgraph.threads import usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.kit.frameworks.recorded import Recorded
    from agent_saga.state.base import Docs
    from agent_saga.state.document import Doc
    from agent_saga_langgraph.place import Spot

_FOLDER: Final = "langgraph-met/"


class Notes:
    """What is kept of one saga.

    Args:
        recorded: what the log tells.
        saga: the saga's id, of our own.
    """

    def __init__(self, recorded: Recorded, saga: str) -> None:
        self._recorded = recorded
        self._key = _FOLDER + identity.saga_id_of(saga)
        self._saga = saga
        self._lock = threading.Lock()
        self._new: dict[str, Any] = {}

    def kept(self) -> object:
        """Return what an earlier process kept, as `History` takes it. Blocks."""
        return self._recorded.store.get(self._key)

    def add(self, key: str, spots: Sequence[Spot]) -> None:
        """Let it be kept where a step was met again.

        Args:
            key: the step's.
            spots: the places.
        """
        with self._lock:
            self._new[key] = json.loads(json.dumps(spots))

    def save(self) -> None:
        """Keep durably what was added. Blocks where there is something."""
        added = self._added()
        if added:
            over = self._over()
            self._recorded.store.transact([self._key, *over], self._rule(added, over), durable=True)
            self._saved(added)

    async def save_async(self) -> None:
        """Do what `save` does without blocking the event loop."""
        if self._added():
            await asyncio.to_thread(self.save)

    def _added(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._new)

    def _saved(self, added: dict[str, Any]) -> None:
        with self._lock:
            self._new = {key: at for key, at in self._new.items() if added.get(key) != at}

    def _over(self) -> list[str]:
        """Return the notes of sagas that have ended."""
        recorded = self._recorded
        kept = {str(doc["saga"]): key for key, doc in recorded.store.scan(_FOLDER)}
        kept.pop(self._saga, None)
        left = recorded.departed(kept)
        return [kept[one] for one in kept if one in left or not usable(recorded.state(one))]

    def _rule(self, added: dict[str, Any], over: list[str]) -> Any:
        def add(docs: Docs) -> Change[None]:
            before: Doc = docs[self._key] or {}
            met = {**dict(before.get("met") or {}), **added}
            return Change(
                None, {self._key: {"saga": self._saga, "met": met}, **dict.fromkeys(over)}
            )

        return add
