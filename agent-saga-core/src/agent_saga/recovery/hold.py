"""Sagas that are held after a crash: their program may go on with them before they are undone.

Rules of this part:

- Whether a saga is held, and for how long, stands in its SAGA_BEGIN. The time counts from the
  moment at which somebody first saw that its owner is dead: how long it had been silent before says
  nothing about when it died. That moment is kept in the state store, so that several daemons and
  commands agree on it and a restart does not begin it anew; if it is lost, it is counted anew.
- A clock that was put back begins the time anew; the time never makes anything run twice: whoever
  goes on with the saga and whoever undoes it race on one atomic claim.
- What was claimed for anything else than going on with it is held no more.
- Whoever only looks records nothing: the time then begins with the next recovery.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.errors import StateError, WALError
from agent_saga.state.base import one
from agent_saga.wal.takeover import dead_writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.domain.views import SagaView
    from agent_saga.state.base import Doc, StateStore

PREFIX: Final = "hold/"


class Hold(Struct, frozen=True):
    """A saga that is held.

    Attributes:
        saga: its id.
        grace: for how many seconds.
        until: when that is over, in microseconds since the epoch; None when no recovery has seen
            yet that its owner is dead.
    """

    saga: str
    grace: float
    until: int | None

    @property
    def over(self) -> bool:
        """Whether its time is over."""
        return self.until is not None and SYSTEM_CLOCK.now_us() >= self.until


def held(store: StateStore, view: SagaView) -> Hold | None:
    """Return how long a saga whose owner is dead is held, and remember since when; or None.

    Raises:
        StateError: the store cannot be used; nothing may be undone that may be held.
    """
    grace = view.held_for
    if grace is None:
        return None
    now, key = SYSTEM_CLOCK.now_us(), f"{PREFIX}{view.id}"

    def seen(doc: Doc | None) -> tuple[Doc | None, int]:
        since = _since(doc, view, now)
        if since is not None:
            return doc, since
        return {"epoch": view.epoch, "since": now}, now

    since = store.transact([key], one(key, seen), durable=True)
    return Hold(view.id, grace, since + int(grace * 1e6))


def hold_text(hold: Hold) -> str:
    """Return in words what a held saga waits for."""
    if hold.until is None:
        return f"its program may go on with it for {hold.grace:.0f} s, from the next recovery on"
    end = datetime.fromtimestamp(hold.until / 1e6, UTC)
    return f"its program may go on with it until {end:%Y-%m-%d %H:%M:%S} UTC; then it is undone"


def forget(store: StateStore, saga: str) -> None:
    """Forget since when a saga was held; somebody has it now."""
    key = f"{PREFIX}{saga}"
    if store.get(key) is not None:
        store.transact([key], one(key, lambda _: (None, None)), durable=False)


def looked_up(path: str, store: StateStore, views: Iterable[SagaView]) -> dict[str, Hold]:
    """Return the sagas that are held, by id; writes nothing.

    A store that cannot be read, and a writer of which nobody can tell whether it lives, tell
    nothing: the saga is then shown without an end of its time, or not as held.
    """
    found: dict[str, Hold] = {}
    for view in views:
        grace = view.held_for
        if grace is not None and owner_is_dead(path, view):
            since = _since(_read(store, view.id), view, SYSTEM_CLOCK.now_us())
            until = None if since is None else since + int(grace * 1e6)
            found[view.id] = Hold(view.id, grace, until)
    return found


def _read(store: StateStore, saga: str) -> Doc | None:
    try:
        return store.get(f"{PREFIX}{saga}")
    except StateError:
        return None


def _since(doc: Doc | None, view: SagaView, now: int) -> int | None:
    """Return since when this owner of the saga is known to be dead; None if that is not known."""
    if doc is None or doc.get("epoch") != view.epoch:
        return None
    since = doc.get("since")
    return since if type(since) is int and since <= now else None


def owner_is_dead(path: str, view: SagaView) -> bool:
    """Say whether the process that owns a saga is proved dead; False where that cannot be told."""
    owner = view.owners.get(max(view.owners, default=0))
    if not owner:
        return False
    try:
        dead = dead_writer(path, owner)
    except WALError:
        return False
    if dead is not None:
        dead.close()
    return dead is not None
