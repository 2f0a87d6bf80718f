"""The states in which a saga can be found, each made by a process that is gone (but for one)."""

from __future__ import annotations

from recovery.conftest import SAGA, Log, Past

from agent_saga.domain.records import Ev

FAR = 1 << 52
"""A deadline that nobody lives to see, in microseconds since the epoch."""


def running(log: Log) -> Past:
    past = log.past().begin("an 'odd' name")
    past.applied("a")
    return past


def crashed(log: Log) -> Past:
    return running(log).die()


def suspended(log: Log, deadline: int = FAR, then: str = "undo") -> Past:
    past = running(log)
    past.write(Ev.SAGA_SUSPENDED, reason="a human", deadline=deadline, at_deadline=then)
    return past.die()


def overdue(log: Log) -> Past:
    return suspended(log, 1)


def overdue_for_a_human(log: Log) -> Past:
    return suspended(log, 1, "hold")


def committed(log: Log) -> Past:
    past = running(log)
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    return past.die()


def rolled_back(log: Log) -> Past:
    past = running(log)
    past.unwinding()
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATED, "a")
    past.end(Ev.SAGA_ROLLED_BACK)
    return past.die()


def stuck(log: Log) -> Past:
    past = running(log)
    past.unwinding()
    past.compensating("a")
    past.write(Ev.STEP_COMPENSATION_FAILED, "a", error={"type": "OSError"}, attempts=3)
    past.end(Ev.SAGA_STUCK)
    return past.die()


def reopened(log: Log) -> Past:
    past = running(log)
    past.intent("b")
    past.write(Ev.STEP_UNKNOWN, "b", ending="timeout")
    past.end(Ev.SAGA_COMMITTED, unsettled=["b"])
    inverse = {"handler": "undo", "kwargs": {"what": "b"}}
    past.write(Ev.STEP_LATE, "b", result="b", inverse=inverse)
    past.end(Ev.SAGA_REOPENED, tool="b")
    return past.die()


def closed(log: Log) -> Past:
    past = stuck(log)
    log.daemon().close_case(SAGA, by="ann", reason="by hand")
    return past


def half_undone(log: Log) -> Past:
    past = running(log)
    past.applied("b")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.claim(2)
    past.write(Ev.SAGA_UNWINDING, cause="x", scope=[], to="a", only=["b"])
    return past.die()


def untrusted(log: Log) -> Past:
    past = running(log)
    past.write("SAGA_DANCED")
    return past.die()


def irreversible(log: Log) -> Past:
    past = log.past().begin()
    past.intent("a", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "a", result="sent")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    return past.die()


STATES = [
    running, crashed, suspended, overdue, overdue_for_a_human, committed, rolled_back, stuck,
    reopened, closed, half_undone, untrusted, irreversible,
]  # fmt: skip
"""All of them, as functions of a log."""
