"""Which records count (R4): hand-made logs of several writers, and random ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.domain.effective import effective
from agent_saga.domain.fold import resolve
from agent_saga.domain.records import Ev
from agent_saga.errors import WALCorrupt


class Rec(NamedTuple):
    """A record as far as these rules read it."""

    writer: str
    seq: int
    epoch: int
    event: str
    step: str = ""
    payload: Any = None
    generation: int = 0
    saga: str = "s"
    time: int = 0

    @property
    def data(self):
        if self.payload == "unreadable":
            raise WALCorrupt("no")
        return self.payload


def begin(writer="A", seq=1, epoch=1):
    return Rec(writer, seq, epoch, Ev.SAGA_BEGIN, payload={"about": {"name": "s"}})


def claim(writer, seq, epoch, reason="recover", **cuts):
    named = {one: {"seq": at, "hash": ""} for one, at in cuts.items()}
    return Rec(writer, seq, epoch, Ev.SAGA_CLAIM, payload={"reason": reason, "cuts": named})


def intent(writer, seq, epoch, step="x", generation=0):
    return Rec(writer, seq, epoch, Ev.STEP_INTENT, step, {}, generation)


def not_started(writer, seq, epoch, step="x", by="engine", generation=0):
    return Rec(writer, seq, epoch, Ev.STEP_NOT_APPLIED, step, {"by": by}, generation)


def places(records):
    return [(r.writer, r.seq) for r in records]


def counting(*records):
    return places(effective(records).records)


def stale(*records):
    return places(effective(records).stale)


def test_one_writer_counts_whole():
    found = effective([begin(), intent("A", 2, 1)])
    assert places(found.records) == [("A", 1), ("A", 2)]
    assert (found.stale, found.epoch, found.owner, found.highest) == ([], 1, "A", 1)


def test_a_claim_cuts_what_it_did_not_read():
    log = [begin(), intent("A", 2, 1), intent("A", 3, 1, "y"), claim("B", 1, 2, A=2)]
    assert counting(*log) == [("A", 1), ("A", 2), ("B", 1)]
    assert stale(*log) == [("A", 3)]
    assert effective(log).owner == "B"


def test_a_writer_that_a_claim_does_not_name_is_cut_at_the_beginning():
    log = [begin(), claim("B", 1, 2, A=1), intent("B", 2, 2), claim("C", 1, 3, A=1)]
    assert counting(*log) == [("A", 1), ("C", 1)]
    assert stale(*log) == [("B", 1), ("B", 2)]


def test_a_claim_that_is_cut_cuts_nothing():
    """B claimed and never knew of C, who read A further and not B's claim."""
    log = [begin(), intent("A", 2, 1), claim("B", 1, 2, A=1), claim("C", 1, 3, A=2, B=0)]
    assert counting(*log) == [("A", 1), ("A", 2), ("C", 1)]
    assert stale(*log) == [("B", 1)]


def test_an_epoch_that_nobody_opened_is_stale():
    log = [begin(), intent("A", 2, 5), intent("B", 1, 1)]
    assert stale(*log) == [("A", 2), ("B", 1)]
    assert effective(log).highest == 5


def test_an_epoch_that_two_writers_opened_is_nobodys():
    """A store that was lost may grant an epoch twice; neither of the two may be believed."""
    log = [begin(), claim("B", 1, 2, A=1), claim("C", 1, 2, A=1), intent("C", 2, 2)]
    assert counting(*log) == [("A", 1)]
    assert stale(*log) == [("B", 1), ("C", 1), ("C", 2)]


def test_epochs_are_told_apart_before_sequences():
    log = [claim("B", 1, 2, A=7), intent("B", 2, 2), begin("A", 6), intent("A", 7, 1, "y")]
    assert counting(*log) == [("A", 6), ("A", 7), ("B", 1), ("B", 2)]


@pytest.mark.parametrize(
    "announcement",
    [
        (Ev.STEP_INTENT, Ev.STEP_NOT_APPLIED),
        (Ev.STEP_COMPENSATING, Ev.STEP_COMPENSATION_NOT_APPLIED),
    ],
)
def test_a_late_announcement_that_was_not_started_is_harmless(announcement):
    announced, closed = announcement
    log = [
        begin(),
        claim("B", 1, 2, A=1),
        Rec("A", 2, 1, announced, "x", {}),
        Rec("A", 3, 1, closed, "x", {"by": "engine"}),
    ]
    assert stale(*log) == []
    assert counting(*log) == [("A", 1), ("B", 1)]


@pytest.mark.parametrize(
    "closing",
    [
        not_started("A", 3, 1, by="tool"),
        not_started("A", 3, 1, by="prober"),
        not_started("A", 3, 1, step="y"),
        not_started("A", 3, 1, generation=1),
        not_started("C", 3, 1),
        Rec("A", 3, 1, Ev.STEP_NOT_APPLIED, "x", "unreadable"),
        Rec("A", 3, 1, Ev.STEP_COMMITTED, "x", {"by": "engine"}),
    ],
)
def test_nothing_else_closes_a_late_announcement(closing):
    log = [begin(), claim("B", 1, 2, A=1), intent("A", 2, 1), closing]
    assert ("A", 2) in stale(*log)


def test_one_closing_closes_one_announcement():
    log = [
        begin(),
        claim("B", 1, 2, A=1),
        intent("A", 2, 1),
        Rec("A", 3, 1, Ev.STEP_UNKNOWN, "x", {}),
        intent("A", 4, 1),
        not_started("A", 5, 1),
    ]
    assert stale(*log) == [("A", 2), ("A", 3)]


