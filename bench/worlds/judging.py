"""Compares a world before and after a run, and says what was declared of the differences.

Rules of this part:

- A difference is a path into the state: "a/b" for a value that changed, "a/+/b" for something that
  is there now, "a/-/b" for something that is gone.
- Whatever no declared trace covers is undeclared, however small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any


class Difference:
    """One place where two states differ.

    Attributes:
        path: its parts.
        now: what is there now; None if it is gone.
    """

    def __init__(self, path: tuple[str, ...], now: Any) -> None:
        self.path = path
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
        yield Difference(path, now)


def undeclared(found: Iterable[Difference], traces: Iterable[str]) -> list[str]:
    """Return the differences that no trace covers."""
    patterns = [_pattern(trace) for trace in traces]
    return [str(item) for item in found if not any(_covers(*one, item) for one in patterns)]


def _of_dicts(
    before: dict[str, Any], now: dict[str, Any], path: tuple[str, ...]
) -> Iterator[Difference]:
    for key in before.keys() | now.keys():
        if key not in before:
            yield Difference((*path, "+", key), now[key])
        elif key not in now:
            yield Difference((*path, "-", key), None)
        else:
            yield from differences(before[key], now[key], (*path, key))


def _of_lists(before: list[Any], now: list[Any], path: tuple[str, ...]) -> Iterator[Difference]:
    common = min(len(before), len(now))
    for index in range(common):
        yield from differences(before[index], now[index], (*path, str(index)))
    for index in range(common, len(now)):
        yield Difference((*path, "+", str(index)), now[index])
    for index in range(common, len(before)):
        yield Difference((*path, "-", str(index)), None)


def _differ(before: Any, now: Any) -> bool:
    numbers = isinstance(before, int | float) and isinstance(now, int | float)
    if numbers and not isinstance(before, bool) and not isinstance(now, bool):
        # Adding and taking away a price moves the last bit of a binary fraction.
        return not math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-9)
    return bool(before != now)


def _pattern(trace: str) -> tuple[list[str], dict[str, str]]:
    path, _, wanted = trace.partition("?")
    conditions = dict(part.split("=", 1) for part in wanted.split("&") if part)
    return path.split("/"), conditions


def _covers(parts: list[str], conditions: dict[str, str], item: Difference) -> bool:
    if not _matches(parts, item.path):
        return False
    if not conditions:
        return True
    now = item.now
    return isinstance(now, dict) and all(str(now.get(k)) == v for k, v in conditions.items())


def _matches(parts: list[str], path: tuple[str, ...]) -> bool:
    for index, part in enumerate(parts):
        if part == "**":
            return len(path) > index
        if index >= len(path) or part not in ("*", path[index]):
            return False
    return len(parts) == len(path)
