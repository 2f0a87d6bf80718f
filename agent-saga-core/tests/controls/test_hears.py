"""Of which successes a control hears: of those that it names, and of every other ending."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit
from agent_saga.controls.control import Control
from agent_saga.controls.installed import INSTALLED


class Hearing(Control):
    """Notes of what it is told."""

    def __init__(self, hears):
        self.hears = hears
        self.told = []

    def check(self, call):
        """Let every call go on."""

    def ended(self, call, ending, error=None):
        self.told.append((call.tool, ending))


@pytest.fixture
def hearing(request):
    before = INSTALLED.get("switch")
    control = Hearing(request.param)
    INSTALLED.put("switch", control)
    yield control
    INSTALLED.put("switch", before)


@pytest.mark.parametrize(
    ("hearing", "successes"),
    [(None, ["one", "two"]), (frozenset(), []), ({"two"}, ["two"])],
    indirect=["hearing"],
)
def test_a_control_hears_of_the_successes_that_it_names(wal, hearing, successes):
    kit = AgentKit("t", wal=wal)
    one = kit.safe_tool(lambda: 1, "REVERSIBLE", name="one")
    two = kit.safe_tool(lambda: 2, "REVERSIBLE", name="two")
    with kit.transaction():
        assert (one(), two()) == (1, 2)
    assert hearing.told == [(name, "applied") for name in successes]


@pytest.mark.parametrize("hearing", [frozenset()], indirect=True)
def test_a_control_hears_of_every_failure(wal, hearing):
    kit = AgentKit("t", wal=wal)

    def fail():
        raise ValueError

    fails = kit.safe_tool(fail, "REVERSIBLE", name="fails")
    with kit.transaction(), pytest.raises(ValueError):
        fails()
    assert [tool for tool, ending in hearing.told if ending != "applied"] == ["fails"]


@pytest.mark.parametrize("hearing", [set()], indirect=True)
def test_a_control_may_change_its_mind(wal, hearing):
    kit = AgentKit("t", wal=wal)
    one = kit.safe_tool(lambda: 1, "REVERSIBLE", name="one")
    with kit.transaction():
        one()
        hearing.hears.add("one")
        one()
        hearing.hears.clear()
        one()
    assert hearing.told == [("one", "applied")]
