"""The rules for a saga's owner, exhaustively and at random."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_saga.errors import StateError
from agent_saga.state import claims
from agent_saga.state.base import one
from agent_saga.state.claims import Claim
from agent_saga.state.memory import MemoryStateStore

OWNERS = (None, "a", "b")
EPOCHS = (1, 2, 3)
DOCS = [None] + [
    {"epoch": epoch, "owner": owner, "deadline": deadline, "ended": ended}
    for epoch, owner, deadline, ended in itertools.product(EPOCHS, OWNERS, (None, 5), (False, True))
]


def _now(doc):
    return (0, None) if doc is None else (doc["epoch"], doc["owner"])


def _owned(owner, epoch):
    return {"epoch": epoch, "owner": owner, "deadline": None, "ended": False}


@pytest.mark.parametrize("doc", DOCS)
def test_open_is_granted_only_to_a_new_id(doc):
    after, claim = claims.open_saga(doc, owner="a")
    if doc is None:
        assert (after, claim) == (_owned("a", 1), Claim(True, 1, "a"))
    else:
        assert (after, claim) == (doc, Claim(False, *_now(doc)))


@pytest.mark.parametrize("doc", DOCS)
@pytest.mark.parametrize("seen", [1, 2, 3, 4])
@pytest.mark.parametrize("owner", ["a", "c"])
def test_raise_is_granted_to_whoever_saw_the_present_epoch(doc, seen, owner):
    if doc is not None and doc["epoch"] < seen:
        with pytest.raises(StateError, match="behind the log"):
            claims.raise_epoch(doc, owner=owner, seen=seen)
        return
    after, claim = claims.raise_epoch(doc, owner=owner, seen=seen)
    if doc is None or doc["epoch"] == seen:
        assert (after, claim) == (_owned(owner, seen + 1), Claim(True, seen + 1, owner))
    else:
        assert (after, claim) == (doc, Claim(False, *_now(doc)))


@pytest.mark.parametrize("doc", DOCS)
@pytest.mark.parametrize("owner", ["a", "b", "c"])
@pytest.mark.parametrize("epoch", [0, *EPOCHS])
def test_only_the_owner_under_its_own_epoch_gives_back(doc, owner, epoch):
    mine = doc is not None and (doc["epoch"], doc["owner"]) == (epoch, owner)
    assert claims.is_owner(doc, owner=owner, epoch=epoch) is mine
    released, claim = claims.release(doc, owner=owner, epoch=epoch, deadline=7)
    cleared, claim_2 = claims.clear(doc, owner=owner, epoch=epoch)
    if mine:
        free = {"epoch": epoch, "owner": None}
        assert released == {**free, "deadline": 7, "ended": doc["ended"]}
        assert cleared == {**free, "deadline": None, "ended": True}
        assert claim == claim_2 == Claim(True, epoch, None)
    else:
        assert released is cleared is doc
        assert claim == claim_2 == Claim(False, *_now(doc))


@pytest.mark.parametrize("doc", DOCS)
@pytest.mark.parametrize("seen", [1, 2, 3, 4])
def test_rebuild_never_lowers_an_epoch(doc, seen):
    after, claim = claims.rebuild(doc, seen=seen)
    behind = doc is None or doc["epoch"] < seen
    assert claim.granted is behind
    assert after == ({**_owned(None, seen)} if behind else doc)


# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@PATIENT
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_keys_of_different_sagas_differ(saga):
    assert claims.claim_key(saga) == "claim/" + saga


class Owners(RuleBasedStateMachine):
    """Owners that remember what they once saw, however old it is, against one document."""

    @initialize(epoch=st.integers(1, 3), opened=st.booleans())
    def begin(self, epoch, opened):
        self.store = MemoryStateStore()
        self.key = claims.claim_key("s")
        self.granted = []
        self.highest = 0
        self.held = set()
        if opened:
            self._apply(claims.open_saga, owner="w0", epoch=epoch)
            self.held.add(("w0", epoch))
            self.granted.append(epoch)

    @rule(owner=st.sampled_from(["a", "b"]), back=st.integers(0, 3))
    def claim(self, owner, back):
        doc = self.store.get(self.key)
        seen = max(1, (doc["epoch"] if doc else 1) - back)
        claim = self._apply(claims.raise_epoch, owner=owner, seen=seen)
        if claim.granted:
            self.granted.append(claim.epoch)
            self.held = {(owner, claim.epoch)}

    @rule(owner=st.sampled_from(["w0", "a", "b"]), epoch=st.integers(1, 12), end=st.booleans())
    def give_back(self, owner, epoch, end):
        claim = self._apply(claims.clear if end else claims.release, owner=owner, epoch=epoch)
        assert claim.granted is ((owner, epoch) in self.held)
        self.held.discard((owner, epoch))

    @invariant()
    def no_epoch_repeats_and_none_is_lowered(self):
        assert self.granted == sorted(set(self.granted))
        doc = self.store.get(self.key)
        epoch = doc["epoch"] if doc else 0
        assert epoch >= self.highest
        self.highest = epoch

    @invariant()
    def at_most_one_owns(self):
        doc = self.store.get(self.key)
        for owner, epoch in itertools.product(["w0", "a", "b"], range(13)):
            owns = claims.is_owner(doc, owner=owner, epoch=epoch)
            assert owns is ((owner, epoch) in self.held)

    def _apply(self, function, **arguments):
        return self.store.transact([self.key], one(self.key, partial(function, **arguments)))


Owners.TestCase.settings = settings(PATIENT, max_examples=50, stateful_step_count=30)
TestOwners = pytest.mark.property(Owners.TestCase)
