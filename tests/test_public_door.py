"""The public doors are exactly what the stored contract says."""

from __future__ import annotations

import importlib
import json

import pytest

from tools import public_door

DOORS = public_door.doors()
CONTRACT = json.loads(public_door.FILE.read_text("utf-8"))
HINT = "Intended? Then: python -m tools.public_door"


def test_no_door_was_added_or_lost():
    assert sorted(DOORS) == sorted(CONTRACT), HINT


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_what_was_promised(door):
    assert public_door.describe(importlib.import_module(door)) == CONTRACT[door], HINT


@pytest.mark.parametrize("door", DOORS)
def test_each_name_is_listed_once(door):
    names = importlib.import_module(door).__all__
    assert len(names) == len(set(names))


@pytest.mark.parametrize("door", DOORS)
def test_dir_shows_every_promised_name(door):
    module = importlib.import_module(door)
    assert set(module.__all__) <= set(dir(module))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module("agent_saga").no_such_name  # noqa: B018


def test_type_checkers_see_the_same_door():
    live = public_door.stub(importlib.import_module("agent_saga"))
    assert public_door.STUB.read_text("utf-8") == live, HINT
