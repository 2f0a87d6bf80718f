"""Where the document of the kill switch is kept: in a state store, with a signal beside it.

Rules of this part:

- A change is stored durably first, then rung; only then is it told to whoever asked for it. So
  nobody hears of a halt that a process on this host does not see at its next look.
- The floor is taken before the document is read; a document below it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from agent_saga.controls.switch.document import KEY, Switches, read
from agent_saga.state.base import StateStore, one
from agent_saga.state.signal import Signal, signal_of

if TYPE_CHECKING:
    from agent_saga.controls.control import Surroundings
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["SIGNAL", "SwitchStore"]

T = TypeVar("T")
SIGNAL = "switch"

Change = Callable[["Doc | None", int], "tuple[Doc | None, tuple[Switches, T]]"]


class SwitchStore:
    """The kill switch's document in a state store.

    Args:
        state: the state store.
        wal: the log in which changes are recorded, if any.
    """

    def __init__(self, state: StateStore, wal: BaseWAL | None = None) -> None:
        self._state = state
        self._wal = wal

    @property
    def state(self) -> StateStore:
        """The state store."""
        return self._state

    @property
    def wal(self) -> BaseWAL | None:
        """The log in which changes are recorded."""
        return self._wal

    def within(self, surroundings: Surroundings) -> SwitchStore:
        """Return the store to use with a log: itself, unless it is that of any log in use."""
        return self

    @functools.cached_property
    def signal(self) -> Signal | None:
        """What tells other processes of a change; None where every look asks the store."""
        return signal_of(self.state, SIGNAL)

    def read(self, *, floor: int = 0) -> Switches:
        """Return what is set now; blocks.

        Args:
            floor: a revision that the document had reached, as somebody saw it.

        Raises:
            StateUnavailable: no answer in time.
            StateError: the store cannot be read, or has lost the document.
        """
        signal = self.signal
        rung = 0 if signal is None else signal.floor()
        return read(self.state.get(KEY), floor=max(floor, rung))

    def change(self, rule: Change[T]) -> tuple[Switches, T]:
        """Apply a change, durably, and ring; blocks.

        Args:
            rule: gets the document and the floor; returns the document, what it says, and more.

        Raises:
            StateUnavailable: no answer in time; the message says what is known.
            StateError: the store cannot be read or written, or nobody else could be told.
        """
        signal = self.signal
        floor = 0 if signal is None else signal.floor()
        after, more = self.state.transact([KEY], one(KEY, lambda doc: rule(doc, floor)))
        if signal is not None:
            signal.ring(after.rev)
        return after, more
