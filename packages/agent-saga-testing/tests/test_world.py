"""The world of effects, and what a test can ask it."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

from agent_saga.errors import NotApplied
from agent_saga_testing.kits.processes import run_all
from agent_saga_testing.world import World


@pytest.fixture
def world(saga_world):
    return saga_world


def refuses(check, *args):
    with pytest.raises(AssertionError, match="the world saw"):
        check(*args)


def test_an_effect_stands_until_it_is_undone(world):
    start = world.snapshot()
    world.assert_untouched()
    world.assert_restored()
    made = world.do("charge", amount=5)
    assert made == {"id": made["id"], "name": "charge", "amount": 5}
    world.assert_applied_once()
    world.assert_stands("charge")
    assert start.changed_to(world.snapshot()) == (('charge {"amount": 5}',), ())
    for check in (world.assert_untouched, world.assert_restored):
        refuses(check)
    world.undo(made["id"])
    world.assert_restored()
    world.assert_stands()
    assert world.snapshot() == start
    refuses(world.assert_untouched)
    refuses(world.assert_applied_once, "charge")


def test_attempts_and_applications_are_counted_apart(world):
    made = world.do("charge", key="k")
    assert world.do("charge", key="k") == made
    world.undo(made["id"], key="i")
    world.undo(made["id"], key="i")
    assert (world.attempts(), world.applications()) == (2, 1)
    assert (world.attempts("inverse"), world.applications("inverse")) == (2, 1)
    assert (world.attempts(name="charge"), world.attempts(name="other")) == (2, 0)
    world.assert_restored()


@pytest.mark.parametrize("honours_keys", [True, False])
def test_keys_can_be_switched_off(tmp_path, honours_keys):
    world = World(tmp_path / "w", honours_keys=honours_keys)
    for again in (world, World(tmp_path / "w")):
        again.do("charge", key="k")
    assert world.applications() == (1 if honours_keys else 2)
    if honours_keys:
        world.assert_applied_once("charge")
    else:
        refuses(world.assert_never_twice)
        refuses(world.assert_applied_once)


def test_without_keys_what_is_done_twice_is_twice(world):
    made = world.do("charge")
    world.undo(made["id"])
    world.undo(made["id"])
    refuses(world.assert_never_twice)
    refuses(world.assert_restored)


def test_an_effect_may_be_made_again_after_it_was_undone(world):
    world.undo(world.do("charge", key="generation 0")["id"])
    world.do("charge", key="generation 1")
    world.assert_never_twice()
    world.assert_stands("charge")


def test_an_inverse_without_an_effect_changes_nothing(world):
    with pytest.raises(LookupError):
        world.undo(99)
    assert world.undo_of_key("never") is False
    world.assert_untouched()
    world.do("charge", key="k")
    assert world.undo_of_key("k", key="i") is True
    world.assert_restored()


def test_the_order_of_undoing(world):
    made = [world.do(name) for name in "abc"]
    for effect in reversed(made):
        world.undo(effect["id"])
    assert world.undone() == ["c", "b", "a"]


def test_a_lost_answer(world):
    world.lose_answers(2)
    world.lose_answers(kind="inverse", error=TimeoutError)
    for key in ("a", "b"):
        with pytest.raises(ConnectionError):
            world.do("charge-" + key, key=key)
    assert world.find("a")["name"] == "charge-a"
    assert world.find("c") is None
    with pytest.raises(TimeoutError):
        world.undo(world.find("a")["id"])
    world.assert_stands("charge-b")
    world.do("charge-c")
    assert world.attempts() == 3


def test_a_failure_before_the_effect(world):
    world.fail_before(error=ValueError)
    with pytest.raises(ValueError, match="asked for"):
        world.do("charge")
    world.assert_untouched()
    assert world.attempts() == 1


def test_a_request_that_arrives_late(world):
    world.hold_back()
    with pytest.raises(TimeoutError):
        world.do("charge", key="k", amount=1)
    world.assert_untouched()
    assert world.find("k") is None
    refuses(world.assert_restored)
    assert len(world.in_flight()) == 1
    assert world.deliver() == 1
    assert world.find("k")["amount"] == 1
    assert world.deliver() == 0
    refuses(world.assert_untouched)


def test_a_late_request_whose_key_was_used_or_spent_takes_no_hold(world):
    world.hold_back(2)
    for key in ("used", "spent"):
        with pytest.raises(TimeoutError):
            world.do(key, key=key)
    world.do("used", key="used")
    assert world.spend("used")["name"] == "used"
    assert world.spend("spent") is None
    assert world.deliver() == 0
    world.assert_stands("used")
    with pytest.raises(NotApplied) as caught:
        world.do("spent", key="spent")
    assert caught.value.final


def test_a_late_double_is_seen_as_one(world):
    world.hold_back()
    with pytest.raises(TimeoutError):
        world.do("charge")
    world.do("charge")
    world.assert_applied_once("charge")
    world.deliver()
    refuses(world.assert_never_twice)


def test_a_late_inverse(world):
    made = world.do("charge")
    world.hold_back(kind="inverse")
    with pytest.raises(TimeoutError):
        world.undo(made["id"])
    world.assert_stands("charge")
    world.deliver()
    world.assert_restored()


def test_a_request_that_never_arrives(world):
    world.hold_back(2)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            world.do("charge")
    assert world.drop() == 2
    assert world.deliver() == 0
    world.assert_untouched()
    world.assert_restored()


def test_errors_are_chosen_from_a_list(world):
    with pytest.raises(ValueError, match="one of"):
        world.lose_answers(error=ZeroDivisionError)
    with pytest.raises(ValueError, match="backward"):
        world.lose_answers(kind="backward")
    world.assert_untouched()


def test_a_failed_check_tells_the_story(world):
    world.do("charge", key="k", amount=5)
    with pytest.raises(AssertionError) as caught:
        world.assert_untouched()
    assert "1 forward charge {'amount': 5} key=k: applied" in str(caught.value)


def test_several_processes_act_on_one_world(world):
    assert pickle.loads(pickle.dumps(world)).path == world.path
    run_all(World.do, [(world, f"own-{n}") for n in range(3)])
    run_all(partial(World.do, key="shared"), [(world, "shared")] * 3)
    assert world.attempts() == 6
    world.assert_applied_once("shared", "own-0", "own-1", "own-2")
