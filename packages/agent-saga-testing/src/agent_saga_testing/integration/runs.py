"""Cases of one run: success, failure, refusal, retries, cancellation, threads, streams."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from agent_saga import (
    Approval,
    ApprovalRequest,
    Halted,
    NotApplied,
    PreFlightGate,
    Rule,
    SagaAborted,
    tool_is,
)
from agent_saga_testing.integration.bench import Bench, IntegrationCases
from agent_saga_testing.integration.driver import Call, CaseTool, Turn
from agent_saga_testing.integration.elsewhere import book
from agent_saga_testing.waiting import until

__all__ = ["RunCases"]

FAILS = [Call("look_up", {"item": "nothing"})]


class Human:
    """Approves everything, or nothing; counts the questions."""

    def __init__(self, *, approves: bool) -> None:
        self.approves = approves
        self.asked: list[str] = []

    def ask(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request.tool)
        return Approval(approved=self.approves, by="ann")


def _run_on_a_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as `asyncio.run` does, but cancel nothing that is left behind."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class RunCases(IntegrationCases):
    """What every framework package must do within one run."""

    def test_what_a_tool_did_is_kept_when_the_run_succeeds(self, bench: Bench) -> None:
        reserve: Turn = [Call("reserve", {"item": "room"})]
        ended = bench.run(bench.agent([book("seat"), reserve, "done"]))
        assert ended == ("done", False)
        bench.world.assert_applied_once("seat", "room")

    def test_a_run_without_an_event_loop_is_a_boundary_too(self, bench: Bench) -> None:
        assert bench.driver.run_sync(bench.agent([book("seat"), "done"])).text == "done"
        bench.world.assert_applied_once("seat")
        with pytest.raises(SagaAborted):
            bench.driver.run_sync(bench.agent([book("room"), ValueError("the model is down")]))
        bench.world.assert_stands("seat")

    def test_a_run_that_fails_after_effects_is_undone_last_first(self, bench: Bench) -> None:
        agent = bench.agent([book("seat"), book("room"), ValueError("the model is down")])
        with pytest.raises(SagaAborted) as failed:
            bench.run(agent)
        assert failed.value.report.clean
        assert bench.world.undone() == ["room", "seat"]
        bench.world.assert_restored()

    def test_a_tool_error_that_nobody_handles_undoes_the_run(self, bench: Bench) -> None:
        with pytest.raises(SagaAborted):
            bench.run(bench.agent([book("seat"), FAILS, "done"]))
        bench.world.assert_restored()

    def test_a_tool_error_that_the_model_is_shown_is_no_failure(self, bench: Bench) -> None:
        ended = bench.run(bench.agent([book("seat"), FAILS, "done"], shows_errors=True))
        assert ended.text == "done"
        bench.world.assert_applied_once("seat")

    def test_a_tool_error_undoes_the_run_where_that_is_asked_for(self, bench: Bench) -> None:
        agent = bench.agent(
            [book("seat"), FAILS, book("room"), "done"],
            shows_errors=True,
            on_tool_failure="rollback",
        )
        with pytest.raises(SagaAborted) as failed:
            bench.run(agent)
        assert isinstance(failed.value.cause, RuntimeError)
        assert [call.name for call in bench.world.calls("forward")] == ["seat"]
        bench.world.assert_restored()

    @pytest.mark.parametrize(
        ("ending", "tool"), [(SystemExit, "quits"), (KeyboardInterrupt, "quits_later")]
    )
    def test_a_tool_that_ends_the_program_undoes_the_run_first(
        self, bench: Bench, ending: type[BaseException], tool: str
    ) -> None:
        made: CaseTool = getattr(bench.tools, tool)(ending)
        calls = [Call(tool, {"item": "all"}), *book("room")]
        script: list[Turn] = [book("seat"), calls, book("car"), "done"]

        def agent() -> Any:
            return bench.agent(script, bench.tools.book(), made, shows_errors=True)

        async def streamed() -> None:
            async for _ in bench.driver.stream(agent()):
                pass

        async def ran() -> None:
            await bench.driver.run(agent())

        for run in (ran, streamed):
            with pytest.raises(ending, match="all"):
                _run_on_a_loop(run())
            bench.world.assert_restored()
            assert not bench.world.calls("forward", "car")
        if tool == "quits":
            with pytest.raises(ending, match="all"):
                bench.driver.run_sync(agent())
            bench.world.assert_restored()

    def test_parallel_calls_are_undone_when_one_fails(self, bench: Bench) -> None:
        calls = [*book("seat"), Call("reserve", {"item": "room"}), *FAILS, *book("car")]
        with pytest.raises(SagaAborted):
            bench.run(bench.agent([calls, "done"]))
        bench.world.assert_restored()

    def test_a_synchronous_tool_in_flight_is_waited_for_and_undone(self, bench: Bench) -> None:
        tool = bench.tools.held_book()
        agent = bench.agent(
            [book("room"), [Call(tool.name, {"item": "seat"})], "done"], bench.tools.book(), tool
        )

        async def case() -> None:
            task = asyncio.ensure_future(bench.driver.run(agent))
            await asyncio.to_thread(until, bench.tools.reached.is_set)
            task.cancel()
            bench.tools.released.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(case())
        bench.world.assert_restored()

    def test_an_asynchronous_tool_in_flight_is_cancelled_and_the_rest_undone(
        self, bench: Bench
    ) -> None:
        tool = bench.tools.held_reserve()
        agent = bench.agent(
            [book("room"), [Call(tool.name, {"item": "seat"})], "done"], bench.tools.book(), tool
        )

        async def case() -> None:
            task = asyncio.ensure_future(bench.driver.run(agent))
            await asyncio.to_thread(until, bench.tools.reached.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(case())
        assert [call.name for call in bench.world.calls("forward")] == ["room"]
        bench.world.assert_restored()

    def test_a_framework_that_runs_a_tool_again_repeats_no_effect(self, bench: Bench) -> None:
        bench.world.fail_before(1, error=NotApplied)
        agent = bench.agent([book("seat"), book("room"), "done"], tool_retries=2)
        assert bench.run(agent).text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_lost_answer_is_not_asked_for_again_by_the_framework(self, bench: Bench) -> None:
        bench.world.lose_answers(1)
        with pytest.raises(SagaAborted) as failed:
            bench.run(bench.agent([book("seat"), "done"], tool_retries=2))
        assert not failed.value.report.clean
        assert bench.world.attempts() == 1

    def test_a_call_that_was_given_up_and_goes_on_is_not_made_again(self, bench: Bench) -> None:
        tools = bench.tools.held_book(timeout=0.05), bench.tools.releases()
        again: Turn = [Call("held_book", {"item": "seat"})]
        script: list[Turn] = [again, again, [Call("releases", {"item": "seat"})], "done"]
        try:
            bench.run(bench.agent(script, *tools, shows_errors=True))
        finally:
            bench.tools.released.set()
        assert bench.world.attempts() == 1

    def test_a_model_that_is_asked_again_repeats_no_effect(self, bench: Bench) -> None:
        script: list[Turn] = [
            book("seat"),
            ConnectionError("the model is down"),
            book("room"),
            "done",
        ]
        assert bench.run(bench.agent(script, model_retries=2)).text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_model_that_calls_again_what_it_lost_has_no_second_effect(self, bench: Bench) -> None:
        bench.world.lose_answers(1)
        script: list[Turn] = [book("seat"), book("seat"), book("seat"), "done"]
        bench.run(bench.agent(script, shows_errors=True))
        assert bench.world.attempts() == 1

    def test_equal_calls_that_both_succeed_are_two(self, bench: Bench) -> None:
        assert bench.run(bench.agent([book("seat"), book("seat"), "done"])).text == "done"
        bench.world.assert_stands("seat", "seat")

    def test_a_call_id_that_is_used_in_two_turns_means_two_calls(self, bench: Bench) -> None:
        call = Call("book", {"item": "seat"}, "call_0")
        assert bench.run(bench.agent([[call], [call], "done"])).text == "done"
        bench.world.assert_stands("seat", "seat")

    def test_a_call_that_stands_twice_in_one_turn_is_one(self, bench: Bench) -> None:
        call = Call("book", {"item": "seat"}, "call_0")
        assert bench.run(bench.agent([[call, call], "done"])).text == "done"
        assert bench.world.applications() == 1

    @pytest.mark.parametrize("id_", ["call_0", ""])
    def test_equal_calls_of_two_runs_in_one_boundary_are_two(self, bench: Bench, id_: str) -> None:
        call = Call("book", {"item": "seat"}, id_)

        async def case() -> None:
            async with bench.driver.kit().transaction():
                for _ in range(2):
                    await bench.driver.run(bench.agent([[call], "done"]))

        asyncio.run(case())
        bench.world.assert_stands("seat", "seat")

    def test_what_a_human_grants_runs_once(self, bench: Bench) -> None:
        human = Human(approves=True)
        gate = PreFlightGate(approval_provider=human)
        wire: Turn = [Call("wire", {"item": "money"})]
        assert bench.run(bench.agent([wire, "done"], bench.tools.wire(), gate=gate)).text == "done"
        assert human.asked == ["wire"]
        bench.world.assert_applied_once("money")

    def test_what_a_human_denies_does_not_run_and_the_model_goes_on(self, bench: Bench) -> None:
        gate = PreFlightGate(approval_provider=Human(approves=False))
        tools = bench.tools.wire(), bench.tools.book()
        script: list[Turn] = [[Call("wire", {"item": "money"})], book("seat"), "done"]
        assert bench.run(bench.agent(script, *tools, gate=gate)).text == "done"
        bench.world.assert_applied_once("seat")

    def test_what_a_rule_refuses_does_not_run_and_the_model_goes_on(self, bench: Bench) -> None:
        gate = PreFlightGate(rules=[Rule("no-rooms", tool_is("reserve"), reason="none are left")])
        script: list[Turn] = [[Call("reserve", {"item": "room"})], book("seat"), "done"]
        agent = bench.agent(script, gate=gate, on_tool_failure="rollback")
        assert bench.run(agent).text == "done"
        bench.world.assert_applied_once("seat")

    def test_a_halt_during_parallel_calls_lets_no_further_effect_begin(self, bench: Bench) -> None:
        halts = Call("halts", {"item": "fraud"})
        parallel: Turn = [*book("seat"), halts, *book("room", "car", "boat")]
        tools = bench.tools.book(), bench.tools.halts()
        agent = bench.agent([parallel, book("late"), "done"], *tools, shows_errors=True)
        with pytest.raises(SagaAborted) as failed:
            bench.run(agent)
        assert isinstance(failed.value.cause, Halted)
        assert not bench.world.calls("forward", "late")
        bench.world.assert_restored()

    def test_a_finished_run_that_is_run_again_under_its_key_repeats_no_effect(
        self, bench: Bench
    ) -> None:
        for _ in range(2):
            agent = bench.agent([book("seat"), book("room"), "done"], key="order-17")
            assert bench.run(agent).text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_storm_of_retries_of_everybody_has_one_effect(self, bench: Bench) -> None:
        bench.world.lose_answers(1)
        storm: list[Turn] = [book("seat")] * 6
        agent = bench.agent([*storm, "done"], shows_errors=True, tool_retries=3, model_retries=3)
        with contextlib.suppress(SagaAborted):
            bench.run(agent)
        assert bench.world.attempts() == 1

    def test_tools_in_threads_are_in_the_saga_of_their_run(self, bench: Bench) -> None:
        calls = [Call("notes_saga", {"item": str(number)}) for number in range(4)]
        tool = bench.tools.notes_saga()
        bench.run(bench.agent([calls, "done"], tool))
        assert len(bench.tools.sagas) == 1
        assert "" not in bench.tools.sagas
        bench.driver.run_sync(bench.agent([calls, "done"], tool))
        assert len(bench.tools.sagas) == 2

    def test_a_failure_undoes_what_a_nested_agent_did(self, bench: Bench) -> None:
        inner = bench.agent([book("seat"), "done"])
        tool = CaseTool("delegate", bench.driver.nested(inner))
        script: list[Turn] = [[Call("delegate", {"item": "seat"})], ValueError("the model is down")]
        with pytest.raises(SagaAborted):
            bench.run(bench.agent(script, tool))
        bench.world.assert_restored()

    def test_a_nested_agent_that_fails_is_undone_and_the_run_goes_on(self, bench: Bench) -> None:
        inner = bench.agent([book("seat"), ValueError("the inner model is down")])
        tool = CaseTool("delegate", bench.driver.nested(inner))
        script: list[Turn] = [book("room"), [Call("delegate", {"item": "seat"})], "done"]
        agent = bench.agent(script, tool, bench.tools.book(), shows_errors=True)
        assert bench.run(agent).text == "done"
        bench.world.assert_stands("room")
        assert bench.world.undone() == ["seat"]

    def test_a_stream_that_is_taken_to_its_end_is_kept(self, bench: Bench) -> None:
        async def case() -> None:
            async for _ in bench.driver.stream(bench.agent([book("seat"), "done"])):
                pass

        asyncio.run(case())
        bench.world.assert_applied_once("seat")

    def test_a_stream_that_is_closed_early_is_undone(self, bench: Bench) -> None:
        async def case() -> None:
            items = bench.driver.stream(bench.agent([book("seat"), book("room"), "done"]))
            async for _ in items:
                if bench.world.applications():
                    break
            await items.aclose()  # type: ignore[attr-defined]

        asyncio.run(case())
        assert bench.world.applications() == 1
        bench.world.assert_restored()
