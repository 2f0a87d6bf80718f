"""The rules of the kill switch, as pure functions over one document.

Rules of this part:

- The document holds every halt, every quarantined saga, and a revision that rises with each change.
  A change adds or takes out its own entries only, so that two operators who act at once lose
  nothing.
- A halt forbids forward steps. A drain forbids them in sagas that began after it was set, by the
  wall clock of the host; those that had begun go on to their end. A quarantine forbids a saga's
  steps and its inverses.
- A halt with an end is over at that wall-clock time; an end that has passed forbids nothing, and is
  taken out at the next change.
- A clock step opens nothing: a halt with an end is not over either until its time has gone by on
  the monotonic clock, and no saga that was opened since began before a drain. That is counted from
  when it was set, in the same run of the host; elsewhere from when the process came to know of it.
- The store says beside the document which revision it has reached (the floor). A document below
  the floor has been lost or put back: it is refused, and a halt of everything is set by the next
  person who sets one, until somebody lifts it by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from agent_saga.controls.switch.scopes import EVERYTHING, checked, covers
from agent_saga.errors import ConfigurationError, StateError

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = [
    "DRAIN",
    "HALT",
    "KEY",
    "Asked",
    "Entry",
    "Known",
    "Switches",
    "add_halt",
    "lift",
    "quarantine",
    "read",
    "release",
]

KEY: Final = "switch"
"""The key of the document."""

HALT: Final = "halt"
DRAIN: Final = "drain"
QUARANTINE: Final = "quarantine"
LOST: Final = "the store of the kill switch was lost; look what must be halted, then lift this"


Here: TypeAlias = tuple[float, str]
"""The monotonic clock, in seconds, and which run of the host it is of; empty if nobody knows."""


class Known(Struct, frozen=True):
    """What the clocks said when a process first read an entry.

    Attributes:
        wall: microseconds since the epoch. monotonic: seconds.
    """

    wall: int
    monotonic: float


class Entry(Struct, frozen=True):
    """One halt or one quarantine.

    Attributes:
        scope: what it covers; a saga's id for a quarantine.
        mode: "halt", "drain" or "quarantine".
        reason, by: why, and who set it.
        at: when, in microseconds since the epoch.
        until: when it is over, or None.
        rev: the revision that it came with.
        here: the other clock when it was set, if that is known.
    """

    scope: str
    mode: str
    reason: str
    by: str
    at: int
    until: int | None
    rev: int
    here: Here | None = None

    def holds(self, now: int, here: Here | None = None) -> bool:
        """Say whether it is not over by the wall clock, or not yet by the other one."""
        if self.until is None or now < self.until:
            return True
        since = None if here is None else self.since(here[1])
        if here is None or since is None:
            return False
        return (here[0] - since.monotonic) * 1_000_000 < self.until - since.wall

    def since(self, boot: str) -> Known | None:
        """Return what the clocks said when it was set; None if that was in another run."""
        if self.here is None or not boot or self.here[1] != boot:
            return None
        return Known(self.at, self.here[0])


_UNKNOWN: Final[Mapping[int, Known]] = MappingProxyType({})


class Asked(Struct, frozen=True):
    """Which forward step is judged, and when.

    Attributes:
        tool, tags: the tool's name and its labels.
        now: the wall clock, in microseconds. monotonic: the other clock, in seconds.
        began: when the step's saga began, in microseconds; 0 if nobody knows.
        opened: when it was opened here, on the monotonic clock; of a resumed one, long ago.
    """

    tool: str
    tags: Iterable[str]
    now: int
    monotonic: float = 0.0
    began: int = 0
    opened: float = -math.inf


class Switches(Struct, frozen=True):
    """What a document says.

    Attributes:
        rev: its revision; 0 before anything was ever set.
        halts: halts and drains, in the order in which they were set.
        quarantined: the quarantined sagas, by id.
    """

    rev: int = 0
    halts: tuple[Entry, ...] = ()
    quarantined: Mapping[str, Entry] = MappingProxyType({})

    def against(self, asked: Asked, known: Mapping[int, Known] = _UNKNOWN) -> Entry | None:
        """Return what forbids a forward step, or None.

        Args:
            asked: the step.
            known: since when this process knows the entries, by their revision.
        """
        for entry in self.halts:
            since = known.get(entry.rev)
            if _covers(entry, asked, since) and not _over(entry, asked, since):
                return entry
        return None

    def known(self, before: Mapping[int, Known], now: Known, boot: str = "") -> dict[int, Known]:
        """Return since when the entries are known, if others were known before."""
        return {one.rev: before.get(one.rev) or one.since(boot) or now for one in self.halts}

    def holding(self, now: int, here: Here | None) -> list[Entry]:
        """Return what is not over, and the quarantines."""
        return [one for one in (*self.halts, *self.quarantined.values()) if one.holds(now, here)]


def _covers(entry: Entry, asked: Asked, since: Known | None) -> bool:
    opened_since = since is not None and asked.opened > since.monotonic
    concerned = entry.mode == HALT or opened_since or asked.began >= entry.at
    return concerned and covers(entry.scope, asked.tool, asked.tags)


def _over(entry: Entry, asked: Asked, since: Known | None) -> bool:
    if entry.until is None or entry.holds(asked.now):
        return False
    if since is None:
        return True
    return (asked.monotonic - since.monotonic) * 1_000_000 >= entry.until - since.wall


def read(doc: Doc | None, *, floor: int = 0) -> Switches:
    """Return what a document says.

    Args:
        doc: the document, or None if nothing was ever set.
        floor: the revision that it has reached, as told beside it.

    Raises:
        StateError: the document is below the floor, or cannot be understood.
    """
    if doc is None:
        if floor:
            raise _lost(0, floor)
        return Switches()
    try:
        found = Switches(
            _whole(doc["rev"]),
            tuple(_halt(item) for item in doc["halts"]),
            {saga: _quarantine(saga, item) for saga, item in doc["quarantined"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, ConfigurationError) as error:
        raise StateError(
            f"The document of the kill switch cannot be understood ({error!r}).", fix=_REPAIR
        ) from error
    if found.rev < floor:
        raise _lost(found.rev, floor)
    return found


def add_halt(
    doc: Doc | None,
    *,
    floor: int,
    scope: str,
    mode: str,
    reason: str,
    by: str,
    at: int,
    until: int | None,
    here: Here | None = None,
) -> tuple[Doc, Switches]:
    """Set a halt or a drain.

    Args:
        doc: the document; one that is lost is replaced by a halt of everything.
        floor: the revision that it has reached.
        scope: what it covers.
        mode: `HALT` or `DRAIN`.
        reason: why.
        by: who.
        at: the wall clock, in microseconds.
        until: when it is over, or None.
        here: the other clock, and which run of the host it is of.
    """
    now = _repaired(doc, floor, by=by, at=at)
    entry = Entry(scope, mode, reason, by, at, until, now.rev + 1, here)
    kept = [old for old in now.halts if old.holds(at, here) and not _same(old, entry)]
    return _stored(replace(now, rev=entry.rev, halts=(*kept, entry)))


def lift(
    doc: Doc | None, *, floor: int, scope: str, at: int, here: Here | None = None
) -> tuple[Doc | None, tuple[Switches, list[Entry]]]:
    """Lift the halts and drains of exactly this scope; returns what was lifted.

    A lost document is put right by lifting `*`: somebody has looked.
    """
    try:
        now = read(doc, floor=floor)
    except StateError:
        if scope != EVERYTHING:
            raise
        lost = Entry(EVERYTHING, HALT, LOST, "agent-saga", at, None, floor)
        made, after = _stored(Switches(floor + 1))
        return made, (after, [lost])
    lifted = [entry for entry in now.halts if entry.scope == scope and entry.holds(at, here)]
    if not lifted:
        return doc, (now, [])
    kept = tuple(e for e in now.halts if e.scope != scope and e.holds(at, here))
    made, after = _stored(replace(now, rev=now.rev + 1, halts=kept))
    return made, (after, lifted)


def quarantine(
    doc: Doc | None, *, floor: int, saga: str, reason: str, by: str, at: int
) -> tuple[Doc, Switches]:
    """Quarantine a saga; who did it first stays on record."""
    now = _repaired(doc, floor, by=by, at=at)
    rev = now.rev + 1
    entry = now.quarantined.get(saga, Entry(saga, QUARANTINE, reason, by, at, None, rev))
    return _stored(replace(now, rev=rev, quarantined={**now.quarantined, saga: entry}))


def release(
    doc: Doc | None, *, floor: int, saga: str
) -> tuple[Doc | None, tuple[Switches, list[Entry]]]:
    """Take a saga out of quarantine; returns the entry that was taken out, if it was in it."""
    now = read(doc, floor=floor)
    entry = now.quarantined.get(saga)
    if entry is None:
        return doc, (now, [])
    kept = {name: other for name, other in now.quarantined.items() if name != saga}
    made, after = _stored(replace(now, rev=now.rev + 1, quarantined=kept))
    return made, (after, [entry])


_REPAIR: Final = (
    "Set again what must be halted: agent-saga halt --scope SCOPE --reason WHY --by NAME\n"
    "Then lift the halt of everything: agent-saga resume --scope '*' --by NAME"
)


def _lost(rev: int, floor: int) -> StateError:
    return StateError(
        f"The store of the kill switch is at revision {rev} and had reached {floor}: "
        "halts may be lost.",
        fix=_REPAIR,
    )


def _repaired(doc: Doc | None, floor: int, *, by: str, at: int) -> Switches:
    """Return what a document says; one that is lost becomes a halt of everything."""
    try:
        return read(doc, floor=floor)
    except StateError:
        lost = Entry(EVERYTHING, HALT, LOST, by, at, None, floor + 1)
        return Switches(floor + 1, (lost,))


def _same(old: Entry, new: Entry) -> bool:
    return (old.scope, old.mode, old.until) == (new.scope, new.mode, new.until)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _halt(item: Any) -> Entry:
    """Return a halt or a drain; of one that nobody can have set, nobody knows what it covers."""
    entry = _entry(item)
    if entry.mode not in (HALT, DRAIN):
        raise ValueError(entry.mode)
    checked(entry.scope)
    return entry


def _quarantine(saga: str, item: Any) -> Entry:
    entry = _entry(item)
    if (entry.scope, entry.mode, entry.until) != (saga, QUARANTINE, None):
        raise ValueError(item)
    return entry


def _entry(item: Any) -> Entry:
    entry = Entry(**item)
    texts = (entry.scope, entry.mode, entry.reason, entry.by)
    if not all(type(text) is str for text in texts):
        raise TypeError(item)
    _whole(entry.at)
    _whole(entry.rev)
    if entry.until is not None:
        _whole(entry.until)
    return entry if entry.here is None else replace(entry, here=_here(*entry.here))


def _here(monotonic: Any, boot: Any) -> Here:
    if type(boot) is not str:
        raise TypeError(boot)
    return float(monotonic), boot


def _stored(now: Switches) -> tuple[Doc, Switches]:
    doc = {
        "rev": now.rev,
        "halts": [_plain(entry) for entry in now.halts],
        "quarantined": {saga: _plain(entry) for saga, entry in now.quarantined.items()},
    }
    return doc, now


def _plain(entry: Entry) -> dict[str, Any]:
    found = asdict(entry)
    here = found.pop("here")
    return found if here is None else {**found, "here": list(here)}
