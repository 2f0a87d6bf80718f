"""Compares a world before and after a run, and says what was declared of the differences.

Rules of this part:

- A difference is a path into the state: "a/b" for a value that changed, "a/+/b" for something that
  is there now, "a/-/b" for something that is gone, "a/~" for a list in another order.
- What is in a list goes by its own number where it has one, else by its place.
- Whatever no trace covers is undeclared, however small; and so is a trace that had to be left and
  is not there. See `traces`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bench.worlds.traces import ANYTHING, Trace

_NAMES: Final = ("id", "id_", "line_id", "bill_id")
"""Fields that things in a list are known by."""


class Missing:
    """Nothing is there."""


MISSING: Final = Missing()


class Difference:
    """One place where two states differ.

    Attributes:
        path: its parts.
        before: what was there; None if nothing was.
        now: what is there now; None if it is gone.
    """

    def __init__(self, path: tuple[str, ...], before: Any, now: Any) -> None:
        self.path = path
        self.before = before
        self.now = now

    def __str__(self) -> str:
        return "/".join(self.path)


def differences(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Yield every place where two states differ."""
    if before == now:
        return  # nearly all of a large world, at the speed of a comparison
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _of_dicts(before, now, path)
    elif isinstance(before, list) and isinstance(now, list):
        yield from _of_lists(before, now, path)
    elif _differ(before, now):
        yield Difference(path, before, now)


def undeclared(
    found: Iterable[Difference], traces: Iterable[Trace], start: Any = None
) -> list[str]:
    """Return the differences that no trace covers, and the traces that had to be left.

    Args:
        found: the differences.
        traces: what was declared.
        start: the state that the run began with.
    """
    grown: dict[tuple[str, ...], float] = defaultdict(float)
    others = []
    for trace in traces:
        if trace.stood and (found_at(start, trace.stood) is not MISSING) is not trace.there:
            continue
        if trace.by is None:
            others.append(trace)
        else:
            grown[trace.path] += trace.by
    others.sort(key=_precise, reverse=True)
    left = []
    found = list(found)
    places = {item.path for item in found}
    for item in found:
        if item.path in grown:
            if not _grew(item, grown.pop(item.path)):
                left.append(str(item))
        elif not _excused(item, others):
            left.append(str(item))
    left += [f"{'/'.join(path)} did not grow" for path, by in grown.items() if _differ(by, 0)]
    missing = [one for one in others if one.must and (not one.beside or one.beside in places)]
    return left + [f"{trace} is not there" for trace in missing]


def index_of(place: Any, part: str) -> Any:
    """Return the key or the index under which a part of a path is found; None if it is not."""
    if isinstance(place, dict):
        return part if part in place else None
    if not isinstance(place, list):
        return None
    if name := named(place):
        return next((n for n, item in enumerate(place) if str(item[name]) == part), None)
    return int(part) if part.isdigit() and int(part) < len(place) else None


def found_at(state: Any, path: Iterable[str]) -> Any:
    """Return what a state holds at a path; MISSING if it holds nothing there."""
    for part in path:
        index = index_of(state, part)
        if index is None:
            return MISSING
        state = state[index]
    return state


def named(items: list[Any]) -> str:
    """Return the field that things in a list are known by; "" if they go by their places."""
    for name in _NAMES if items else ():
        if all(isinstance(item, dict) and name in item for item in items):
            names = [str(item[name]) for item in items]
            if len(set(names)) == len(names):
                return name
    return ""


def _of_dicts(
    before: dict[str, Any], now: dict[str, Any], path: tuple[str, ...]
) -> Iterator[Difference]:
    for key in before.keys() | now.keys():
        if key not in before:
            yield Difference((*path, "+", key), None, now[key])
        elif key not in now:
            yield Difference((*path, "-", key), before[key], None)
        else:
            yield from differences(before[key], now[key], (*path, key))


def _of_lists(before: list[Any], now: list[Any], path: tuple[str, ...]) -> Iterator[Difference]:
    name = named(before)
    if (name and name == named(now)) or (not before and named(now)) or (not now and name):
        name = name or named(now)
        yield from _of_things(before, now, path, name)
    elif len(before) == len(now) and not _without(before, now):
        yield Difference((*path, "~"), before, now)
    elif len(before) == len(now):
        for index in range(len(before)):
            yield from differences(before[index], now[index], (*path, str(index)))
    else:
        for index in _without(now, before):
            yield Difference((*path, "+", str(index)), None, now[index])
        for index in _without(before, now):
            yield Difference((*path, "-", str(index)), before[index], None)


def _of_things(
    before: list[Any], now: list[Any], path: tuple[str, ...], name: str
) -> Iterator[Difference]:
    """Compare things with numbers of their own."""
    old, new = ({str(item[name]): item for item in items} for items in (before, now))
    yield from _of_dicts(old, new, path)
    if [key for key in old if key in new] != [key for key in new if key in old]:
        yield Difference((*path, "~"), before, now)


def _without(items: list[Any], others: list[Any]) -> list[int]:
    """Return the places of what is not among others; the same twice needs two others."""
    rest = list(others)
    places = []
    for index, item in enumerate(items):
        if item in rest:
            rest.remove(item)
        else:
            places.append(index)
    return places


def _differ(before: Any, now: Any) -> bool:
    if _number(before) and _number(now):
        # Adding and taking away a price moves the last bit of a binary fraction.
        return not math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-9)
    return bool(before != now)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _grew(item: Difference, by: float) -> bool:
    return (
        _number(item.before)
        and _number(item.now)
        and math.isclose(item.now - item.before, by, rel_tol=1e-6, abs_tol=1e-6)
    )


def _precise(trace: Trace) -> tuple[int, int]:
    """Say how much a trace says: those that say more choose first."""
    return (trace.to is not ANYTHING) + len(trace.fields), -trace.path.count("*")


def _excused(item: Difference, traces: list[Trace]) -> bool:
    """Say whether a trace covers a difference; one of something added or gone is then used up."""
    for index, trace in enumerate(traces):
        if _covers(trace, item):
            if "+" in trace.path or "-" in trace.path:
                del traces[index]
            return True
    return False


def _covers(trace: Trace, item: Difference) -> bool:
    if len(trace.path) != len(item.path):
        return False
    if any(part not in ("*", here) for part, here in zip(trace.path, item.path, strict=True)):
        return False
    if trace.to is not ANYTHING and _differ(trace.to, item.now):
        return False
    now = item.now
    return not trace.fields or (
        isinstance(now, dict) and all(not _differ(v, now.get(k)) for k, v in trace.fields)
    )
