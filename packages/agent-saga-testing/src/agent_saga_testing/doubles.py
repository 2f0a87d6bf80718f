"""A log and a state store in memory, for tests that need no disk; they pass the kits.

They are the core's own, under one roof with the rest of the testing tools: a double that is not
what runs in production would prove nothing.
"""

from __future__ import annotations

from agent_saga.state.memory import MemoryStateStore
from agent_saga.wal.memory import MemoryWAL

__all__ = ["MemoryStateStore", "MemoryWAL"]
