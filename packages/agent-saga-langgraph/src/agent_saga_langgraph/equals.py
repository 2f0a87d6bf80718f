"""The wishes for one tool with equal arguments, found by where they were asked for.

A run may ask for the same a thousand times. So nothing here looks at all wishes for each of them:
what an attempt has asked for is passed over once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_saga_langgraph.place import Place, Spot
    from agent_saga_langgraph.wishes import Wish


class Line:
    """Wishes in the order in which they came; each attempt takes them from the front.

    Args:
        exact: those of one place; else of several, of which a repeated task finds its own at their
            place, so that only the attempts round it count.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact
        self._wishes: list[Wish] = []
        self._from: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._wishes)

    def add(self, wish: Wish) -> None:
        """Put a wish at the end."""
        self._wishes.append(wish)

    def free(self, place: Place) -> Iterator[Wish]:
        """Yield those that no call of an attempt has asked for."""
        turns = place.turns if self._exact else place.turns[:-1]
        again = tuple(one for one in place.tries if one.number > 1)
        attempt = (tuple(turn.run for turn in turns), again)
        at, wishes = self._from.get(attempt, 0), self._wishes
        while at < len(wishes) and not wishes[at].is_free(place):
            at += 1
        self._from[attempt] = at
        return (wishes[i] for i in range(at, len(wishes)) if wishes[i].is_free(place))


class Equals:
    """Wishes for one tool with equal arguments.

    Attributes:
        left: those that an earlier run left, and of which the graph's state tells nothing.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, Wish] = {}
        self._by_call: dict[str, list[Wish]] = {}
        self._at: dict[Spot, Line] = {}
        self._near: dict[object, Line] = {}
        self.left = Line()

    def __iter__(self) -> Iterator[Wish]:
        return iter(tuple(self._by_key.values()))

    def get(self, key: str) -> Wish | None:
        """Return the one whose step has a key."""
        return self._by_key.get(key)

    def of_call(self, call: str) -> list[Wish]:
        """Return those that the model asked for under an id."""
        return self._by_call.get(call, []) if call else []

    def first(
        self, line: Line, place: Place, call: str, fits: Callable[[Wish], bool]
    ) -> Wish | None:
        """Return the free one of a line that fits, with the same id of the call if there is one.

        Args:
            line: those that may fit.
            place: where is asked.
            call: the model's id of the call, or an empty string.
            fits: says which do, also of those that are not in the line.
        """
        same = (one for one in self.of_call(call) if one.is_free(place) and fits(one))
        found = next(same, None)
        return found or next((one for one in line.free(place) if fits(one)), None)

    def tried(self, place: Place, call: str, fits: Callable[[Wish], bool]) -> Wish | None:
        """Return the free one that an earlier try of what LangChain repeats asked for.

        Args:
            place: where is asked.
            call: the model's id of the call, or an empty string.
            fits: says which do.
        """
        if all(one.number == 1 for one in place.tries):
            return None
        wishes = (one for one in (*self.of_call(call), *self) if one.is_tried_again(place))
        return next((one for one in wishes if one.is_free(place) and fits(one)), None)

    def add(self, wish: Wish) -> None:
        """Take in a wish, with all places where it was asked for."""
        self._by_key[wish.key] = wish
        self._by_call.setdefault(wish.mark.caller, []).append(wish)
        for spot in wish.spots:
            self.met(wish, spot)

    def met(self, wish: Wish, spot: Spot) -> None:
        """Note that a wish was asked for at a place."""
        self._at.setdefault(spot, Line(exact=True)).add(wish)
        self._near.setdefault(_near(spot), Line()).add(wish)

    def at(self, spot: Spot) -> Line:
        """Return those that were asked for at a place."""
        return self._at.get(spot) or Line()

    def near(self, spot: Spot) -> Line:
        """Return those that were asked for at the same nodes of the same task."""
        return self._near.get(_near(spot)) or Line()


def _near(spot: Spot) -> object:
    return (spot.checkpoint, spot.task, *spot.nodes)
