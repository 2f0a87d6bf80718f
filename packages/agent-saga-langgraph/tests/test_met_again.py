"""A step that is met again after a crash, and another crash: nothing is repeated, nothing is lost.

The first process dies before its checkpoints are stored; the second one meets the recorded step
again in another superstep, and dies as well; the third one goes on. The world counts.
"""

from __future__ import annotations

import crashing_twice
import pytest
from crashing_twice import Twice, opened

from agent_saga.errors import BranchRefused
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga.plugins.registry import process_handlers
from agent_saga_langgraph import met
from agent_saga_testing.kits.forks import run_forked


def dies(*how):
    with pytest.raises(ChildProcessError) as died:
        run_forked(crashing_twice.main, *how)
    assert died.value.args[-1] == 9


def goes_on(folder, way):
    with process_handlers().isolated(), opened(folder) as saver:
        twice = Twice(folder, way)
        return twice.run(saver)["log"], twice.shop


@pytest.mark.guarantee("LANGGRAPH-5")
@pytest.mark.crash
@pytest.mark.parametrize(
    ("way", "first", "second"),
    [
        ("nodes", "after first", "after first"),
        ("nodes", "after first", "before second"),
        ("nodes", "after second", "after second"),
        ("functions", "after first", "after first"),
        ("functions", "after first", "before second"),
        ("node", "after first", "after second"),
        ("boundary", "after first", "before second"),
        ("boundary", "after second", "after first"),
    ],
)
def test_nothing_is_repeated_and_nothing_is_lost(tmp_path, way, first, second):
    dies(tmp_path, way, first, "loses")
    dies(tmp_path, way, second, "keeps")
    log, shop = goes_on(tmp_path, way)
    assert len(set(log)) == 2
    shop.world.assert_stands("box", "box")
    assert shop.world.applications() == 2


@pytest.mark.crash
@pytest.mark.parametrize(
    ("way", "how"), [("nodes", "loses"), ("nodes", "forgets"), ("boundary", "forgets")]
)
def test_nor_if_the_second_process_loses_its_checkpoints_too(tmp_path, way, how):
    dies(tmp_path, way, "after first", how)
    dies(tmp_path, way, "after second", how)
    dies(tmp_path, way, "before second", "keeps")
    log, shop = goes_on(tmp_path, way)
    assert len(set(log)) == 2
    assert shop.world.applications() == 2


@pytest.mark.guarantee("LANGGRAPH-14")
@pytest.mark.crash
def test_a_boundary_whose_checkpoint_does_not_come_does_nothing_and_the_thread_goes_on(tmp_path):
    dies(tmp_path, "boundary", "after first", "loses")
    with pytest.raises(BranchRefused):
        run_forked(crashing_twice.main, tmp_path, "boundary", "after second", "loses")
    log, shop = goes_on(tmp_path, "boundary")
    assert len(set(log)) == 2
    assert shop.world.applications() == 2


@pytest.mark.crash
def test_what_is_kept_goes_when_its_saga_has_ended(tmp_path):
    dies(tmp_path, "nodes", "after first", "loses")
    _, shop = goes_on(tmp_path, "nodes")
    store = shop.kit.runtime.store
    [(_, kept)] = store.scan("langgraph-met/")
    assert kept["saga"].startswith("langgraph:1:")
    notes = met.Notes(Recorded(shop.kit.runtime), "another")
    notes.add("key", [])
    notes.save()
    [(_, kept)] = store.scan("langgraph-met/")
    assert kept["saga"] == "another"
