"""Records as sentences, whatever stands in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_saga.cli.output import printable
from agent_saga.cli.story import moment, payload_of, told
from agent_saga.domain.records import NEEDS, Ev
from agent_saga.wal.format import Record

STEP = "abcdefgh12345678abcdef"
CALL = {"call": {"tool": "charge", "semantics": "COMPENSABLE"}, "args": {"amount": 4200}}


def record(event: str, facts: Any = None, *, step: str = "", payload: bytes | None = b"") -> Record:
    if payload == b"":
        payload = msgspec.json.encode({} if facts is None else facts)
    envelope = {"fmt": 1, "seq": 1, "mark": 0, "time": 0, "epoch": 1, "generation": 0}
    rest = dict.fromkeys(Record.__struct_fields__, b"") | {"writer": "writer", "saga": "saga"}
    return Record(**rest | envelope | {"event": event, "step": step, "payload": payload})


def sentence(event: str, facts: Any, *before: Record) -> str:
    return list(told([*before, record(event, facts, step=STEP)]))[-1][1]


INTENT = record(Ev.STEP_INTENT, CALL, step=STEP)
REFUND = {"handler": "refund", "kwargs": {"id": "c1"}}


@pytest.mark.parametrize(
    ("event", "facts", "text"),
    [
        (Ev.STEP_INTENT, CALL, "charge [abcdefgh] is announced (COMPENSABLE): amount=4200"),
        (
            Ev.STEP_INTENT,
            CALL | {"approved_by": "ann"},
            "charge [abcdefgh] is announced (COMPENSABLE, approved by ann): amount=4200",
        ),
        (Ev.SAGA_BEGIN, {}, "The boundary began"),
        (Ev.SAGA_BEGIN, {"about": {"key": "o-1"}}, "The boundary began, with the id 'o-1'"),
        (Ev.SAGA_SUSPENDED, {"reason": "a human"}, "The saga was suspended: a human"),
        (
            Ev.SAGA_SUSPENDED,
            {"reason": "a human", "deadline": 0, "at_deadline": "undo"},
            (
                "The saga was suspended: a human "
                "(until 1970-01-01 00:00:00.000 UTC, then it is undone)"
            ),
        ),
        (
            Ev.STEP_COMMITTED,
            {"result": 1, "inverse": REFUND},
            "charge [abcdefgh] took effect; inverse refund(id='c1')",
        ),
        (
            Ev.STEP_COMMITTED,
            {"missing": "the factory answered None", "via": "fallback"},
            "charge [abcdefgh] took effect by fallback; WITHOUT INVERSE: the factory answered None",
        ),
        (
            Ev.STEP_COMMITTED,
            {"inverse": {"none": "a dry run"}},
            "charge [abcdefgh] took effect; nothing needs undoing: a dry run",
        ),
        (
            Ev.STEP_COMMITTED,
            {"inverse": {"kwargs": {}}},
            "charge [abcdefgh] took effect; inverse a function of that process()",
        ),
        (
            Ev.STEP_COMMITTED,
            {"call": {"tool": "look", "semantics": "REVERSIBLE"}, "args": {"q": "x"}},
            "look [abcdefgh] (REVERSIBLE: q='x') took effect",
        ),
        (
            Ev.STEP_NOT_APPLIED,
            {"by": "prober", "evidence": "no such charge", "final": True},
            "charge [abcdefgh] had no effect, says prober: no such charge",
        ),
        (
            Ev.STEP_UNKNOWN,
            {
                "ending": "raised",
                "error": {"type": "TimeoutError", "message": "30 s"},
                "running": True,
            },
            (
                "charge [abcdefgh] MAY have taken effect: TimeoutError: 30 s; "
                "its call is still running"
            ),
        ),
        (
            Ev.STEP_UNKNOWN,
            {"about": {"ending": "cancelled", "error": None}},
            "charge [abcdefgh] MAY have taken effect: cancelled",
        ),
        (Ev.STEP_LATE, {}, "LATE, after it had been given up: charge [abcdefgh] took effect"),
        (
            Ev.STEP_ATTEMPT,
            {"number": 1, "ending": "raised", "error": {"type": "Busy", "message": ""}},
            "charge [abcdefgh]: an attempt ended: Busy",
        ),
        (
            Ev.STEP_COMPENSATING,
            {"attempt": 1, "inverse": REFUND},
            "charge [abcdefgh] is being undone: inverse refund(id='c1')",
        ),
        (
            Ev.STEP_COMPENSATING,
            {"attempt": 2, "inverse": REFUND},
            "charge [abcdefgh] is being undone: inverse refund(id='c1'), attempt 2",
        ),
        (Ev.STEP_COMPENSATED, {"by": "handler"}, "charge [abcdefgh] was undone"),
        (
            Ev.STEP_COMPENSATED,
            {"by": "reconciler"},
            "charge [abcdefgh] was undone (seen by its reconciler)",
        ),
        (
            Ev.STEP_COMPENSATION_FAILED,
            {"error": {"type": "ValueError", "message": "no such charge"}},
            "The inverse of charge [abcdefgh] FAILED for good: ValueError: no such charge",
        ),
        (
            Ev.STEP_ORPHANED,
            {"reason": "it has no inverse"},
            "charge [abcdefgh] MAY STAND, and has no usable inverse: it has no inverse",
        ),
        (
            Ev.STEP_KEPT,
            {"approved_by": "ann"},
            "charge [abcdefgh] stands for ever, approved by ann",
        ),
        (
            Ev.STEP_REFUSED,
            {"tool": "wire", "rule": "approval", "reason": "nobody to ask"},
            "wire [abcdefgh] was refused by approval: nobody to ask",
        ),
        (
            Ev.STEP_CLOSED,
            {"by": "ann", "reason": "paid"},
            "charge [abcdefgh] was closed by ann: paid",
        ),
        (Ev.SAGA_CLOSED, {"by": "ann"}, "The case was closed by ann"),
        (
            Ev.SAGA_CLAIM,
            {"reason": "recover"},
            "The saga was taken over by another process: recover",
        ),
        (
            Ev.SAGA_CLAIM,
            {"reason": "undo", "by": "ann"},
            "The saga was taken over by ann: undo",
        ),
        (Ev.SAGA_COMMITTED, {"unsettled": []}, "The boundary was committed"),
        (
            Ev.SAGA_COMMITTED,
            {"unsettled": ["a", "b"]},
            "The boundary was committed, with 2 UNSETTLED steps",
        ),
        (Ev.SAGA_UNWINDING, {"cause": "ValueError"}, "Undoing began: ValueError"),
        (
            Ev.SAGA_UNWINDING,
            {"cause": "x", "scope": ["booking#1", "hotel#1"]},
            "Undoing of savepoint booking#1/hotel#1 began: x",
        ),
        (Ev.SCOPE_OPEN, {"path": ["booking#1"]}, "Savepoint booking#1 was entered"),
        (
            Ev.SCOPE_CLOSED,
            {"path": ["booking#1"], "result": "UNDONE"},
            "Savepoint booking#1 ended as UNDONE",
        ),
    ],
)
def test_a_record_is_one_sentence(event: str, facts: Any, text: str) -> None:
    assert sentence(event, facts, INTENT) == text


SAGA_EVENTS = [event for event in NEEDS if event.startswith(("SAGA_", "STEP_", "SCOPE_"))]


def test_every_kind_of_record_has_its_sentence() -> None:
    for event in SAGA_EVENTS:
        assert event != "SAGA_BEGIN" or "began" in sentence(event, {})
        assert "does not know" not in sentence(event, {})


@pytest.mark.parametrize("event", SAGA_EVENTS)
@pytest.mark.parametrize(
    "facts",
    [
        [],
        "text",
        7,
        None,
        {"call": 1, "args": [], "inverse": 3, "about": "x", "path": 7, "scope": [1, None]},
        {"call": {"tool": 1}, "error": {"type": 1, "message": []}, "unsettled": 3, "kwargs": 1},
        {"inverse": {"kwargs": 1, "handler": {}}, "error": "text", "about": {"by": []}},
    ],
)
def test_a_payload_of_another_form_never_ends_the_story(event: str, facts: Any) -> None:
    assert sentence(event, facts)


@pytest.mark.parametrize("payload", [b"{", b"\xff", b'{"a":\x00}', None])
def test_a_payload_that_cannot_be_read_shortens_the_sentence(payload: bytes | None) -> None:
    broken = record(Ev.STEP_COMMITTED, step=STEP, payload=payload)
    assert payload_of(broken) == {}
    assert "took effect" in next(told([broken]))[1]


def test_an_erased_payload_is_said() -> None:
    erased = record(Ev.STEP_ORPHANED, step=STEP, payload=None)
    assert next(told([erased]))[1].endswith("(its payload was erased)")


def test_an_unknown_kind_of_record_is_told_by_its_name() -> None:
    assert sentence("STEP_TELEPORTED", {}).startswith("STEP_TELEPORTED (this version does not know")


def test_no_text_of_the_log_can_steer_a_terminal() -> None:
    evil = {"tool": "x\x1b[2J\nfake", "rule": "\x07", "reason": "\u202e" * 500}
    text = sentence(Ev.STEP_REFUSED, evil)
    assert text.isprintable()
    assert len(text) < 400


def test_long_arguments_are_cut() -> None:
    facts = CALL | {"args": {f"a{n}": "x" * 1000 for n in range(1000)}}
    assert len(sentence(Ev.STEP_INTENT, facts)) < 300


def test_times_are_shown_in_utc() -> None:
    assert moment(1_764_435_600_123_456) == "2025-11-29 17:00:00.123"
    assert moment(10**30) == f"{10**30} µs"


def test_printable_escapes_what_does_not_print() -> None:
    assert printable("é\n\x1b\ud800") == "é\\n\\x1b\\ud800"
    assert printable(7) == "7"
