"""What a test asks a world afterwards: counts, snapshots and assertions.

Rules of this part:

- An effect stands when it was applied and no inverse of it was. Assertions look at the world alone,
  never at what any log or report says.
- A failed assertion prints every call that the world saw.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from agent_saga_testing.world_db import Kind, Outcome, open_world

__all__ = ["Checks", "Difference", "Snapshot", "WorldCall"]


class WorldCall(NamedTuple):
    """One call that reached the world.

    Args:
        id: its number; for a forward call that took hold, the id of its effect.
        kind: "forward" or "inverse".
        name: the effect's name; an inverse has that of the effect it undoes.
        key: the idempotency key, if one was given.
        target: for an inverse, the id of the effect.
        data: what the forward call carried.
        outcome: "applied", "repeated" (a known key), "refused" (a spent key), "failed" (no effect),
            "held" (still on its way), "nothing" (an inverse without an effect).
        moment: the place among all calls that took hold, from 1; None for one that did not.
    """

    id: int
    kind: str
    name: str
    key: str | None
    target: int | None
    data: dict[str, Any]
    outcome: str
    moment: int | None


class Difference(NamedTuple):
    """What changed between two snapshots: entries that came and entries that went."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


class Snapshot(NamedTuple):
    """The effects that stand: one line each, with name and data, sorted; equal worlds are equal."""

    standing: tuple[str, ...]

    def changed_to(self, later: Snapshot) -> Difference:
        """Return what a later snapshot has more and less."""
        before, after = Counter(self.standing), Counter(later.standing)
        return Difference(
            tuple(sorted((after - before).elements())), tuple(sorted((before - after).elements()))
        )


class Checks:
    """The questions and assertions of a world."""

    path: Path

    def calls(self, kind: str | None = None, name: str | None = None) -> list[WorldCall]:
        """Return the calls that reached the world, in order, of one kind and name or all."""
        with open_world(self.path) as db:
            rows = db.execute(
                "SELECT c.id, c.kind, coalesce(t.name, c.name), c.key, c.target, c.data, c.outcome,"
                " c.moment"
                " FROM calls c LEFT JOIN calls t ON t.id = c.target ORDER BY c.id"
            ).fetchall()
        calls = [
            WorldCall(number, what, called, key, target, json.loads(data), outcome, moment)
            for number, what, called, key, target, data, outcome, moment in rows
        ]
        return [c for c in calls if kind in (None, c.kind) and name in (None, c.name)]

    def attempts(self, kind: str = "forward", name: str | None = None) -> int:
        """How many calls of a kind reached the world, whatever became of them."""
        return len(self.calls(Kind(kind).value, name))

    def applications(self, kind: str = "forward", name: str | None = None) -> int:
        """How many calls of a kind took hold."""
        return len(_applied(self.calls(Kind(kind).value, name)))

    def standing(self) -> list[WorldCall]:
        """Return the effects that stand, oldest first."""
        undone = {call.target for call in _applied(self.calls("inverse"))}
        return [call for call in _applied(self.calls("forward")) if call.id not in undone]

    def undone(self) -> list[str]:
        """Return the names of the effects that were undone, in the order in which they were."""
        return [call.name for call in _applied(self.calls("inverse"))]

    def in_flight(self) -> list[WorldCall]:
        """Return the requests that are still on their way."""
        return [call for call in self.calls() if call.outcome == Outcome.HELD.value]

    def snapshot(self) -> Snapshot:
        """Return what stands now, to compare with another moment."""
        lines = (f"{c.name} {json.dumps(c.data, sort_keys=True)}" for c in self.standing())
        return Snapshot(tuple(sorted(lines)))

    def assert_untouched(self) -> None:
        """Fail unless no call ever took hold, forward or inverse."""
        self._check(not _applied(self.calls()), "the world was touched")

    def assert_restored(self) -> None:
        """Fail unless every effect was undone exactly once, and nothing is on its way."""
        self.assert_never_twice()
        self._check(not self.standing(), "effects stand")
        self._check(not self.in_flight(), "requests are still on their way")

    def assert_applied_once(self, *names: str) -> None:
        """Fail unless each of these effects was applied exactly once and stands.

        Args:
            names: the effects' names; none means every name that was ever tried.
        """
        self.assert_never_twice()
        standing = Counter(call.name for call in self.standing())
        wanted = names or tuple({call.name for call in self.calls("forward")})
        self._check(bool(wanted), "nothing was tried")
        for name in wanted:
            self._check(standing[name] == 1, f"{name!r} stands {standing[name]} times")

    def assert_stands(self, *names: str) -> None:
        """Fail unless exactly these effects stand, each as often as it is named."""
        standing = sorted(call.name for call in self.standing())
        self._check(standing == sorted(names), f"these stand: {standing}")

    def assert_never_twice(self) -> None:
        """Fail if an effect of one name was applied again while it stood, or undone twice."""
        standing: Counter[str] = Counter()
        for call in _applied(self.calls()):
            forward = call.kind == Kind.FORWARD.value
            standing[call.name] += 1 if forward else -1
            told = "applied twice" if forward else "undone twice"
            self._check(standing[call.name] in (0, 1), f"{call.name!r} was {told}")

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            story = "\n".join(f"  {_line(call)}" for call in self.calls()) or "  no calls"
            raise AssertionError(f"{what}; the world saw:\n{story}")


def _applied(calls: list[WorldCall]) -> list[WorldCall]:
    """Return the calls that took hold, in the order in which they did."""
    return sorted((call for call in calls if call.moment), key=lambda call: call.moment or 0)


def _line(call: WorldCall) -> str:
    target = f" of {call.target}" if call.target is not None else ""
    key = f" key={call.key}" if call.key else ""
    return f"{call.id} {call.kind}{target} {call.name} {call.data}{key}: {call.outcome}"
