"""The section `approvals`: how many requests wait for an answer, and how many reviews are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import counted
from agent_saga.cli.place import wal_option
from agent_saga.cli.status.section import Section, ago
from agent_saga.recovery.askers import Waiting, asker_of
from agent_saga.runtime.stores import FileApprovalStore

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["approvals"]


def approvals(scene: Scene) -> Section:
    """Tell what waits for a human's approval."""
    store = FileApprovalStore(scene.log.path)
    asked, reviews, damaged = store.pending(), store.reviews(), store.damaged()
    crashed = {saga.id for saga in scene.crashed}
    sagas = scene.log.sagas
    askers = {s: asker_of(sagas.get(s), dead=s in crashed) for s in {doc["saga"] for doc in asked}}
    pending = [doc for doc in asked if not askers[doc["saga"]].ended]
    left = [doc for doc in pending if askers[doc["saga"]].waiting is Waiting.GONE]
    facts = {
        "pending": [doc["id"] for doc in pending],
        "without_asker": [doc["id"] for doc in left],
        "gone": [doc["id"] for doc in asked if doc not in pending],
        "reviews": [doc["id"] for doc in reviews],
        "damaged": damaged,
    }
    if not pending and not reviews and not damaged:
        return Section(["nothing waits for an answer"], facts)
    since = min((doc["asked"] for doc in pending), default=scene.now)
    oldest = f", the oldest for {ago(max(scene.now - since, 0) / 1e6)}" if pending else ""
    nobody = f", {len(left)} of a process that is gone" if left else ""
    words = f"{counted(len(pending), 'request')} to answer{oldest}{nobody}"
    broken = f"; {counted(len(damaged), 'damaged document')}" if damaged else ""
    lines = [
        f"{words}; {counted(len(reviews), 'review')} due{broken}. Next:",
        f"  agent-saga approvals list {wal_option(scene.log.path)}",
    ]
    return Section(lines, facts, attention=True)
