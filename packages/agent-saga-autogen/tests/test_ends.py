"""Runs of teams end, whatever raises in them, and leave nothing to the next run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars

import pytest
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    RoundRobinGroupChat,
    SelectorGroupChat,
)
from autogen_core import CancellationToken, SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool
from scripted import Scripted, call

from agent_saga import ConfigurationError, SagaAborted, current_saga
from agent_saga_autogen import (
    compensable,
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_stream,
    saga_tool,
    teams,
)

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
LEAVES = [call("leaves", item="x")]
DOWN = OSError("the model is down")


class Left(BaseException):
    """What no `except Exception` catches."""


RAISED = [GeneratorExit("away"), asyncio.CancelledError("away"), Left("away"), ValueError("away")]


@contextlib.asynccontextmanager
async def runtime_of(kind):
    """Give a runtime that was started outside every boundary; None for a team's own."""
    if kind == "own":
        yield None
        return
    runtime = SingleThreadedAgentRuntime()
    asyncio.get_running_loop().call_soon(runtime.start, context=contextvars.Context())
    await asyncio.sleep(0)
    try:
        yield runtime
    finally:
        await runtime.stop()


class Once(TerminationCondition):
    """Calls something the second time that it is asked."""

    def __init__(self, function):
        self._function, self._times = function, 0

    @property
    def terminated(self):
        return False

    async def __call__(self, messages):
        del messages
        self._times += 1
        if self._times == 2:
            await self._function()

    async def reset(self):
        pass


def selecting(function):
    """Return what chooses A and B in turns, and calls something the second time."""
    times = []

    async def select(thread):
        del thread
        times.append(1)
        if len(times) == 2:
            await function()
        return "AB"[(len(times) + 1) % 2]

    return select


def declared(shop, **more):
    return {**shop.declared, "leaves": read_only(), **more}


def made(shop, where, function, runtime):
    """Return a team of A and B, in which something is called in a certain place."""

    async def leaves(item: str) -> str:
        """Do what the case asks for."""
        await function()
        return item

    tools = [shop.book, shop.fails, FunctionTool(leaves, description="Leave.")]
    middle = {"tool": [LEAVES], "model": [DOWN]}.get(where, [])
    first = shop.agent(SEAT, *middle, "A", "A again", "A at last", tools=tools)
    if where == "model":
        first._model_client.create = raising(first._model_client, function)
    second = shop.agent(ROOM, "B", "B again", "B at last", name="B")
    how = {"max_turns": 2, "runtime": runtime}
    if where == "selector":
        how["selector_func"] = selecting(function)
        team = SelectorGroupChat([first, second], Scripted(), **how)
    elif where == "condition":
        team = RoundRobinGroupChat([first, second], termination_condition=Once(function), **how)
    else:
        team = RoundRobinGroupChat([first, second], **how)
    return saga_agent(team, shop.kit, tools=declared(shop))


def raising(model, function):
    create = model.create

    async def created(messages, **options):
        try:
            return await create(messages, **options)
        except OSError:
            await function()

    return created


async def raises(error):
    raise error


PLACES = ["tool", "model", "selector", "condition"]


@pytest.mark.parametrize("kind", ["own", "foreign"])
class TestARun:
    @pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("where", PLACES)
    def test_ends_whatever_raises_in_it_and_the_team_can_be_used_again(
        self, shop, kind, where, error
    ):
        async def case():
            async with runtime_of(kind) as runtime:
                team = made(shop, where, lambda: raises(error), runtime)
                if where == "tool" and isinstance(error, (ValueError, asyncio.CancelledError)):
                    await saga_run(team, "go on")  # AutoGen shows the model what a tool raises
                    shop.world.assert_stands("seat", "room")
                    return await saga_run(team, "go on"), last_report()
                with pytest.raises(SagaAborted) as aborted:
                    await saga_run(team, "go on")
                assert aborted.value.report.clean
                assert "away" in str(aborted.value) or "cancelled" in str(aborted.value)
                shop.world.assert_restored()
                return await saga_run(team, "go on"), last_report()

        result, report = asyncio.run(case())
        assert report.outcome == "COMMITTED"
        assert result.messages[-1].content in {"A", "B", "A again", "B again"}

    @pytest.mark.parametrize("how", ["token", "task", "closed"])
    def test_that_was_cancelled_tells_nothing_to_the_next_one(self, shop, kind, how):
        reached = asyncio.Event()

        async def waits():
            reached.set()
            if how != "closed":
                await asyncio.Event().wait()

        async def case():
            async with runtime_of(kind) as runtime:
                team = made(shop, "tool", waits, runtime)
                await getattr(self, f"_{how}")(team, reached)
                shop.world.assert_restored()
                return await saga_run(team, "next")

        messages = asyncio.run(case()).messages
        assert messages[0].content == "next"
        assert len([m for m in messages if m.source in "AB" and m.type == "TextMessage"]) == 2

    @staticmethod
    async def _token(team, reached):
        token = CancellationToken()
        task = asyncio.ensure_future(saga_run(team, "go on", cancellation_token=token))
        await reached.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @staticmethod
    async def _task(team, reached):
        task = asyncio.ensure_future(saga_run(team, "go on"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @staticmethod
    async def _closed(team, reached):
        del reached
        stream = saga_stream(team, "go on")
        async for event in stream:
            if isinstance(event, ToolCallExecutionEvent):
                break
        await stream.aclose()

    @pytest.mark.parametrize("where", ["selector", "condition"])
    def test_undoes_what_is_called_where_speakers_are_chosen(self, shop, kind, where):
        pick = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="pick")

        async def picks():
            await pick.run_json({"item": "picked"}, CancellationToken())
            raise DOWN

        async def case():
            async with runtime_of(kind) as runtime:
                team = made(shop, where, picks, runtime)
                with pytest.raises(SagaAborted) as aborted:
                    await saga_run(team, "go on")
                return aborted.value

        aborted = asyncio.run(case())
        assert aborted.cause is DOWN
        assert shop.world.undone() == ["picked", "seat"]
        shop.world.assert_restored()


class TestWhatIsCalledByATeam:
    """In a runtime that was started before the boundary."""

    def test_is_in_the_boundary_where_candidates_are_chosen(self, shop):
        pick = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="pick")

        async def candidates(thread):
            await pick.run_json({"item": f"picked {len(thread)}"}, CancellationToken())
            return ["A"]

        async def case():
            async with runtime_of("foreign") as runtime:
                team = SelectorGroupChat(
                    [shop.agent(SEAT, DOWN), shop.agent(name="B")],
                    Scripted("A"),
                    candidate_func=candidates,
                    runtime=runtime,
                )
                with pytest.raises(SagaAborted):
                    await saga_run(saga_agent(team, shop.kit, tools=shop.declared), "go on")

        asyncio.run(case())
        assert shop.world.undone() == ["seat", "picked 1"]

    def test_is_in_the_boundary_on_the_edges_of_a_graph(self, shop):
        seen = []

        def goes_on(message):
            seen.append((message.source, current_saga() is not None))
            return True

        async def case():
            async with runtime_of("foreign") as runtime:
                agents = [shop.agent(SEAT, "A"), shop.agent(ROOM, DOWN, name="B")]
                builder = DiGraphBuilder()
                for agent in agents:
                    builder.add_node(agent)
                builder.add_edge(*agents, condition=goes_on)
                team = GraphFlow(agents, builder.build(), runtime=runtime)
                with pytest.raises(SagaAborted):
                    await saga_run(saga_agent(team, shop.kit, tools=shop.declared), "go on")

        asyncio.run(case())
        assert seen == [("A", True)]
        assert shop.world.undone() == ["room", "seat"]


