"""Agents that lead to agents, streams, and the ways in which runs fail: bare, and as sagas."""

from __future__ import annotations

import asyncio
import time

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    Runner,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from scripted import Scripted, call

from agent_saga import ConfigurationError, FileSwitchStore, Halted, KillSwitch, SagaAborted
from agent_saga.errors import UndeclaredTool
from agent_saga_openai_agents import (
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
    seams,
    wrap_tool,
)
from agent_saga_testing.waiting import until


def agent_of(shop, script, tools=None, **options):
    given = [shop.book, shop.fails] if tools is None else tools
    return Agent(name="A", model=Scripted(script), tools=given, **options)


def book(item, name=""):
    return [call("book", name, item=item)]


def run_bare(agent, **options):
    return asyncio.run(Runner.run(agent, "go on", **options))


def run(shop, agent, tools=None, **options):
    how = {k: options.pop(k) for k in ("on_tool_failure",) if k in options}
    bounded = saga_agent(agent, shop.kit, tools=tools or shop.declared, **how)

    async def case():
        result = await saga_run(bounded, "go on", **options)
        shop.report = last_report()
        return result

    return asyncio.run(case())


def other_book(item: str) -> dict:
    """Tell of a booking."""
    return {"id": item}


class TestToolsOfOneName:
    """A declaration by name is for one tool."""

    def test_are_refused_where_they_differ(self, shop):
        second = agent_of(shop, [], [function_tool(other_book, name_override="book")])
        first = agent_of(shop, [], [shop.book], handoffs=[second])
        with pytest.raises(ConfigurationError, match="Two different tools are named book"):
            saga_agent(first, shop.kit, tools={"book": read_only()})

    def test_are_one_where_they_call_one_function(self, shop):
        again = function_tool(shop.do, name_override="book")
        first = agent_of(shop, [], [shop.book], handoffs=[agent_of(shop, [], [shop.book, again])])
        assert saga_agent(first, shop.kit, tools={"book": shop.declared["book"]})

    def test_may_differ_where_each_is_wrapped_by_itself(self, shop):
        other = wrap_tool(
            function_tool(other_book, name_override="book"), semantics="REVERSIBLE", name="other"
        )
        second = agent_of(shop, [[call("book", item="seat")], "done"], [other])
        first = agent_of(shop, [], [shop.book], handoffs=[second])
        bounded = saga_agent(first, shop.kit, tools={"book": shop.declared["book"]})
        assert bounded.handoffs[0].tools == [other]

    def test_that_come_later_are_refused_too(self, shop):
        agent = agent_of(shop, [book("seat"), "done"], [shop.book])
        bounded = saga_agent(agent, shop.kit, tools={"book": shop.declared["book"]})
        bounded.tools = [function_tool(other_book, name_override="book")]
        with pytest.raises(SagaAborted) as failed:
            asyncio.run(saga_run(bounded, "go on"))
        assert isinstance(failed.value.cause, ConfigurationError)
        assert shop.world.calls() == []


