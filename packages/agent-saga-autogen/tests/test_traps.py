"""What AutoGen does by itself, before, and what a run of this package does, after."""

from __future__ import annotations

import asyncio
import threading

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import AgentId, CancellationToken, FunctionCall, SingleThreadedAgentRuntime
from autogen_core.models import UserMessage
from autogen_core.tool_agent import ToolAgent, tool_agent_caller_loop
from autogen_core.tools import FunctionTool, StaticWorkbench
from scripted import Scripted, call

from agent_saga import SagaAborted, current_saga
from agent_saga.errors import SagaClosed
from agent_saga_autogen import (
    SagaWorkbench,
    bind,
    compensable,
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_tool,
)
from agent_saga_testing.waiting import until

TURNS = 300
SEAT = [call("book", "c1", item="seat")]
FAILS = [call("fails", "c2", item="room")]


async def settled():
    """Let everything on the loop come as far as it can without the world."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def hangs(run):
    """Say whether a run has not ended when nothing is left that could end it; then end it."""
    task = asyncio.ensure_future(run)
    await settled()
    hung = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return hung


def tool(function):
    return FunctionTool(function, description="A tool.")


def sagas(shop, agent, **options):
    return saga_run(agent, "go on", kit=shop.kit, **options)


class Raises(StaticWorkbench):
    async def call_tool(self, *args, **kwargs):
        raise OSError("the server is gone")


class TestAWorkbenchThatRaises:
    def test_makes_the_bare_framework_wait_for_ever(self, shop):
        agent = shop.agent(SEAT, "done", workbench=Raises([shop.book]))
        assert asyncio.run(hangs(agent.run(task="go on")))

    def test_is_an_answer_to_the_model(self, shop):
        bench = SagaWorkbench(Raises([shop.book]), tools={"book": read_only()})
        agent = shop.agent(SEAT, "done", workbench=bench)
        result = asyncio.run(sagas(shop, agent))
        assert result.messages[-1].content == "done"
        [answer] = result.messages[2].content
        assert (answer.content, answer.is_error) == ("the server is gone", True)


class TestAToolThatIsCancelledFromInside:
    @staticmethod
    def agent(shop):
        async def cancels(item: str) -> str:
            raise asyncio.CancelledError

        script = [SEAT, [call("cancels", "c2", item="room")], "done"]
        return shop.agent(*script, tools=[shop.book, tool(cancels)])

    def test_makes_the_bare_framework_wait_for_ever(self, shop):
        assert asyncio.run(hangs(self.agent(shop).run(task="go on")))

    def test_is_a_failure_that_the_model_is_told(self, shop):
        declared = {"book": compensable(shop.undo), "cancels": read_only()}
        agent = saga_agent(self.agent(shop), shop.kit, tools=declared)
        assert asyncio.run(sagas(shop, agent)).messages[-1].content == "done"
        shop.world.assert_stands("seat")

    def test_undoes_the_run_where_that_is_asked_for(self, shop):
        declared = {"book": compensable(shop.undo), "cancels": read_only()}
        agent = saga_agent(self.agent(shop), shop.kit, tools=declared)
        with pytest.raises(SagaAborted, match="was cancelled"):
            asyncio.run(sagas(shop, agent, on_tool_failure="rollback"))
        shop.world.assert_restored()


class Slow:
    """A tool that is held until it is released, and the token of the run that it is called in."""

    def __init__(self):
        self.token = CancellationToken()
        self.reached, self.released = threading.Event(), threading.Event()

    async def slow(self, item: str) -> str:
        """Wait on the loop."""
        self.reached.set()
        await asyncio.to_thread(self.released.wait)
        return item

    def still(self, item: str) -> str:
        """Wait in a thread."""
        self.reached.set()
        self.released.wait()
        return item

    async def cancelled(self, run):
        """Cancel a run's token while the tool runs; give the task of the run."""
        task = asyncio.ensure_future(run)
        await asyncio.to_thread(until, self.reached.is_set)
        self.token.cancel()
        self.released.set()
        return task


