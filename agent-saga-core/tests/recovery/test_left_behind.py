"""What the daemon takes for left behind by its own process, and what its program still works on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from recovery.conftest import QUICK, Log, Past, World

from agent_saga import AgentKit, FileWAL, RecoveryDaemon, SagaAborted
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.recovery import daemon as daemons


class Desk:
    """A program that can go on with its saga."""

    def __init__(self, log: Log, world: World) -> None:
        self.wal = FileWAL(log.path)
        log.wals.append(self.wal)
        self.kit = AgentKit("desk", wal=self.wal, settings=QUICK)

        @self.kit.tool("COMPENSABLE", name="book")
        def book(item: str) -> str:
            return item

        @book.undo
        def cancel(result: str) -> None:
            world.undone.append(result)

        self.book = book
        self.daemon = RecoveryDaemon(self.wal, settings=QUICK)

    def boundary(self) -> Any:
        return self.kit.transaction(saga_id="K", resume=True, suspendable=True, on_crash="hold")


def outcomes(desk: Desk) -> list[str]:
    return [one.outcome for one in desk.daemon.recover_all().sagas]


@pytest.mark.guarantee("RECOVER-27")
def test_a_saga_that_its_program_resumes_while_the_log_is_surveyed_is_its_program_s(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Desk(log, world)
    dying = threading.Thread(target=lambda: (first.boundary().__enter__(), first.book("one")))
    dying.start()
    dying.join()
    first.wal.close()
    desk = Desk(log, world)
    claimed, surveyed, resumed, done = (threading.Event() for _ in range(4))
    survey, record = daemons.survey, journal.resumed

    def between(*given: Any, **options: Any) -> Any:
        assert claimed.wait(60)
        found = survey(*given, **options)
        surveyed.set()
        assert resumed.wait(60)
        return found

    def late(*given: Any) -> int:
        claimed.set()
        assert surveyed.wait(60)
        return record(*given)

    monkeypatch.setattr(daemons, "survey", between)
    monkeypatch.setattr(journal, "resumed", late)
    ended: list[object] = []

    def program() -> None:
        with desk.boundary():
            desk.book("one")
            resumed.set()
            assert done.wait(60)
            desk.book("two")
        ended.append("well")

    thread = threading.Thread(target=program)
    thread.start()
    try:
        assert outcomes(desk) == ["live"]
        monkeypatch.setattr(daemons, "survey", survey)
        assert outcomes(desk) == ["live"]
    finally:
        done.set()
        thread.join()
    assert ended == ["well"]
    assert not world.undone


@pytest.mark.guarantee("RECOVER-27")
def test_what_was_taken_over_is_not_remembered_as_left(log: Log, world: World) -> None:
    desk = Desk(log, world)
    with pytest.raises(SagaAborted), desk.boundary() as saga:
        desk.book("one")
        desk.wal.drain()
        other = Past(log.path, saga.id)
        log.wals.append(other.wal)
        other.claim(2, **{desk.wal.writer: desk.wal.seq}).write(Ev.SAGA_RESUMED)
        desk.wal.fence(saga.id, 2, writer=desk.wal.writer)
        raise RuntimeError
    other.die()
    with desk.boundary():
        desk.book("one")
        assert [outcomes(desk), outcomes(desk)] == [["live"], ["live"]]
        desk.book("two")
    assert not world.undone
