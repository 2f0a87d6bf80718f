"""Seeded mistakes: each property has one that it alone must find, and what is found is judged."""

from __future__ import annotations

import pytest
from model.mutants import MUTANTS, Mutant
from model.properties import PROPERTIES
from model.test_model import SCENES

from tools import mutants

A_MISTAKE = Mutant(lambda patch: None, ("P2", "P11"), "a scene", 10)


def test_every_property_is_the_first_to_find_some_mistake():
    assert {mutant.found_by[0] for mutant in MUTANTS.values()} == set(PROPERTIES)
    alone = {mutant.found_by[0] for mutant in MUTANTS.values() if len(mutant.found_by) == 1}
    assert alone == set(PROPERTIES)


def test_every_mistake_is_sought_in_a_scene_and_by_properties_that_exist():
    for mutant in MUTANTS.values():
        assert mutant.scene in SCENES
        assert set(mutant.found_by) <= set(PROPERTIES)
        assert mutant.make.__doc__, "it says which rule it breaks"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("E   AssertionError: P2: done twice", True),
        ("E   AssertionError: P11: stale", True),
        ("E   AssertionError: P3: not clean", False),
        ("E   AssertionError: something else", False),
        ("all is well", False),
    ],
)
def test_a_mistake_counts_as_found_only_by_a_property_that_should_find_it(monkeypatch, said, found):
    monkeypatch.setattr(mutants, "_model", lambda *asked: (1, said))
    assert mutants._found("a mistake", A_MISTAKE, 3) is found


def test_a_scene_gets_as_many_states_as_the_list_says(monkeypatch):
    asked = []
    monkeypatch.setattr(mutants, "_model", lambda *order: asked.append(order) or (0, ""))
    mutants._found("a mistake", A_MISTAKE, 3)
    assert asked == [("a mistake", "a scene", 30)]


def test_nothing_is_learnt_where_the_properties_do_not_hold_anyway(monkeypatch, capsys):
    monkeypatch.setattr(mutants, "_model", lambda *asked: (1, "red"))
    assert mutants.main(["no_lock"]) == 1
    assert "without a mistake" in capsys.readouterr().out


def test_an_unknown_mistake_is_refused(capsys):
    assert mutants.main(["no such mistake"]) == 2
    assert "no such mistake" in capsys.readouterr().out
