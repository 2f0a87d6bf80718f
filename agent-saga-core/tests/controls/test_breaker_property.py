"""A breaker at random: processes that call, fail, die and learn late, in any order."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_saga import BreakerPolicy
from agent_saga.controls.breaker.circuit import CLOSED, HALF_OPEN, OPEN, Circuits
from agent_saga.controls.limits.moments import Moment

TOOL = "pay"


class OneCircuit(RuleBasedStateMachine):
    """One tool's circuit in a store, and calls of several processes that are under way."""

    @initialize(probes=st.integers(1, 3), wanted=st.integers(1, 3))
    def begin(self, probes, wanted):
        self.policy = BreakerPolicy(
            failure_threshold=1, probes=probes, success_threshold=wanted, cool_down=10
        )
        self.doc = None
        self.now = 0.0
        self.wall = 0
        self.calls = {}
        self.number = 0
        self.good = 0
        self.opened_at = None

    def stored(self, act):
        """Apply a rule to what is stored, as a transaction does."""
        circuits = Circuits(self.doc, Moment(self.wall, self.now, "boot"))
        before = circuits.of(TOOL)["generation"]
        answer = act(circuits)
        after = circuits.of(TOOL)
        assert after["generation"] >= before
        if after["state"] == OPEN and after["generation"] > before:
            self.opened_at = self.now
        if after["generation"] > before:
            self.good = 0
        self.doc = json.loads(json.dumps(circuits.document()))
        return answer

    @property
    def circuit(self):
        return Circuits(self.doc, Moment(self.wall, self.now, "boot")).of(TOOL)

    @rule(seconds=st.floats(0, 15), step=st.integers(-(10**12), 10**12))
    def time_goes_on(self, seconds, step):
        """The wall clock goes wherever it likes."""
        self.now += seconds
        self.wall = max(0, self.wall + step)

    @rule()
    def a_call_asks(self):
        before = self.circuit
        self.number += 1
        name = f"call-{self.number}"
        admission = self.stored(lambda c: c.admit(TOOL, name, self.policy))
        if not admission.admitted:
            assert before["state"] != CLOSED
            assert admission.wait > 0
            return
        if before["state"] == OPEN:
            assert self.now - self.opened_at >= self.policy.cool_down - 1e-6
        assert admission.probe == (before["state"] != CLOSED)
        self.calls[name] = (admission, self.now)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from([True, False, None]))
    def a_call_ends(self, data, how):
        name = data.draw(st.sampled_from(sorted(self.calls)))
        admission, _ = self.calls.pop(name)
        before = self.circuit
        if admission.probe:
            changed = self.stored(
                lambda c: c.ended(TOOL, name, admission.generation, how, self.policy)
            )
        elif how is False:
            tripped = self.stored(lambda c: c.trip(TOOL, admission.generation, "it failed"))
            changed = OPEN if tripped else ""
        else:
            return
        if before["generation"] != admission.generation:
            assert changed == "", "an old call's ending changes nothing"
            assert self.circuit["state"] == before["state"]
        if changed == CLOSED:
            assert how is True
            assert before["good"] + 1 >= self.policy.success_threshold
        if changed == OPEN:
            assert how is False

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def its_process_dies(self, data):
        """What it took is never given back by anybody."""
        self.calls.pop(data.draw(st.sampled_from(sorted(self.calls))))

    @rule()
    def a_person_closes_it(self):
        self.stored(lambda c: c.reset(TOOL))
        assert self.circuit["state"] == CLOSED

    @invariant()
    def probes_are_bounded(self):
        found = self.circuit
        fresh = [at for at in found["probes"].values() if at + self.policy.cool_down > self.now]
        assert len(fresh) <= self.policy.probes
        if found["state"] == HALF_OPEN:
            young = [
                1
                for admission, at in self.calls.values()
                if admission.probe
                and admission.generation == found["generation"]
                and self.now - at < self.policy.cool_down
            ]
            assert len(young) <= self.policy.probes

    @invariant()
    def a_dead_probe_stands_in_nobody_s_way_for_longer_than_a_cool_down(self):
        if self.circuit["state"] == CLOSED:
            return
        later = Moment(self.wall, self.now + self.policy.cool_down + 1, "boot")
        circuits = Circuits(json.loads(json.dumps(self.doc)), later)
        assert circuits.admit(TOOL, "another", self.policy).admitted


TestOneCircuit = OneCircuit.TestCase
