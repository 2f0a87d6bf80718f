"""The state store is taken away at every moment: what guards refuses, and what helps goes on."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from agent_saga import (
    AgentKit,
    ApprovalGateway,
    ApprovalPolicy,
    BreakerPolicy,
    BudgetLimit,
    CircuitBreaker,
    FileApprovalStore,
    FileSwitchStore,
    KillSwitch,
    PreFlightGate,
    SagaAborted,
    Settings,
    set_breaker,
)
from agent_saga.errors import AgentSagaError, RefusedError
from agent_saga.state.base import Change
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2)
BESIDE = ("", "-wal", "-shm")
WRITTEN = BESIDE[:2]
"""The third one is memory that SQLite shares; whoever cuts that ends the processes at once."""


patience = [60.0]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nobody waits long for a store that cannot answer, everybody for one that is slow."""
    monkeypatch.setattr(
        SQLiteStateStore, "_timeout", property(lambda _: patience[0], _forget), raising=False
    )


def _forget(store, timeout):
    """What a store is told of its patience counts for nothing here."""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


LOCKING = {"isolation_level": None, "check_same_thread": False}


def _removed(log):
    for name in BESIDE:
        (log / f"{FILE_NAME}{name}").unlink(missing_ok=True)


def _emptied(log):
    for name in WRITTEN:
        with contextlib.suppress(FileNotFoundError), (log / f"{FILE_NAME}{name}").open("r+b") as f:
            f.truncate()


def _garbage(log):
    for name in WRITTEN:
        path = log / f"{FILE_NAME}{name}"
        if path.exists():
            with path.open("r+b") as file:
                file.write(b"no database at all " * 4096)


def _cleared(log):
    """Every row goes, and the file stays as it is for those who have it open."""
    with contextlib.closing(sqlite3.connect(log / FILE_NAME, isolation_level=None)) as other:
        for (table,) in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            other.execute(f"DELETE FROM {table}")


def _foreign(log):
    _removed(log)
    with contextlib.closing(sqlite3.connect(log / FILE_NAME)) as other:
        other.execute("CREATE TABLE things (x)")
        other.commit()


def _folder(log):
    _removed(log)
    (log / FILE_NAME).mkdir()


