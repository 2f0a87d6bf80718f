"""One of many processes that begin at once on an empty folder; run by `test_start`.

It reads the name of a folder from its standard input, does its work there, and says how that ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agent_saga import (
    AgentKit,
    ApprovalGateway,
    BudgetLimit,
    CircuitBreaker,
    Compensation,
    FileApprovalStore,
    FileSwitchStore,
    KillSwitch,
    LimitExceeded,
    PreFlightGate,
    set_breaker,
)


class Approving:
    """A notifier who approves at once."""

    def __init__(self, store):
        self.store = store

    def notify(self, notice):
        self.store.approve(notice.id, approver="ann")


def tool_of(kit, world, semantics):
    def act(amount):
        fd = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, b"x" * amount)
        os.close(fd)

    undo = None if semantics == "IRREVERSIBLE" else lambda _: Compensation.none("nothing to undo")
    return kit.safe_tool(act, semantics, undo, name="act")


def charge(log, world):
    limit = BudgetLimit("spend", arg="amount", max_total=3, window=86_400)
    kit = AgentKit("start", wal=str(log), gate=PreFlightGate(limits=[limit]))
    tool = tool_of(kit, world, "COMPENSABLE")
    with kit.transaction():
        try:
            tool(amount=1)
        except LimitExceeded:
            return "refused"
    return "done"


def approval(log, world):
    store = FileApprovalStore(log)
    gateway = ApprovalGateway(store=store, notifier=Approving(store))
    kit = AgentKit("start", wal=str(log), gate=PreFlightGate(approval_provider=gateway))
    tool = tool_of(kit, world, "IRREVERSIBLE")
    with kit.transaction():
        tool(amount=1)
    return "done"


def halt(log, world):
    KillSwitch(FileSwitchStore(log)).halt(f"tool:t{os.getpid()}", reason="r", by="b")
    return "done"


def look(log, world):
    KillSwitch(FileSwitchStore(log)).switches()
    return "done"


def saga(log, world):
    set_breaker(CircuitBreaker())
    kit = AgentKit("start", wal=str(log))
    tool = tool_of(kit, world, "COMPENSABLE")
    with kit.transaction(saga_id=f"saga-{os.getpid()}"):
        tool(amount=1)
    return "done"


WORK = {"charge": charge, "approval": approval, "halt": halt, "look": look, "saga": saga}


def main(work):
    """Do this work in each folder that is named."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        folder = Path(line.strip())
        try:
            end = WORK[work](folder / "log", folder / "world")
        except Exception as error:
            end = f"{type(error).__name__}: {error}".replace("\n", " | ")
        sys.stdout.write(f"{end}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
