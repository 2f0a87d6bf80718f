"""For how long something is left alone that went wrong: longer every time, up to an hour."""

from __future__ import annotations

from typing import Final

__all__ = ["pause_after"]

_LONGEST: Final = 3600.0


def pause_after(tries: int) -> float:
    """Return for how many seconds a thing is left alone after so many tries."""
    return min(_LONGEST, 2.0 ** min(tries, 20))
