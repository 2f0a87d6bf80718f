"""Cases of runs that wait, die, and are gone on with."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import contextlib

import pytest

from agent_saga import SagaAborted
from agent_saga.errors import AgentSagaError
from agent_saga_testing.integration.bench import Bench, IntegrationCases
from agent_saga_testing.integration.driver import Call, Turn
from agent_saga_testing.integration.elsewhere import book, run_and_die, run_elsewhere

__all__ = ["ResumeCases"]

ASKS = Call("ask", {"question": "shall I?"}, "ask_1")
SEAT = Call("book", {"item": "seat"}, "book_1")
DIES = [Call("dies_once", {"item": "now"}, "dies_1")]
WAITS: list[Turn] = [[SEAT, ASKS]]
ENDS: list[Turn] = ["done", "done"]
"""What a model says when its run is gone on with: a run that was cut short may ask it twice."""


class ResumeCases(IntegrationCases):
    """What every framework package must do when a run is interrupted."""

    def test_a_run_that_waits_is_neither_kept_nor_undone(self, bench: Bench) -> None:
        assert bench.run(bench.resumable(WAITS)).waits
        bench.world.assert_applied_once("seat")
        bench.recover()
        bench.world.assert_applied_once("seat")

    def test_a_resumed_run_repeats_no_effect(self, bench: Bench) -> None:
        agent = bench.resumable([*WAITS, book("room"), "done"])
        assert bench.run(agent).waits
        assert bench.resume(agent, "yes") == ("done", False)
        bench.world.assert_applied_once("seat", "room")

    def test_a_resumed_run_that_fails_undoes_what_it_did_before(self, bench: Bench) -> None:
        agent = bench.resumable([*WAITS, book("room"), ValueError("the model is down")])
        assert bench.run(agent).waits
        with pytest.raises(SagaAborted):
            bench.resume(agent, "yes")
        assert bench.world.undone() == ["room", "seat"]
        bench.world.assert_restored()

    def test_a_run_can_wait_twice(self, bench: Bench) -> None:
        again = [Call("ask", {"question": "really?"}, "ask_2"), *book("room")]
        agent = bench.resumable([*WAITS, again, "done"])
        assert bench.run(agent).waits
        assert bench.resume(agent, "yes").waits
        assert bench.resume(agent, "yes").text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_run_is_gone_on_with_in_another_process(self, bench: Bench) -> None:
        assert run_elsewhere(self.driver, bench.folder, WAITS).waits
        agent = bench.resumable([book("room"), "done"])
        assert bench.resume(agent, "yes").text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_what_another_process_did_is_undone_when_the_run_fails(self, bench: Bench) -> None:
        assert run_elsewhere(self.driver, bench.folder, WAITS).waits
        with pytest.raises(SagaAborted):
            bench.resume(bench.resumable([ValueError("the model is down")]), "yes")
        bench.world.assert_restored()

    def test_a_finished_run_that_is_resumed_again_does_nothing(self, bench: Bench) -> None:
        agent = bench.resumable([*WAITS, "done", *WAITS, "done"])
        assert bench.run(agent).waits
        assert bench.resume(agent, "yes").text == "done"
        with contextlib.suppress(AgentSagaError):  # refusing is an answer, too
            bench.resume(agent, "yes")
        bench.world.assert_applied_once("seat")

    def test_a_run_that_was_undone_is_not_gone_on_with(self, bench: Bench) -> None:
        agent = bench.resumable([*WAITS, ValueError("the model is down"), book("room"), "done"])
        assert bench.run(agent).waits
        with pytest.raises(SagaAborted):
            bench.resume(agent, "yes")
        with pytest.raises(AgentSagaError, match="ROLLED_BACK"):
            bench.resume(agent, None)
        bench.world.assert_restored()

    @pytest.mark.crash
    def test_recovery_undoes_what_a_killed_run_did(self, bench: Bench) -> None:
        run_and_die(self.driver, bench.folder, [book("seat"), book("room"), DIES, "done"])
        bench.world.assert_applied_once("seat", "room")
        bench.recover()
        assert bench.world.undone() == ["room", "seat"]
        bench.world.assert_restored()

    @pytest.mark.crash
    def test_a_killed_run_is_gone_on_with_and_repeats_no_effect(self, bench: Bench) -> None:
        run_and_die(self.driver, bench.folder, [[SEAT], DIES, "done"])
        bench.world.assert_applied_once("seat")
        agent = bench.resumable(ENDS)
        assert bench.resume(agent, None).text == "done"
        bench.world.assert_applied_once("seat")
        bench.recover()
        bench.world.assert_applied_once("seat")

    @pytest.mark.crash
    def test_a_call_that_was_cut_short_by_a_kill_is_never_made_twice(self, bench: Bench) -> None:
        dies = Call("dies_once", {"item": "now"}, "dies_1")
        room = Call("book", {"item": "room"}, "book_2")
        run_and_die(self.driver, bench.folder, [[SEAT], [room, dies], "done"])
        try:
            bench.resume(bench.resumable(ENDS), None)
        except SagaAborted as failed:
            if failed.report.clean:
                bench.world.assert_restored()
        else:
            bench.world.assert_applied_once("room")
        bench.world.assert_never_twice()
        assert bench.world.applications(name="seat") == 1
        assert bench.world.applications(name="room") <= 1