@pytest.mark.parametrize("kind", ["slow", "still"])
@pytest.mark.parametrize("team", [False, True], ids=["agent", "team"])
class TestATokenThatIsCancelledDuringATool:
    @staticmethod
    def agent(shop, slow, kind, team):
        calls = [call(kind, "c2", item="room")]
        tools = [shop.book, FunctionTool(getattr(slow, kind), description="Wait.")]
        agent = shop.agent(SEAT, calls, "done", tools=tools)
        return RoundRobinGroupChat([agent], max_turns=1) if team else agent

    def test_makes_the_bare_framework_wait_for_ever(self, shop, kind, team):
        slow = Slow()

        async def case():
            agent = self.agent(shop, slow, kind, team)
            run = agent.run(task="go on", cancellation_token=slow.token)
            return await hangs(await slow.cancelled(run))

        assert asyncio.run(case())

    def test_cancels_the_run_and_undoes_it(self, shop, kind, team):
        slow = Slow()
        declared = {"book": compensable(shop.undo), kind: read_only()}

        async def case():
            agent = saga_agent(self.agent(shop, slow, kind, team), shop.kit, tools=declared)
            run = sagas(shop, agent, cancellation_token=slow.token)
            with pytest.raises(asyncio.CancelledError):
                await (await slow.cancelled(run))

        asyncio.run(case())
        assert shop.world.undone() == ["seat"]
        shop.world.assert_restored()


def test_a_cancelled_task_leaves_a_tool_behind_in_the_bare_framework_alone(shop):
    slow = Slow()

    async def late(item: str) -> dict:
        """Wait, and book."""
        await slow.slow(item)
        return shop.do(item)

    def agent():
        return shop.agent([call("late", item="car")], "done", tools=[tool(late)])

    async def case(run):
        slow.reached.clear()
        slow.released.clear()
        task = asyncio.ensure_future(run)
        await asyncio.to_thread(until, slow.reached.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slow.released.set()
        await asyncio.to_thread(lambda: None)
        await settled()

    async def bare():
        await case(agent().run(task="go on"))
        while not shop.world.applications():
            await asyncio.sleep(0.001)

    asyncio.run(bare())
    shop.world.assert_stands("car")
    bounded = saga_agent(agent(), shop.kit, tools={"late": compensable(shop.undo)})
    asyncio.run(case(sagas(shop, bounded)))
    shop.world.assert_stands("car")


def test_a_synchronous_tool_sees_its_boundary_only_as_a_step(shop):
    seen = []

    def look(item: str) -> str:
        """Look."""
        seen.append(current_saga())
        return item

    script = [[call("look", item="seat")], "done"]

    async def bare():
        async with shop.kit.transaction():
            await shop.agent(*script, tools=[tool(look)]).run(task="go on")

    asyncio.run(bare())
    assert seen == [None]
    agent = saga_agent(
        shop.agent(*script, tools=[tool(look)]), shop.kit, tools={"look": read_only()}
    )
    asyncio.run(sagas(shop, agent))
    assert seen[1] is not None


class TestARuntimeThatWasStartedBefore:
    """The core's own pattern: an agent of the runtime calls tools for a model."""

    @staticmethod
    async def loop(runtime, tools, *script):
        return await tool_agent_caller_loop(
            runtime,
            AgentId("tools", "default"),
            Scripted(*script),
            [UserMessage(content="go on", source="user")],
            tools,
        )

    @staticmethod
    async def runtime(tools):
        runtime = SingleThreadedAgentRuntime()
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("tools", tools))
        runtime.start()
        return runtime

    def test_calls_tools_outside_the_boundary_unless_they_are_bound(self, shop):
        book = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        async def case(*bound):
            runtime = await self.runtime([book])
            try:
                async with shop.kit.transaction():
                    with bind(*bound):
                        await self.loop(runtime, [book], SEAT, "done")
                    raise OSError("the program fails")
            finally:
                await runtime.stop()

        with pytest.raises(SagaAborted):
            asyncio.run(case())
        shop.world.assert_stands("seat")  # called where no boundary is seen
        with pytest.raises(SagaAborted):
            asyncio.run(case(book))
        assert shop.world.undone() == ["seat"]
        shop.world.assert_stands("seat")

    def test_is_refused_by_a_boundary_that_has_ended(self, shop):
        book = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        async def case():
            async with shop.kit.transaction():
                with bind(book):
                    pass
            with pytest.raises(SagaClosed):
                await book.run_json({"item": "late"}, CancellationToken())
            async with shop.kit.transaction():
                await book.run_json({"item": "seat"}, CancellationToken())

        asyncio.run(case())
        shop.world.assert_applied_once("seat")


def test_two_agents_of_a_team_that_use_the_same_call_id_make_two_calls(shop):
    one, other = shop.agent(SEAT, "so", name="A"), shop.agent(SEAT, "done", name="B")
    team = saga_agent(RoundRobinGroupChat([one, other], max_turns=2), shop.kit, tools=shop.declared)
    asyncio.run(sagas(shop, team))
    shop.world.assert_stands("seat", "seat")


