"""P8 at random: no effect without an unexpired, bound, once-used grant by somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_saga.controls.humans import document, grants
from agent_saga.controls.humans.document import Asked, State
from agent_saga.controls.limits.moments import Moment
from agent_saga.errors import AlreadyDecided, ApprovalError

PEOPLE = ["ann", "ben", "agent", " AGENT", "", "@ann"]


def asked(step="s1", deadline=100, valid=50, approvers=()):
    about = {
        "id": "r",
        "saga": "g",
        "step": step,
        "gen": 0,
        "tool": "t",
        "rule": "irreversible",
        "reason": "",
        "arguments": "{}",
        "requesters": ["agent"],
    }
    return Asked(about, deadline, valid, approvers)


class OneRequest(RuleBasedStateMachine):
    """Everything that can happen to one request, in any order, while the clock goes on."""

    @initialize(approvers=st.sampled_from([(), ("ann",)]))
    def begin(self, approvers):
        self.now = 0
        self.approvers = approvers
        self.doc, state = document.put(None, asked(approvers=approvers), now=0)
        assert state is State.PENDING
        self.granted_by = None
        self.granted_at = None
        self.uses = 0
        self.decisions = 0
        self.round = 0

    @rule(seconds=st.integers(0, 60))
    def time_goes_on(self, seconds):
        self.now += seconds

    @rule(
        by=st.sampled_from(PEOPLE),
        approved=st.booleans(),
        glass=st.booleans(),
    )
    def somebody_decides(self, by, approved, glass):
        pending = self.doc["state"] == "PENDING" and self.now < self.doc["deadline"]
        try:
            self.doc, state = document.decide(
                self.doc, approved=approved, by=by, note="", now=self.now, break_glass=glass
            )
        except AlreadyDecided:
            assert self.doc["state"] in ("GRANTED", "DENIED", "USED")
            return
        except ApprovalError:
            return
        assert pending
        assert by.strip().strip("@")
        assert by.strip().lower() != "agent"
        assert glass or not self.approvers or by.strip("@") in self.approvers
        self.decisions += 1
        if state is State.GRANTED:
            self.granted_by, self.granted_at = by, self.now

    @rule(step=st.sampled_from(["s1", "s2"]), generation=st.sampled_from([0, 1]))
    def an_effect_wants_to_start(self, step, generation):
        used = self.doc["state"] == "USED"
        self.doc, why = document.consume(self.doc, step=step, generation=generation, now=self.now)
        if why:
            return
        assert (step, generation) == ("s1", 0)
        assert self.granted_by is not None
        if not used:
            assert self.granted_at <= self.now < self.granted_at + 50
            self.uses += 1

    @rule(given_up=st.booleans())
    def its_time_is_looked_at(self, given_up):
        before = self.doc["state"]
        self.doc, state = document.expire(self.doc, now=self.now, given_up=given_up)
        if before in ("DENIED", "USED"):
            assert state.value == before

    @rule()
    def the_agent_comes_back(self):
        before = self.doc["state"]
        self.doc, state = document.put(
            self.doc, asked(deadline=self.now + 100, approvers=self.approvers), now=self.now
        )
        if before in ("DENIED", "USED"):
            assert state.value == before
        if before == "EXPIRED":
            assert state is State.PENDING
            self.decisions, self.granted_by = 0, None

    @rule(level=st.integers(0, 3))
    def a_level_is_told(self, level):
        self.doc, _ = document.notified(self.doc, level=level)

    @invariant()
    def at_most_one_decision_and_one_use(self):
        assert self.decisions <= 1
        assert self.uses <= 1

    @invariant()
    def a_grant_names_somebody_who_did_not_ask(self):
        if self.doc["state"] in ("GRANTED", "USED"):
            assert self.doc["decision"]["by"].strip().lower() not in ("", "agent")


TestOneRequest = OneRequest.TestCase


AMOUNTS = st.one_of(
    st.integers(-3, 60),
    st.decimals(0, 60, places=2),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["5", " 7.25", "x", None, True, b"5", [], "NaN", "1e999"]),
)


@pytest.mark.guarantee("APPROVE-6")
@given(
    calls=st.lists(st.tuples(st.integers(0, 6), AMOUNTS, st.booleans()), max_size=30),
    up_to=st.integers(0, 100),
    uses=st.integers(1, 6),
)
def test_shares_of_a_grant_never_exceed_its_sum_or_count(calls, up_to, uses):
    """Calls take, take again, and give back what did not start; the sum stays within the bound."""
    grant = grants.Grant("g", "t", "r", "ann", "", 10**9, uses, "amount", str(up_to))
    doc, _ = grants.add(None, grant, now=Moment(0, 0.0, ""))
    for step, amount, gives_back in calls:
        taker = grants.Taker(f"s{step}", "r", {"amount": amount}, ("agent",))
        before = doc["grants"][0]["shares"].get(taker.request)
        doc, covered = grants.take(doc, taker, now=Moment(1, 0.0, ""))
        held = doc["grants"][0]["shares"]
        if covered is not None and before is not None:
            assert held[taker.request] == before  # the same step takes once
        if gives_back:
            doc, _ = grants.give_back(doc, f"s{step}")
            assert taker.request not in doc["grants"][0]["shares"]
        shares = doc["grants"][0]["shares"]
        assert len(shares) <= uses
        assert sum(float(share) for share in shares.values()) <= up_to + 1e-9