class TestFailures:
    """Each leaves its effects behind in the bare framework, and none in a saga."""

    def test_a_failing_model(self, shop):
        script = [book("seat"), OSError("down")]
        with pytest.raises(OSError, match="down"):
            run_bare(agent_of(shop, script))
        shop.world.assert_stands("seat")
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent_of(shop, [book("room"), OSError("down")]))
        assert isinstance(failed.value.cause, OSError)
        shop.world.assert_stands("seat")

    def test_the_limit_of_turns(self, shop):
        script = [book("seat", "c1"), book("room", "c2"), book("car", "c3")]
        with pytest.raises(MaxTurnsExceeded):
            run_bare(agent_of(shop, script), max_turns=2)
        assert shop.world.applications() == 2
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent_of(shop, script), max_turns=2)
        assert isinstance(failed.value.cause, MaxTurnsExceeded)
        assert shop.world.undone() == ["room", "seat"]

    def test_an_output_guardrail(self, shop):
        @output_guardrail
        async def never(ctx, agent, output):
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

        def made():
            return agent_of(shop, [book("seat"), "done"], output_guardrails=[never])

        with pytest.raises(OutputGuardrailTripwireTriggered):
            run_bare(made())
        shop.world.assert_stands("seat")
        with pytest.raises(SagaAborted) as failed:
            run(shop, made())
        assert isinstance(failed.value.cause, OutputGuardrailTripwireTriggered)
        shop.world.assert_stands("seat")

    def test_an_input_guardrail_that_is_slower_than_a_tool(self, shop):
        @input_guardrail
        async def slow(ctx, agent, given):
            before = shop.world.applications()
            while shop.world.applications() == before:
                await asyncio.sleep(0.002)
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

        def made():
            return agent_of(shop, [book("seat"), "done"], input_guardrails=[slow])

        with pytest.raises(InputGuardrailTripwireTriggered):
            run_bare(made())
        shop.world.assert_stands("seat")
        with pytest.raises(SagaAborted) as failed:
            run(shop, made())
        assert isinstance(failed.value.cause, InputGuardrailTripwireTriggered)
        shop.world.assert_stands("seat")

    def test_a_swallowed_tool_error_is_no_success_in_the_log(self, shop):
        shop.world.lose_answers(1)
        result = run(shop, agent_of(shop, [book("seat"), "done"]))
        assert result.final_output == "done"
        assert not shop.report.clean
        assert [line.tool for line in shop.report.unsettled] == ["book"]

    def test_an_agent_does_not_repeat_what_the_program_does_not_know_the_end_of(self, shop):
        own = shop.kit.safe_tool(shop.do, "COMPENSABLE", name="book", compensate=shop.undo)
        shop.world.lose_answers(1)
        with pytest.raises(SagaAborted), shop.kit.transaction():
            with pytest.raises(ConnectionError):
                own(item="seat")
            saga_run_sync(
                saga_agent(agent_of(shop, [book("seat"), "done"]), shop.kit, tools=shop.declared),
                "go on",
            )
            raise RuntimeError("the program fails")
        assert shop.world.attempts() == 1

    def test_a_timeout_is_an_unknown_outcome(self, shop):
        began = []

        @function_tool(timeout=0.5)
        async def slow(item: str) -> str:
            """Be slow."""
            began.append(item)
            await asyncio.sleep(30)
            return item

        script = [[call("slow", item="seat")], "done"]
        tools = {"slow": shop.declared["book"]}
        assert run(shop, agent_of(shop, script, [slow]), tools).final_output == "done"
        assert shop.report.clean is not bool(began)
        began.clear()
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent_of(shop, script, [slow]), tools, on_tool_failure="rollback")
        assert isinstance(failed.value.cause, TimeoutError)
        assert failed.value.report.clean is not bool(began)

    def test_a_thread_that_goes_on_after_a_failure_is_waited_for(self, shop):
        @function_tool
        def slow(item: str) -> dict:
            """Be slow, in a thread."""
            time.sleep(0.3)
            return shop.world.do(item)

        @function_tool(failure_error_function=None)
        async def raises(item: str) -> str:
            """Fail."""
            raise RuntimeError("no")

        calls = [call("slow", item="seat"), call("raises", item="seat")]
        tools = {"slow": shop.declared["book"], "raises": read_only()}
        with pytest.raises(Exception, match="no"):
            run_bare(agent_of(shop, [calls, "done"], [slow, raises]))
        until(lambda: shop.world.applications() == 1)
        shop.world.assert_stands("seat")
        with pytest.raises(SagaAborted) as failed:
            run(shop, agent_of(shop, [calls, "done"], [slow, raises]), tools)
        assert failed.value.report.clean
        shop.world.assert_stands("seat")


