"""The laboratory: processes that end, stop, are taken for dead, and a world that outlives them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent_saga_testing.crash import EXITED, KILLED, CrashLab, Kill, Server
from agent_saga_testing.stories import Story, Turn, drawn, judge, play

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server():
    with Server([Path(__file__).parent / "laboratory"]) as server:
        yield server


@pytest.fixture
def lab_of(tmp_path, server):
    labs = []

    def make(program, **options):
        labs.append(CrashLab(tmp_path, f"shop:{program}", server=server, **options))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


PLACES = [
    Kill.at_point("between"),
    Kill.at_point("after stove"),
    Kill.at_record("STEP_INTENT", 2),
    Kill.at_record("STEP_COMMITTED", after=False),
    Kill.at_call("pwrite", 3),
    Kill.at_call("fdatasync", 2, after=False),
    Kill.at_call(nth=12),
]


@pytest.mark.parametrize(("by", "status"), [("kill", KILLED), ("exit", EXITED)])
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_process_ends_where_it_is_told_to(lab_of, place, by, status):
    lab = lab_of("run")
    assert lab.run(place._replace(by=by)) == status
    assert lab.recover() == [0]
    lab.world.assert_restored()
    judge(lab)


def test_a_process_that_is_not_killed_ends_well(lab_of):
    lab = lab_of("run")
    assert lab.run() == 0
    lab.world.assert_applied_once("tent", "stove")
    judge(lab)


def test_a_process_that_is_killed_after_some_time(lab_of):
    lab = lab_of("run")
    assert lab.run(Kill.after_seconds(0.0)) in (KILLED, 0)
    lab.recover()
    judge(lab)


def test_a_call_is_counted_although_its_caller_never_hears_of_it(lab_of):
    lab = lab_of("run")
    assert lab.run(Kill.at_point("after tent")) == KILLED
    assert lab.world.attempts("forward") == lab.world.applications("forward") == 1


def test_attempts_and_effects_are_counted_apart_for_forward_calls_and_inverses(lab_of):
    lab = lab_of("run")
    lab.world.lose_answers(kind="inverse")
    lab.run(Kill.at_point("after stove"))
    assert lab.recover() == [0]
    counted = [
        (lab.world.attempts(kind), lab.world.applications(kind)) for kind in ("forward", "inverse")
    ]
    assert counted == [(2, 2), (3, 2)]
    assert len({call.key for call in lab.world.calls("inverse", "stove")}) == 1


def test_the_world_is_kept_by_a_process_that_is_no_part_of_what_is_killed(lab_of):
    lab = lab_of("run")
    lab.run(Kill.at_point("after tent"))
    assert lab.world.find("no such key") is None
    assert [call.name for call in lab.world.standing()] == ["tent"]
    with pytest.raises(LookupError):
        lab.world.undo(999)


def test_a_process_stops_exactly_where_it_is_told_to_and_goes_on(lab_of):
    lab = lab_of("run")
    process = lab.start(Kill.at_point("between", by="stop"))
    assert lab.stopped(process)
    assert [call.name for call in lab.world.calls()] == ["tent"]
    lab.revive(process)
    assert lab.wait(process) == 0
    lab.world.assert_applied_once("tent", "stove")


def test_a_process_that_ends_before_it_would_stop_has_not_stopped(lab_of):
    lab = lab_of("run")
    process = lab.start(Kill.at_point("no such point", by="stop"))
    assert not lab.stopped(process)
    assert lab.wait(process) == 0


def test_a_stopped_process_can_be_killed(lab_of):
    lab = lab_of("run")
    process = lab.start(Kill.at_point("between", by="stop"))
    assert lab.stopped(process)
    lab.kill(process)
    assert lab.wait(process) == KILLED
    assert lab.recover() == [0]
    lab.world.assert_restored()


def test_a_process_that_lives_is_taken_for_dead_only_when_that_is_asked_for(lab_of):
    lab = lab_of("run")
    process = lab.start(Kill.at_point("between", by="stop"))
    assert lab.stopped(process)
    assert lab.recover() == [0]
    assert lab.world.attempts("inverse") == 0
    lab.presume_dead(process)
    assert lab.recover() == [0]
    lab.world.assert_restored()
    lab.revive(process)
    assert lab.wait(process) == 1
    assert lab.world.attempts("forward") == 1
    judge(lab)


def test_an_event_loop_is_blocked(lab_of):
    lab = lab_of("beats")
    assert lab.run(Kill.at_point("beat 3", by="block")._replace(blocks=0.3)) == 0
    [beats] = lab.world.calls()
    assert beats.data["longest"] >= 0.3


def test_the_clock_of_a_process_is_off(lab_of):
    lab = lab_of("looks_at_the_clock", argument=time.time())
    lab.clock = -86_400.0
    assert lab.run() == 0
    clock, moved = lab.world.calls()
    assert clock.data["now"] < clock.data["then"] - 80_000
    assert 3500 < moved.data["now"] - clock.data["now"] < 3700


def test_an_operator_retries_what_waits_in_the_queue(lab_of):
    lab = lab_of("fail")
    closed = lab.folder / "closed"
    closed.touch()
    assert lab.run() == 1
    assert lab.recover() == [1]
    closed.unlink()
    assert lab.recover() == [1], "what failed for good waits for somebody"
    assert lab.retry() == 0
    assert lab.recover() == [0]
    lab.world.assert_restored()
    judge(lab)


def test_an_operator_may_be_killed_too(lab_of):
    lab = lab_of("fail")
    closed = lab.folder / "closed"
    closed.touch()
    lab.run()
    assert lab.recover() == [1]
    closed.unlink()
    assert lab.retry(Kill.at_point("before the inverse of boat")) == KILLED
    assert lab.recover() == [0]
    lab.world.assert_restored()
    judge(lab)


def test_worlds_of_several_laboratories_are_apart(tmp_path, server):
    labs = [CrashLab(tmp_path / name, "shop:run", server=server) for name in "ab"]
    labs[0].run()
    assert labs[1].world.calls() == []
    for lab in labs:
        lab.close()


def test_a_program_that_fails_in_a_way_of_its_own_is_told(lab_of):
    lab = lab_of("run")
    lab.program = "shop:nothing"
    with pytest.raises(AttributeError):
        lab.run()


# --- stories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_the_shop_is_true_and_never_twice(lab_of, seed):
    lab = lab_of("run")
    story = drawn(seed, points=["between", "before tent", "after stove"])
    assert story == drawn(seed, points=["between", "before tent", "after stove"])
    play(lab, story)
    judge(lab)


def test_a_story_is_told_in_words():
    kills = (Kill.at_record(nth=3, by="exit"), None)
    story = Story(7, (Turn("beside", kills, 60.0), Turn("retry", (None,))))
    assert str(story).splitlines() == [
        "story 7",
        "  beside: exit after record number 3, lives, clock off by 60 s",
        "  retry: lives",
    ]


def test_all_kinds_of_turns_are_drawn():
    stories = [drawn(seed, points=["a"], resumes=True) for seed in range(300)]
    turns = [turn for story in stories for turn in story.turns]
    assert {turn.what for turn in turns} == {"run", "beside", "stands", "dead", "recover", "retry"}
    kills = [kill for turn in turns for kill in turn.kills if kill is not None]
    assert {kill.by for kill in kills} == {"kill", "exit", "stop", "block"}
    assert {kill.where for kill in kills} == {"record", "call", "point", "time"}
    assert {len(turn.kills) for turn in turns if turn.what == "recover"} == {1, 2, 3, 4}
    assert any(turn.clock for turn in turns)


def test_the_verdict_finds_an_effect_that_is_made_twice(lab_of):
    lab = lab_of("twice")
    lab.run()
    with pytest.raises(AssertionError, match="applied twice"):
        judge(lab)


def test_the_verdict_finds_an_effect_that_nobody_announced(lab_of):
    lab = lab_of("unannounced")
    lab.run()
    with pytest.raises(AssertionError, match="tent was not announced"):
        judge(lab)


def test_the_verdict_finds_a_clean_saga_of_which_something_stands(lab_of):
    lab = lab_of("run")
    lab.run(Kill.at_point("between"))
    lab.recover()
    [undone] = lab.world.calls("inverse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.world, "standing", lambda: lab.world.calls("forward"))
        with pytest.raises(AssertionError, match="clean, and this stands"):
            judge(lab)
    assert undone.outcome == "applied"


def test_the_verdict_finds_a_saga_that_nobody_ended(lab_of):
    lab = lab_of("run")
    lab.run(Kill.at_point("between"))
    with pytest.raises(AssertionError, match="neither ended nor"):
        judge(lab)


def test_the_verdict_finds_an_inverse_with_another_key(lab_of):
    lab = lab_of("run")
    lab.run(Kill.at_point("between"))
    lab.recover()
    [tent] = lab.world.calls("forward")
    lab.world.fail_before(kind="inverse")
    with pytest.raises(RuntimeError):
        lab.world.undo(tent.id, key="another key")
    with pytest.raises(AssertionError, match="with another key"):
        judge(lab)


def test_nothing_of_a_laboratory_is_left_running(tmp_path):
    with Server([Path(__file__).parent / "laboratory"]) as server:
        lab = CrashLab(tmp_path, "shop:run", server=server)
        process = lab.start(Kill.at_point("between", by="stop"))
        assert lab.stopped(process)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
