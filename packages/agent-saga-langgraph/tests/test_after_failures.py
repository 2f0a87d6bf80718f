"""After a run that failed: a thread on which nothing happened."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from agent_saga import SagaAborted
from agent_saga.errors import SagaClosed
from agent_saga_langgraph import last_report, safe_tool, saga_run_sync

THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


class Down:
    """A graph whose second node fails while the service is down."""

    def __init__(self, shop, semantics="REVERSIBLE"):
        how = {"semantics": semantics}
        if semantics != "REVERSIBLE":
            how = {"compensate": shop.cancel.using(effect="$.id")}
        self.shop, self.is_down = shop, True
        self.tool = safe_tool(shop.book.func, kit=shop.kit, **how)
        builder = StateGraph(State)
        builder.add_node("first", self.first)
        builder.add_node("second", self.second)
        builder.add_edge(START, "first")
        builder.add_edge("first", "second")
        self.graph = builder.compile(checkpointer=InMemorySaver())

    def first(self, state):
        return {"log": [self.tool.invoke({"item": "seat"})["id"]]}

    def second(self, state):
        self.tool.invoke({"item": "room"})
        if self.is_down:
            raise RuntimeError("the service is down")
        return {"log": ["second"]}

    def run(self, given=None):
        return saga_run_sync(self.graph, given, THREAD, kit=self.shop.kit)

    def fail(self, given=None):
        with pytest.raises(SagaAborted):
            self.run(given)


# --- a thread on which nothing happened -----------------------------------------------------------


@pytest.mark.parametrize("given", [None, {"log": ["again"]}], ids=["resumed", "begun again"])
def test_a_thread_whose_failed_run_only_read_can_be_used_again(shop, given):
    down = Down(shop)
    down.fail({"log": []})
    down.fail(given)
    down.is_down = False
    assert down.run(given)["log"][-1] == "second"
    assert last_report().outcome == "COMMITTED"


def test_a_thread_whose_failed_run_had_effects_cannot(shop):
    down = Down(shop, "COMPENSABLE")
    down.fail({"log": []})
    down.is_down = False
    with pytest.raises(SagaClosed):
        down.run()
    shop.world.assert_restored()


@pytest.mark.guarantee("LANGGRAPH-16")
def test_nor_can_one_whose_effects_came_when_it_was_gone_on_with(shop):
    """The waiting work may have stored what a node beside the failed one had done."""
    down = Down(shop)
    down.fail({"log": []})
    down.tool = Down(shop, "COMPENSABLE").tool
    down.fail()
    down.is_down = False
    with pytest.raises(SagaClosed):
        down.run()
    assert shop.world.undone() == ["room"]


def test_a_refused_effect_is_nothing_that_happened(shop):
    down = Down(shop)
    declined = safe_tool(
        shop.fails.func,
        compensate=shop.cancel.using(effect="$.id"),
        not_applied_on=RuntimeError,
        kit=shop.kit,
    )
    down.tool = declined
    down.fail({"log": []})
    down.tool, down.is_down = Down(shop).tool, False
    down.run()
    assert last_report().outcome == "COMMITTED"
