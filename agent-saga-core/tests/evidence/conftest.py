"""The logs of the compaction tests: several writers, small segments."""

from __future__ import annotations

from compaction.conftest import path, small_segments, writer

__all__ = ["path", "small_segments", "writer"]
