"""What a log says about itself: capabilities, policy, counters."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["BackpressurePolicy", "Capabilities", "Counters"]


class Capabilities(NamedTuple):
    """What a backend can do.

    `durability` is "disk", "cache" (a drive's volatile cache may hold it), "memory" or "sink".
    """

    durability: str
    survives_kill: bool
    multi_process: bool
    multi_host: bool
    compaction: bool


class BackpressurePolicy(Enum):
    """What happens to an intent when the log is not keeping up; it is never dropped and then run.

    RAISE refuses it; BLOCK makes its thread wait, bounded, and then refuses it; DROP_SILENT refuses
    it too, and drops observations without a word.
    """

    RAISE = "raise"
    BLOCK = "block"
    DROP_SILENT = "drop_silent"


class Counters:
    """What the log did since it was opened; `bytes` are those of whole lines."""

    __slots__ = ("bytes", "dropped", "records", "syncs", "writes")

    def __init__(self) -> None:
        self.writes = self.syncs = self.bytes = self.records = self.dropped = 0
