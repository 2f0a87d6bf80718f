"""What a graph has asked for, and what its checkpoints say about that. Judges; reads nothing.

Rules of this part:

- A wish is an effect that a graph asked for, perhaps in several attempts and at several places.
- Within one attempt a wish is asked for once; a copy of one call of the model is that call.
- A superstep that the graph's history holds as done is told by its state; one that the history does
  not know is lost, and so is one whose waiting work was dropped, except for what the state tells.
- Where only the last checkpoint of a run is stored (`durability="exit"`), a run that stopped keeps
  which supersteps it completed: the state that it left tells of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_saga_langgraph.place import UNCLEAR, Level, Mark, Place, Spot, spot
from agent_saga_langgraph.tries import tried_apart

if TYPE_CHECKING:
    from agent_saga_langgraph.tries import Tries
    from agent_saga_langgraph.witness import Turn


class History:
    """What a graph's checkpoints say about a thread, and what an earlier run kept.

    Args:
        done: checkpoints whose superstep was completed.
        known: checkpoints that lead to the present one, and that one, save those whose waiting work
            was dropped.
        told: tasks of work that was dropped, by id, whose results the state has nevertheless.
        kept: what `Attempts.to_keep` gave an earlier run, and what was noted since.

    Attributes:
        asked: calls that were asked for and have no step.
        passed: checkpoints that were never stored, whose superstep an earlier run completed.
    """

    __slots__ = ("_done", "_known", "_met", "_told", "asked", "passed")

    def __init__(
        self,
        done: Iterable[str] = (),
        known: Iterable[str] = (),
        told: Iterable[str] = (),
        *kept: object,
    ) -> None:
        self._done = frozenset(done)
        self._known = frozenset(known)
        self._told = frozenset(told)
        self._met: dict[str, list[Spot]] = {}
        self.asked: list[list[str]] = []
        self.passed: set[str] = set()
        for given in kept:
            if isinstance(given, Mapping):
                self._take(given)

    def _take(self, given: Mapping[str, Any]) -> None:
        for key, at in (given.get("met") or {}).items():
            met = self._met.setdefault(key, [])
            met += [one for one in map(spot, at) if one not in met]
        self.asked += given.get("asked") or ()
        self.passed.update(given.get("passed") or ())

    def spots(self, key: str, mark: Mark) -> list[Spot]:
        """Return where a step was asked for: where it was made, and where it was met again."""
        return [mark.spot, *self._met.get(key, ())]

    def has(self, wish: Wish) -> bool:
        """Say whether the graph's state tells what a call did."""
        return any(
            one.checkpoint in self._done
            or one.checkpoint in self.passed
            or one.task.partition(":")[2] in self._told
            for one in wish.spots
        )

    def has_lost(self, wish: Wish) -> bool:
        """Say whether the graph knows no more of any superstep in which a call was made."""
        return all(one.checkpoint not in self._known for one in wish.spots)


class Asked(NamedTuple):
    """What is asked for now.

    Attributes:
        place: where.
        call: the model's id of the call, or an empty string.
        apart: what tells the call from others beside its arguments; see `Mark`.
    """

    place: Place
    call: str = ""
    apart: str = ""


