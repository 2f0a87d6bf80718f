"""A process is killed between two effects, under every durability; the thread is gone on with."""

from __future__ import annotations

import os
import signal

import crashing
import crashing_graph
import pytest

from agent_saga import RecoveryDaemon, SagaAborted
from agent_saga.errors import ReplayConflict, SagaClosed
from agent_saga_langgraph import last_report
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.kits.forks import run_forked
from agent_saga_testing.world import World

pytestmark = pytest.mark.crash


def dies(program, *arguments):
    with pytest.raises(ChildProcessError) as died:
        run_forked(program, *arguments)
    assert died.value.args[-1] == -signal.SIGKILL


def killed(folder, durability, think=0.3):
    dies(crashing.main, folder, durability, think)
    world = World(folder / "world.sqlite")
    world.assert_applied_once("seat", "room")
    return world


def given(run):
    """What a program that finds the thread again goes on with."""
    return None if run.get_state(crashing.THREAD).tasks else crashing.PROMPT


@pytest.mark.parametrize("think", [0, 0.3])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_killed_run_is_gone_on_with_and_repeats_no_effect(durability, think, tmp_path):
    world = killed(tmp_path, durability, think)
    with crashing.saved(tmp_path) as saver:
        run = crashing.agent(tmp_path, saver)
        run.invoke(given(run), crashing.THREAD)
    assert last_report().outcome == "COMMITTED"
    world.assert_applied_once("seat", "room", "car")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_input_that_is_delivered_again_after_a_kill_repeats_no_effect(durability, tmp_path):
    world = killed(tmp_path, durability, 0)
    with crashing.saved(tmp_path) as saver:
        crashing.agent(tmp_path, saver).invoke(crashing.PROMPT, crashing.THREAD)
    assert last_report().outcome == "COMMITTED"
    world.assert_applied_once("seat", "room", "car")


def test_a_lost_attempt_that_is_not_repeated_is_undone(tmp_path):
    world = killed(tmp_path, "exit")
    with crashing.saved(tmp_path) as saver:
        run = crashing.agent(tmp_path, saver, items=["boat"])
        with pytest.raises(SagaAborted) as failed:
            run.invoke(crashing.PROMPT, crashing.THREAD)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    world.assert_restored()


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_killed_run_that_recovery_undid_is_not_gone_on_with(durability, tmp_path):
    world = killed(tmp_path, durability)
    RecoveryDaemon(tmp_path / "log", settings=QUICK).recover_all(undo_held=True)
    world.assert_restored()
    with crashing.saved(tmp_path) as saver:
        run = crashing.agent(tmp_path, saver)
        if durability == "sync":
            with pytest.raises(SagaClosed, match="ROLLED_BACK"):
                run.invoke(None, crashing.THREAD)
            world.assert_restored()
            return
        run.invoke(crashing.PROMPT, crashing.THREAD)  # nothing was stored: it begins anew
    world.assert_stands("seat", "room", "car")


# --- in every node --------------------------------------------------------------------------------

FULL = "AGENT_SAGA_CRASH_CASES" in os.environ
WHEN = ["before", "inside", "after"] if FULL else ["inside"]
PLACES = [("chain", name) for name in crashing_graph.NODES if FULL or name == "room"]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(
    ("shape", "node"), [*PLACES, ("turn", "car"), ("asked", "car"), ("inside", "car")]
)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_kill_in_any_node_repeats_no_effect_when_the_thread_goes_on(
    durability, shape, node, when, tmp_path
):
    dies(crashing_graph.main, tmp_path, durability, node, when, shape)
    trip = crashing_graph.Trip(tmp_path, shape=shape)
    assert trip.run(None, durability)["log"] == crashing_graph.NODES
    assert last_report().outcome == "COMMITTED"
    assert last_report().clean
    trip.world.assert_applied_once(*crashing_graph.NODES)
    trip.kit.runtime.wal.close()
