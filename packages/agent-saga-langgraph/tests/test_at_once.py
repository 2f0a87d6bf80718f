"""Two processes run one thread at the same moment: each effect happens once, and one run ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from at_once import THREAD, graph
from langgraph.checkpoint.sqlite import SqliteSaver

from agent_saga.plugins.registry import process_handlers
from agent_saga_testing.waiting import until
from agent_saga_testing.world import World
from conftest import Shop

PROGRAM = Path(__file__).with_name("at_once.py")
PATIENCE = 200  # a framework takes its time to load on a machine that has much to do


def at_once(folder, phase):
    """Let both begin when both are ready; return what those said that were refused."""
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(number), phase],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    ready = [folder / f"{phase} {number}" for number in (1, 2)]
    try:
        until(lambda: all(map(Path.exists, ready)), patience=PATIENCE)
        (folder / f"{phase} go").touch()
        said = [one.communicate(timeout=PATIENCE)[0] for one in running]
        assert [one.returncode for one in running] == [0, 0]
        return said
    finally:
        for one in running:  # those that a test gave up
            one.kill()
            one.communicate()


@pytest.mark.crash
@pytest.mark.timeout(4 * PATIENCE)
def test_two_processes_that_run_a_thread_at_once_do_each_effect_once(tmp_path):
    World(tmp_path / "world.sqlite", honours_keys=False)
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        saver.setup()  # two that make the file at once are the checkpointer's own matter
    said = at_once(tmp_path, "start")
    world = World(tmp_path / "world.sqlite")
    assert "" in said
    world.assert_applied_once("seat")
    said = at_once(tmp_path, "resume")
    assert "" in said
    world.assert_applied_once("seat", "room")
    saver = SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite"))
    with process_handlers().isolated(), saver as stored:
        values = graph(Shop(tmp_path), stored).get_state(THREAD).values
    assert set(values["log"]) == {1, "yes", 2}  # an input that comes late is another input
