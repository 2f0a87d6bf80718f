"""What a person does with the kill switch: halt, drain, quarantine, and lift.

Rules of this part:

- A change holds when it is stored and was rung, durably; only then does the person hear of it. Then
  it is recorded in the log. A log that fails takes nothing of it back.
- A scope that covers nothing by its form is refused. One that covers no tool that is declared in
  this process is set, and told with the nearest ones.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agent_saga.controls import given
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.switch import document, scopes
from agent_saga.controls.switch.document import DRAIN, HALT, Entry, Here, Switches
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.records import Ev
from agent_saga.errors import AgentSagaError, ConfigurationError
from agent_saga.observe.logger import logger
from agent_saga.wal.encoding import masked

if TYPE_CHECKING:
    from agent_saga.domain.clock import Clock
    from agent_saga.wal.base import BaseWAL

__all__ = ["Acting", "Set", "here"]

log = logger("agent_saga.controls")


class Set(Struct, frozen=True):
    """What a change did.

    Attributes:
        entries: what was set, or taken out.
        switches: what is set now.
        known: whether the scope covers a tool that is declared in this process; True where none is.
        nearest: scopes of declared tools that are near, when it covers none.
    """

    entries: tuple[Entry, ...]
    switches: Switches
    known: bool = True
    nearest: tuple[str, ...] = ()


class Acting:
    """The hand on the switch.

    Args:
        store: where the switches are, if that is known.
        clock: where time is read; the machine's clocks when not given.

    Raises:
        ConfigurationError: the store is none of switches.
    """

    def __init__(self, store: SwitchStore | None, clock: Clock | None) -> None:
        if store is not None and not isinstance(store, SwitchStore):
            raise ConfigurationError(
                f"A kill switch takes a store of switches, not {type(store).__name__}.",
                fix="KillSwitch(FileSwitchStore())",
            )
        self._store = store
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._wal: BaseWAL | None = None

    @property
    def store(self) -> SwitchStore:
        """Where the switches are.

        Raises:
            ConfigurationError: none was given.
        """
        if self._store is None:
            raise ConfigurationError(
                "This kill switch names no store, so it is set by whoever names the log.",
                fix="KillSwitch(FileSwitchStore()), or the command agent-saga halt.",
            )
        return self._store

    def _floor(self) -> int:
        """Return the revision that the document had reached, as far as this process saw it."""
        return 0

    def switches(self) -> Switches:
        """Return what is set now; blocks.

        Raises:
            StateError: the store cannot be read, or has lost the document.
        """
        return self.store.read(floor=self._floor())

    def halt(
        self,
        scope: str = scopes.EVERYTHING,
        *,
        reason: str,
        by: str,
        drain: bool = False,
        ttl: float | None = None,
    ) -> Set:
        """Halt forward steps; when this returns, no step that was not announced takes effect.

        Args:
            scope: `*`, `tool:NAME`, `tool:PREFIX.*` or `tag:NAME`.
            reason: why; recorded, and shown to whoever is refused.
            by: who; recorded and shown too.
            drain: let sagas that have begun go on to their end.
            ttl: seconds until it is over; without it, it holds until it is lifted.

        Raises:
            ConfigurationError: the scope covers nothing by its form, `reason` or `by` is blank, or
                the time cannot be used.
            StateError: it could not be stored, or others could not be told; it may not hold.

        Crash: a halt that was stored holds, also when nobody was told that it does. Blocks.
        """
        scope = scopes.checked(scope)
        at = self._clock.now_us()
        entry: dict[str, Any] = {
            "scope": scope,
            "mode": DRAIN if given.flag("drain=", drain) else HALT,
            "reason": given.words("reason=", reason),
            "by": given.name("by=", by),
            "at": at,
            "until": None if ttl is None else at + int(given.seconds("ttl=", ttl) * 1_000_000),
        }
        now = here()
        switches, _ = self.store.change(
            lambda doc, floor: _with_nothing(document.add_halt(doc, floor=floor, here=now, **entry))
        )
        self._record(Ev.SWITCH_HALTED, **entry)
        tools = scopes.declared_tools().items()
        found = not tools or scopes.covers_any(scope, tools)
        near = () if found else tuple(scopes.nearest(scope, tools))
        if not found:
            log.warning(
                "the halt of %s covers no tool that is declared here; near: %s", scope, near
            )
        return Set((switches.halts[-1],), switches, found, near)

    def lift(self, scope: str, *, by: str) -> Set:
        """Lift the halts and drains of exactly this scope.

        Raises:
            ConfigurationError: the scope or the name cannot be used.
            StateError: it could not be stored.
        """
        scope, who, at = scopes.checked(scope), given.name("by=", by), self._clock.now_us()
        now = here()
        switches, lifted = self.store.change(
            lambda doc, floor: document.lift(doc, floor=floor, scope=scope, at=at, here=now)
        )
        if lifted:
            self._record(Ev.SWITCH_LIFTED, scope=scope, by=who, at=at)
        return Set(tuple(lifted), switches)

    def quarantine(self, saga: str, *, reason: str, by: str) -> Set:
        """Stop a saga's steps and its inverses, and keep recovery from it.

        Raises:
            ConfigurationError: the saga, `reason` or `by` is blank.
            StateError: it could not be stored.
        """
        entry: dict[str, Any] = {
            "saga": given.name("saga=", saga),
            "reason": given.words("reason=", reason),
            "by": given.name("by=", by),
            "at": self._clock.now_us(),
        }
        switches, _ = self.store.change(
            lambda doc, floor: _with_nothing(document.quarantine(doc, floor=floor, **entry))
        )
        self._record(Ev.QUARANTINE_SET, **entry)
        return Set((switches.quarantined[entry["saga"]],), switches)

    def release_saga(self, saga: str, *, by: str) -> Set:
        """Take a saga out of quarantine; recovery and its program may go on with it.

        Raises:
            ConfigurationError: the saga or the name is blank.
            StateError: it could not be stored.
        """
        who, name = given.name("by=", by), given.name("saga=", saga)
        switches, out = self.store.change(
            lambda doc, floor: document.release(doc, floor=floor, saga=name)
        )
        if out:
            self._record(Ev.QUARANTINE_LIFTED, saga=name, by=who, at=self._clock.now_us())
        return Set(tuple(out), switches)

    def _record(self, event: str, **facts: object) -> None:
        """Record a change that holds already; a log that fails takes nothing of it back."""
        wal = self.store.wal or self._wal
        if wal is None:
            return
        try:
            wal.wait_durable(wal.append(event, payload=masked(facts)[0]))
        except AgentSagaError:
            log.exception("a change of the kill switch holds, and could not be recorded")


def here() -> Here:
    """Return the clock that no step moves, and which run of the host it is of."""
    return time.monotonic(), moment(SYSTEM_CLOCK).boot


def _with_nothing(made: tuple[Any, Switches]) -> tuple[Any, tuple[Switches, None]]:
    doc, switches = made
    return doc, (switches, None)
