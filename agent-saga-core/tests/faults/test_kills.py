"""Real processes end at every system call and at random moments; their logs tell every effect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from faults.small_saga import FULL, WAY_NAMES, WAYS, Happened, QuickPort, SmallSaga, goes_on, judged
from faults.victim import ENDED, KILLED

from agent_saga.domain.fold import fold
from agent_saga.wal.damage import Damage
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import FaultyPort

pytestmark = pytest.mark.timeout(600)
TESTS = Path(__file__).parents[1]
KILLS = 200 if FULL else 30


def run_victim(*arguments: object) -> None:
    path = os.pathsep.join([str(TESTS), *sys.path])
    subprocess.run(
        [sys.executable, str(TESTS / "faults" / "victim.py"), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=100,
    )


def events_of(place: Path) -> dict[str, list[Happened]]:
    """What the processes of a folder did, by saga; a last line may be cut short."""
    events: dict[str, list[Happened]] = defaultdict(list)
    for line in (place / "events").read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            saga, what, step, durable = line.split()
            events[saga].append(Happened(what, int(step), int(durable)))
    return events


@pytest.mark.crash
@pytest.mark.property
@pytest.mark.parametrize(("fails", "is_async"), WAYS, ids=WAY_NAMES)
def test_a_process_that_ends_at_every_call(tmp_path, fails, is_async):
    port = FaultyPort(QuickPort())
    without = SmallSaga(tmp_path / "without", port, fails=fails).run(is_async=is_async)
    without.close()
    assert len(without.world.counted("applied")) == 3, without.error
    run_victim("calls", tmp_path, int(fails), int(is_async), 1, port.count())
    codes = set()
    for nth in range(1, port.count() + 1):
        place = tmp_path / str(nth)
        code = int((place / "code").read_text())
        codes.add(code)
        saga = SmallSaga(place / "log", QuickPort(), fails=fails)
        saga.error = SystemExit(code)
        saga.world.events = [e for events in events_of(place).values() for e in events]
        judged(saga, f"the process ended at call {nth}")
    assert KILLED in codes
    assert codes <= {ENDED, KILLED}


@pytest.mark.crash
def test_a_process_that_is_killed_at_random_moments(tmp_path):
    run_victim("kills", tmp_path, 5, KILLS)
    for number in range(KILLS):
        place = tmp_path / str(number)
        found = list(scan_log(place / "log"))
        assert not [d for d in found if isinstance(d, Damage) and d.kind != "torn-tail"]
        records = [record for record in found if not isinstance(record, Damage)]
        views = fold(records)
        for saga_id, events in events_of(place).items():
            saga = SmallSaga(place / "log", QuickPort(), fails=False)
            saga.records = [record for record in records if record.saga == saga_id]
            saga.world.events = events
            saga.never_twice()
            saga.announced_first()
            view = views[saga_id]
            assert not view.faults
            saga.not_falsely_clean(view.clean, view.state.value == "COMMITTED")
        if (place / "log").exists():
            goes_on(place / "log")
