"""How figures are measured and judged.

Rules of this part:

- A figure is a ratio to its floor, and both are measured in the same round: the speed of a machine
  drifts, a pair hardly does. The figure is the median of the rounds' ratios.
- Within a round a case is called often; its sample is the median of the calls (`p50`), or the mean
  of a batch where one call is shorter than reading the clock.
- The cases of a round take turns in being the first.
- A round is disturbed, and not counted, when a floor took more than twice its best time in it, or
  when half of the floor's own calls took more than twice as long as its quickest tenth: on a busy
  machine a disk floor rises in every round, and what stands on it looks better than it is. When
  too few rounds were quiet, the ratios are not to be trusted, and are over.
- Counters are exact: a figure of kind "counter" is judged everywhere, a ratio only where times
  count.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

NS: Final = 1_000_000_000
LEAST_ROUNDS: Final = 9
_DISTURBED: Final = 2.0
_now = time.perf_counter_ns


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: how often every case of a group is measured; at least nine.
        calls: calls in one sample, as a factor on what a group takes by itself.
        seconds: how long one sample of a throughput lasts.
        sagas: how many sagas the memory is watched over.
    """

    rounds: int
    calls: float
    seconds: float
    sagas: int


FULL: Final = Effort(rounds=15, calls=1.0, seconds=0.5, sagas=100_000)
QUICK: Final = Effort(rounds=LEAST_ROUNDS, calls=0.5, seconds=0.25, sagas=20_000)


@dataclass(frozen=True)
class Figure:
    """One line of the report.

    Attributes:
        group, name: what was measured.
        value: the measured figure, in `unit`.
        bar: what it must keep; None when it is only told.
        kind: "counter" (exact) or "ratio" (of times).
        least: the bar is a lower bound.
        prototype, stretch: what a prototype reached, and what is aimed at, in words.
        detail: the absolute numbers behind it.
    """

    group: str
    name: str
    value: float
    unit: str
    bar: float | None
    kind: Literal["counter", "ratio"] = "ratio"
    least: bool = False
    prototype: str = ""
    stretch: str = ""
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the bar is kept."""
        if self.bar is None:
            return True
        return self.value >= self.bar if self.least else self.value <= self.bar

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as plain data; a value that was too noisy to be told is None."""
        value = None if math.isnan(self.value) else self.value
        return {**asdict(self), "value": value, "ok": self.ok}


class Samples:
    """The samples of a group of cases, one for each round and case.

    Args:
        of: the samples of each case, round by round.
        floors: the cases that tell whether a round was quiet.
    """

    def __init__(self, of: Mapping[str, list[float]], floors: Sequence[str]) -> None:
        self._of = of
        self._floors = floors

    def quiet(self) -> list[int]:
        """Return the rounds in which no floor was disturbed."""
        limits = {floor: _DISTURBED * min(self._of[floor]) for floor in self._floors}
        rounds = range(len(next(iter(self._of.values()))))
        return [
            at
            for at in rounds
            if all(self._of[f][at] <= limits[f] and math.isfinite(self._of[f][at]) for f in limits)
        ]

    def median(self, case: str) -> float:
        """Return the median sample of a case."""
        quiet = [self._of[case][at] for at in self.quiet()]
        return statistics.median(quiet) if quiet else math.nan

    def ratio(self, case: str, *floors: str, less: str = "") -> float:
        """Return the median of the rounds' ratios of a case to the sum of its floors.

        Args:
            case: what is measured.
            floors: what it is compared with.
            less: a case that is subtracted first.

        Returns:
            The ratio; not a number when too few rounds were quiet.
        """
        ratios = []
        for at in self.quiet():
            own = self._of[case][at] - (self._of[less][at] if less else 0.0)
            ratios.append(own / sum(self._of[floor][at] for floor in floors))
        return statistics.median(ratios) if len(ratios) >= LEAST_ROUNDS else math.nan

    def microseconds(self, *cases: str) -> str:
        """Return the median samples, which are nanoseconds, in words."""
        return ", ".join(f"{case} {self.median(case) / 1000:.1f} us" for case in cases)


def interleaved(
    cases: Mapping[str, Callable[[], float]], rounds: int, floors: Sequence[str] = ()
) -> Samples:
    """Measure every case once in each round, until enough rounds were quiet.

    Args:
        cases: each returns one sample.
        rounds: how many quiet rounds are wanted; three times as many are tried at most.
        floors: the cases that tell whether a round was quiet.
    """
    names = list(cases)
    samples: dict[str, list[float]] = {name: [] for name in names}
    found = Samples(samples, floors)
    for number in range(3 * rounds):
        gc.collect()
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            samples[name].append(cases[name]())
        if len(found.quiet()) >= max(rounds, LEAST_ROUNDS):
            break
    return found


def _middle(times: list[int], *, floor: bool) -> float:
    """Return the median; for a floor that was disturbed, infinity."""
    middle = statistics.median(times)
    quickest = sorted(times)[len(times) // 10]
    return math.inf if floor and middle > _DISTURBED * quickest else middle


def p50(call: Callable[[], object], calls: int, *, floor: bool = False) -> float:
    """Return the median duration of a call, in nanoseconds; infinity for a disturbed floor."""
    times = []
    for _ in range(calls):
        before = _now()
        call()
        times.append(_now() - before)
    return _middle(times, floor=floor)


async def p50_async(
    call: Callable[[], Awaitable[object]], calls: int, *, floor: bool = False
) -> float:
    """Return the median duration of an awaited call, as `p50` does."""
    times = []
    for _ in range(calls):
        before = _now()
        await call()
        times.append(_now() - before)
    return _middle(times, floor=floor)


def mean(call: Callable[[], object], calls: int) -> float:
    """Return the mean duration of a call in a batch, in nanoseconds."""
    before = _now()
    for _ in range(calls):
        call()
    return (_now() - before) / calls
