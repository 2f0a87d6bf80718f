"""Tools that misbehave on purpose."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading

import pytest

from agent_saga.errors import NotApplied
from agent_saga_testing.tools import counted, fails_before, held, lost_answer, slow


class Tools:
    """A tool, sync or async, and the effects that it made."""

    def __init__(self, kind):
        self.effects = []
        self.tool = {"sync": self._sync, "async": self._async, "object": self._object()}[kind]

    def _sync(self, amount: int, *, note: str = "") -> int:
        """Charge."""
        self.effects.append((amount, note))
        return amount * 2

    async def _async(self, amount: int, *, note: str = "") -> int:
        """Charge."""
        return self._sync(amount, note=note)

    def _object(self):
        tools = self

        class Charge:
            async def __call__(self, amount: int, *, note: str = "") -> int:
                return tools._sync(amount, note=note)

        return Charge()


def run(tool, *args, **kwargs):
    answer = tool(*args, **kwargs)
    return asyncio.run(answer) if inspect.isawaitable(answer) else answer


@pytest.fixture(params=["sync", "async", "object"])
def tools(request):
    return Tools(request.param)


@pytest.mark.parametrize(
    "wrap", [lost_answer, fails_before, slow, counted, lambda fn: held(fn)[0]], ids=str
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_kind_name_and_parameters_stay(wrap, kind):
    tool = Tools(kind).tool
    wrapped = wrap(tool)
    assert inspect.iscoroutinefunction(wrapped) is inspect.iscoroutinefunction(tool)
    assert inspect.signature(wrapped) == inspect.signature(tool)
    assert (wrapped.__name__, wrapped.__doc__) == (tool.__name__, tool.__doc__)


def test_a_lost_answer_had_its_effect(tools):
    tool = lost_answer(tools.tool)
    with pytest.raises(ConnectionError):
        run(tool, 5, note="x")
    assert tools.effects == [(5, "x")]


def test_a_failure_before_had_none_and_says_so(tools):
    tool = fails_before(tools.tool)
    with pytest.raises(NotApplied):
        run(tool, 5)
    assert tools.effects == []


@pytest.mark.parametrize("wrap", [lost_answer, fails_before])
@pytest.mark.parametrize("error", [TimeoutError, TimeoutError("mine"), KeyboardInterrupt])
def test_the_error_is_chosen(wrap, error):
    with pytest.raises(error if isinstance(error, type) else type(error)):
        wrap(lambda: None, error=error)()


def test_calls_are_chosen_by_number(tools):
    tool = lost_answer(tools.tool, on={2, 3})
    endings = []
    for number in range(1, 5):
        try:
            endings.append(run(tool, number))
        except ConnectionError:
            endings.append("lost")
    assert endings == [2, "lost", "lost", 8]
    assert [amount for amount, _ in tools.effects] == [1, 2, 3, 4]


def test_a_slow_tool_ends_as_usual(tools):
    tool = slow(tools.tool, before=0.001, after=0.001, on=range(1, 3))
    assert [run(tool, n) for n in (1, 2, 3)] == [2, 4, 6]


@pytest.mark.parametrize("after", [False, True])
def test_a_held_call_goes_on_when_released(tools, after):
    tool, hold = held(tools.tool, after=after)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(run(tool, 4)))
    thread.start()
    assert hold.reached.wait(30)
    assert (answers, len(tools.effects)) == ([], 1 if after else 0)
    hold.release()
    thread.join(30)
    assert answers == [8]
    assert run(tool, 5) == 10


def test_a_held_async_tool_does_not_block_the_loop():
    tools = Tools("async")
    tool, hold = held(tools.tool, on={1})

    async def work():
        first = asyncio.ensure_future(tool(1))
        await asyncio.sleep(0)
        second = await tool(2)
        hold.release()
        return [await first, second]

    assert asyncio.run(work()) == [2, 4]


def test_counted_calls_are_remembered_also_when_they_fail(tools):
    tool = counted(lost_answer(tools.tool, on={2}))
    run(tool, 1, note="a")
    with pytest.raises(ConnectionError):
        run(tool, 2)
    assert tool.calls == [((1,), {"note": "a"}), ((2,), {})]


def test_they_nest_and_count_among_threads():
    tool = counted(fails_before(lost_answer(lambda: None, on=()), on={1}))
    failures = []

    def work():
        for _ in range(50):
            try:
                tool()
            except NotApplied:
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(tool.calls), len(failures)) == (200, 1)


def test_partials_are_tools_too():
    tools = Tools("async")
    tool = lost_answer(functools.partial(tools.tool, note="given"))
    with pytest.raises(ConnectionError):
        run(tool, 1)
    assert tools.effects == [(1, "given")]
