"""The power fails at every system call: what survives on the disk tells every effect."""

from __future__ import annotations

import contextlib
import random

import pytest
from faults.small_saga import FULL, WAY_NAMES, WAYS, SmallSaga, judged

from agent_saga_testing.faults import FaultyPort, SimulatedCrash
from agent_saga_testing.power import PowerLossPort, keep_everything, lose_everything

pytestmark = pytest.mark.timeout(600)
SURVIVALS = 6 if FULL else 1


def _run(root, *, fails, is_async, crash_at=0):
    root.mkdir(parents=True)
    disk = PowerLossPort(root)
    port = FaultyPort(disk)
    if crash_at:
        port.crash(nth=crash_at)
    saga = SmallSaga(root / "log", port, fails=fails).run(is_async=is_async)
    with contextlib.suppress(SimulatedCrash):
        saga.close()
    return saga, disk, port


@pytest.mark.property
@pytest.mark.parametrize(("fails", "is_async"), WAYS, ids=WAY_NAMES)
def test_the_power_fails_at_every_call(tmp_path, fails, is_async):
    _, _, port = _run(tmp_path / "without", fails=fails, is_async=is_async)
    chance = random.Random(17)
    for at in range(1, port.count() + 1):
        saga, disk, crashed = _run(tmp_path / f"{at}", fails=fails, is_async=is_async, crash_at=at)
        choices = [lose_everything, keep_everything, *[chance.randrange] * SURVIVALS]
        for number, choose in enumerate(choices):
            target = tmp_path / f"{at}-{number}"
            disk.materialise(target, choose)
            judged(saga, f"power lost at call {at}, survival {number}", target / "log")
        crashed.let_go()
