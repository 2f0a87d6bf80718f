"""`KillSwitch`: what the gate asks before a step; `acting` is what a person does with it.

Rules of this part:

- Asked when a step is judged, after every wait, and once more between the durable intent and the
  call. So a step that is not announced when a halt is acknowledged does not take effect.
- The document is read again when its signal moved, and at least once a second (a quarter more while
  a step is reading it). A store without a signal is read every time.
- A store that does not answer: what was read last counts for `grace` seconds, and then every step
  is refused. A process that never read it refuses from its first step on, and so does one that has
  heard of a change and cannot read it. A damaged, emptied or lost document refuses at once. Fails
  closed.
- Inverses are not halted: undoing goes on. A quarantine stops both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from agent_saga.controls import given
from agent_saga.controls.control import CallView, Control, Surroundings, Wait, reading
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.switch import document, refusals
from agent_saga.controls.switch.acting import Acting, here
from agent_saga.controls.switch.document import KEY, Switches
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.errors import (
    Halted,
    StateError,
    StateUnavailable,
)
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.domain.clock import Clock

__all__ = ["GRACE", "KillSwitch", "set_kill_switch"]

log = logger("agent_saga.controls")

GRACE: Final = 30.0
"""Seconds for which the last known state counts when the store cannot be read."""

REREAD: Final = 1.0
"""Seconds after which the document is read again although nobody rang."""

READING: Final = 0.25
"""Seconds for which a reading that fell due serves other steps, which go on meanwhile."""

_LOOK_SERVES: Final = 0.01
"""Seconds for which one look at the signal serves the steps that were announced before it."""


class _Known(Struct, frozen=True):
    """What was read last, whether anything is set, whether the signal moved, the monotonic time."""

    switches: Switches
    some: bool
    moved: Callable[[], bool]
    at: float


class KillSwitch(Acting, Control):
    """Stops forward steps by hand: everything, one tool, a family of tools, a tag, or a saga.

    Args:
        store: where the switches are; the state store of the log in use when not given.
        grace: seconds for which the last known state counts when the store cannot be read.
        clock: where time is read; the machine's clocks when not given.

    Raises:
        ConfigurationError: `grace` is no number of seconds, or the store is none of switches.
    """

    name = refusals.CONTROL

    def __init__(
        self,
        store: SwitchStore | None = None,
        *,
        grace: float = GRACE,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(store, clock)
        self.grace = given.seconds("grace=", grace, zero=True)
        self._known: _Known | None = None
        self._since: dict[int, document.Known] = {}
        self._looked_at = self._read_until = 0.0

    def _floor(self) -> int:
        return 0 if self._known is None else self._known.switches.rev

    # --- the gate asks ---------------------------------------------------------------------------

    def bound(self, surroundings: Surroundings) -> KillSwitch:
        """Return the switch to use with a log: itself, or one on the log's own store."""
        if self._store is None:
            store = SwitchStore(surroundings.store(), surroundings.wal)
            return KillSwitch(store, grace=self.grace, clock=self._clock)
        self._store = self._store.within(surroundings)
        if self._wal is None:
            self._wal = surroundings.wal
        return self

    def check(self, call: CallView) -> Wait | None:
        """Judge a step; reads the document first when it may have changed.

        Raises:
            Halted: a halt or a drain covers it, or the switches cannot be read.
            Quarantined: its saga is quarantined.
        """
        known, now = self._known, time.monotonic()
        if known is None or (now - known.at > REREAD and self._due(known, now)):
            return self._asking(call)
        if self._moved(known, now):
            return self._asking(call)
        if known.some:
            self._judge(call, known.switches)
        return None

    def recheck(self, call: CallView) -> Wait | None:
        """Judge a step once more, directly before its call.

        One look serves every step that was durably announced before it began, for some
        milliseconds: whoever halts after the look finds them among those in flight.
        """
        known, now = self._known, time.monotonic()
        if known is None or (now - known.at > REREAD and self._due(known, now)):
            return self._asking(call)
        served = call.announced <= self._looked_at and now - self._looked_at < _LOOK_SERVES
        if not served and self._moved(known, now):
            return self._asking(call)
        if known.some:
            self._judge(call, known.switches)
        return None

    def calm(self, *, look: bool) -> bool:
        """Say that nothing is halted, as was read last; `look` also at whether that still holds."""
        known, now = self._known, time.monotonic()
        if known is None or known.some or (now - known.at > REREAD and self._due(known, now)):
            return False
        return not (look and self._moved(known, now))

    def stopping(self, call: CallView) -> Wait | None:
        """Judge a call whose turn on a thread has come."""
        return self.recheck(call)

    def undoing(self, saga: str) -> Wait | None:
        """Judge whether a saga may be undone; a halt is none of its concern.

        Raises:
            Quarantined: it is quarantined, as far as that is known.

        While the store cannot be read, what was read last counts, however long ago: what stands has
        to be undone. Only a change that was heard of and cannot be read, which may be a quarantine,
        leaves it to recovery.
        """
        known, now = self._known, time.monotonic()
        if known is None or (now - known.at > REREAD and self._due(known, now)):
            return self._asking_for(saga)
        if self._moved(known, now):
            return self._asking_for(saga)
        self._undone(saga, known.switches)
        return None

    def _asking_for(self, saga: str) -> Wait:
        try:
            seen, floor = self._before()
        except Halted:
            seen, floor = None, 0

        def then(doc: Any, error: Exception | None) -> None:
            try:
                switches = self._took(doc, error, seen, floor)
            except Halted as trouble:
                switches = Switches() if self._known is None else self._known.switches
                if floor > switches.rev:
                    raise refusals.perhaps_quarantined(saga, trouble) from trouble
                log.warning("undoing saga %s goes on: %s", saga, trouble)
            self._undone(saga, switches)

        return Wait(reading(self.store.state, KEY), then)

    def _undone(self, saga: str, switches: Switches) -> None:
        entry = switches.quarantined.get(saga)
        if entry is not None:
            raise refusals.quarantined(entry, self._log())

    def _log(self) -> str:
        """Return the address of the log that a person has to name to lift what is set."""
        wal = self._wal if self._store is None else self._store.wal or self._wal
        return wal.address if wal is not None and wal.address.startswith("file:") else ""

    def _due(self, known: _Known, now: float) -> bool:
        """Say whether a step has to read a document that is old, although nobody rang.

        One step's reading serves all that come while it lasts, unless it lasts long.
        """
        if now - known.at <= REREAD + READING and now < self._read_until:
            return False
        self._read_until = now + READING
        return True

    def _moved(self, known: _Known, now: float) -> bool:
        """Say whether the document may have changed; a look that finds nothing serves others."""
        try:
            if known.moved():
                return True
        except StateError:
            return True
        self._looked_at = now
        return False

    def _asking(self, call: CallView) -> Wait:
        seen, floor = self._before()

        def then(doc: Any, error: Exception | None) -> None:
            self._judge(call, self._took(doc, error, seen, floor))

        return Wait(reading(self.store.state, KEY), then)

    def _before(self) -> tuple[object, int]:
        """Return the signal and the floor as they are before the document is read.

        Raises:
            Halted: the signal cannot be read.
        """
        signal, floor = self.store.signal, self._floor()
        if signal is None:
            return None, floor
        try:
            return signal.seen(), max(floor, signal.floor())
        except StateError as error:
            raise refusals.unreadable(error) from error

    def _took(self, doc: Any, error: Exception | None, seen: object, floor: int) -> Switches:
        """Take what was read; return what counts.

        Raises:
            Halted: nothing counts.
        """
        now = time.monotonic()
        trouble = error
        switches = Switches()
        try:
            switches = document.read(doc, floor=floor) if error is None else switches
        except Exception as damage:
            trouble = damage
        if trouble is not None:
            if not self._last_counts(trouble, now, floor):
                raise refusals.unreadable(trouble) from trouble
            log.warning("the kill switch cannot be read; what was read last counts: %s", trouble)
            return switches if self._known is None else self._known.switches
        some = bool(switches.halts or switches.quarantined)
        read = document.Known(self._clock.now_us(), now)
        self._since = switches.known(self._since, read, here()[1])
        signal = self.store.signal
        moved = _perhaps if signal is None else signal.since(seen)
        self._known = _Known(switches, some, moved, now)
        return switches

    def _last_counts(self, trouble: Exception, now: float, floor: int) -> bool:
        """Say whether what was read last counts although the store cannot be read.

        It does not when the floor says that something was set or lifted since.
        """
        known = self._known
        if known is None or not isinstance(trouble, StateUnavailable):
            return False
        return floor <= known.switches.rev and now - known.at <= self.grace

    def _judge(self, call: CallView, switches: Switches) -> None:
        self._undone(call.saga, switches)
        now = self._clock.now_us()
        asked = document.Asked(call.tool, call.tags, now, time.monotonic(), call.began, call.opened)
        entry = switches.against(asked, self._since)
        if entry is not None:
            raise refusals.halted(call.tool, entry, self._log())


def _perhaps() -> bool:
    """Say that a document may have changed of which no signal tells."""
    return True


def set_kill_switch(switch: KillSwitch | None) -> None:
    """Have every gate of this process ask a kill switch, beside that of its log; None ends that.

    Boundaries that open later ask it.
    """
    INSTALLED.put("switch", switch)
