"""The counters that `status()` and exporters rest on move when their thing happens."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga import AgentKit, CommittedUnsettled
from agent_saga.domain.records import Ev
from agent_saga.observe.metrics import (
    BARRIER_WAIT,
    POISONED_WRITERS,
    STEPS_WITHOUT_INVERSE,
    UNSETTLED_STEPS,
    process_metrics,
)
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    process_metrics().after_fork()
    yield
    process_metrics().after_fork()


@pytest.fixture
def wal(tmp_path: Path) -> Any:
    made = FileWAL(str(tmp_path / "log"))
    yield made
    with contextlib.suppress(Exception):
        made.close()


def counted(name: str) -> Any:
    return process_metrics().snapshot().get(name, 0)


def test_waits_for_the_disk(wal: Any) -> None:
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1)
    wal.barrier_sync()
    assert counted(BARRIER_WAIT)["count"] == 1


def test_poisoned_writers(wal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(wal, "_sync", fail)
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1)
    with pytest.raises(Exception, match="the disk is gone"):
        wal.barrier_sync()
    assert counted(POISONED_WRITERS) == 1


def test_unsettled_steps_and_steps_without_an_inverse(wal: Any) -> None:
    kit = AgentKit("counted", wal=wal)

    def lost() -> None:
        raise ConnectionError("the answer was lost")

    def done() -> None:
        pass

    unsure = kit.safe_tool(lost, semantics="COMPENSABLE", name="lost")
    unguarded = kit.safe_tool(done, semantics="COMPENSABLE", name="done")

    def run() -> None:
        with kit.transaction():
            unguarded()
            with contextlib.suppress(ConnectionError):
                unsure()

    with pytest.raises(CommittedUnsettled):
        run()
    assert counted(UNSETTLED_STEPS) == 1
    assert counted(STEPS_WITHOUT_INVERSE) == 1
