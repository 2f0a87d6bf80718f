"""The real code of owner, daemons, log and store, in every order of their operations within bounds.

A few hundred states are visited usually, AGENT_SAGA_MODEL_STATES asks for more. In each the
properties of `properties.py` hold, and every seeded mistake of `mutants.py` is found.
"""

from __future__ import annotations

import logging
import os
import sys

import pytest
from model.mutants import MUTANTS
from model.programs import Plan, book, finish, pay, post, scene
from model.properties import check
from model.scheduler import DIE, POWER, TORN, Bounds, Search
from model.stage import BLIND, DENIED, FAILS, HELD, LOST, stage

from agent_saga.recovery import claim as claiming
from agent_saga.wal.os_port import OsPort

STATES = int(os.environ.get("AGENT_SAGA_MODEL_STATES", "300"))
SEED = int(os.environ.get("AGENT_SAGA_MODEL_SEED", "1"))
MUTANT = os.environ.get("AGENT_SAGA_MUTANT", "")

pytestmark = [pytest.mark.property, pytest.mark.timeout(max(600, STATES // 5))]


class _Many(set):
    """Threads of this process claim as if each were a process of its own."""

    def __contains__(self, saga: object) -> bool:
        return False


class _Time:
    """Stands for the module `time` where the code under test sleeps."""

    @staticmethod
    def sleep(seconds: float) -> None:
        stage().clock.sleep(seconds)

    @staticmethod
    def monotonic() -> float:
        return stage().clock.monotonic()


class _Clock:
    """The clock of whatever scene is played."""

    @staticmethod
    def now_us() -> int:
        return stage().clock.now_us()

    @staticmethod
    def monotonic() -> float:
        return stage().clock.monotonic()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    tried = OsPort.flock
    monkeypatch.setattr(
        OsPort,
        "flock",
        lambda port, fd: tried(port, fd) or port.fstat(fd).st_ino in stage().taken_for_dead,
    )
    monkeypatch.setattr(claiming, "_claiming", _Many())
    monkeypatch.setattr("agent_saga.engine.drive_sync.time", _Time)
    monkeypatch.setattr("agent_saga.runtime.composition.SYSTEM_CLOCK", _Clock)
    monkeypatch.setattr("agent_saga.wal.base._now", _Time.monotonic)
    monkeypatch.setattr("agent_saga.controls.switch.store.signal_of", lambda store, name: None)
    if MUTANT:
        MUTANTS[MUTANT].make(monkeypatch)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


USUAL = frozenset({DIE, LOST, FAILS})
SCENES = {
    "one daemon, the owner fails": (Plan(1), book, Bounds(2, 2, 1, USUAL)),
    "one daemon, the owner commits": (Plan(1, fails=False), book, Bounds(2, 2, 1, USUAL)),
    "two daemons, the owner fails": (Plan(2), book, Bounds(2, 2, 1, USUAL)),
    "two daemons, the owner commits": (Plan(2, fails=False), book, Bounds(2, 2, 1, USUAL)),
    "three daemons": (Plan(3), book, Bounds(1, 3, 1, USUAL)),
    "nobody can tell": (Plan(1), post, Bounds(1, 2, 2, USUAL)),
    "torn tails": (Plan(2), book, Bounds(1, 3, 1, USUAL | {TORN})),
    "the power fails": (Plan(2), book, Bounds(1, 2, 1, USUAL | {POWER})),
    "the power fails, and it commits": (
        Plan(1, fails=False),
        book,
        Bounds(1, 2, 1, USUAL | {POWER}),
    ),
    "an operator": (Plan(1, operator=True), book, Bounds(1, 1, 3, USUAL)),
    "an operator, and nobody can tell": (
        Plan(1, operator=True),
        post,
        Bounds(1, 1, 3, USUAL),
    ),
    "an operator, and inverses that are denied": (
        Plan(1, operator=True),
        pay,
        Bounds(1, 1, 3, frozenset({DIE, LOST, DENIED})),
    ),
    "late requests": (Plan(1, network=True), book, Bounds(2, 2, 2, USUAL | {HELD})),
    "a late thread": (Plan(1, together=True), book, Bounds(3, 1, 1, USUAL)),
    "a late thread, and the owner commits": (
        Plan(1, together=True, fails=False),
        book,
        Bounds(3, 1, 1, USUAL),
    ),
    "halted": (Plan(1, stops="halt"), book, Bounds(3, 1, 1, USUAL)),
    "quarantined": (Plan(1, stops="quarantine"), book, Bounds(3, 1, 1, USUAL)),
    "taken for dead": (Plan(2, blind=True), book, Bounds(3, 0, 2, USUAL | {BLIND})),
    "settled too early": (
        Plan(1, blind=True, assumes=False),
        book,
        Bounds(3, 0, 2, USUAL | {BLIND}),
    ),
    "taken for dead, the owner commits": (
        Plan(1, blind=True, fails=False),
        book,
        Bounds(3, 0, 2, USUAL | {BLIND}),
    ),
}


def searched(name: str, states: int) -> Search:
    plan, second, bounds = SCENES[name]
    search = Search(lambda: scene(plan, second), bounds, states, SEED)

    def judge(played, decisions):
        try:
            for process in played.processes:
                assert process.failure is None, process.failure
                for give_back in process.at_death:
                    give_back()
            finish(played.stage)
            check(played.stage)
        except BaseException as error:
            error.add_note("\n".join(map(str, decisions)))
            error.add_note("\n".join(map(str, played.stage.events)))
            error.add_note("\n".join(f"{w[-4:]} {r.seq} ep {r.epoch} {r.event} {r.step[:6]}"
                                     for w, r in played.stage.order))  # fmt: skip
            raise

    search.visit(judge)
    return search


@pytest.fixture(scope="module")
def totals(request):
    """What was visited; printed at the end."""
    visited = {}
    yield visited
    capture = request.config.pluginmanager.getplugin("capturemanager")
    states = sum(len(search.seen) for search in visited.values())
    runs = sum(search.runs for search in visited.values())
    whole = [name for name, search in visited.items() if search.whole]
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{states} states in {runs} runs; to the end: {', '.join(whole)}\n")


@pytest.mark.parametrize("name", SCENES)
def test_the_properties_hold(name, totals):
    search = totals[name] = searched(name, STATES // len(SCENES) + 1)
    assert search.whole or len(search.seen) > STATES // len(SCENES)


@pytest.mark.skipif(bool(MUTANT), reason="a mistake is seeded for all tests")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_mistake_is_found(name, monkeypatch):
    mutant = MUTANTS[name]
    with monkeypatch.context() as patch:
        mutant.make(patch)
        with pytest.raises(AssertionError, match=rf"^({'|'.join(mutant.found_by)}): "):
            searched(mutant.scene, mutant.states)
