"""Killed at every write of an approval, a halt and an authorisation: what holds then, holds at all.

P7, P8 and P9 with crashes: each case kills a process before or after one of its writes, lets others
go on, and counts the effects in the world.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga import FileApprovalStore, FileSwitchStore, KillSwitch
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

WORKER = Path(__file__).with_name("killed_worker.py")
EVERY = 1 if "AGENT_SAGA_FULL" in os.environ else 3
NEVER = 10**9

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@pytest.fixture
def does():
    """Have something done that dies at a write; returns how it ended."""
    process = subprocess.Popen(
        [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"

    def do(what, folder, number=NEVER):
        process.stdin.write(f"{what} {number} {folder}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    yield do
    process.kill()
    process.communicate()


def every_death(tmp_path, does, what, before=(), every=EVERY):
    """Yield a folder for each write at which it died, after something else was done there."""
    number = 1
    end = "killed"
    while end == "killed":
        folder = tmp_path / f"{what}-{number}"
        folder.mkdir()
        for one in before:
            assert does(one, folder) == "done"
        end = does(what, folder, number)
        yield folder, end
        number += every
    # What is only recorded is written by a thread that may be too late to be killed.
    assert number > 2 * every + 1, "it dies several times before it comes to its end"


def effects(folder):
    world = folder / "world"
    return world.stat().st_size if world.exists() else 0


@pytest.mark.guarantee("HALT-1")
def test_a_halt_that_is_killed_holds_or_does_not_and_never_stands_in_the_way(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "halted"):
        switch = KillSwitch(FileSwitchStore(folder / "log"))
        held = len(switch.switches().halts)
        assert held == 1 or (held == 0 and end == "killed"), "what was acknowledged holds"
        if held:
            assert does("charged", folder).startswith("Halted")
            assert effects(folder) == 0
        assert does("halted", folder) == "done"
        assert does("charged", folder).startswith("Halted")
        assert does("lifted", folder) == "done"
        assert does("charged", folder) == "refused"
        assert effects(folder) == 2


@pytest.mark.guarantee("HALT-3")
def test_a_lift_that_is_killed_leaves_a_switch_that_can_be_read(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "lifted", before=["halted"]):
        held = len(KillSwitch(FileSwitchStore(folder / "log")).switches().halts)
        assert held == 0 or end == "killed"
        assert does("charged", folder).startswith("Halted") if held else True
        assert does("lifted", folder) == "done"
        assert does("charged", folder) == "refused"


@pytest.mark.guarantee("APPROVE-7")
def test_an_answer_that_is_killed_counts_once_or_is_given_again(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "approved", before=["asked"]):
        left = FileApprovalStore(folder / "log").pending()
        assert len(left) == (0 if end == "done" else len(left))
        assert does("approved", folder) == ("done" if left else "decided")
        assert does("approved", folder) == "decided"
        assert does("wired", folder) == "done"
        assert does("wired", folder) == "done", "it is only read"
        assert effects(folder) == 1


@pytest.mark.guarantee("APPROVE-7")
def test_an_agent_that_is_killed_anywhere_acts_once_and_asks_until_it_is_answered(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "wired"):
        happened = effects(folder)
        assert happened == (1 if end == "done" else happened)
        again = does("wired", folder)
        assert effects(folder) <= 1
        assert again == "done" or (again == "OutcomeUnknown" and end == "killed"), again
        assert effects(folder) == (1 if again == "done" else effects(folder))


@pytest.mark.guarantee("APPROVE-8")
def test_a_revocation_that_is_killed_holds_or_does_not(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "revoked", before=["granted"], every=2):
        held = len(FileApprovalStore(folder / "log").grants())
        assert held == 0 or (held == 1 and end == "killed"), "what was acknowledged holds"
        assert does("covered", folder) == ("done" if held else "denied")
        assert effects(folder) == held
        assert does("revoked", folder) == ("done" if held else "nothing")
        assert does("covered", folder) == "denied"
        assert effects(folder) == held


@pytest.mark.guarantee("LIMIT-1")
def test_a_charge_that_is_killed_anywhere_leaves_too_little_and_never_too_much(tmp_path, does):
    for folder, end in every_death(tmp_path, does, "charged"):
        assert end in ("killed", "refused")
        first = effects(folder)
        assert does("charged", folder) == "refused"
        with SQLiteStateStore(folder / "log" / FILE_NAME) as state:
            (spend,) = usage_of(state, moment(SYSTEM_CLOCK))
        assert first <= effects(folder) <= spend.used == 2, (first, effects(folder), spend)
