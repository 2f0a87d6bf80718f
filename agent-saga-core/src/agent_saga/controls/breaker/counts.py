"""The counting of one tool in one process, while its circuit is closed.

Rules of this part:

- A success ends the row of failures. The rate looks at whole tenths of the window, so a failure
  counts for at most a tenth of the window too long.
- What counts began under the present generation; see `circuit`.
"""

from __future__ import annotations

from collections import deque

from agent_saga.controls.breaker.policy import BreakerPolicy

__all__ = ["Counts"]

_PARTS = 10


class Counts:
    """What one process has seen of one tool.

    Attributes:
        generation: the circuit's, as this process knows it.
        closed: the circuit is closed, as far as this process knows.
        row: failures one after the other.
        parts: for each tenth of the window: when it began, its calls, and its failures.
    """

    __slots__ = ("closed", "generation", "parts", "row")

    def __init__(self, generation: int = 0, *, closed: bool = True) -> None:
        self.generation = generation
        self.closed = closed
        self.row = 0
        self.parts: deque[list[float]] = deque()

    def moved(self, generation: int, *, closed: bool) -> None:
        """Begin anew under another generation."""
        if generation != self.generation:
            self.generation = generation
            self.row = 0
            self.parts.clear()
        self.closed = closed

    def note(self, policy: BreakerPolicy, now: float, *, good: bool) -> str:
        """Count a call; return why the circuit must open, or ""."""
        self.row = 0 if good else self.row + 1
        if policy.failure_rate is not None:
            self._part(policy, now, good=good)
        if good:
            return ""
        if policy.failure_threshold is not None and self.row >= policy.failure_threshold:
            times = "time" if self.row == 1 else "times"
            return f"it failed {self.row} {times} in a row"
        return self._rate(policy)

    def _part(self, policy: BreakerPolicy, now: float, *, good: bool) -> None:
        parts, length = self.parts, policy.window / _PARTS
        while parts and parts[0][0] + length + policy.window <= now:
            parts.popleft()
        if not parts or parts[-1][0] + length <= now:
            parts.append([now, 0, 0])
        parts[-1][1] += 1
        if not good:
            parts[-1][2] += 1

    def _rate(self, policy: BreakerPolicy) -> str:
        if policy.failure_rate is None:
            return ""
        calls, failed = sum(p[1] for p in self.parts), sum(p[2] for p in self.parts)
        if calls < policy.min_volume or failed < policy.failure_rate * calls:
            return ""
        return f"{failed:.0f} of {calls:.0f} calls failed within {policy.window:g} s"
