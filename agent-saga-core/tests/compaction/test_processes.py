"""Real processes: agents write while others compact, and all of them are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compaction.logs import broken, readable

from agent_saga import FileWAL
from agent_saga.errors import WALError
from agent_saga.evidence.verify import verify_chain
from agent_saga.recovery.survey import survey

VICTIM = Path(__file__).with_name("victim.py")
ROUNDS = 25 if "AGENT_SAGA_FULL" in os.environ else 4


def started(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    told = folder / f"told-{time.monotonic_ns()}"
    with told.open("wb") as out:
        program = [sys.executable, str(VICTIM), *arguments]
        return subprocess.Popen(program, stdout=out), told


def told_by(files: list[Path]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {"open": set(), "done": set(), "left": set()}
    for file in files:
        for line in file.read_text().splitlines():
            word, _, rest = line.partition(" ")
            told.setdefault(word, set()).add(rest)
    return told


@pytest.mark.timeout(1800)
@pytest.mark.crash
@pytest.mark.guarantee("COMPACT-2")
def test_agents_write_while_others_compact_and_all_are_killed(tmp_path):
    path, chance = tmp_path / "log", random.Random(5)
    files: list[Path] = []
    living: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> None:
        process, told = started(tmp_path, *arguments)
        living.append(process)
        files.append(told)

    start("agent", str(path), "first")
    try:
        for number in range(ROUNDS):
            start("compactor", str(path))
            start("agent", str(path), f"agent{number}")
            before = {file: file.stat().st_size for file in files}
            wait_for_words(files[-1], 0)
            wait_for_words(files[-2], before[files[-2]])
            time.sleep(chance.random() * 0.3)
            victims = living[1:] if number % 2 else living
            for process in victims:
                process.kill()
                process.wait()
            living = living[:1] if number % 2 else []
            check(path, told_by(files))
            if not living:
                start("agent", str(path), f"again{number}")
    finally:
        for process in living:
            process.kill()
            process.wait()
    told = told_by(files)
    assert len(told["done"]) > 100
    wal = FileWAL(path)
    wal.compact(grace_seconds=0)
    wal.close()
    sagas = check(path, told)
    assert not told["done"] & sagas


def wait_for_words(file: Path, size: int) -> None:
    end = time.monotonic() + 300
    while file.stat().st_size <= size:
        assert time.monotonic() < end, f"nothing was told in {file}"
        time.sleep(0.01)


def check(path: Path, told: dict[str, set[str]]) -> set[str]:
    """What was durable and open is there as a whole; what had ended is there so, or not at all."""
    sagas, damages = readable(path)
    assert broken(damages) == []
    found = survey(path)
    assert told["open"] <= set(found.sagas)
    assert not [saga for saga in told["open"] if found.sagas[saga].problems]
    assert {len(sagas[saga]) for saga in told["open"]} <= {3}
    assert {len(sagas[saga]) for saga in told["done"] & set(sagas)} <= {4}
    report = verify_chain(path)
    assert {one.state for one in report.writers} <= {"intact", "torn tail"}
    return set(sagas)


def test_a_reader_never_sees_half_of_a_saga(tmp_path):
    path = tmp_path / "log"
    agent, told = started(tmp_path, "agent", str(path), "a")
    wait_for_words(told, 0)
    compactor, _ = started(tmp_path, "compactor", str(path))
    try:
        end = time.monotonic() + (20 if ROUNDS > 4 else 2)
        while time.monotonic() < end:
            known = told_by([told])
            try:
                found = survey(path)
            except WALError as error:
                pytest.fail(str(error))
            assert not found.sagas.keys() & known["done"]
            assert known["open"] <= found.sagas.keys()
    finally:
        for process in (agent, compactor):
            process.kill()
            process.wait()