@pytest.mark.parametrize("with_saga", [False, True])
def test_a_call_id_that_a_model_uses_again_is_another_call(shop, with_saga):
    """AutoGen makes both; the id alone would make one of them the answer of the other."""
    script = [[call("book", "c1", item="seat")], [call("book", "c1", item="seat")], "done"]
    agent = shop.agent(*script)
    if with_saga:
        asyncio.run(sagas(shop, saga_agent(agent, shop.kit, tools=shop.declared)))
    else:
        asyncio.run(agent.run(task="go on"))
    shop.world.assert_stands("seat", "seat")


def test_a_failed_tool_is_a_success_to_the_bare_framework_and_ends_a_saga(shop):
    result = asyncio.run(shop.agent(SEAT, FAILS, "done").run(task="go on"))
    assert result.messages[-1].content == "done"
    shop.world.assert_stands("seat")
    agent = saga_agent(shop.agent([call("book", item="car")], FAILS, "done"), tools=shop.declared)
    with pytest.raises(SagaAborted, match="no such item") as failed:
        asyncio.run(sagas(shop, agent, on_tool_failure="rollback"))
    assert isinstance(failed.value.cause, RuntimeError)
    shop.world.assert_stands("seat")


def test_a_team_hides_what_an_agent_raised_and_a_saga_does_not(shop):
    class Down(Exception):
        pass

    async def case():
        with pytest.raises(RuntimeError, match="Down: the model"):
            await RoundRobinGroupChat([shop.agent(Down("the model"))]).run(task="go on")
        team = RoundRobinGroupChat([shop.agent(SEAT, Down("the model"))])
        with pytest.raises(SagaAborted) as failed:
            await sagas(shop, saga_agent(team, tools=shop.declared))
        assert isinstance(failed.value.cause, Down)

    asyncio.run(case())
    shop.world.assert_restored()


class TestAHandoffWithArgumentsThatAreNone:
    """A model wrote a list where an object belongs."""

    @staticmethod
    def agent(shop):
        odd = [FunctionCall(id="h1", name="transfer_to_b", arguments="[1]")]
        return shop.agent(odd, handoffs=["B"])

    def test_makes_the_bare_framework_wait_for_ever(self, shop):
        assert asyncio.run(hangs(self.agent(shop).run(task="go on")))

    def test_hands_over(self, shop):
        team = Swarm([self.agent(shop), shop.agent(SEAT, "done", name="B")], max_turns=2)
        team = saga_agent(team, tools=shop.declared)
        assert asyncio.run(sagas(shop, team)).messages[-1].content == "done"
        shop.world.assert_applied_once("seat")


class TestATeamWhoseModelIsCancelledFromInside:
    def test_waits_for_ever_by_itself(self, shop):
        team = RoundRobinGroupChat([shop.agent(asyncio.CancelledError())])
        assert asyncio.run(hangs(team.run(task="go on")))

    def test_fails_and_is_undone(self, shop):
        team = RoundRobinGroupChat([shop.agent(SEAT, asyncio.CancelledError())])
        with pytest.raises(SagaAborted, match="A was cancelled"):
            asyncio.run(sagas(shop, saga_agent(team, tools=shop.declared)))
        shop.world.assert_restored()


class TestAToolThatRaisesWhatIsNoException:
    class Left(BaseException):
        pass

    def agent(self, shop):
        async def leaves(item: str) -> str:
            raise self.Left("away")

        script = [SEAT, [call("leaves", item="room")], "done"]
        return shop.agent(*script, tools=[shop.book, tool(leaves)])

    def test_makes_the_bare_framework_wait_for_ever(self, shop):
        assert asyncio.run(hangs(self.agent(shop).run(task="go on")))

    def test_ends_the_run_and_undoes_it(self, shop):
        declared = {"book": compensable(shop.undo), "leaves": read_only()}
        agent = saga_agent(self.agent(shop), shop.kit, tools=declared)
        with pytest.raises(SagaAborted, match="leaves raised Left: away"):
            asyncio.run(sagas(shop, agent))
        shop.world.assert_restored()


class TestATeamWhoseRunIsStopped:
    def test_ends_before_another_model_is_asked_and_can_be_used_again(self, shop):
        first = shop.agent(SEAT, FAILS, [call("book", item="car")], "fine", name="A")
        second = shop.agent([call("book", item="boat")], "done", name="B")
        ends = MaxMessageTermination(40)
        team = RoundRobinGroupChat([first, second], termination_condition=ends, max_turns=2)
        team = saga_agent(team, shop.kit, tools=shop.declared, on_tool_failure="rollback")

        async def case():
            with pytest.raises(SagaAborted):
                await sagas(shop, team)
            shop.world.assert_restored()
            result = await sagas(shop, team)
            assert last_report().outcome == "COMMITTED"
            return result

        result = asyncio.run(case())
        assert result.messages[-1].content in ("done", "fine")
        shop.world.assert_stands("boat", "car")