class TestAgentsThatAreTools:
    def nest(self, shop, inner, after):
        made = agent_of(shop, inner)
        given = [call("ask_inner", "outer", input="q")]
        return agent_of(shop, [given, *after], [made.as_tool("ask_inner", "Ask.")])

    def test_what_the_inner_one_did_is_undone_with_the_run(self, shop):
        outer = self.nest(shop, [book("seat"), "inner done"], [OSError("down")])
        with pytest.raises(SagaAborted):
            run(shop, outer)
        shop.world.assert_restored()

    def test_an_inner_failure_that_is_text_in_the_framework_is_undone_first(self, shop):
        inner = [book("seat"), OSError("down")]
        assert run_bare(self.nest(shop, inner, ["done"])).final_output == "done"
        shop.world.assert_stands("seat")
        assert run(shop, self.nest(shop, [book("room"), OSError("down")], ["done"])).final_output
        shop.world.assert_stands("seat")
        assert shop.world.undone() == ["room"]

    def test_an_inner_failure_undoes_the_run_where_that_is_asked_for(self, shop):
        outer = self.nest(shop, [book("seat"), OSError("down")], ["done"])
        with pytest.raises(SagaAborted) as failed:
            run(shop, outer, on_tool_failure="rollback")
        assert isinstance(failed.value.cause, OSError)
        shop.world.assert_restored()

    def test_the_agent_that_was_given_stays_as_it_is(self, shop):
        outer = self.nest(shop, [book("seat"), "inner done"], ["done"])
        before = list(outer.tools)
        bounded = saga_agent(outer, shop.kit, tools=shop.declared)
        assert outer.tools == before
        assert bounded.tools != before
        assert type(bounded).__name__ == "Agent"
        assert isinstance(bounded, Agent)

    def test_an_inner_agent_under_care_is_used_as_it_is(self, shop):
        inner = saga_agent(agent_of(shop, [book("seat"), "in"]), shop.kit, tools=shop.declared)
        given = [call("ask_inner", "outer", input="q")]
        outer = agent_of(shop, [given, OSError()], [inner.as_tool("ask_inner", "Ask.")])
        with pytest.raises(SagaAborted):
            asyncio.run(saga_run(saga_agent(outer, shop.kit), "go on"))
        shop.world.assert_restored()


class TestHandoffs:
    def pair(self, shop, how, after):
        other = Agent(name="B", model=Scripted([book("room"), *after]), tools=[shop.book])
        first = agent_of(shop, [book("seat"), [call("transfer_to_b", "h1")]], handoffs=[how(other)])
        other.handoffs = [first]
        return first

    @pytest.mark.parametrize("how", [lambda agent: agent, handoff], ids=["agent", "handoff"])
    def test_the_agent_that_is_handed_to_is_under_care(self, shop, how):
        result = run(shop, self.pair(shop, how, ["done"]))
        assert (result.final_output, result.last_agent.name) == ("done", "B")
        shop.world.assert_applied_once("seat", "room")
        with pytest.raises(SagaAborted):
            run(shop, self.pair(shop, how, [OSError()]))
        shop.world.assert_stands("seat", "room")

    def test_an_undeclared_tool_of_it_is_named_before_the_run(self, shop):
        other = Agent(name="B", tools=[function_tool(lambda item: item, name_override="secret")])
        with pytest.raises(UndeclaredTool, match="secret"):
            saga_agent(agent_of(shop, [], handoffs=[other]), shop.kit, tools=shop.declared)

    def test_an_agent_that_shows_only_in_the_run_is_put_under_care_then(self, shop):
        other = Agent(name="B", model=Scripted([book("room"), OSError()]), tools=[shop.book])
        made = handoff(other)
        made._agent_ref = None
        first = agent_of(shop, [[call("transfer_to_b", "h1")]], [], handoffs=[made])
        with pytest.raises(SagaAborted):
            run(shop, first, {"book": shop.declared["book"]})
        shop.world.assert_restored()


