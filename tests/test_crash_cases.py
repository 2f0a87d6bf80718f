"""Random crash cases: an agent and its daemons are killed anywhere, and the world is counted.

Never twice: no effect and no inverse takes hold a second time, and whatever is repeated is repeated
with its own key. Never falsely clean: what the log calls clean is true of the world. Every effect
was announced, and every saga ends or is in the queue of a human.

A case is an agent (`chaos.cases`) and a story (`agent_saga_testing.stories`), both drawn from one
number, which a failure prints. A few hundred run usually; AGENT_SAGA_CRASH_CASES asks for more,
AGENT_SAGA_CRASH_SEED for others, and AGENT_SAGA_CRASH_CASE for a single one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.cases import POINTS, resumes

from agent_saga.domain.records import Ev
from agent_saga_testing.crash import CrashLab, Server
from agent_saga_testing.stories import Played, drawn, judge, play

CASES = int(os.environ.get("AGENT_SAGA_CRASH_CASES", "200"))
SEED = int(os.environ.get("AGENT_SAGA_CRASH_SEED", "1"))
ONE = os.environ.get("AGENT_SAGA_CRASH_CASE")
PARTS = 10

pytestmark = [pytest.mark.crash, pytest.mark.timeout(max(600, CASES))]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server([Path(__file__).parent]) as server:
        yield server


@pytest.fixture(scope="module")
def totals(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What was counted in all cases; printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    told = ", ".join(f"{what} {times}" for what, times in counted.items())
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\nseed {SEED}: {told}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that the system has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def numbers(part: int) -> range:
    """The cases of a part."""
    if ONE is not None:
        return range(int(ONE), int(ONE) + (part == 0))
    return range(SEED * 1_000_000 + part, SEED * 1_000_000 + CASES, PARTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_crashes(folder: Path, server: Server, part: int, totals: Counter[str]) -> None:
    seen: Counter[str] = Counter()
    for number in numbers(part):
        place = folder / str(number)
        seen.update(one_case(CrashLab(place, "chaos.cases:run", server=server, argument=number)))
        shutil.rmtree(place)
    totals.update(seen)
    assert ONE is not None or seen["processes that died"] > 0, "nothing died in this part"


def one_case(lab: CrashLab) -> Counter[str]:
    """Run a case by its number; return what happened in it."""
    number = int(str(lab.argument))
    story = drawn(number, points=POINTS, resumes=resumes(number))
    try:
        played = play(lab, story)
        judge(lab)
        truly_told(lab, played)
        return counted(lab, played)
    except BaseException as error:
        error.add_note(f"AGENT_SAGA_CRASH_CASE={number}\n{story}")
        errors = [path.read_text() for path in lab.folder.glob("*.errors")]
        records = [f"{r.writer[-4:]} {r.seq} ep {r.epoch} {r.event} {r.step[:6]}"
                   for r in lab.records() if r.saga]  # fmt: skip
        error.add_note("\n".join([*records, *errors]))
        raise
    finally:
        lab.close()


def counted(lab: CrashLab, played: Played) -> Counter[str]:
    """Return what happened in a case, to be added up."""
    events = Counter(record.event for record in lab.records())
    operators = [
        r for r in lab.records() if r.event == Ev.SAGA_CLAIM and r.data["by"] == "operator"
    ]
    return Counter(
        {
            "cases": 1,
            "processes that died": played.deaths,
            "owners revived": played.revived,
            "owners taken for dead": played.presumed_dead,
            "takeovers": events[Ev.SAGA_CLAIM],
            "retries by an operator": len(operators),
            "suspensions": events[Ev.SAGA_SUSPENDED],
            "resumptions": events[Ev.SAGA_RESUMED],
            "repeated attempts": events[Ev.STEP_ATTEMPT],
            "left to a human": played.needs_human,
            "forward attempts": lab.world.attempts("forward"),
            "forward applied": lab.world.applications("forward"),
            "inverse attempts": lab.world.attempts("inverse"),
            "inverse applied": lab.world.applications("inverse"),
        }
    )


def truly_told(lab: CrashLab, played: Played) -> None:
    """What the processes said of themselves is true, too."""
    assert not list(lab.folder.glob("*.errors")), "a process failed in a way of its own"
    views = list(lab.views().values())
    assert not [view.faults for view in views if view.faults and not played.presumed_dead]
    if [0] in (played.statuses[0], played.statuses[0][:1]) and not played.presumed_dead:
        assert [view.state.value for view in views] in (["COMMITTED"], [])
