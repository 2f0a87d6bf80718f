"""After a power loss: what was confirmed is there, and nothing is a false alarm.

The disk is a model: of each page that was not synced any version may survive, of each directory any
prefix of its changes. The log runs on it, and is read from what a random loss leaves.
"""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path

import pytest

from agent_saga.errors import WALError
from agent_saga.wal.damage import Damage
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import FaultyPort
from agent_saga_testing.power import PowerLossPort, keep_everything, lose_everything

pytestmark = pytest.mark.property

RUNS = 30
LOSSES = 8
FLIPS = 10


class Run:
    """A random run of a log, and what its callers were told."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.disk = PowerLossPort(root, page=self.chance.choice([512, 4096]))
        self.faults = FaultyPort(self.disk)
        self.log = FileWAL(root / "log", port=self.faults, mark_after=0.001)
        self.written: dict[int, int] = {}
        self.confirmed = 0

    def go(self) -> None:
        """Append, drain, wait; now and then the disk fails on the way."""
        with contextlib.suppress(WALError):
            for number in range(self.chance.randrange(1, 120)):
                self.one(self.log, number)

    def end(self) -> None:
        """Close the log, once nobody looks at the disk any more."""
        self.faults.heal()
        with contextlib.suppress(WALError):
            self.log.close()

    def one(self, log: FileWAL, number: int) -> None:
        if self.chance.random() < 0.02:
            self.fail()
        text = "x" * self.chance.choice([0, 10, 300, 3000, 20_000])
        seq = log.append("STEP_COMMITTED", payload={"n": number, "text": text})
        self.written[seq] = number
        if self.chance.random() < 0.4:
            log.drain()
        if self.chance.random() < 0.3:
            log.barrier_sync(seq)
            self.confirmed = seq

    def fail(self) -> None:
        match self.chance.randrange(4):
            case 0:
                self.faults.shorten("pwrite", keep=self.chance.randrange(500))
            case 1:
                self.faults.fail("pwrite", error=errno.EIO)
            case 2:
                self.faults.fail("fdatasync", error=errno.EIO)
            case _:
                self.faults.fail("fallocate", error=errno.ENOSPC, times=2)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_power_loss_takes_nothing_that_was_confirmed(tmp_path, seed):
    root = tmp_path / "disk"
    root.mkdir()
    run = Run(root, seed)
    run.go()
    choices = [lose_everything, keep_everything]
    choices += [random.Random(seed * 1000 + n).randrange for n in range(LOSSES)]
    for number, choose in enumerate(choices):
        left = tmp_path / f"left {number}"
        run.disk.materialise(left, choose)
        check(run, left / "log")
    run.end()


def check(run: Run, log: Path) -> None:
    found = list(scan_log(log, verify=True))
    damages = [one for one in found if isinstance(one, Damage)]
    assert [one for one in damages if one.kind != "torn-tail"] == []
    read = [one for one in found if isinstance(one, Record)]
    assert [record.seq for record in read] == list(range(1, len(read) + 1))
    assert len(read) >= run.confirmed
    numbers = {r.seq: r.data["n"] for r in read if r.event == "STEP_COMMITTED"}
    assert numbers.items() <= run.written.items()


@pytest.mark.parametrize("seed", range(10))
def test_damage_of_what_was_confirmed_is_loud_after_a_power_loss_too(tmp_path, seed):
    root = tmp_path / "disk"
    root.mkdir()
    run = Run(root, seed + 5000)
    run.go()
    left = tmp_path / "left"
    run.disk.materialise(left, run.chance.randrange)
    found = [one for one in scan_log(left / "log") if isinstance(one, Record)]
    highest = max((record.mark for record in found), default=0)
    once = [r for r in found if r.seq <= highest and copies(left, r) == 1]
    for record in run.chance.sample(once, min(FLIPS, len(once))):
        flip(run, left, record)
    run.end()


def flip(run: Run, left: Path, record: Record) -> None:
    segment = next(f for f in left.rglob("seg-*.jsonl") if record.envelope in f.read_bytes())
    content = segment.read_bytes()
    at = content.index(record.envelope) + run.chance.randrange(len(record.envelope))
    flipped = bytearray(content)
    flipped[at] ^= 1 << run.chance.randrange(8)
    segment.write_bytes(flipped)
    damages = [one for one in scan_log(left / "log", verify=True) if isinstance(one, Damage)]
    assert {damage.kind for damage in damages} & {"damage", "format"}, record.seq
    segment.write_bytes(content)


def copies(left: Path, record: Record) -> int:
    """How often a record stands in the log: a failed segment was written again."""
    return sum(file.read_bytes().count(record.envelope) for file in left.rglob("seg-*.jsonl"))
