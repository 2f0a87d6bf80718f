"""P9 with crashes: processes that are killed anywhere never spend more than the cap together."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_saga import RecoveryDaemon
from agent_saga.controls.limits.leases import SHARE
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

WORKER = Path(__file__).with_name("limit_worker.py")
CAP = 300
ROUNDS = 12 if "AGENT_SAGA_FULL" in os.environ else 2


def started(log, world, calls):
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(log), str(world), str(CAP), str(calls)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


def counted(log):
    with SQLiteStateStore(log / FILE_NAME) as state:
        found = {one.limit: one for one in usage_of(state, moment(SYSTEM_CLOCK))}
    return found["spend"]


@pytest.mark.crash
@pytest.mark.guarantee("LIMIT-1")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_processes_never_spend_more_than_the_cap_together(tmp_path, seed):
    log, world = tmp_path / "log", tmp_path / "world"
    chance = random.Random(seed)
    workers = [started(log, world, 500) for _ in range(2)]
    for worker in workers:
        go(worker)
    for worker in workers:
        time.sleep(chance.uniform(0.02, 0.15))
        worker.send_signal(signal.SIGKILL)
        worker.communicate(timeout=300)
    happened = world.stat().st_size if world.exists() else 0
    last = started(log, world, 500)
    go(last)
    assert last.communicate(timeout=300) is not None
    spent, found = world.stat().st_size, counted(log)
    assert happened <= spent <= CAP
    assert spent <= found.used <= CAP
    # A call that was killed between its announcement and its effect stays counted, and so does
    # what is left of a lease of a process that was killed.
    assert CAP - spent <= 2 * (1 + CAP // SHARE)


@pytest.mark.crash
@pytest.mark.guarantee("LIMIT-3")
def test_recovery_hands_back_what_a_dead_process_held(tmp_path):
    log, world = tmp_path / "log", tmp_path / "world"
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(log), str(world), "100", "1", "before the intent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    go(process)
    process.communicate(timeout=300)
    assert (counted(log).used, counted(log).held) == (1, 1)
    daemon = RecoveryDaemon(log)
    try:
        daemon.recover_all()
        assert (counted(log).used, counted(log).held) == (0, 0)
    finally:
        daemon.close()
