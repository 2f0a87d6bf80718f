"""Tasks that nobody recorded follow from the seed, and call only what their world offers."""

from __future__ import annotations

from bench.worlds.mixed import mixed
from bench.worlds.world import GoldCall, Task

CALLS = tuple(GoldCall(tool, {"n": number}) for number, tool in enumerate("abcd"))


class World:
    """Two tasks; the second one's world has one tool less."""

    name = "w"
    others = (GoldCall("e", {}),)

    def tasks(self):
        return [Task("w", "one", CALLS), Task("w", "two", CALLS[:2])]

    def offered(self, task):
        return frozenset("abcde" if task.source == "all" else "abc")


def calls(tasks):
    return [[(call.tool, call.args) for call in task.calls] for task in tasks]


def test_the_same_seed_makes_the_same_tasks_and_another_one_others():
    assert calls(mixed(World(), 20, 1)) == calls(mixed(World(), 20, 1))
    assert calls(mixed(World(), 20, 1)) != calls(mixed(World(), 20, 2))
    assert calls(mixed(World(), 30, 1))[:20] == calls(mixed(World(), 20, 1))


def test_each_has_a_name_of_its_own_and_calls_something():
    tasks = mixed(World(), 50, 3)
    assert len({task.name for task in tasks}) == 50
    assert all(task.calls for task in tasks)


def test_a_tool_that_the_world_of_a_task_has_not_is_not_put_in():
    assert "e" not in {call.tool for task in mixed(World(), 50, 3) for call in task.calls}
    everything = World()
    everything.offered = lambda task: frozenset("abcde")
    assert "e" in {call.tool for task in mixed(everything, 50, 3) for call in task.calls}


def test_they_differ_from_what_was_recorded():
    recorded = calls(World().tasks())
    assert sum(one not in recorded for one in calls(mixed(World(), 50, 3))) > 25
