"""What the world has to be when some of a run's effects were let through, and all others undone.

Rules of this part:

- What a call changed was seen in the world when it was made. It is laid over the state that the run
  began with; the call is not made again, for alone it might not go at all: an insurance without
  its booking.
- A number changes by as much as it did; everything else is what the call made of it. A change of
  something that an undone call had made has nowhere to be and is left out.
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterable
from typing import Any

from bench.worlds.judging import Difference, found_at, index_of, named


def laid_over(start: Any, changes: Iterable[Difference]) -> Any:
    """Return the state with changes laid over it, in their order."""
    laid = list(changes)
    if not laid:
        return start
    state = unpickled(pickle.dumps(start))  # large worlds are copied quickest so
    for change in laid:
        _lay(state, change)
    return state


def in_order(changes: Iterable[Difference]) -> list[Difference]:
    """Return one call's changes as they can be laid: what is gone first, then what came."""
    return sorted(changes, key=lambda change: "+" in change.path)


def unpickled(image: bytes) -> Any:
    """Return what a large world's image holds.

    All of it is alive, and to look for garbage among it takes longer than all else.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(image)
    finally:
        if collects:
            gc.enable()


def _lay(state: Any, change: Difference) -> None:
    kind = next((part for part in ("+", "-", "~") if part in change.path), "")
    *way, name = change.path[:-1] if kind == "~" else change.path
    if kind in ("+", "-"):
        way = way[:-1]
    place = found_at(state, way)
    if kind == "+":
        _add(place, name, change.now)
    elif kind == "-":
        _remove(place, name, change.before)
    else:
        _set(place, name, change)


def _add(place: Any, name: str, value: Any) -> None:
    if isinstance(place, dict):
        place[name] = copy.deepcopy(value)
    elif isinstance(place, list):
        by_place = name.isdigit() and not named([*place, value])
        place.insert(int(name) if by_place else len(place), copy.deepcopy(value))


def _remove(place: Any, name: str, value: Any) -> None:
    if isinstance(place, dict):
        place.pop(name, None)
    elif isinstance(place, list) and value in place:
        place.remove(value)


def _set(place: Any, name: str, change: Difference) -> None:
    index = index_of(place, name)
    if index is None:
        return
    old, numbers = place[index], (change.before, change.now)
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, *numbers)):
        place[index] = old + change.now - change.before
    else:
        place[index] = copy.deepcopy(change.now)
