"""What the examples leave in the world, seen without their code; their tools are real."""

from __future__ import annotations

import asyncio

import pytest

AT_FIRST = {
    "paid": [("ada", 1900)],
    "files": {"address.txt": "Ada, 1 Old Street"},
    "shelf": [("lamp", 12)],
    "reserved": [],
    "tickets": [("billing", "an old question")],
    "flags": {"checkout": "classic"},
}
ORDERED = {
    "paid": [("ada", 6800)],
    "files": {"address.txt": "Ada, 7 New Road"},
    "shelf": [("lamp", 10)],
    "reserved": [("lamp", 2)],
    "tickets": [("billing", "an old question"), ("shipping", "send Ada two lamps")],
    "flags": {"checkout": "express"},
}
STEPS = ("charge", "write_file", "reserve", "open_ticket", "set_flag")
UNDOS = ("refund", "restore", "release", "cancel", "set_flag")


@pytest.fixture
def world():
    from world.systems import opened

    with opened() as world:
        yield world


def test_the_world_at_first(world, outside):
    assert outside(world) == AT_FIRST


def test_the_demo_is_undone(world, outside, capsys):
    import demo

    world.faults.strike("open_ticket", "after")
    seen, aborted = demo.run(world)
    assert seen["tickets: open for shipping"] == "1"
    assert seen["ledger: ada has paid"] == "68.00"
    assert aborted.report.clean
    assert outside(world) == AT_FIRST


def test_the_demo_says_no_when_the_world_differs(monkeypatch, capsys):
    import demo

    from world.ledger import Ledger

    monkeypatch.setattr(Ledger, "refund", lambda *_: None)
    assert demo.main() == 1
    assert "Is the world as before? NO." in capsys.readouterr().out


def test_an_order_that_does_not_fail_stands(world, outside, capsys):
    import multi_domain

    _, report = asyncio.run(multi_domain.order(world))
    assert report is None
    assert outside(world) == ORDERED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_an_order_that_fails_is_undone(world, outside, step, when, capsys):
    import multi_domain

    world.faults.strike(step, when)
    _, report = asyncio.run(multi_domain.order(world))
    assert report.clean
    assert outside(world) == AT_FIRST


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("undo", UNDOS[:4])
def test_an_undo_that_loses_its_answer_is_repeated(world, outside, undo, when):
    import chaos_demo

    world.faults.strike("set_flag", "before")
    world.faults.strike(undo, when)
    assert chaos_demo.transactional(world) == "undone: clean"
    assert outside(world) == AT_FIRST


def test_without_a_boundary_everything_before_the_failure_stands(world, outside):
    import chaos_demo

    world.faults.strike("set_flag", "after")
    assert chaos_demo.optimistic(world) == "RemoteDisconnected"
    assert outside(world) == ORDERED


def test_no_undo_is_made_twice(world):
    import chaos_demo

    world.faults.strike("set_flag", "before")
    world.faults.strike("refund", "after")
    chaos_demo.transactional(world)
    assert world.traces() == {
        "charge line": 2,
        "refund line": 1,
        "cancelled ticket": 1,
        "open ticket": 1,
    }


def test_a_world_leaves_nothing_behind():
    from world.systems import opened

    with opened() as world:
        folder = world.folder
    assert not folder.exists()
