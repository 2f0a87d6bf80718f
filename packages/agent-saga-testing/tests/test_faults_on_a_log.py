"""The fault tools on a real log: a crash, an error or a power loss at every system call."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.wal.damage import Damage
from agent_saga.wal.file import FileWAL
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import FaultyPort, SimulatedCrash
from agent_saga_testing.kits.wal_steps import OWN_EVENTS, step
from agent_saga_testing.power import PowerLossPort, keep_everything, lose_everything

STEPS = 3


def use(log, confirmed):
    """Announce steps one after another, and note which announcements were confirmed."""
    for number in range(STEPS):
        step(log, number, Ev.STEP_INTENT)
        log.barrier_sync()
        confirmed.append(number)
    log.close()


def try_to_use(path, port, confirmed):
    log = FileWAL(path, port, stall_after=20, mark_after=0.001)
    with contextlib.suppress(WALError, SimulatedCrash):
        use(log, confirmed)
    with contextlib.suppress(WALError, SimulatedCrash):
        log.close(1.0)


def numbers(path):
    """What a reader finds, and that it finds no damage."""
    found = list(scan_log(path, verify=True))
    damage = [one for one in found if isinstance(one, Damage) and one.kind != "torn-tail"]
    assert damage == []
    return [
        one.data["n"]
        for one in found
        if not isinstance(one, Damage) and one.event not in OWN_EVENTS
    ]


def calls_without_a_fault(folder):
    """How many calls a whole use makes, and a few more, since the last ones vary."""
    port = FaultyPort()
    confirmed = []
    try_to_use(folder / "whole", port, confirmed)
    assert confirmed == numbers(folder / "whole") == list(range(STEPS))
    return port.count() + 3


def check(confirmed, found):
    """What was confirmed is there; what is there is a beginning of what was announced."""
    assert found == list(range(len(found)))
    assert len(found) >= len(confirmed)


@pytest.mark.parametrize("after", [False, True])
def test_a_power_loss_at_every_call(tmp_path, after):
    for number in range(1, calls_without_a_fault(tmp_path) + 1):
        root = tmp_path / f"root-{number}"
        root.mkdir()
        disk = PowerLossPort(root)
        port = FaultyPort(disk)
        port.crash(nth=number, after=after)
        confirmed = []
        try_to_use(root / "log", port, confirmed)
        port.let_go()
        choices = [random.Random(seed).randrange for seed in range(2)]
        for turn, choose in enumerate((lose_everything, keep_everything, *choices)):
            target = tmp_path / f"after-{number}-{turn}"
            disk.materialise(target, choose)
            check(confirmed, numbers(target / "log"))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("after", [False, True])
def test_an_error_at_every_call(tmp_path, error, after):
    for number in range(1, calls_without_a_fault(tmp_path) + 1):
        port = FaultyPort()
        port.fail(nth=number, error=error, after=after)
        confirmed = []
        path = tmp_path / f"log-{number}"
        try_to_use(path, port, confirmed)
        port.let_go()
        check(confirmed, numbers(path))


@pytest.mark.parametrize("keep", [0, 1, 100])
def test_a_short_write_at_every_write(tmp_path, keep):
    for number in range(1, 12):
        port = FaultyPort()
        port.shorten(nth=number, keep=keep)
        confirmed = []
        path = tmp_path / f"log-{number}"
        try_to_use(path, port, confirmed)
        port.let_go()
        check(confirmed, numbers(path))