@contextlib.contextmanager
def _harmed(log, harm):
    """Harm the store; a lock is held until the end."""
    patience[0] = 0.3 if harm in UNANSWERED else 60.0
    try:
        if harm != "locked":
            HARMS[harm](log)
            yield
            return
        with contextlib.closing(sqlite3.connect(log / FILE_NAME, **LOCKING)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")
    finally:
        patience[0] = 60.0


HARMS = {
    "removed": _removed,
    "emptied": _emptied,
    "cleared": _cleared,
    "garbage": _garbage,
    "foreign": _foreign,
    "a folder": _folder,
}
EVERY_HARM = [*HARMS, "locked"]
UNANSWERED = ("emptied", "locked")
"""The harms behind which SQLite waits for what nobody gives back."""


def limited(log, world):
    limit = BudgetLimit("spend", arg="amount", max_total=10, window=86_400)
    kit = AgentKit("limited", wal=str(log), gate=PreFlightGate(limits=[limit]), settings=FAST)
    return kit, kit.safe_tool(world.wire, "COMPENSABLE", name="wire")


def refused(kit, tool, amount):
    """Say whether a call is refused; whatever else happens is a fault."""
    try:
        with kit.transaction(reraise=True):
            tool(amount)
    except RefusedError:
        return True
    return False


@pytest.mark.guarantee("LIMIT-5")
@pytest.mark.parametrize("spent", [1, 7])
@pytest.mark.parametrize("harm", EVERY_HARM)
def test_a_process_whose_counts_are_taken_away_never_goes_over_the_cap(log, world, harm, spent):
    """It refuses, goes on with what SQLite has in memory, or counts anew what the log announced."""
    kit, tool = limited(log, world)
    assert not refused(kit, tool, spent)
    with _harmed(log, harm):
        let_through = [not refused(kit, tool, 4) for _ in range(4)]
    assert sum(world.amounts) == spent + 4 * sum(let_through) <= 10
    assert not any(let_through) or harm in ("emptied", "cleared", "garbage")


@pytest.mark.guarantee("LIMIT-5")
@pytest.mark.parametrize("harm", EVERY_HARM)
def test_a_limit_is_never_refilled_by_a_store_that_was_lost(log, world, harm, monkeypatch):
    """A process that comes later refuses, or has learnt from the log what was spent."""
    kit, tool = limited(log, world)
    assert not refused(kit, tool, 9)
    monkeypatch.setattr("agent_saga.runtime.stores._stores", {})
    monkeypatch.setattr("agent_saga.runtime.logs._logs", {}, raising=False)
    with _harmed(log, harm):
        later, same = limited(log, world)
        refused(later, same, 2)
    assert world.amounts == [9]


@pytest.mark.guarantee("HALT-3")
@pytest.mark.parametrize("harm", EVERY_HARM)
@pytest.mark.parametrize("when", ["before it halts", "after it halted"])
def test_a_halt_holds_whatever_is_done_to_its_store(log, world, harm, when):
    kit = AgentKit("halted", wal=str(log), settings=FAST)
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    KillSwitch(FileSwitchStore(log)).halt("tool:other", reason="r", by="b")
    assert not refused(kit, tool, 1)
    if when == "after it halted":
        KillSwitch(FileSwitchStore(log)).halt("*", reason="r", by="b")
        with _harmed(log, harm):
            assert refused(kit, tool, 2)
        assert world.amounts == [1]
        return
    with _harmed(log, harm):
        try:
            KillSwitch(FileSwitchStore(log)).halt("*", reason="r", by="b")
        except AgentSagaError:
            return  # it is not acknowledged
        assert refused(kit, tool, 2)
    assert world.amounts == [1]


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("harm", EVERY_HARM)
@pytest.mark.parametrize("when", ["before it is asked", "while it waits", "when it is answered"])
def test_a_request_whose_store_is_taken_away_is_refused(log, world, harm, when):
    store = FileApprovalStore(log)
    harmed = contextlib.ExitStack()

    class Telling:
        def notify(self, notice):
            if when == "when it is answered":
                store.approve(notice.id, approver="ann")
            if when != "before it is asked":
                harmed.enter_context(_harmed(log, harm))

    policy = ApprovalPolicy(timeout=1.0)
    gateway = ApprovalGateway(store=store, notifier=Telling(), policy=policy)
    kit = AgentKit("asks", wal=str(log), gate=PreFlightGate((), gateway), settings=FAST)
    note = kit.safe_tool(lambda: None, "REVERSIBLE", name="note")
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.grant("another", approver="ann", seconds=60)
    with kit.transaction():
        note()
    with harmed:
        if when == "before it is asked":
            harmed.enter_context(_harmed(log, harm))
        was_refused = refused(kit, tool, 1)
    if when != "when it is answered":  # then there was a yes, and SQLite may still have it
        assert was_refused
    assert world.amounts == ([] if was_refused else [1])


@pytest.mark.guarantee("BREAKER-2")
@pytest.mark.parametrize("harm", EVERY_HARM)
def test_a_breaker_goes_on_without_its_store(tmp_path, log, world, harm):
    store = SQLiteStateStore(tmp_path / "breakers" / FILE_NAME)
    store.transact(["x"], lambda docs: Change(None, {"x": {}}))
    set_breaker(CircuitBreaker(BreakerPolicy(failure_threshold=2), store=store))
    kit = AgentKit("kit", wal=str(log), settings=FAST)
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    try:
        with _harmed(tmp_path / "breakers", harm):
            assert not refused(kit, tool, 1)
            assert not refused(kit, tool, 2)
    finally:
        set_breaker(None)
        store.close()
    assert world.amounts == [1, 2]


@pytest.mark.parametrize("harm", ["removed", "garbage", "locked"])
def test_what_stands_is_undone_although_the_store_is_taken_away(log, harm):
    done, undone = [], []
    kit = AgentKit("undoes", wal=str(log), settings=FAST)

    @kit.tool("COMPENSABLE")
    def act(n: int) -> int:
        done.append(n)
        return n

    @act.undo
    def unact(result: int) -> None:
        undone.append(result)

    KillSwitch(FileSwitchStore(log)).halt("tool:other", reason="r", by="b")
    harmed = contextlib.ExitStack()
    with harmed, pytest.raises(SagaAborted) as caught, kit.transaction():
        act(1)
        harmed.enter_context(_harmed(log, harm))
        raise ValueError
    assert (done, undone) == ([1], [1])
    assert caught.value.report.clean
