"""What time it is for a request, whatever is done to the clock meanwhile.

Rules of this part:

- A request is put at a moment of both clocks. From then on its time is that of the wall clock, or
  what has gone by since on an axis that no clock step moves, whichever is later. So a clock that is
  put back gives nobody longer to answer, no answer a longer life, and delays no escalation.
- A clock that is put forward ends the time early. Fails closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.controls.limits.moments import Axis, Moment

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = ["time_of"]


def time_of(doc: Doc | None, now: Moment) -> int:
    """Return what time it is for a request, in microseconds since the epoch.

    Args:
        doc: its document; one that cannot be understood is told by the rules of `document`.
        now: what the clocks say.
    """
    put = None if doc is None else doc.get("clocks")
    if doc is None or put is None:
        return now.wall
    try:
        gone = Axis(0.0, *put).advanced(now).now
        asked: int = doc["asked"]
        return max(now.wall, asked + int(gone * 1_000_000))
    except (LookupError, TypeError, ValueError, OverflowError):
        return now.wall
