"""Random crash cases: an agent and its daemons are killed anywhere, and the world is counted.

Never twice: no effect and no inverse takes hold a second time, and whatever is repeated is repeated
with its own key. Never falsely clean: what the log calls clean is true of the world. Every effect
was announced, and every saga ends or is in the queue of a human.

A few hundred cases run usually; AGENT_SAGA_CRASH_CASES asks for more, AGENT_SAGA_CRASH_SEED for
others.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState
from agent_saga.recovery.queue import cases
from agent_saga_testing.crash import EXITED, KILLED, CrashLab, Kill, Server

CASES = int(os.environ.get("AGENT_SAGA_CRASH_CASES", "200"))
SEED = int(os.environ.get("AGENT_SAGA_CRASH_SEED", "1"))
PARTS = 10

POINTS = ("before an effect", "after an effect", "before an inverse", "after an inverse")
ENDED = frozenset(
    {
        SagaState.COMMITTED,
        SagaState.ROLLED_BACK,
        SagaState.PARTIAL,
        SagaState.STUCK,
        SagaState.REOPENED,
    }
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(max(120, CASES))]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server([Path(__file__).parent]) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that the system has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def a_kill(draw: random.Random) -> Kill:
    """A place to die at, anywhere."""
    by = draw.choice(["kill", "exit"])
    after = draw.random() < 0.5
    where = draw.choice(["record", "record", "call", "point", "time"])
    if where == "record":
        return Kill.at_record(nth=draw.randint(1, 16), after=after, by=by)
    if where == "call":
        return Kill.at_call(nth=draw.randint(1, 40), after=after, by=by)
    if where == "point":
        return Kill.at_point(draw.choice(POINTS), draw.randint(1, 4), by=by)
    return Kill.after_seconds(draw.uniform(0.0, 0.05), by=by)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_crashes(folder: Path, server: Server, part: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(SEED * 1_000_000 + part, SEED * 1_000_000 + CASES, PARTS):
        place = folder / str(number)
        seen.update(one_case(CrashLab(place, "chaos.cases:run", server=server, argument=number)))
        shutil.rmtree(place)
    assert seen["died"] > 0, "no case of this part crashed anything"


def one_case(lab: CrashLab) -> list[str]:
    """Run a case by its number; return what happened in it."""
    draw = random.Random(f"kills of {lab.argument}")
    kill = a_kill(draw)
    daemons = [
        [a_kill(draw) if draw.random() < 0.6 else None for _ in range(draw.randint(1, 4))]
        for _ in range(draw.randint(0, 2))
    ]
    try:
        status = lab.run(kill)
        for kills in daemons:
            lab.recover(len(kills), kills)
        last = lab.recover()
        again = lab.recover()
        assert last == again
        judge(lab, status, last[0])
    except BaseException as error:
        error.add_note(f"case {lab.argument}: {kill}, then {daemons}")
        errors = [path.read_text() for path in lab.folder.glob("*.errors")]
        records = [f"{r.writer[-4:]} {r.seq} ep {r.epoch} {r.event} {r.step[:6]}"
                   for r in lab.records() if r.saga]  # fmt: skip
        error.add_note("\n".join([*records, *errors]))
        raise
    return ["died"] if status in (KILLED, EXITED) else []


def judge(lab: CrashLab, status: int, recovered: int) -> None:
    """Count the world, and compare what the log says with it."""
    world, views = lab.world, lab.views()
    world.assert_never_twice()
    forward = Counter(call.key for call in world.calls("forward"))
    assert not [key for key, times in forward.items() if times > 1], "a call was made again"
    keys: dict[int | None, set[str | None]] = {}
    for call in world.calls("inverse"):
        keys.setdefault(call.target, set()).add(call.key)
    assert all(len(used) == 1 for used in keys.values()), "an inverse was tried with another key"
    assert set(forward) <= announced(lab), "an effect was not announced"
    waiting = {case.id for case in cases(str(lab.log))}
    stands = bool(world.standing())
    for saga, view in views.items():
        assert not view.faults, view.faults
        assert view.state in ENDED, f"{saga} is left {view.state.value}"
        assert view.clean or saga in waiting, f"{saga} is not clean and nobody is told"
        if view.clean:
            assert stands == (view.state is SagaState.COMMITTED and bool(forward))
    assert recovered == (1 if waiting else 0)
    if status == 0:
        assert [view.state for view in views.values()] in ([SagaState.COMMITTED], [])


def announced(lab: CrashLab) -> set[str | None]:
    """Return the keys of the effects that the log announces."""
    return {
        identity.idempotency_key(r.saga, r.step, r.generation, identity.FORWARD)
        for r in lab.records()
        if r.event == "STEP_INTENT"
    }