class TestRuns:
    def test_a_halt_leaves_a_run_inside_a_tool_and_the_run_outside(self, shop):
        inner = saga_agent(agent_of(shop, [book("seat"), "in"]), shop.kit, tools=shop.declared)

        @function_tool
        async def delegate(item: str) -> str:
            """Halt, and let another agent do it."""
            switch = KillSwitch(FileSwitchStore(shop.folder / "log"))
            switch.halt("*", reason="fraud", by="soc")
            return str((await saga_run(inner, "go on")).final_output)

        outer = agent_of(shop, [[call("delegate", item="x")], "done"], [delegate])
        with pytest.raises(SagaAborted) as failed:
            run(shop, outer, {"delegate": read_only()})
        assert isinstance(failed.value.cause, Halted)
        shop.world.assert_untouched()

    def test_a_clone_of_the_clone_is_under_care(self, shop):
        bounded = saga_agent(agent_of(shop, []), shop.kit, tools=shop.declared)
        again = bounded.clone(model=Scripted([book("seat"), OSError()]))
        with pytest.raises(SagaAborted):
            asyncio.run(saga_run(again, "go on"))
        shop.world.assert_restored()

    def test_the_callers_own_filter_is_asked_too(self, shop):
        seen = []

        def filtered(data):
            seen.append(data.agent.name)
            return data.model_data

        from agents import RunConfig

        agent = agent_of(shop, [book("seat"), "done"])
        run(shop, agent, run_config=RunConfig(call_model_input_filter=filtered))
        assert seen == ["A", "A"]

    def test_a_run_without_a_loop_can_be_made_twice(self, shop):
        bounded = saga_agent(
            agent_of(shop, [book("seat"), "done", book("room"), "done"]),
            shop.kit,
            tools=shop.declared,
        )
        for _ in range(2):
            assert saga_run_sync(bounded, "go on").final_output == "done"
        assert last_report().outcome == "COMMITTED"
        shop.world.assert_applied_once("seat", "room")

    def test_a_run_without_a_loop_is_refused_inside_one(self, shop):
        bounded = saga_agent(agent_of(shop, ["done"]), shop.kit, tools=shop.declared)

        async def inside():
            saga_run_sync(bounded, "go on")

        with pytest.raises(ConfigurationError, match="event loop is running"):
            asyncio.run(inside())

    def test_a_stream_without_a_loop(self, shop):
        def bounded(script):
            return saga_agent(agent_of(shop, script), shop.kit, tools=shop.declared)

        events = list(saga_stream_sync(bounded([book("seat"), "done"]), "go on"))
        assert any(getattr(event, "name", "") == "tool_output" for event in events)
        items = saga_stream_sync(bounded([book("room"), book("car"), "done"]), "go on")
        for event in items:
            if getattr(event, "name", "") == "tool_output":
                break
        items.close()
        shop.world.assert_stands("seat")
        assert shop.world.applications() == 2

    @pytest.mark.parametrize("known", [True, False])
    def test_a_stream_that_is_cancelled_is_undone(self, shop, known, monkeypatch):
        if not known:
            monkeypatch.setattr(seams, "_CANCELLED", "gone")

        async def case():
            agent = saga_agent(
                agent_of(shop, [book("seat"), book("room"), "done"]),
                shop.kit,
                tools=shop.declared,
            )
            stream = saga_stream(agent, "go on")
            async for event in stream:
                if getattr(event, "name", "") == "tool_output":
                    stream.result.cancel()

        with pytest.raises(SagaAborted, match="the stream was cancelled"):
            asyncio.run(case())
        assert not shop.world.calls("forward", "room")
        shop.world.assert_restored()

    def test_a_stream_that_is_stopped_after_its_turn_is_kept(self, shop):
        async def case():
            agent = saga_agent(
                agent_of(shop, [book("seat"), book("room"), "done"]),
                shop.kit,
                tools=shop.declared,
            )
            stream = saga_stream(agent, "go on")
            async for event in stream:
                if getattr(event, "name", "") == "tool_called":
                    stream.result.cancel("after_turn")

        asyncio.run(case())
        shop.world.assert_applied_once("seat")

    def test_a_stream_has_the_frameworks_result(self, shop):
        async def case():
            agent = saga_agent(
                agent_of(shop, [book("seat"), "done"]), shop.kit, tools=shop.declared
            )
            stream = saga_stream(agent, "go on")
            assert stream.result is None
            async for _ in stream:
                pass
            return stream.result.final_output

        assert asyncio.run(case()) == "done"

    def test_a_bare_stream_that_is_left_goes_on_and_one_as_a_saga_does_not(self, shop):
        def slow(script):
            return agent_of(shop, script)

        async def bare():
            result = Runner.run_streamed(slow([book("seat"), book("room"), "done"]), "go on")
            async for event in result.stream_events():
                if getattr(event, "name", "") == "tool_output":
                    break
            while shop.world.applications() < 2:
                await asyncio.sleep(0.002)

        asyncio.run(bare())
        shop.world.assert_stands("seat", "room")

        async def guarded():
            agent = saga_agent(
                slow([book("car"), book("boat"), "done"]), shop.kit, tools=shop.declared
            )
            stream = saga_stream(agent, "go on")
            async for event in stream:
                if getattr(event, "name", "") == "tool_output":
                    break
            await stream.aclose()

        asyncio.run(guarded())
        shop.world.assert_stands("seat", "room")
        assert not shop.world.calls("forward", "boat")
