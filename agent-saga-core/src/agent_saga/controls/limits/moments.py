"""The time axis of a shared count: seconds that no clock step moves.

Rules of this part:

- Each count keeps an axis of its own. It advances by what the monotonic clock says while the host
  runs, whatever happens to the wall clock meanwhile.
- Across a restart of the host, or between hosts, only the wall clock is left. It advances the axis
  by what it has gone on, never back, and never twice for the same time.
- Where nobody can tell whether the host was restarted, the smaller of both advances counts. A doubt
  makes a window longer, never shorter.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from agent_saga.domain.clock import Clock
from agent_saga.wal.os_port import OsPort

__all__ = ["Axis", "Moment", "moment"]


class Moment(NamedTuple):
    """What the clocks say.

    Attributes:
        wall: microseconds since the epoch. monotonic: seconds. boot: tells the host's run; may be
            empty.
    """

    wall: int
    monotonic: float
    boot: str


class Axis(NamedTuple):
    """Where a count's time stands, and what the clocks said then."""

    now: float
    wall: int
    monotonic: float
    boot: str

    def advanced(self, to: Moment) -> Axis:
        """Return the axis at a later moment."""
        by_wall = max(0.0, (to.wall - self.wall) / 1_000_000)
        wall = max(to.wall, self.wall)
        gone = to.monotonic - self.monotonic
        if to.boot and to.boot == self.boot:
            gone = max(0.0, gone)
            wall = max(wall, self.wall + int(gone * 1_000_000) + 1)
            return Axis(self.now + gone, wall, self.monotonic + gone, to.boot)
        if not to.boot and not self.boot and gone >= 0:
            by_wall = min(by_wall, gone)
        return Axis(self.now + by_wall, wall, to.monotonic, to.boot)


def moment(clock: Clock) -> Moment:
    """Read the clocks."""
    return Moment(clock.now_us(), clock.monotonic(), _boot())


@functools.cache
def _boot() -> str:
    return OsPort().boot_id()
