"""Processes that begin at once on an empty folder: none of them fails, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent_saga import FileSwitchStore, KillSwitch
from agent_saga.evidence.verify import verify_chain

WORKER = Path(__file__).with_name("start_worker.py")
ROUNDS = 30 if "AGENT_SAGA_FULL" in os.environ else 6
MANY = 8
WORK = ["charge", "approval", "halt", "look", "saga"]


@pytest.fixture
def workers():
    """Start processes for some work; they wait for the folders to do it in."""
    started = []

    def start(works):
        for work in works:
            process = subprocess.Popen(
                [sys.executable, str(WORKER), work],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.append(process)
        for process in started:
            assert process.stdout.readline() == "ready\n"
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


def done_in(folder, processes):
    """Have all of them do their work in one folder; return how each ended."""
    folder.mkdir()
    for process in processes:
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
    return [process.stdout.readline().strip() for process in processes]


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("works", [*[[work] * MANY for work in WORK], [*WORK, *WORK][:MANY]])
def test_many_begin_at_once_on_an_empty_folder(tmp_path, workers, works):
    processes = workers(works)
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        ends = Counter(zip(works, done_in(folder, processes), strict=True))
        charges = works.count("charge")
        expected = Counter({(work, "done"): works.count(work) for work in works})
        if charges > 3:
            expected[("charge", "done")] = 3
            expected[("charge", "refused")] = charges - 3
        assert ends == expected
        effects = min(charges, 3) + works.count("approval") + works.count("saga")
        world = folder / "world"
        assert (world.stat().st_size if effects else 0) == effects
        halts = KillSwitch(FileSwitchStore(folder / "log")).switches().halts
        assert len(halts) == works.count("halt")
        if effects:
            assert verify_chain(folder / "log").intact
