"""The section `approvals`: how many requests wait for an answer, and how many reviews are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import counted
from agent_saga.cli.place import wal_option
from agent_saga.cli.status.section import Section, ago
from agent_saga.runtime.stores import FileApprovalStore

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["approvals"]


def approvals(scene: Scene) -> Section:
    """Tell what waits for a human's approval."""
    store = FileApprovalStore(scene.log.path)
    pending, reviews, damaged = store.pending(), store.reviews(), store.damaged()
    facts = {
        "pending": [doc["id"] for doc in pending],
        "reviews": [doc["id"] for doc in reviews],
        "damaged": damaged,
    }
    if not pending and not reviews and not damaged:
        return Section(["nothing waits for an answer"], facts)
    since = min((doc["asked"] for doc in pending), default=scene.now)
    oldest = f", the oldest for {ago(max(scene.now - since, 0) / 1e6)}" if pending else ""
    asked = f"{counted(len(pending), 'request')} to answer{oldest}"
    broken = f"; {counted(len(damaged), 'damaged document')}" if damaged else ""
    lines = [
        f"{asked}; {counted(len(reviews), 'review')} due{broken}. Next:",
        f"  agent-saga approvals list {wal_option(scene.log.path)}",
    ]
    return Section(lines, facts, attention=True)
