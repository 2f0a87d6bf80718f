"""Does one thing with a control, and dies at one of its writes; run by `test_killed`.

It reads `what number folder` from its standard input, and does each in a process of its own, which
kills itself before or after the write of that number: a transaction of the state store, a ring, a
system call of the log. It says how that ended: `killed`, or what came of it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from agent_saga import (
    AgentKit,
    AlreadyDecided,
    ApprovalDenied,
    ApprovalGateway,
    ApprovalPolicy,
    BudgetLimit,
    FileApprovalStore,
    FileSwitchStore,
    KillSwitch,
    LimitExceeded,
    OutcomeUnknown,
    PreFlightGate,
    SagaAborted,
    compensator,
)
from agent_saga.state.bell import FileBell
from agent_saga.state.signal import FileSignal
from agent_saga.state.sqlite_file import SQLiteFile
from agent_saga.wal.os_port import OsPort

WRITES = [
    (SQLiteFile, "write"),
    (FileSignal, "ring"),
    (FileBell, "ring"),
    (OsPort, "pwrite"),
    (OsPort, "append"),
    (OsPort, "fdatasync"),
]
CAP = 2


@compensator("killed.give_back")
def give_back(n):
    """Undo nothing: what stands is what is counted."""


def die_at(number):
    """Have this process die at a write; each has a moment before it and one after it."""
    count = itertools.count(1)

    def perhaps():
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(write):
        def around(*args, **options):
            perhaps()
            answer = write(*args, **options)
            perhaps()
            return answer

        return around

    for owner, name in WRITES:
        setattr(owner, name, dying(getattr(owner, name)))


def effect(world):
    fd = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"x")
    os.close(fd)


class Nobody:
    """A notifier who tells nobody."""

    def notify(self, notice):
        """Tell nobody."""


class Approving(Nobody):
    """A notifier who approves at once."""

    def __init__(self, store):
        self.store = store

    def notify(self, notice):
        self.store.approve(notice.id, approver="ann")


def wiring(folder, notifier, timeout):
    store = FileApprovalStore(folder / "log")
    made = notifier(store) if notifier is Approving else notifier()
    policy = ApprovalPolicy(timeout=timeout)
    gateway = ApprovalGateway(store=store, notifier=made, policy=policy)
    kit = AgentKit("wiring", wal=str(folder / "log"), gate=PreFlightGate((), gateway))

    def wire(amount):
        effect(folder / "world")

    return kit, kit.safe_tool(wire, "IRREVERSIBLE", name="wire")


def wired(folder, notifier=Approving, timeout=60):
    """Ask, be answered, and act; as one saga of an id of its own, which is resumed."""
    kit, wire = wiring(folder, notifier, timeout)
    try:
        with kit.transaction(saga_id="wire", resume=True, on_unsettled="warn"):
            wire(amount=5)
    except SagaAborted as error:
        return type(error.cause).__name__
    except OutcomeUnknown:
        return "OutcomeUnknown"
    return "done"


def asked(folder):
    """Ask, and die while nobody has answered."""
    kit, wire = wiring(folder, Nobody, 60)
    pid = os.fork()
    if not pid:
        with kit.transaction(saga_id="wire", resume=True):
            wire(amount=5)
    store = FileApprovalStore(folder / "log")
    while not store.pending():
        """It is being asked."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "done"


def approved(folder):
    store = FileApprovalStore(folder / "log")
    pending = store.pending()
    if not pending:
        return "decided"
    try:
        store.approve(pending[0]["id"], approver="ann")
    except AlreadyDecided:
        return "decided"
    return "done"


def granted(folder):
    FileApprovalStore(folder / "log").grant("wire", approver="ann", seconds=600)
    return "done"


def revoked(folder):
    store = FileApprovalStore(folder / "log")
    grants = store.grants()
    if not grants:
        return "nothing"
    store.revoke(grants[0]["id"], approver="ben")
    return "done"


def covered(folder):
    """Act if a standing grant covers it; nobody is told, so that nobody else says yes."""
    kit, wire = wiring(folder, Nobody, 0.2)
    try:
        with kit.transaction(reraise=True):
            wire(amount=5)
    except ApprovalDenied:
        return "denied"
    return "done"


def halted(folder):
    KillSwitch(FileSwitchStore(folder / "log")).halt("*", reason="r", by="b")
    return "done"


def lifted(folder):
    KillSwitch(FileSwitchStore(folder / "log")).lift("*", by="b")
    return "done"


def charged(folder):
    """Charge one after the other until the limit says no."""
    limit = BudgetLimit("spend", arg="n", max_total=CAP, window=86_400)
    kit = AgentKit("charging", wal=str(folder / "log"), gate=PreFlightGate(limits=[limit]))

    def charge(n):
        effect(folder / "world")

    tool = kit.safe_tool(charge, "COMPENSABLE", give_back.using(n=1), name="charge")
    for _ in range(CAP + 1):
        try:
            with kit.transaction(reraise=True):
                tool(n=1)
        except LimitExceeded:
            return "refused"
    return "over"


_ALL = (wired, asked, approved, granted, revoked, covered, halted, lifted, charged)
DOES = {one.__name__: one for one in _ALL}


def once(what, number, folder):
    """Do it in a process of its own, and return how that ended."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        end = "nothing"
        try:
            die_at(number)
            end = DOES[what](folder)
        except BaseException as error:
            end = f"{type(error).__name__}: {error}".replace("\n", " | ")
        finally:
            os.write(write, end.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        end = told.read()
    os.waitpid(pid, 0)
    return end or "killed"


def main():
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        what, number, folder = line.split()
        sys.stdout.write(f"{once(what, int(number), Path(folder))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
