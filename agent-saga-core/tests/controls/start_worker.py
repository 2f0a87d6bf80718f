"""One of many processes that begin at once on an empty folder; run by `test_start`.

It reads the name of a folder from its standard input, does its work there, and says how that ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from agent_saga import (
    AgentKit,
    AlreadyDecided,
    ApprovalDenied,
    ApprovalError,
    ApprovalGateway,
    ApprovalPolicy,
    BreakerPolicy,
    BudgetLimit,
    CircuitBreaker,
    CircuitOpen,
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


def mark(place, times=1):
    fd = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"x" * times)
    os.close(fd)


def tool_of(kit, world, semantics, hold=lambda: None):
    def act(amount):
        mark(world, amount)
        hold()

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


# --- races for one thing --------------------------------------------------------------------------


def decide(log, world):
    """Approve or deny the one request there is; each process as somebody else."""
    store, by = FileApprovalStore(log), f"p{os.getpid()}"
    (request,) = [doc["id"] for _, doc in store.state.scan("approval/")]
    does = store.approve if os.getpid() % 2 else store.deny
    try:
        return does(request, approver=by)["decision"]["by"] == by and "won"
    except AlreadyDecided:
        return "lost"


def review(log, world):
    store = FileApprovalStore(log)
    (request,) = [doc["id"] for _, doc in store.state.scan("approval/")]
    try:
        store.review(request, by=f"p{os.getpid()}")
    except ApprovalError:
        return "lost"
    return "won"


def lift(log, world):
    return "won" if KillSwitch(FileSwitchStore(log)).lift("*", by="b").entries else "lost"


def granted(log, world):
    """Act under a standing grant that covers only so many calls."""
    policy = ApprovalPolicy(timeout=0.1)
    gateway = ApprovalGateway(store=FileApprovalStore(log), policy=policy)
    kit = AgentKit("start", wal=str(log), gate=PreFlightGate(approval_provider=gateway))
    tool = tool_of(kit, world, "IRREVERSIBLE")
    with kit.transaction():
        try:
            tool(amount=1)
        except ApprovalDenied:
            return "lost"
    return "won"


def probe(log, world):
    """Try a tool whose breaker is open, and whose cool-down is over.

    Who is let through goes on until all others were refused: no place is free before.
    """
    lost = world.with_name("lost")

    def hold():
        until = time.monotonic() + 30
        while (not lost.exists() or lost.stat().st_size < 6) and time.monotonic() < until:
            time.sleep(0.01)

    policy = BreakerPolicy(failure_threshold=1, cool_down=60.0, probes=2, success_threshold=1000)
    set_breaker(CircuitBreaker(policy))
    kit = AgentKit("start", wal=str(log))
    tool = tool_of(kit, world, "REVERSIBLE", hold)
    with kit.transaction():
        try:
            tool(amount=1)
        except CircuitOpen:
            mark(lost)
            return "lost"
    return "won"


WORK = {
    one.__name__: one
    for one in (charge, approval, halt, look, saga, decide, review, lift, granted, probe)
}


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
