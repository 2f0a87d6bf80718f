"""The public doors are exactly what the stored contract says."""

from __future__ import annotations

import importlib
import json

import pytest

from tools import public_door


@pytest.fixture(scope="module")
def contract():
    return json.loads(public_door.FILE.read_text("utf-8"))


@pytest.mark.parametrize("door", public_door.DOORS)
def test_the_door_is_what_was_promised(door, contract):
    live = public_door.describe(importlib.import_module(door))
    assert live == contract[door], "Intended? Then: python -m tools.public_door"


@pytest.mark.parametrize("door", public_door.DOORS)
def test_the_names_are_sorted_and_listed_once(door):
    names = importlib.import_module(door).__all__
    assert list(names) == sorted(set(names))


@pytest.mark.parametrize("door", public_door.DOORS)
def test_dir_shows_every_promised_name(door):
    module = importlib.import_module(door)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("door", public_door.DOORS)
def test_an_unknown_name_is_an_attribute_error(door):
    module = importlib.import_module(door)
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018