def test_a_tool_of_an_agent_alone_that_closes_whoever_waits_for_it_ends_the_run(shop):
    async def leaves(item: str) -> str:
        raise GeneratorExit(item)

    def still(item: str) -> str:
        raise GeneratorExit(item)

    for function in (leaves, still):
        tool = FunctionTool(function, description="x", name="leaves")
        agent = shop.agent(SEAT, LEAVES, "done", tools=[shop.book, shop.fails, tool])
        agent = saga_agent(agent, shop.kit, tools=declared(shop))
        with pytest.raises(SagaAborted, match="leaves raised GeneratorExit: x"):
            asyncio.run(saga_run(agent, "go on"))
        shop.world.assert_restored()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_is_no_answer_and_undoes_the_run(shop, error):
    def leaves(item: str) -> str:
        raise error(item)

    tool = FunctionTool(leaves, description="x", name="leaves")
    agent = shop.agent(SEAT, LEAVES, "done", tools=[shop.book, shop.fails, tool])
    team = saga_agent(RoundRobinGroupChat([agent]), shop.kit, tools=declared(shop))
    with pytest.raises(error):
        asyncio.run(saga_run(team, "go on"))
    shop.world.assert_restored()


def test_a_team_whose_agent_does_not_end_is_not_run_again_before_it_has(shop, monkeypatch):
    monkeypatch.setattr(teams, "GIVES_UP", 0.05)
    reached, released = asyncio.Event(), asyncio.Event()

    async def stays():
        reached.set()
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    async def case():
        async with runtime_of("foreign") as runtime:
            graph = DiGraphBuilder()

            async def leaves(item: str) -> str:
                await stays()
                return item

            tools = [shop.book, shop.fails, FunctionTool(leaves, description="x")]
            agents = [
                shop.agent(LEAVES, "so", "A", tools=tools),
                shop.agent(OSError("away"), "B", name="B"),
            ]
            agents[1]._model_client.create = after(reached, agents[1]._model_client)
            for agent in agents:
                graph.add_node(agent)
            team = GraphFlow(agents, graph.build(), runtime=runtime)
            team = saga_agent(team, shop.kit, tools=declared(shop, leaves=compensable(shop.undo)))
            with pytest.raises(SagaAborted, match="away"):
                await saga_run(team, "go on")
            with pytest.raises(SagaAborted, match="still works on a run") as refused:
                await saga_run(team, "go on")
            assert isinstance(refused.value.cause, ConfigurationError)
            released.set()

    asyncio.run(case())


def after(reached, model):
    create = model.create

    async def created(messages, **options):
        await reached.wait()
        return await create(messages, **options)

    return created


def test_a_runtime_that_does_not_work_is_refused(shop):
    async def case():
        runtime = SingleThreadedAgentRuntime()
        team = RoundRobinGroupChat([shop.agent("done")], max_turns=1, runtime=runtime)
        team = saga_agent(team, shop.kit, tools=shop.declared)
        with pytest.raises(SagaAborted, match="does not work, and the run"):
            await saga_run(team, "go on")
        runtime.start()
        result = await saga_run(team, "go on")
        await runtime.stop()
        return result

    assert asyncio.run(case()).messages[-1].content == "done"
