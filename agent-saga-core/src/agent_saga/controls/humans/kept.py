"""What requests and standing grants have in common: a state store, a log, and how both are used.

Rules of this part:

- A decision is stored durably before anybody hears of it, then rung, then recorded in the log. A
  log that fails takes nothing of it back.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from agent_saga.controls import given
from agent_saga.controls.humans.forgetting import forget_old
from agent_saga.controls.humans.waiting import Listener, listener_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.commands import told_command
from agent_saga.domain.records import Ev
from agent_saga.errors import AgentSagaError, ApprovalError, ConfigurationError
from agent_saga.observe.logger import logger
from agent_saga.wal.encoding import masked

if TYPE_CHECKING:
    from agent_saga.domain.clock import Clock
    from agent_saga.state.base import StateStore
    from agent_saga.wal.base import BaseWAL

__all__ = ["Kept", "escaped", "id_of", "nobody", "note_of"]

log = logger("agent_saga.controls")
_LONGEST_NOTE: Final = 2000


def nobody(_: str) -> None:
    """Tell nobody."""


class Kept:
    """Where people's decisions are kept, and recorded.

    Args:
        state: the state store.
        wal: the log in which decisions are recorded, if any.
        clock: where time is read; the machine's clocks when not given.

    Attributes:
        forget_again: when what is old is looked for again, on the monotonic clock.
    """

    forget_again: float = 0.0

    def __init__(
        self, state: StateStore, wal: BaseWAL | None = None, *, clock: Clock | None = None
    ) -> None:
        self._state = state
        self._wal = wal
        self.clock = SYSTEM_CLOCK if clock is None else clock

    @property
    def state(self) -> StateStore:
        """The state store."""
        return self._state

    @property
    def wal(self) -> BaseWAL | None:
        """The log in which decisions are recorded."""
        return self._wal

    @functools.cached_property
    def listener(self) -> Listener:
        """What wakes who waits for a decision."""
        return listener_of(self.state)

    def forget_old(self) -> int:
        """Forget requests and grants that were over long ago; return how many documents. Blocks.

        Raises:
            StateError: the store cannot be read or written.
        """
        return forget_old(self.state, now=self.clock.now_us())

    def _lister(self) -> str:
        """Return the command that lists what there is."""
        address = self.wal.address if self.wal is not None else ""
        return told_command("approvals list", address if address.startswith("file:") else "")

    def _record(self, **facts: Any) -> None:
        """Record what holds already; a log that fails takes nothing of it back."""
        wal = self.wal
        if wal is None:
            return
        try:
            wal.append(Ev.APPROVAL_DECIDED, payload=masked(facts)[0])
            wal.drain()
            wal.start_sync()
        except AgentSagaError:
            log.exception("a decision holds, and could not be recorded")


def id_of(request: object) -> str:
    """Return the id of a request.

    Raises:
        ApprovalError: it is no text of the length that ids have.
    """
    if not isinstance(request, str) or len(request) > 200:
        raise ApprovalError(
            f"{given.shown(request)} is no request's id.",
            fix="Their ids: agent-saga approvals list",
        )
    return escaped(request)


def escaped(text: object) -> str:
    """Return a text that a store can carry; what is none names nobody."""
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else ""


def note_of(note: object) -> str:
    """Return a remark as it is kept: one of an absurd length is cut.

    Raises:
        ConfigurationError: it is no text.
    """
    if not isinstance(note, str):
        raise ConfigurationError(f"note= is a text, not {type(note).__name__}.")
    return escaped(note)[:_LONGEST_NOTE]
