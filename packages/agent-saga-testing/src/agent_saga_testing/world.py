"""A small world of effects in a real database, for tools to act on and tests to look at.

    world = World(tmp_path / "world.sqlite")

    @kit.tool("COMPENSABLE")
    def charge(amount, *, idempotency_key):
        return world.do("charge", key=idempotency_key, amount=amount)

    @charge.undo
    def refund(result, *, idempotency_key):
        world.undo(result["id"], key=idempotency_key)

Rules of this part:

- An attempt is a call that reached the world; an application is one that took hold. They are
  counted apart, for forward calls and for inverses.
- Like a provider, the world knows idempotency keys: a key that took hold once is answered again,
  and applied no more. That can be switched off, to see what a system does without it.
- Faults are asked for ahead, in the order in which calls come, and are used up one by one: an
  answer that is lost, a failure before the effect, a request that arrives late.
- All of it lives in one file, so that several processes act on one world and a killed one loses
  nothing. Looking never goes through what is looked at.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Final

from agent_saga.errors import NotApplied
from agent_saga_testing.world_checks import Checks
from agent_saga_testing.world_db import (
    Kind,
    Outcome,
    create,
    effect,
    open_world,
    record,
    settle,
    take_fault,
)

__all__ = ["World"]

_ERRORS: Final[dict[str, type[Exception]]] = {
    error.__name__: error
    for error in (ConnectionError, TimeoutError, OSError, RuntimeError, ValueError, NotApplied)
}


class World(Checks):
    """Effects that stand, and the calls that made and undid them.

    Args:
        path: the database file; made if it is not there.
        honours_keys: whether idempotency keys are known; None leaves it as it was set (at first:
            yes). It holds for every process that uses the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, honours_keys: bool | None = None) -> None:
        self.path = Path(path).absolute()
        create(self.path)
        if honours_keys is not None:
            with open_world(self.path) as db:
                db.execute(
                    "INSERT OR REPLACE INTO settings VALUES ('honours_keys', ?)", (honours_keys,)
                )

    def do(self, name: str, *, key: str | None = None, **data: Any) -> dict[str, Any]:
        """Make an effect and return it: its `id`, its `name`, and the data.

        Args:
            name: what the effect is called; give each step of a test a name of its own.
            key: the idempotency key.
            data: plain JSON data that belongs to the effect.

        Raises:
            NotApplied: the key was spent, so the effect can never happen.
            ConnectionError, TimeoutError, ...: a fault that was asked for.
        """
        return self._call(Kind.FORWARD, name, key, None, data) or {}

    def undo(self, effect_id: int, *, key: str | None = None) -> None:
        """Undo an effect; doing it twice without a key *is* done twice, as with many providers.

        Args:
            effect_id: the `id` that `do` returned.
            key: the idempotency key of the inverse.

        Raises:
            LookupError: there is no such effect.
            ConnectionError, TimeoutError, ...: a fault that was asked for.
        """
        if self._call(Kind.INVERSE, "", key, effect_id, {}) is None:
            raise LookupError(f"The world has no effect {effect_id}.")

    def undo_of_key(self, forward_key: str, *, key: str | None = None) -> bool:
        """Undo the effect that a forward key made, if it made one; False if there is nothing."""
        found = self.find(forward_key)
        target = -1 if found is None else int(found["id"])
        return self._call(Kind.INVERSE, "", key, target, {}) is not None

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the effect that a key made, or None; for probers. It is no attempt."""
        with open_world(self.path) as db:
            return effect(db, "key = ?", key)

    def spend(self, key: str) -> dict[str, Any] | None:
        """Return the effect that a key made, or make sure that it never makes one.

        A prober that uses this may say `NotApplied(final=True)` when it gets None.
        """
        with open_world(self.path) as db:
            found = effect(db, "key = ?", key)
            if found is None:
                db.execute("INSERT OR IGNORE INTO spent VALUES (?)", (key,))
            return found

    def lose_answers(
        self, times: int = 1, *, kind: str = "forward", error: type[Exception] = ConnectionError
    ) -> None:
        """Let the next calls take hold, and their callers get an error instead of the answer."""
        self._ask(times, kind, "lose", error)

    def fail_before(
        self, times: int = 1, *, kind: str = "forward", error: type[Exception] = RuntimeError
    ) -> None:
        """Let the next calls fail without an effect."""
        self._ask(times, kind, "fail", error)

    def hold_back(
        self, times: int = 1, *, kind: str = "forward", error: type[Exception] = TimeoutError
    ) -> None:
        """Let the next calls' requests stay on their way until `deliver`; callers get the error."""
        self._ask(times, kind, "hold", error)

    def deliver(self) -> int:
        """Let every request that is still on its way arrive now; return how many took hold."""
        with open_world(self.path) as db:
            rows = db.execute(
                "SELECT id, kind, key, target FROM calls WHERE outcome = 'held' ORDER BY id"
            ).fetchall()
            outcomes = [self._deliver(db, *row) for row in rows]
            return outcomes.count(Outcome.APPLIED)

    def drop(self) -> int:
        """Let every request that is still on its way be lost for good; return how many were."""
        with open_world(self.path) as db:
            return db.execute("UPDATE calls SET outcome = 'failed' WHERE outcome = 'held'").rowcount

    def _ask(self, times: int, kind: str, what: str, error: type[Exception]) -> None:
        if error.__name__ not in _ERRORS:
            raise ValueError(f"The world can raise one of {', '.join(sorted(_ERRORS))}.")
        row = (Kind(kind).value, what, error.__name__)
        with open_world(self.path) as db:
            db.executemany("INSERT INTO faults (kind, what, error) VALUES (?, ?, ?)", [row] * times)

    def _call(
        self, kind: Kind, name: str, key: str | None, target: int | None, data: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Record a call with what becomes of it; then answer, or raise what was asked for."""
        with open_world(self.path) as db:
            what, error = take_fault(db, kind)
            early = {"fail": Outcome.FAILED, "hold": Outcome.HELD}.get(what)
            outcome = early or self._decide(db, kind, key, target)
            call = record(db, kind, name, key, target, data)
            settle(db, call, outcome)
            answer = _answer(db, kind, outcome, call, key, target)
        if what:
            raise _ERRORS[error](f"{kind.value} {name or target}: asked for by the test")
        if outcome is Outcome.REFUSED:
            raise NotApplied(f"The key of {name} was spent.", final=True)
        return answer

    def _decide(
        self, db: sqlite3.Connection, kind: Kind, key: str | None, target: int | None
    ) -> Outcome:
        """Say what becomes of a request that arrives now."""
        if kind is Kind.INVERSE and effect(db, "id = ?", target) is None:
            return Outcome.NOTHING
        if key is None or not _honours_keys(db):
            return Outcome.APPLIED
        if db.execute("SELECT 1 FROM spent WHERE key = ?", (key,)).fetchone():
            return Outcome.REFUSED
        used = db.execute(
            "SELECT 1 FROM calls WHERE kind = ? AND key = ? AND outcome = 'applied'",
            (kind.value, key),
        ).fetchone()
        return Outcome.REPEATED if used else Outcome.APPLIED

    def _deliver(
        self, db: sqlite3.Connection, call: int, kind: str, key: str | None, target: int | None
    ) -> Outcome:
        outcome = self._decide(db, Kind(kind), key, target)
        settle(db, call, outcome)
        return outcome


def _answer(
    db: sqlite3.Connection,
    kind: Kind,
    outcome: Outcome,
    call: int,
    key: str | None,
    target: int | None,
) -> dict[str, Any] | None:
    """Return the effect that a call made, or undid, or that its key had made."""
    if outcome not in (Outcome.APPLIED, Outcome.REPEATED):
        return None
    if kind is Kind.INVERSE:
        return effect(db, "id = ?", target)
    if outcome is Outcome.REPEATED:
        return effect(db, "key = ?", key)
    return effect(db, "id = ?", call)


def _honours_keys(db: sqlite3.Connection) -> bool:
    row = db.execute("SELECT value FROM settings WHERE name = 'honours_keys'").fetchone()
    return row is None or bool(row[0])
