"""Sets that keep nothing alive, looked at while a thread adds to them."""

from __future__ import annotations

import threading
from weakref import WeakSet

import pytest

from agent_saga import AgentKit, MemoryWAL
from agent_saga.controls.limits import leases
from agent_saga.observe.living import living
from agent_saga.state import forking
from agent_saga.wal import base


class Thing:
    """What can be told of a fork, and ended."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def before_fork(self) -> None:
        self.told.append("before")

    def after_fork_in_parent(self) -> None:
        self.told.append("after")

    def close(self, timeout: float) -> None:
        self.told.append("closed")

    def end(self) -> None:
        self.told.append("ended")


class Busy(WeakSet):
    """A set to which another thread adds while it is walked through, once."""

    def __init__(self, things) -> None:
        super().__init__(things)
        self.late = Thing()
        self.adding = threading.Thread(target=self.add, args=(self.late,))

    def __iter__(self):
        for number, thing in enumerate(super().__iter__()):
            if number == 0 and self.adding.ident is None:
                self.adding.start()
                self.adding.join()
            yield thing


@pytest.fixture
def things():
    return [Thing() for _ in range(3)]


def test_what_is_added_meanwhile_is_among_them(things):
    busy = Busy(things)
    assert set(living(busy)) == {*things, busy.late}


def test_a_fork_beside_a_thread_that_makes_a_store_tells_every_store_and_holds_no_later_fork(
    things, monkeypatch
):
    busy = Busy(things)
    monkeypatch.setattr(forking, "_watched", busy)
    for _ in range(2):
        fork = threading.Thread(target=lambda: (forking._before(), forking._after_in_parent()))
        fork.start()
        fork.join(60)
        assert not fork.is_alive()
    assert [thing.told for thing in (*things, busy.late)] == [["before", "after"] * 2] * 4


@pytest.mark.parametrize(
    ("module", "name", "at_end", "told"),
    [(base, "_logs", "_close_logs", "closed"), (leases, "_leasing", "_at_exit", "ended")],
)
def test_the_end_of_the_process_beside_a_thread_that_makes_one_ends_every_one(
    things, monkeypatch, module, name, at_end, told
):
    busy = Busy(things)
    monkeypatch.setattr(module, name, busy)
    getattr(module, at_end)()
    assert [thing.told for thing in (*things, busy.late)] == [[told]] * 4


def test_the_status_is_told_beside_a_thread_that_declares_a_tool(monkeypatch):
    kit = AgentKit("busy", wal=MemoryWAL())
    tools = [kit.safe_tool(lambda: None, "REVERSIBLE", name=name) for name in ("a", "b")]
    busy = Busy(tools)
    busy.adding = threading.Thread(target=kit.safe_tool, args=(lambda: None, "REVERSIBLE"))
    monkeypatch.setattr(kit, "_tools", busy)
    assert kit.status().ready
