"""Logs as a process left them when it died, and daemons that come upon them.

A writer whose lock was given back is dead: closing its log without ending its sagas is what a kill
leaves, as far as the lock tells. Records are made by hand, so that every state can be found.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_saga import Applied, FileWAL, NotApplied, RecoveryDaemon, Settings
from agent_saga.cli.reading import read_log
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.domain.views import SagaView
from agent_saga.plugins.registry import process_handlers
from agent_saga.recovery.survey import Found, look
from agent_saga.wal.encoding import compose, exact, masked

QUICK = Settings(
    settle=0.2,
    settle_after=0.0,
    inverse_timeout=5.0,
    inverse_delay=0.0,
    cancel_grace=0.1,
)
SAGA = "saga-of-the-tests"


class World:
    """What the handlers did: every call, with its key; what the prober finds."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self.keys: dict[str, list[str]] = {}
        self.there: set[str] = set()
        self.asked: list[str] = []

    def undo(self, what: str, key: str) -> None:
        self.undone.append(what)
        self.keys.setdefault(what, []).append(key)

    def times(self) -> Counter[str]:
        return Counter(self.undone)


class Past:
    """A process that worked on the log and is gone once `die` was called."""

    def __init__(self, path: Path, saga: str = SAGA) -> None:
        self.path = path
        self.saga = saga
        self.epoch = 1
        self.wal = FileWAL(path)

    def write(self, event: str, step: str = "", generation: int = 0, **payload: Any) -> int:
        fields = {
            name: exact(value, what=name) if name in _EXACT else masked(value)[0]
            for name, value in payload.items()
        }
        seq = self.wal.append(
            event,
            saga=self.saga,
            epoch=self.epoch,
            step=step,
            generation=generation,
            payload=compose(**fields),
        )
        self.wal.drain()
        return seq

    def begin(self, name: str = "past") -> Past:
        self.write(Ev.SAGA_BEGIN, about={"name": name, "labels": {}}, salt="c2FsdHNhbHRzYWx0c2E")
        return self

    def intent(self, step: str, semantics: str = "COMPENSABLE", **more: Any) -> None:
        generation = more.pop("generation", 0)
        call = {"tool": f"tool_{step}", "semantics": semantics}
        self.write(Ev.STEP_INTENT, step, generation, call=call, nth=1, **{"args": {}, **more})

    def committed(self, step: str, *, handler: str = "undo", generation: int = 0) -> None:
        inverse = {"handler": handler, "kwargs": {"what": step}}
        self.write(Ev.STEP_COMMITTED, step, generation, result=step, inverse=inverse)

    def applied(self, step: str, **options: Any) -> None:
        self.intent(step)
        self.committed(step, **options)

    def compensating(self, step: str, attempt: int = 1, *, handler: str = "undo") -> None:
        inverse = {"handler": handler, "kwargs": {"what": step}}
        self.write(
            Ev.STEP_COMPENSATING,
            step,
            attempt=attempt,
            inverse=inverse,
            idempotency_key=key_of(step, identity.INVERSE),
        )

    def unwinding(self) -> None:
        self.write(Ev.SAGA_UNWINDING, cause="it failed", scope=[])

    def end(self, event: str, **fields: Any) -> None:
        self.write(event, **fields)

    def claim(self, epoch: int, **cuts: int) -> Past:
        """Take the saga over as another process; the epoch is this one's from now on."""
        self.epoch = epoch
        named = {writer: {"seq": seq, "hash": ""} for writer, seq in cuts.items()}
        self.write(Ev.SAGA_CLAIM, reason="recover", by="the past", cuts=named)
        return self

    def die(self) -> Past:
        self.wal.close()
        return self


_EXACT = ("inverse", "provisional", "prepared", "recipe")


def key_of(step: str, purpose: str = identity.FORWARD, generation: int = 0) -> str:
    return identity.idempotency_key(SAGA, step, generation, purpose)


class Log:
    """One log: its past, its daemons, and how it reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[RecoveryDaemon] = []
        self.wals: list[FileWAL] = []

    def past(self, saga: str = SAGA) -> Past:
        past = Past(self.path, saga)
        self.wals.append(past.wal)
        return past

    def age(self) -> None:
        """Let everything look as if it had been written long ago."""
        for segment in self.path.rglob("seg-*"):
            os.utime(segment, (1_000_000_000, 1_000_000_000))

    def daemon(self, settings: Settings = QUICK, **options: Any) -> RecoveryDaemon:
        """A daemon with a writer of its own, as if in a process of its own."""
        wal = FileWAL(self.path)
        self.wals.append(wal)
        daemon = RecoveryDaemon(wal, settings=settings, **options)
        self.opened.append(daemon)
        return daemon

    def found(self, saga: str = SAGA) -> Found:
        found = look(self.path, saga)
        assert found is not None
        return found

    def view(self, saga: str = SAGA) -> SagaView:
        """The saga as `agent-saga list` reads it, which does not go through recovery's own eyes."""
        return read_log(self.path).sagas[saga]

    def states(self, saga: str = SAGA) -> dict[str, str]:
        return {step.id: step.state.value for step in self.view(saga).steps.values()}

    def events(self, saga: str = SAGA) -> list[str]:
        return [r.event for r in self.found(saga).effective.records]

    def close(self) -> None:
        for daemon in self.opened:
            daemon.close()
        for wal in self.wals:
            with contextlib.suppress(Exception):
                wal.close(1.0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "log")
    yield log
    log.close()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def handlers(world: World) -> Iterator[Any]:
    """The handlers that the logs of these tests name."""
    with process_handlers().isolated() as registries:

        def undo(what: str, *, idempotency_key: str) -> None:
            world.undo(what, idempotency_key)

        def undo_again(what: str, *, idempotency_key: str) -> None:
            world.undo(what, idempotency_key)

        def find(*, idempotency_key: str) -> Any:
            world.asked.append(idempotency_key)
            if idempotency_key in world.there:
                return Applied("found")
            return NotApplied("it is not there")

        from agent_saga import compensator, prober

        compensator("undo")(undo)
        compensator("undo_again", idempotent=True)(undo_again)
        prober("find")(find)
        yield registries


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """Leave logging as it was: the daemon's program sets it up for a process of its own."""
    ours = logging.getLogger("agent_saga")
    handlers, level, propagate = ours.handlers.copy(), ours.level, ours.propagate
    yield
    ours.handlers[:], ours.propagate = handlers, propagate
    ours.setLevel(level)
