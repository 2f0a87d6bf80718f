"""Who acts on a saga when several processes could: one of them, and the others are told.

Real processes on one log: daemons that start together, daemons that die while they undo, and an
owner that was taken for dead, lived, and comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_saga.recovery.queue import cases_in
from agent_saga_testing.crash import KILLED, CrashLab, Kill, Server

HERE = Path(__file__).parent
CUSTOMERS = ["ann", "bob", "cid"]

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server([HERE]) as server:
        yield server


@pytest.fixture
def lab(tmp_path: Path, server: Server) -> Iterator[CrashLab]:
    with CrashLab(tmp_path, "chaos.agent:run", server=server) as lab:
        yield lab


def taken_for_dead(lab: CrashLab, stop: Kill) -> int:
    """Stop an agent that lives on, and let daemons take its saga over; return its process."""
    agent = lab.start(stop)
    assert lab.stopped(agent)
    lab.presume_dead(agent)
    assert lab.recover() == [0]
    return agent


@pytest.mark.guarantee("RECOVER-20")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("customer", CUSTOMERS)
def test_a_daemon_that_is_killed_while_undoing_is_followed_at_once(
    lab: CrashLab, customer: str, moment: str
) -> None:
    """The kernel frees its lock with its last breath: the very next pass goes on, no lease ends."""
    lab.run(Kill.at_point("between cid and the next"))
    assert lab.recover(1, [Kill.at_point(f"{moment} the inverse of {customer}")]) == [KILLED]
    assert lab.recover() == [0]
    lab.world.assert_restored()
    assert {view.clean for view in lab.views().values()} == {True}
    assert len({(call.target, call.key) for call in lab.world.calls("inverse")}) == 3


@pytest.mark.parametrize("daemons", [2, 3, 4])
@pytest.mark.parametrize("killed", ["before the effect of cid", "after the effect of cid"])
def test_daemons_that_start_together_never_call_the_same_inverse(
    lab: CrashLab, daemons: int, killed: str
) -> None:
    lab.run(Kill.at_point(killed))
    lab.recover(daemons)
    assert lab.recover() == [0]
    lab.world.assert_restored()
    called = Counter(call.target for call in lab.world.calls("inverse"))
    assert set(called.values()) == {1}, "an inverse was called by two of them"


def test_a_daemon_that_stands_still_in_an_inverse_is_not_overtaken(lab: CrashLab) -> None:
    """It lives, however slow it is: the others leave its saga alone, and it finishes by itself."""
    lab.run(Kill.at_point("after the effect of cid"))
    slow = lab.start_daemon(Kill.at_point("before the inverse of bob", by="stop"))
    assert lab.stopped(slow)
    assert lab.recover(2) == [0, 0], "a saga in living hands is nobody else's"
    assert lab.world.undone() == ["cid"]
    lab.revive(slow)
    assert lab.wait(slow) == 0
    assert lab.world.attempts("inverse") == 3
    lab.world.assert_restored()


@pytest.mark.guarantee("FENCE-2")
def test_the_next_step_of_a_revived_owner_is_refused_and_it_is_told_why(lab: CrashLab) -> None:
    agent = taken_for_dead(lab, Kill.at_point("between bob and the next", by="stop"))
    assert lab.world.undone() == ["bob", "ann"]
    lab.revive(agent)
    assert lab.wait(agent) == 1
    lab.world.assert_restored()
    assert lab.world.attempts("forward", "cid") == 0, "the step after its revival did not start"
    said = lab.log.with_name("said").read_text("utf-8")
    assert "SagaFenced" in said
    assert "taken over" in said


@pytest.mark.guarantee("FENCE-2")
def test_a_revived_owner_that_was_undoing_calls_no_further_inverse(
    tmp_path: Path, server: Server
) -> None:
    with CrashLab(tmp_path, "chaos.agent:run", server=server, argument="fail") as lab:
        stop = Kill.at_point("after the inverse of cid", by="stop")
        agent = taken_for_dead(lab, stop)
        lab.revive(agent)
        assert lab.wait(agent) == 1
        lab.world.assert_restored()
        called = Counter(call.name for call in lab.world.calls("inverse"))
        assert called == {"cid": 2, "bob": 1, "ann": 1}, "cid's was asked for again, by its key"
        assert len({call.key for call in lab.world.calls("inverse", "cid")}) == 1


@pytest.mark.guarantee("RECOVER-7")
def test_an_effect_of_an_owner_that_was_taken_for_dead_is_told_to_a_human(lab: CrashLab) -> None:
    """Between its last look at the fence and its call nobody can hold it; it is never hidden."""
    agent = taken_for_dead(lab, Kill.at_point("before the effect of cid", by="stop"))
    lab.world.assert_restored()
    lab.revive(agent)
    assert lab.wait(agent) == 1
    lab.world.assert_stands("cid")
    assert lab.recover() == [1]
    assert [case.view.clean for case in cases_in(str(lab.log))] == [False]


@pytest.mark.guarantee("RECOVER-1")
@pytest.mark.parametrize("seconds", [-86_400.0, 86_400.0])
def test_a_clock_that_is_off_makes_nobody_dead(lab: CrashLab, seconds: float) -> None:
    agent = lab.start(Kill.at_point("between bob and the next", by="stop"))
    assert lab.stopped(agent)
    lab.clock = seconds
    assert lab.recover(2) == [0, 0]
    lab.revive(agent)
    assert lab.wait(agent) == 0
    lab.world.assert_applied_once(*CUSTOMERS)
    assert lab.world.attempts("inverse") == 0


@pytest.mark.guarantee("RECOVER-1")
def test_an_owner_that_stands_still_longer_than_any_lease_is_left_alone(lab: CrashLab) -> None:
    agent = lab.start(Kill.at_point("after the effect of bob", by="stop"))
    assert lab.stopped(agent)
    for _ in range(5):
        assert lab.recover(2) == [0, 0]
    lab.revive(agent)
    assert lab.wait(agent) == 0
    lab.world.assert_applied_once(*CUSTOMERS)
    assert lab.world.attempts("inverse") == 0
