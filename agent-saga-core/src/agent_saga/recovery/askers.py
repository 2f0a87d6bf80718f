"""Who still waits for the answer to a request for approval, as the log tells it.

Rules of this part:

- A request outlives the process that asked, since the same step of the resumed saga takes the
  answer. So one whose process is gone can be answered, and whoever answers is told.
- A saga that has ended, or is being undone, takes no step any more: no yes to a request of it
  counts.
- Reading makes nothing. What the log does not tell is left open: nobody is called gone unless that
  is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.views import SagaView
from agent_saga.domain.words import SAGA_WORDS
from agent_saga.errors import WALError
from agent_saga.recovery.hold import owner_is_dead
from agent_saga.recovery.survey import look_at

__all__ = ["UNTOLD", "Asker", "Waiting", "asker_of", "askers"]

_S = SagaState
_OVER: Final = frozenset(
    {_S.COMMITTED, _S.ROLLED_BACK, _S.PARTIAL, _S.STUCK, _S.CLOSED, _S.REOPENED, _S.UNWINDING}
)


class Waiting(Enum):
    """Whether somebody waits for an answer."""

    WAITS = "waits"
    SUSPENDED = "suspended"
    GONE = "gone"
    ENDED = "ended"


class Asker(Struct, frozen=True):
    """What became of who asked.

    Attributes:
        waiting: whether an answer is waited for.
        words: the same as a sentence without its full stop; empty where a process waits.
    """

    waiting: Waiting
    words: str = ""

    @property
    def ended(self) -> bool:
        """No yes counts any more."""
        return self.waiting is Waiting.ENDED


UNTOLD: Final = Asker(Waiting.WAITS)
"""What is taken for true where the log does not tell."""


def asker_of(view: SagaView | None, *, dead: bool) -> Asker:
    """Return what became of who asked.

    Args:
        view: the saga of the request; None where the log does not have it.
        dead: the process that owned it is proved dead.
    """
    if view is None:
        return UNTOLD
    if view.state in _OVER:
        return Asker(
            Waiting.ENDED, f"its saga {SAGA_WORDS[view.state]}; nothing waits for an answer"
        )
    if view.state is _S.SUSPENDED:
        return Asker(Waiting.SUSPENDED, "its saga is suspended; who resumes it takes the answer")
    if view.state is _S.RELEASED or (view.state is _S.RUNNING and dead):
        return Asker(
            Waiting.GONE,
            "the process that asked is gone; an answer counts only if the program resumes its saga "
            "before recovery undoes it",
        )
    return UNTOLD


def askers(path: str | os.PathLike[str], requests: Iterable[Mapping[str, Any]]) -> dict[str, Asker]:
    """Return what became of who asked, by the saga's id; the log is read once.

    Args:
        path: the log's directory.
        requests: the documents of requests.

    A log that cannot be read tells nothing.
    """
    sagas = {str(request["saga"]) for request in requests}
    if not sagas or not os.path.isdir(path):  # noqa: PTH112 - pathlib is slow to load
        return {}
    try:
        found = look_at(path, sagas)
    except WALError:
        return {}
    place = os.fspath(path)
    return {
        saga: asker_of(one.view, dead=owner_is_dead(place, one.view)) for saga, one in found.items()
    }
