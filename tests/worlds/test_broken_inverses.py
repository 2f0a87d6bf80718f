"""The judge sees an inverse that does nothing, one that runs twice, and what it does to others."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from bench.worlds import faults, plans
from bench.worlds.__main__ import faulty
from bench.worlds.beside import partner, run_beside
from bench.worlds.mutants import broken
from bench.worlds.running import Run
from bench.worlds.traces import added, grew
from bench.worlds.world import GoldCall, Task, WorldError


class Shop:
    """Orders that can be cancelled, a list of wishes, a log of visits, and a letter."""

    def __init__(self):
        self.state = {"orders": {}, "next": 1, "wishes": ["lamp"], "visits": 0, "letters": 0}
        self.state["label"] = "shop"

    def call(self, tool, args):
        return getattr(self, tool)(**args)

    def order(self, what):
        number = str(self.state["next"])
        self.state["orders"][number] = {"what": what, "status": "open"}
        self.state["next"] += 1
        return number

    def cancel(self, number):
        if self.state["orders"][number]["status"] == "cancelled":
            raise WorldError("it is cancelled")
        self.state["orders"][number]["status"] = "cancelled"

    def orders(self):
        return dict(self.state["orders"])

    def wish(self, what):
        if what == "moon":
            raise WorldError("nobody sells it")
        self.state["wishes"].append(what)

    def wishes(self):
        return list(self.state["wishes"])

    def unwish(self, what):
        self.state["wishes"].remove(what)

    def visit(self):
        self.state["visits"] += 1

    def write(self):
        self.state["letters"] += 1

    def letters(self):
        return self.state["letters"]

    def labelled(self):
        return self.state["label"]

    def name(self, label):
        self.state["label"] = label

    def snapshot(self):
        return copy.deepcopy(self.state)

    fingerprint = snapshot


def orders(tools, args):
    del args
    return sorted(tools("orders"))


def placed(args, before, now):
    del args
    fresh = [number for number in now if number not in before]
    return fresh[0] if fresh else plans.MISSING


def cancel(tools, args, before, result):
    del args, before
    tools("cancel", number=result)


def cancelled(args, before, result):
    del before
    place = f"orders/{result}"
    return [added(place, must=True, what=args["what"], status="cancelled"), grew("next")]


def wishes(tools, args):
    del args
    return tools("wishes")


def unwish(tools, args, before, result):
    del before, result
    tools("unwish", what=args["what"])


def write_back(tools, args, before, result):
    """The old list as a whole: what others wished meanwhile is lost."""
    del args, result
    for wish in tools("wishes"):
        tools("unwish", what=wish)
    for wish in before:
        tools("wish", what=wish)


ROWS = {
    "order": plans.Write(orders, cancel, placed, cancelled, restores=False),
    "wish": plans.Write(wishes, unwish),
    "visit": plans.Left(lambda args: [grew("visits")]),
    "write": plans.Final("a letter is on its way", lambda tools, args: tools("letters")),
}
CALLS = (
    GoldCall("order", {"what": "lamp"}),
    GoldCall("wish", {"what": "chair"}),
    GoldCall("order", {"what": "lamp"}),
    GoldCall("visit", {}),
    GoldCall("write", {}),
)
TASK = Task("shop", "one", CALLS)
GIVE_UP = (faults.GIVEN_UP, len(CALLS) - 1)


class World:
    """A world with one shop, declared as a test likes."""

    name, secrets, patience = "shop", frozenset(), faults.AT_ONCE

    def __init__(self, **rows):
        self.rows = ROWS | rows

    def tasks(self):
        return [TASK]

    def open(self, task):
        del task
        return Shop()

    def offered(self, task):
        del task
        return frozenset(self.rows)

    def plan(self, tool):
        return self.rows.get(tool, plans.Read())


def test_the_judge_sees_every_broken_inverse():
    rows = broken(World())
    assert {tool: row.unseen for tool, row in rows.items()} == {"order": [], "wish": []}
    assert {tool: row.calls for tool, row in rows.items()} == {"order": 2, "wish": 1}


def test_a_wide_trace_hides_a_broken_inverse_and_is_found():
    def wide(args, before, result):
        del args, before, result
        return [added("orders/*"), grew("next")]

    rows = broken(World(order=replace(ROWS["order"], trace=wide)))
    assert "an inverse that does nothing" in str(rows["order"].unseen)


def test_a_row_that_nobody_takes_back_has_no_inverse_to_break():
    assert broken(World(order=ROWS["visit"], wish=ROWS["visit"])) == {}
    left = plans.Write(orders, plans.leave, placed)
    assert set(broken(World(order=left))) == {"wish"}


@pytest.mark.parametrize("model", [faults.GIVEN_UP, faults.AFTER, faults.KILLED])
def test_what_was_let_through_stands_and_is_never_clean(model):
    from bench.worlds.__main__ import one_run

    told = one_run(World(), TASK, model, len(CALLS) - 1, present=True)
    assert (told.declared, told.stands, told.clean, told.false_dirty) == (True, True, False, False)


def test_a_letter_whose_answer_is_lost_is_settled_by_a_look():
    told = Run(World(), TASK, faults.RETRY, len(CALLS) - 1, present=True).outcome()
    assert (told.lost, told.settled, told.doubles, told.clean, told.exact) == (
        *[True] * 2,
        0,
        True,
        True,
    )


def test_repeating_what_harms_nobody_is_counted_apart():
    told = Run(World(), TASK, faults.RETRY, 3, present=True).outcome()
    assert (told.doubles, told.repeats) == (0, 1)


def test_a_refused_run_that_would_have_ended_well_is_the_price():
    told = Run(World(), TASK, faults.NONE, 0).outcome()
    assert (bool(told.refused), told.cost, told.met) == (True, True, False)
    assert Run(World(), TASK, faults.NONE, 0, present=True).outcome().met


def test_a_broken_row_is_no_refusal():
    rows = {"order": replace(ROWS["order"], needs=lambda args, before: args.nothing)}
    told = Run(World(**rows), TASK, *GIVE_UP, present=True).outcome()
    assert told.broken
    assert faulty(told)


def test_what_another_saga_made_is_left_alone():
    assert partner(World(), TASK, 0) == CALLS[1]
    assert partner(World(), TASK, 3) is None
    told = run_beside(World(), TASK, 0)
    assert (told.clean, told.declared, told.collateral) == (True, True, 0)


def test_an_inverse_that_writes_the_whole_list_back_is_collateral():
    calls = (GoldCall("wish", {"what": "chair"}), GoldCall("wish", {"what": "table"}))
    task = Task("shop", "two", calls)
    world = World(wish=plans.Write(wishes, write_back))
    assert run_beside(world, task, 0).collateral == 1
    assert run_beside(World(), task, 0).collateral == 0


def test_two_sagas_may_number_what_they_make_otherwise_than_one_alone():
    told = run_beside(World(), replace(TASK, calls=(CALLS[0], CALLS[2])), 0)
    assert (told.clean, told.declared, told.collateral) == (True, True, 0)


def test_two_who_say_what_one_place_holds_are_no_pair():
    def label(tools, args):
        return tools("labelled")

    def back(tools, args, before, result):
        tools("name", label=before)

    first, second = (GoldCall("name", {"label": text}) for text in ("old", "new"))
    task = Task("shop", "three", (first, second))
    world = World(name=plans.Write(label, back), labelled=plans.Read())
    world.tasks = lambda: [task]
    assert partner(world, task, 0) is None


def test_an_error_that_nothing_here_raises_is_no_end_of_a_run():
    class Odd(World):
        def open(self, task):
            shop = super().open(task)
            shop.visit = lambda: 1 / 0
            return shop

    told = Run(Odd(), TASK, faults.NONE, 0, present=True).outcome()
    assert "ZeroDivisionError" in str(told.broken)
    assert faulty(told)
