"""What a human let through although nothing takes it back stands, and all else is undone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_saga import RefusedError, SagaAborted
from bench.worlds import plans
from bench.worlds.declaring import Declared, User
from bench.worlds.judging import differences
from bench.worlds.standing import in_order, laid_over
from bench.worlds.world import GoldCall, Task

BOOK, MOVE, CLOSE = (GoldCall(name, {"n": 1}) for name in ("book", "move", "close"))
TASK = Task("w", "t", (BOOK, MOVE, CLOSE))


def row(reason):
    return plans.Write(
        look=lambda tools, args: tools("look"),
        undo=lambda tools, args, before, result: tools("undo"),
        needs=lambda args, before: reason,
    )


def world(**rows):
    return SimpleNamespace(secrets=frozenset(), plan=lambda tool: rows.get(tool, plans.Read()))


class Reach:
    def __init__(self):
        self.asked = []

    def agent(self, tool, args):
        return tool

    def aside(self, tool, /, **args):
        self.asked.append(tool)
        return "as before"

    def undoing(self, step):
        del step

    def undone(self, step, *, well, again):
        del step, well, again


@pytest.mark.parametrize("reason", ["", "the fare has changed"])
def test_a_call_that_nothing_takes_back_as_things_are_stands_as_approved(reason):
    reach = Reach()
    declared = Declared(world(book=row(reason)), TASK, reach, User(TASK, answers=True))
    with pytest.raises(SagaAborted) as ended, declared.kit.transaction():
        declared.tools["book"](**BOOK.args)
        raise ConnectionError
    report = ended.value.report
    assert report.clean is not bool(reason)
    assert bool(report.kept) is bool(reason)
    assert ("undo" in reach.asked) is not bool(reason)


def test_it_keeps_nothing_before_it_from_being_undone():
    reach = Reach()
    rows = {"move": row(""), "book": row("the fare has changed")}
    declared = Declared(world(**rows), TASK, reach, User(TASK, answers=True))
    with pytest.raises(SagaAborted) as ended, declared.kit.transaction():
        declared.tools["move"](**MOVE.args)
        declared.tools["book"](**BOOK.args)
        raise ConnectionError
    report = ended.value.report
    assert [line.tool for line in report.compensated] == ["move"]
    assert not report.unresolved


def test_nobody_there_and_it_is_refused():
    declared = Declared(world(book=row("no")), TASK, Reach(), User(TASK, answers=False))
    with pytest.raises(SagaAborted) as ended, declared.kit.transaction():
        declared.tools["book"](**BOOK.args)
    assert isinstance(ended.value.cause, RefusedError)


def test_a_tool_that_nobody_declared_asks_a_human():
    assert isinstance(plans.row({}, "wipe"), plans.Final)
    assert isinstance(plans.row({"look": plans.Read()}, "look"), plans.Read)


def test_what_came_into_a_list_is_laid_where_it_came():
    start = {"flights": [{"to": "A"}, {"to": "B"}]}
    after = {"flights": [{"to": "C"}, {"to": "B"}, {"to": "D"}]}
    changes = in_order(differences(start, after))
    assert laid_over(start, changes) == after
