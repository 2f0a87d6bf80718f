"""What a human let through although nothing takes it back stands, and its inverse says so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_saga import SagaAborted
from bench.worlds import plans
from bench.worlds.declaring import Declared, User
from bench.worlds.faults import Lasting
from bench.worlds.outcome import let_through
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
def test_an_inverse_that_can_take_nothing_back_does_nothing_and_says_so(reason):
    reach = Reach()
    declared = Declared(world(book=row(reason)), TASK, reach, User(TASK, answers=True))
    with pytest.raises(SagaAborted) as ended, declared.kit.transaction():
        declared.tools["book"](**BOOK.args)
        raise ConnectionError
    assert ended.value.report.clean is not bool(reason)
    assert ("undo" in reach.asked) is not bool(reason)
    assert declared.standing == ([BOOK] if reason else [])


def test_what_stands_is_kept_in_the_order_in_which_it_was_made():
    one = world(close=plans.Final("over"), book=row(""), move=row(""))
    book, move, close = (Lasting(call, ()) for call in (BOOK, MOVE, CLOSE))
    assert let_through(one, [book, move, close], [MOVE]) == (move, close)
    assert let_through(one, [book, move, close], []) == (close,)
    assert let_through(one, [book], [MOVE]) == ()