def test_a_closing_before_its_announcement_closes_nothing():
    log = [begin(), claim("B", 1, 2, A=1), not_started("A", 2, 1), intent("A", 3, 1)]
    assert stale(*log) == [("A", 2), ("A", 3)]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "unreadable",
        7,
        [],
        {"cuts": 7},
        {"cuts": {"A": 7}},
        {"cuts": {"A": {"seq": "9"}}},
        {"cuts": {"A": {"seq": True}}},
        {"cuts": {"A": {"seq": 1e400}}},
    ],
)
def test_a_claim_that_cannot_be_read_has_read_nothing(payload):
    log = [begin(), Rec("B", 1, 2, Ev.SAGA_CLAIM, payload=payload)]
    assert stale(*log) == [("A", 1)]
    assert not resolve("s", log).clean
    assert resolve("s", log).faults


def test_a_person_who_closes_it_settles_what_was_seen_and_nothing_later():
    seen = [begin(), claim("B", 1, 2, A=1), intent("A", 2, 1)]
    assert resolve("s", seen).faults
    closed = [
        *seen,
        claim("C", 1, 3, "operator", A=2, B=1),
        Rec("C", 2, 3, Ev.SAGA_CLOSED, payload={"despite": ["a stale record"]}),
    ]
    view = resolve("s", closed)
    assert (view.faults, view.state.value, view.clean) == ([], "CLOSED", True)
    later = resolve("s", [*closed, intent("A", 3, 1, "z")])
    assert len(later.faults) == 1
    assert not later.clean


def test_two_claims_of_one_epoch_cut_what_either_cuts():
    """No writer claims an epoch twice; a log that says so is believed in nothing that it cuts."""
    records = [
        Rec("C", 1, 1, Ev.SAGA_BEGIN),
        claim("A", 1, 2, A=0, C=1),
        claim("A", 2, 2),
    ]
    assert places(effective(records).records) == [("A", 1), ("A", 2)]
    assert places(effective(records).stale) == [("C", 1)]


# --- random logs ----------------------------------------------------------------------------------

WRITERS = "ABC"
EVENTS = (
    Ev.SAGA_BEGIN,
    Ev.SAGA_CLAIM,
    Ev.STEP_INTENT,
    Ev.STEP_NOT_APPLIED,
    Ev.STEP_COMPENSATING,
    Ev.STEP_COMMITTED,
)


@st.composite
def logs(draw):
    """Records of three writers in any order that a log can have, claims with any cuts."""
    records = []
    for writer in WRITERS:
        for seq in range(1, draw(st.integers(0, 6)) + 1):
            event = draw(st.sampled_from(EVENTS))
            payload: Any = {"by": draw(st.sampled_from(["engine", "tool"]))}
            if event == Ev.SAGA_CLAIM:
                cuts = draw(st.dictionaries(st.sampled_from(WRITERS), st.integers(0, 7)))
                payload = {"cuts": {one: {"seq": at} for one, at in cuts.items()}}
            epoch = draw(st.integers(1, 4))
            records.append(Rec(writer, seq, epoch, event, draw(st.sampled_from("xy")), payload))
    return records


@given(logs())
def test_no_record_is_lost_and_none_counts_twice(records):
    found = effective(records)
    late = [r for r in records if r not in found.records]
    assert len(found.records) + len(late) == len(records)
    assert all(r in late for r in found.stale)
    assert found.records == sorted(found.records, key=lambda r: (r.epoch, r.seq))


@given(logs())
def test_what_counts_was_opened_by_its_writer_and_cut_by_no_claim_that_counts(records):
    found = effective(records)
    claims = [r for r in found.records if r.event == Ev.SAGA_CLAIM]
    for record in found.records:
        opened = [
            r.writer
            for r in records
            if r.event in (Ev.SAGA_BEGIN, Ev.SAGA_CLAIM) and r.epoch == record.epoch
        ]
        assert set(opened) == {record.writer}
        for later in claims:
            if later.epoch > record.epoch:
                assert record.seq <= later.payload["cuts"].get(record.writer, {"seq": 0})["seq"]


@given(logs())
def test_only_pairs_of_announcement_and_not_started_are_let_pass(records):
    found = effective(records)
    passed = [r for r in records if r not in found.records and r not in found.stale]
    announced = [r for r in passed if r.event in (Ev.STEP_INTENT, Ev.STEP_COMPENSATING)]
    closed = [r for r in passed if r not in announced]
    assert len(announced) == len(closed)
    for record in closed:
        assert record.payload["by"] == "engine"
        call = (record.writer, record.epoch, record.step)
        before = [a for a in announced if a.seq < record.seq]
        assert call in [(a.writer, a.epoch, a.step) for a in before]


@given(logs())
def test_a_reader_of_any_log_is_told_what_is_stale_and_never_calls_it_clean(records):
    view = resolve("s", records)
    if effective(records).stale:
        assert view.faults
        assert not view.clean


@given(logs())
def test_a_new_claim_that_read_everything_changes_nothing_that_counted(records):
    before = effective(records)
    last = {w: max([r.seq for r in records if r.writer == w], default=0) for w in WRITERS}
    new = claim("D", 1, before.highest + 1, **last)
    after = effective([*records, new])
    assert places(after.records) == [*places(before.records), ("D", 1)]
    assert after.stale == before.stale
    assert after.owner == "D"
