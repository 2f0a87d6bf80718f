"""The name of a writer.

Rules of this part:

- A writer's id sorts by the time at which it began and is unique without asking anybody; it is
  the name of its folder, so it holds nothing but digits, letters and a dash.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final

__all__ = ["is_writer_id", "new_writer_id"]

_FORM: Final = re.compile(r"[0-9]{8}T[0-9]{12}-[0-9a-f]{16}\Z")


def new_writer_id() -> str:
    """A new id: start time in UTC to the microsecond, and 64 random bits."""
    now = time.time_ns() // 1000
    start = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1_000_000))
    return f"{start}{now % 1_000_000:06d}-{os.urandom(8).hex()}"


def is_writer_id(name: str) -> bool:
    """Whether a folder's name is that of a writer."""
    return _FORM.match(name) is not None
