"""Counts outcomes, with intervals: what a share says depends on how many runs it stands on.

The interval is Wilson's (E. B. Wilson, 1927), at 95 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.worlds.faults import NEIGHBOUR, SUCCEEDS
from bench.worlds.outcome import Outcome

_Z = 1.959964


@dataclass(frozen=True)
class Share:
    """A part of a whole.

    Attributes:
        part, whole: counted.
    """

    part: int
    whole: int

    @property
    def percent(self) -> float:
        """The share; 100 of nothing."""
        return 100.0 * self.part / self.whole if self.whole else 100.0

    @property
    def interval(self) -> tuple[float, float]:
        """Between which percentages the share lies, at 95 %."""
        if not self.whole:
            return 0.0, 100.0
        n, p = self.whole, self.part / self.whole
        middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
        return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)

    @property
    def short(self) -> str:
        """The share and its interval in few signs."""
        low, high = self.interval
        return f"{self.percent:.1f} ({low:.0f}-{high:.0f})" if self.whole else "-"

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.percent:.1f} % ({low:.1f} to {high:.1f})"


@dataclass(frozen=True)
class Row:
    """The figures of one group of runs.

    Attributes:
        runs: how many were drawn.
        met: those whose fault struck; the others were refused before it and count nowhere below
            but in `false_clean`, `doubles`, `refused` and `cost`.
        exact: the world is exactly what it has to be.
        declared: it is, but for what was declared.
        false_clean: reported clean, though it is not.
        false_dirty: reported as standing, though nothing does.
        doubles: effects too many.
        repeats: the same of calls that are declared to harm nobody.
        settled: lost answers that a prober could tell about, of those that any could.
        refused: runs that the gate ended.
        cost: refused runs that would have ended well, of those that would have.
        collateral: runs whose undoing changed what another saga had made, of those beside one.
    """

    runs: int
    met: int
    exact: Share
    declared: Share
    false_clean: Share
    false_dirty: Share
    doubles: int
    repeats: int
    settled: Share
    refused: Share
    cost: Share
    collateral: Share


def row(outcomes: Iterable[Outcome]) -> Row:
    """Count a group of runs."""
    runs = list(outcomes)
    met = [one for one in runs if one.met]
    lost = [one for one in runs if one.lost]
    well = [one for one in runs if one.model in SUCCEEDS]
    beside = [one for one in runs if one.model == NEIGHBOUR]
    return Row(
        len(runs),
        len(met),
        _share(met, lambda one: one.exact),
        _share(met, lambda one: one.declared),
        _share(runs, lambda one: one.false_clean),
        _share(met, lambda one: one.false_dirty),
        sum(one.doubles for one in runs),
        sum(one.repeats for one in runs),
        _share(lost, lambda one: one.settled),
        _share(runs, lambda one: bool(one.refused)),
        _share(well, lambda one: one.cost),
        _share(beside, lambda one: bool(one.collateral)),
    )


def _share(runs: list[Outcome], holds: Callable[[Outcome], bool]) -> Share:
    return Share(sum(holds(one) for one in runs), len(runs))


def grouped(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Row]:
    """Count by world and fault, in the order of their first run."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.world, one.model].append(one)
    return {key: row(runs) for key, runs in groups.items()}
