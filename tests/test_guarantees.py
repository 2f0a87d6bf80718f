"""Guarantees and tests are bound to each other in both directions."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tools import guarantees

ENTRIES = guarantees.load()
BOUND = guarantees.bound()
HERE = [entry for entry in ENTRIES.values() if entry.is_here]
"""Those whose packages are installed: a framework's package keeps its own where that is."""


def test_there_are_guarantees():
    assert ENTRIES


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_test_is_bound_to_each_guarantee(name):
    assert BOUND.get(name), f"no test carries the marker guarantee({name!r})"


@pytest.mark.parametrize("name", sorted(BOUND))
def test_each_bound_test_names_a_guarantee(name):
    assert name in ENTRIES, f"{[str(path) for path in BOUND[name]]} name an unknown guarantee"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_an_entry_says_what_it_must(entry):
    assert re.fullmatch(r"[A-Z]+-[1-9][0-9]*", entry.id)
    assert entry.sentence.endswith(".")
    assert entry.level in guarantees.LEVELS
    assert not entry.is_here or importlib.util.find_spec(entry.where)
    assert len(entry.without) <= 1
    assert set(entry.without) <= set(guarantees.STAND_INS)


@pytest.mark.parametrize("entry", HERE, ids=lambda entry: entry.id)
def test_the_guard_exists_and_is_code(entry):
    owner, name = guarantees.resolve(entry.guard)
    guard = getattr(owner, name)
    assert callable(guard) or isinstance(vars(owner)[name], property)


def test_a_package_keeps_its_own():
    own = [path for path in guarantees.files() if path != guarantees.FILE]
    assert own
    for path in own:
        entries = guarantees.load([path]).values()
        assert {entry.where.partition(".")[0] for entry in entries} == {path.parent.name}
    with pytest.raises(ValueError, match="twice"):
        guarantees.load([own[0], own[0]])


def test_what_is_not_claimed_is_said():
    entries = guarantees.not_claimed()
    assert entries
    assert all(set(entry) == {"id", "sentence"} for entry in entries)
    identities = [entry["id"] for entry in entries] + list(ENTRIES)
    assert len(identities) == len(set(identities))


def test_each_sentence_stands_once():
    sentences = [entry.sentence for entry in ENTRIES.values()]
    assert len(sentences) == len(set(sentences))


def test_a_retired_id_is_given_to_nothing_and_names_what_says_it_now():
    retired = guarantees.retired()
    assert retired
    assert not set(retired) & {*ENTRIES, *BOUND}
    assert set(retired.values()) <= set(ENTRIES)
