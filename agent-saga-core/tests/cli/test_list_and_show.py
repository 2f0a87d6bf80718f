"""What a log says, told to a person and as JSON; never clean when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cli.conftest import CHARGE, INVERSE, Cli, Log

from agent_saga.domain.lifecycle import STEP_STANDS, SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.domain.words import SAGA_WORDS, STEP_WORDS

if TYPE_CHECKING:
    from pathlib import Path


def test_no_log_is_nothing_verifiable_and_makes_none(cli: Cli, tmp_path: Path) -> None:
    run = cli("list")
    assert run.code == 3
    assert "There is no log here yet." in run.out
    assert cli("show", "saga-1").code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_clean_log_exits_with_0(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": [], "counts": {}})
    log.close()
    run = cli("list")
    assert run.code == 0
    assert "saga-1  checkout  COMMITTED  yes    1" in run.out
    assert "1 of 1 saga; 0 not clean." in run.out
    shown = cli("show", "saga-1")
    assert shown.code == 0
    assert "Saga 'checkout' saga-1 was committed: clean." in shown.out
    assert "charge [abcdefgh] took effect; inverse acme.refund(id='c1')" in shown.out
    assert "Nothing stands that was neither undone nor declared." in shown.out
    assert "Next:" not in shown.out


def test_a_saga_that_has_not_ended_is_not_clean(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.close()
    assert cli("list").code == 1
    shown = cli("show", "saga-1")
    assert shown.code == 1
    assert "has not ended, and its process died: NOT clean." in shown.out
    told = "Next: recovery undoes it if its process died: agent-saga recover"
    assert f"{told} --wal-path {log.path} --import MODULE\n" in shown.out


def test_a_suspended_saga_tells_how_it_goes_on(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_SUSPENDED, {"reason": "a human", "deadline": 0, "at_deadline": "hold"})
    log.close()
    shown = cli("show", "saga-1")
    assert shown.code == 1
    assert "is suspended beyond its deadline (a human decides): NOT clean." in shown.out
    assert "then it waits for a human" in shown.out
    assert f"Next: agent-saga queue show saga-1 --wal-path {log.path}" in shown.out


def test_before_its_deadline_a_suspended_saga_is_resumed_and_after_it_undone(
    cli: Cli, log: Any
) -> None:
    for saga, deadline in (("early", 1 << 52), ("late", 0)):
        log.begin(saga)
        about = {"reason": "a human", "deadline": deadline, "at_deadline": "undo"}
        log.add(Ev.SAGA_SUSPENDED, about, saga=saga)
    log.close()
    early, late = cli("show", "early").out, cli("show", "late").out
    assert "is suspended: NOT clean." in early
    assert "Next: its program resumes it before its deadline" in early
    assert "is suspended beyond its deadline (recovery undoes it): NOT clean." in late
    assert "Next: its deadline is over, so recovery undoes it: agent-saga recover" in late


def test_every_state_has_its_words() -> None:
    assert set(SAGA_WORDS) == set(SagaState)
    assert set(STEP_WORDS) == STEP_STANDS | {StepState.COMMITTED}


def test_an_empty_queue_is_not_told_where_there_is_no_log(cli: Cli, tmp_path: Path) -> None:
    run = cli("queue", "list")
    assert (run.code, "There is no log here yet." in run.out) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_is_told_with_its_reason(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_UNWINDING, {"cause": "ValueError", "scope": []})
    log.add(Ev.STEP_ORPHANED, {"reason": "it has no inverse"}, step=CHARGE)
    log.add(Ev.SAGA_PARTIAL, {"orphaned": [CHARGE]})
    log.close()
    run = cli("show", "saga-1")
    assert run.code == 1
    why = "it has no usable inverse; it has no inverse"
    assert f"May stand:\n  - charge [abcdefgh]: {why}" in run.out
    assert f"Next: agent-saga queue show saga-1 --wal-path {log.path}" in run.out
    listed = cli("queue", "list")
    assert f"1 case. Next: agent-saga queue show SAGA --wal-path {log.path}" in listed.out
    case = cli("queue", "show", "saga-1")
    assert case.code == 1
    assert f"agent-saga queue close saga-1 --wal-path {log.path} --by NAME" in case.out


def test_what_was_approved_to_stand_is_told_and_is_not_clean(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_UNWINDING, {"cause": "ValueError", "scope": []})
    log.add(Ev.STEP_KEPT, {"approved_by": "ann"}, step=CHARGE)
    log.add(Ev.SAGA_PARTIAL, {"kept": [CHARGE]})
    log.close()
    run = cli("show", "saga-1")
    assert run.code == 1
    assert "Stands for ever, as approved:\n  - charge [abcdefgh]" in run.out
    assert "Next: nothing is left to undo" in run.out


def test_records_that_no_lifecycle_allows_make_a_saga_not_clean(cli: Cli, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.add("STEP_TELEPORTED", step=CHARGE)
    log.add(Ev.SAGA_ROLLED_BACK)
    log.close()
    run = cli("show", "saga-1")
    assert run.code == 1
    assert "Wrong with its records:" in run.out
    assert "unknown kind STEP_TELEPORTED" in run.out
    assert "SAGA_ROLLED_BACK cannot follow COMMITTED" in run.out


@pytest.mark.parametrize("late", [False, True])
def test_a_saga_that_another_process_took_over_is_told_as_one(
    cli: Cli, log: Any, late: bool
) -> None:
    log.begin()
    last = log.charged()
    log.sync()
    other = Log(log.path)
    cuts = {log.writer: {"seq": last, "hash": ""}}
    other.add(Ev.SAGA_CLAIM, {"cuts": cuts, "by": "daemon", "reason": "recover"}, epoch=2)
    other.add(Ev.SAGA_UNWINDING, {"scope": [], "cause": "its process died"}, epoch=2)
    other.add(Ev.STEP_COMPENSATING, {"attempt": 1, "inverse": INVERSE}, step=CHARGE, epoch=2)
    other.add(Ev.STEP_COMPENSATED, {"by": "handler"}, step=CHARGE, epoch=2)
    other.add(Ev.SAGA_ROLLED_BACK, epoch=2)
    if late:
        log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    other.close()
    run = cli("show", "saga-1")
    assert run.code == int(late)
    assert f"saga-1 was undone: {'NOT clean' if late else 'clean'}." in run.out
    assert "The saga was taken over by daemon: recover" in run.out
    assert ("a stale SAGA_COMMITTED" in run.out) is late
    assert cli("list").code == int(late)


def test_a_saga_is_found_by_id_by_its_beginning_and_by_name(cli: Cli, log: Any) -> None:
    log.begin("alpha-1", "first")
    log.begin("alpha-2", "twice")
    log.begin("beta-1", "twice")
    log.begin("-dash", "dashed")
    log.close()
    for wanted, found in (
        ("alpha-1", "alpha-1"),
        ("beta", "beta-1"),
        ("first", "alpha-1"),
        ("-dash", "-dash"),
        ("-d", "-dash"),
    ):
        assert f" {found} has not ended" in cli("show", wanted).out
    for ambiguous in ("alpha", "twice"):
        run = cli("show", ambiguous)
        assert run.code == 2
        assert "may be one of 2 sagas" in run.err
        assert "alpha-2" in run.err
    missing = cli("show", "gamma")
    assert missing.code == 3
    assert "There is no saga 'gamma'" in missing.err


def test_filters_show_and_judge_only_what_they_let_through(cli: Cli, log: Any) -> None:
    log.begin("open-1", "one")
    log.begin("done-1", "two")
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []}, saga="done-1")
    log.close()
    assert cli("list").code == 1
    done = cli("list", "--state", "committed")
    assert done.code == 0
    assert "open-1" not in done.out
    assert "1 of 2 sagas" in done.out
    assert "done-1" not in cli("list", "--not-clean").out
    assert "open-1" in cli("list", "--name", "one").out
    assert cli("list", "--name", "nobody").code == 0
    assert cli("list", "--state", "nonsense").code == 2


def test_json_is_one_document(cli: Cli, log: Any) -> None:
    log.begin(name="a\x1b[2J\u202e")
    log.charged()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    listed = cli("list", "--json")
    assert listed.document["log"] == str(log.path)
    assert listed.document["whole"] is True
    assert listed.document["sagas"][0]["clean"] is True
    shown = cli("show", "saga-1", "--json")
    assert shown.code == 0
    step = shown.document["steps"][0]
    assert (step["tool"], step["state"], step["inverse"]) == ("charge", "COMMITTED", "acme.refund")
    events = [record["event"] for record in shown.document["records"]]
    assert events == ["SAGA_BEGIN", "STEP_INTENT", "STEP_COMMITTED", "SAGA_COMMITTED"]
    assert shown.document["records"][1]["data"]["args"] == {"amount": 4200}
    assert shown.out.isascii()
    assert "\x1b" not in shown.out


def test_no_name_of_a_log_can_steer_a_terminal(cli: Cli, log: Any) -> None:
    log.begin("saga-1\x1b[2J", name="a\nforged: clean\x07")
    log.add("EVIL\x1b[2J", saga="saga-1\x1b[2J")
    log.close()
    for words in (["list"], ["show", "saga-1"]):
        run = cli(*words)
        assert all(line.isprintable() for line in run.out.splitlines())
        assert "\nforged" not in run.out


def segment_of(path: Path) -> Path:
    return next(path.glob("writers/*/seg-*"))


def test_damage_is_told_with_every_answer_and_is_not_clean(cli: Cli, log: Any) -> None:
    log.begin()
    log.sync()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    file = segment_of(log.path)
    lines = file.read_bytes().split(b"\n")
    lines[1] = b"#" * len(lines[1])
    file.write_bytes(b"\n".join(lines))
    run = cli("list")
    assert run.code == 1
    assert "DAMAGE: writer" in run.out
    assert cli("list", "--json").document["whole"] is False
    assert cli("show", "saga-1").code == 1


def test_a_torn_end_is_told_and_is_no_damage(cli: Cli, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    with segment_of(log.path).open("ab") as file:
        file.write(b'{"v":1,"q":9999,')
    run = cli("list")
    assert run.code == 0
    assert "Note: writer" in run.out


def test_a_file_where_the_folder_should_be_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent-saga.wal").write_text("x")
    run = cli("list")
    assert run.code == 3
    assert "SAGA-506" in run.err


def test_a_log_that_may_only_be_read_is_read(cli: Cli, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    before = sorted(str(p) for p in log.path.rglob("*"))
    log.path.chmod(0o500)
    try:
        assert cli("list").code == 0
        assert cli("show", "saga-1").code == 0
    finally:
        log.path.chmod(0o700)
    assert sorted(str(p) for p in log.path.rglob("*")) == before


@pytest.mark.parametrize("depth", [100, 10_000])
def test_a_payload_that_nests_too_deep_is_not_fatal(cli: Cli, log: Any, depth: int) -> None:
    log.begin()
    log.close()
    file = segment_of(log.path)
    deep = b"[" * depth + b"]" * depth
    good = file.read_bytes()
    file.write_bytes(good.replace(b'"labels":{}', b'"labels":' + deep))
    for words in (["list"], ["show", "saga-1"], ["show", "saga-1", "--json"]):
        assert cli(*words).code in (1, 3)
