"""A tool that is declared otherwise than it behaves is found by what it does to its world."""

from __future__ import annotations

import copy

from bench.worlds import plans
from bench.worlds.evidence import observed, table, unlisted
from bench.worlds.traces import changed
from bench.worlds.world import GoldCall, Task, WorldError


class Place:
    """A shelf, and a log of visits."""

    def __init__(self):
        self.state = {"shelf": {}, "visits": 0}

    def call(self, tool, args):
        if tool == "look":
            self.state["visits"] += 1
            return dict(self.state["shelf"])
        if tool == "put":
            self.state["shelf"][args["what"]] = 1
        if tool == "take":
            self.state["shelf"].pop(args["what"], None)
        return None

    def snapshot(self):
        return copy.deepcopy(self.state)


class Shelf:
    """A world with one shelf, declared as a test likes."""

    name = "shelf"

    def __init__(self, **rows):
        self.rows = rows

    def open(self, task):
        del task
        return Place()

    def offered(self, task):
        del task
        return frozenset({"put", "look", "take"})

    def plan(self, tool):
        return self.rows.get(tool, plans.Read())


class Unlisted(Shelf):
    """A world whose table says nothing about some of its tools."""

    def plan(self, tool):
        return plans.row(self.rows, tool)


TASK = Task("shelf", "one", (GoldCall("put", {"what": "lamp"}), GoldCall("look", {})))


def nothing(tools, args):
    del tools, args


def take(tools, args, before, result):
    del before, result
    tools("take", what=args["what"])


def visit(tools, args, before, result):
    take(tools, args, before, result)
    tools("look")


def wrong(**rows):
    return {tool: seen.wrong for tool, seen in observed(Shelf(**rows), [TASK]).items()}


def test_a_read_that_writes_is_found():
    assert wrong(put=plans.Write(nothing, take)) == {"put": set(), "look": {"visits"}}


def test_what_is_left_within_its_trace_agrees():
    rows = {"put": plans.Write(nothing, take), "look": plans.Left(lambda args: [changed("visits")])}
    assert not any(wrong(**rows).values())


def test_an_inverse_that_writes_elsewhere_is_found():
    look = plans.Left(lambda args: [changed("visits")])
    assert wrong(put=plans.Write(nothing, visit), look=look)["put"] == {"visits"}


def test_an_inverse_that_leaves_the_effect_is_found():
    leaves = plans.Write(nothing, lambda *_: None)
    look = plans.Left(lambda args: [changed("visits")])
    assert wrong(put=leaves, look=look)["put"] == {"shelf/+/lamp"}


def test_the_table_shows_what_was_seen():
    rows = table("shelf", observed(Shelf(put=plans.Write(nothing, take)), [TASK]))
    assert "| shelf | put | Write | 1 | 1 | `shelf/+/lamp` | 1 |  |" in rows
    assert "| shelf | look | Read | 1 | 1 | `visits` |  |  |" in rows


def test_a_tool_that_no_recorded_task_calls_needs_a_row_too():
    assert unlisted(Unlisted(put=plans.Read(), look=plans.Read()), [TASK]) == ["take"]


def test_a_call_that_is_made_though_its_look_is_refused_is_found():
    def refused(tools, args):
        raise WorldError("log in first")

    row = plans.Write(refused, take, guarded="log in")
    assert "whose look was refused" in str(wrong(put=row, look=plans.Read())["put"])


def test_a_look_that_fails_otherwise_says_nothing_about_the_call():
    row = plans.Write(nothing, take, guarded="log in")
    assert row.refuses("please log in first")
    assert not row.refuses("an entry is faulty")
    assert not plans.Write(nothing, take).refuses("please log in first")
