"""Real processes are killed with SIGKILL, and what they left is recovered by another process.

The agent (`chaos/agent.py`) charges three customers, one after the other:

    with kit.transaction():
        charge("ann")
        charge("bob")
        charge("cid")

Below, it dies at the four classic crash points:

1. before an effect: announced, and perhaps not done;
2. after an effect whose answer is lost: done, and nobody knows;
3. between two steps: the first is done, the plan is not;
4. in the middle of undoing: some is taken back, some is not; also when it is recovery that dies.

Each test kills the agent there, lets another process recover, and counts the world from outside,
where a process that nobody kills keeps it: every charge that happened was refunded exactly once,
nothing else was, and the log says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_saga_testing.crash import KILLED, CrashLab, Kill, Server

HERE = Path(__file__).parent
CUSTOMERS = ["ann", "bob", "cid"]

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server([HERE]) as server:
        yield server


@pytest.fixture
def lab(tmp_path: Path, server: Server) -> CrashLab:
    return CrashLab(tmp_path, "chaos.agent:run", server=server)


@pytest.fixture
def failing(tmp_path: Path, server: Server) -> CrashLab:
    return CrashLab(tmp_path, "chaos.agent:run", server=server, argument="fail")


def assert_undone(lab: CrashLab) -> None:
    """Every charge that happened was refunded once, under one key, and the log calls it clean."""
    lab.world.assert_restored()
    keys = {(call.target, call.key) for call in lab.world.calls("inverse")}
    assert len(keys) == lab.world.applications("forward")
    assert [view.clean for view in lab.views().values()] == [True]


# --- the four classic crash points ----------------------------------------------------------------


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_killed_before_an_effect(lab: CrashLab, customer: str) -> None:
    """The charge is announced and never made: its prober says so, and it is not refunded."""
    assert lab.run(Kill.at_point(f"before the effect of {customer}")) == KILLED
    assert lab.recover() == [0]
    assert_undone(lab)


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_killed_after_an_effect_whose_answer_is_lost(lab: CrashLab, customer: str) -> None:
    """The charge is made and nobody knows: its prober finds it, and it is refunded."""
    assert lab.run(Kill.at_point(f"after the effect of {customer}")) == KILLED
    assert lab.world.applications("forward", customer) == 1
    assert lab.recover() == [0]
    assert_undone(lab)


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_killed_between_two_steps(lab: CrashLab, customer: str) -> None:
    """The agent knows of the charge and so does the log; what follows never begins."""
    assert lab.run(Kill.at_point(f"between {customer} and the next")) == KILLED
    assert lab.recover() == [0]
    assert_undone(lab)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("customer", CUSTOMERS)
def test_killed_in_the_middle_of_undoing(failing: CrashLab, customer: str, moment: str) -> None:
    """The plan failed and the agent was undoing it: another process goes on where it stopped."""
    assert failing.run(Kill.at_point(f"{moment} the inverse of {customer}")) == KILLED
    assert failing.recover() == [0]
    assert_undone(failing)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("customer", CUSTOMERS)
def test_recovery_itself_is_killed_in_the_middle_of_undoing(
    lab: CrashLab, customer: str, moment: str
) -> None:
    """And another one after that: a daemon is an owner like any other."""
    lab.run(Kill.at_point("between cid and the next"))
    kill = Kill.at_point(f"{moment} the inverse of {customer}")
    assert lab.recover(1, [kill]) == [KILLED]
    assert lab.recover() == [0]
    assert_undone(lab)


# --- and what must not happen ---------------------------------------------------------------------


def test_killed_after_the_commit_nothing_is_undone(lab: CrashLab) -> None:
    assert lab.run(Kill.at_point("after the commit")) == KILLED
    assert lab.recover() == [0]
    lab.world.assert_applied_once(*CUSTOMERS)
    assert lab.world.attempts("inverse") == 0


def test_recovering_again_does_nothing(lab: CrashLab) -> None:
    lab.run(Kill.at_point("after the effect of bob"))
    assert [lab.recover() for _ in range(3)] == [[0], [0], [0]]
    assert_undone(lab)


@pytest.mark.parametrize("daemons", [2, 3, 4])
def test_several_recoveries_at_once_undo_once(lab: CrashLab, daemons: int) -> None:
    lab.run(Kill.at_point("after the effect of cid"))
    lab.recover(daemons)
    assert lab.recover() == [0]
    assert_undone(lab)
    assert lab.world.attempts("inverse") == 3


def test_a_live_process_is_left_alone(lab: CrashLab) -> None:
    """Recovery runs beside the agent all the time, and the agent ends as if it did not."""
    agent = lab.start()
    recoveries: list[Callable[[], int]] = []
    while len(recoveries) < 5:
        number = lab.start_daemon()
        recoveries.append(lambda number=number: lab.wait(number))
    assert [ended() for ended in recoveries] == [0] * 5
    assert lab.wait(agent) == 0
    lab.world.assert_applied_once(*CUSTOMERS)
    assert lab.world.attempts("inverse") == 0


def test_by_the_command_line(lab: CrashLab) -> None:
    """What a person types after a crash: look, recover, look again."""
    lab.run(Kill.at_point("between bob and the next"))
    env = {**os.environ, "AGENT_SAGA_WAL": str(lab.log), "AGENT_SAGA_SETTLE_AFTER": "0"}
    env["PYTHONPATH"] = str(HERE)

    def typed(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "agent_saga.cli", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, told = typed("recover", "--import", "chaos.typed", "--dry-run")
    assert code == 1
    assert told.count("undo    charge") == 2
    env["CHAOS_FOLDER"] = str(lab.folder)
    code, told = typed("recover", "--import", "chaos.typed")
    assert (code, "undone" in told) == (0, True), told
    assert typed("list")[0] == 0
    assert_undone(lab)