class Wish:
    """An effect that a graph has asked for, perhaps in several attempts.

    Args:
        key: its step's key.
        mark: what the key tells.
        spots: where it was asked for; first, where its step was made.

    Attributes:
        seen: the turns of each attempt of this process that asked for it.
        tried: of each of them, which tries it was in.
    """

    __slots__ = ("key", "mark", "seen", "spots", "tried")

    def __init__(self, key: str, mark: Mark, spots: list[Spot]) -> None:
        self.key = key
        self.mark = mark
        self.spots = spots
        self.seen: list[tuple[Turn, ...]] = []
        self.tried: list[Tries] = []

    def ask(self, place: Place) -> bool:
        """Note that it is asked for; say whether it had not been at this place."""
        self.seen.append(place.turns)
        self.tried.append(place.tries)
        is_new = place.spot not in self.spots
        if is_new:
            self.spots.append(place.spot)
        return is_new

    def is_free(self, place: Place) -> bool:
        """Say whether no call of this attempt has asked for it."""
        return not any(
            _same_attempt(turns, place.turns) and not tried_apart(tried, place.tries)
            for turns, tried in zip(self.seen, self.tried, strict=True)
        )

    def is_tried_again(self, place: Place) -> bool:
        """Say whether an earlier try of what is repeated round it led to it by the same nodes."""
        return self.mark.spot.nodes == place.spot.nodes and any(
            tried_apart(tried, place.tries) for tried in self.tried
        )

    def is_copy(self, asked: Asked) -> bool:
        """Say whether it was asked for by a copy of one call of the model."""
        if not asked.call or self.mark.caller != asked.call:
            return False
        if not any(_is_beside(one, asked.place.spot) for one in self.spots):
            return False
        return all(_may_be_copies(turns, asked.place.turns) for turns in self.seen)

    def is_clearly(self, asked: Asked) -> bool:
        """Say whether it was asked for with the same, wherever that was."""
        return self.mark.apart == asked.apart != UNCLEAR

    def may_be(self, asked: Asked) -> bool:
        """Say whether it may have been asked for with the same."""
        return self.mark.apart == asked.apart or UNCLEAR in (self.mark.apart, asked.apart)

    def is_again(self, place: Place) -> bool:
        """Say whether the same nodes of the same task led to it, and may do so again."""
        own = place.spot
        return any(
            (one.checkpoint, one.task, one.nodes) == (own.checkpoint, own.task, own.nodes)
            and not self._was_passed(one, place)
            for one in self.spots
        )

    def is_untold(self, place: Place) -> bool:
        """Say whether it may have been asked for by a task under another number; nobody noted."""
        own = place.spot
        return any(
            (one.checkpoint, one.task, one.nodes) == (own.checkpoint, own.task, own.nodes)
            and any(map(_is_untold, one.inner, own.inner))
            for one in self.spots
        )

    def _was_passed(self, spot: Spot, place: Place) -> bool:
        """Say whether graphs that were called inside go on from behind it, or elsewhere."""
        turns = place.turns
        levels = zip(spot.inner, place.spot.inner, turns[1:], turns, strict=False)
        for level, own, turn, outer in levels:
            if level == own:
                continue
            if min(level.nth, own.nth) < -1:
                return _was_called(level, outer)
            if turn.resumed and own.graph < 0:
                return level.at < turn.first
            first = turn.first if own.step == turn.step else 0
            return not self.seen and (level.graph != own.graph or level.step <= first)
        return False


def _was_called(level: Level, outer: Turn) -> bool:
    """Say whether a task has called another one already; its result is kept where that began.

    A call that was not noted counts as made: `attempts` refuses what nobody can tell apart.
    """
    if not (level.asked and outer.calls) or outer.base is None or level.nth >= -1:
        return True
    called = outer.calls.get(outer.base - 2 - level.nth)
    return called is not None and called.fingerprint == level.asked


def _is_untold(level: Level, own: Level) -> bool:
    called = max(level.nth, own.nth) < -1
    return called and level.nth != own.nth and not (level.asked and own.asked)


def _is_beside(spot: Spot, own: Spot) -> bool:
    """Say whether two spots are in the same superstep, at the same nodes."""
    if spot.checkpoint != own.checkpoint or spot.nodes != own.nodes:
        return False
    if _supersteps(spot.inner) != _supersteps(own.inner):
        return False
    return not spot.inner or spot.task == own.task


def _supersteps(levels: Iterable[Level]) -> list[tuple[int, int]]:
    return [(level.step, level.graph) for level in levels]


def _same_attempt(one: tuple[Turn, ...], other: tuple[Turn, ...]) -> bool:
    for a, b in zip(one, other, strict=False):
        if a.run != b.run:
            return a.task.name != b.task.name
    return True


def _may_be_copies(one: tuple[Turn, ...], other: tuple[Turn, ...]) -> bool:
    """Say whether two calls may be copies: of one superstep, or of two attempts at it."""
    inside = [turn.run for turn in one[:-1]] == [turn.run for turn in other[:-1]]
    return (inside and one[-1].graph == other[-1].graph) or not _same_attempt(one, other)
