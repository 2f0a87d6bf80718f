"""Flows whose process is killed, and which are gone on with by another one."""

from __future__ import annotations

import signal

import crashing
import pytest
from crashing import Trips
from crewai.flow.async_feedback import HumanFeedbackPending

from agent_saga import RecoveryDaemon
from agent_saga_crewai import last_report
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.kits.forks import run_forked

pytestmark = pytest.mark.crash


def killed(folder, *arguments):
    """Run the flow in a process that dies on the way."""
    with pytest.raises(ChildProcessError) as died:
        run_forked(crashing.main, folder, "trip", *arguments)
    assert died.value.args[-1] == -signal.SIGKILL


@pytest.mark.guarantee("CREWAI-2")
def test_a_killed_flow_is_begun_again_under_its_id_and_repeats_no_effect(tmp_path):
    killed(tmp_path, "car")
    trips = Trips(tmp_path)
    trips.world.assert_applied_once("seat", "room")
    assert trips.run("trip").question["text"] == "aisle?"
    trips.world.assert_applied_once("seat", "room", "car")
    assert isinstance(trips.run("trip", resume="yes"), HumanFeedbackPending)
    killed(tmp_path, "taxi", "good")
    assert trips.world.applications(name="seat") == 2  # the second one is another method's
    assert isinstance(trips.run("trip"), HumanFeedbackPending)
    assert trips.run("trip", resume="good", feedback=True) == "good"
    assert last_report().outcome == "COMMITTED"
    assert trips.world.applications(name="seat") == 2
    assert trips.world.applications() == 5
    RecoveryDaemon(tmp_path / "log", settings=QUICK).recover_all(undo_held=True)
    assert not trips.world.undone()


def test_recovery_undoes_what_a_killed_flow_did(tmp_path):
    killed(tmp_path, "car")
    RecoveryDaemon(tmp_path / "log", settings=QUICK).recover_all(undo_held=True)
    trips = Trips(tmp_path)
    assert trips.world.undone() == ["room", "seat"]
    trips.world.assert_restored()
