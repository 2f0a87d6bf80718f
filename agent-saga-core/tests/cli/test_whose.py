"""Who has an open saga: a process that lives, one that died, or one of which nobody can tell."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga import compensator
from agent_saga.domain.records import Ev
from agent_saga.plugins.registry import process_handlers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.conftest import Cli

INVERSE = {"handler": "whose.refund", "kwargs": {}}


@pytest.fixture(autouse=True)
def refunds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    undone: list[str] = []
    with process_handlers().isolated():
        compensator("whose.refund")(lambda: undone.append("refunded"))
        yield undone


def open_saga(log: Any, key: str = "") -> None:
    about = {"name": "checkout", "labels": {}, "key": key}
    log.add(Ev.SAGA_BEGIN, {"about": about}, saga="saga-1")
    log.charged(inverse=INVERSE)
    log.sync()


def test_the_id_that_a_program_chose_is_listed(cli: Cli, log: Any) -> None:
    open_saga(log, "order-7")
    listed = cli("list")
    assert "SAGA_ID" in listed.out
    assert "order-7" in listed.out
    assert [one["saga_id"] for one in cli("list", "--json").document["sagas"]] == ["order-7"]
    assert cli("show", "order-7", "--json").code in (1, 3)


def test_without_such_ids_there_is_no_column_of_them(cli: Cli, log: Any) -> None:
    open_saga(log)
    assert "SAGA_ID" not in cli("list").out
    assert cli("list", "--json").document["sagas"][0]["saga_id"] == ""


def test_a_saga_whose_process_lives_is_told_from_one_whose_process_died(cli: Cli, log: Any) -> None:
    open_saga(log)
    assert "its process" not in cli("list").out
    assert cli("list", "--json").document["sagas"][0]["process"] == "alive"
    log.close()
    assert "RUNNING (its process died)" in cli("list").out
    assert cli("list", "--json").document["sagas"][0]["process"] == "dead"
    assert "has not ended, and its process died: NOT clean." in cli("show", "saga-1").out
    assert cli("show", "saga-1", "--json").document["process"] == "dead"


def test_a_saga_that_nobody_has_tells_of_no_process(cli: Cli, log: Any) -> None:
    open_saga(log)
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    assert "its process" not in cli("list").out
    assert cli("list", "--json").document["sagas"][0]["process"] == ""


@pytest.fixture
def without_lock(log: Any) -> Path:
    """The lock of a process that died with an open saga, taken away."""
    open_saga(log)
    log.close()
    lock = log.path / "writers" / log.writer / "lock"
    lock.rename(log.path.with_name("taken away"))  # so that no file made later gets its number
    return Path(lock)


def test_a_lost_lock_is_a_matter_for_a_person(cli: Cli, without_lock: Path) -> None:
    told = f"To do: When its process ({os.getpid()}) has ended, put a lock there: "
    for words in (("status",), ("queue", "list")):
        run = cli(*words)
        assert run.code == 1
        assert "cannot be told" in run.out
        assert told + f"touch {shlex.quote(str(without_lock))}" in run.out
    assert cli("list").code == 1
    assert "nobody can tell" in cli("list").out
    assert cli("list", "--json").document["sagas"][0]["process"] == "cannot be told"
    status = cli("status", "--json").document["sections"]
    assert status["writers"]["attention"]
    assert list(status["writers"]["untold"]) == [without_lock.parent.name]
    assert status["sagas"]["untold"] == ["saga-1"]
    assert status["queue"]["attention"], "as the queue itself says"
    assert status["queue"]["untold"] == ["saga-1"]
    assert "nothing needs a human" not in cli("status").out
    assert [one["saga"] for one in cli("queue", "list", "--json").document["untold"]] == ["saga-1"]
    doctor = cli("doctor")
    assert (doctor.code, f"touch {shlex.quote(str(without_lock))}" in doctor.out) == (1, True)
    shown = cli("queue", "show", "saga-1")
    assert (shown.code, "touch" in shown.err) == (3, True)


def test_what_is_told_to_do_about_a_lost_lock_lets_recovery_go_on(
    cli: Cli, without_lock: Path, refunds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("recover").code == 1
    assert refunds == []
    without_lock.touch()
    assert cli("recover").code == 1
    assert refunds == [], "the process of that number lives, so the empty lock proves nothing"
    monkeypatch.setattr("agent_saga.wal.takeover._may_run", lambda pid: False)
    assert cli("recover").code == 0
    assert refunds == ["refunded"]
    assert cli("status").code == 0


def test_a_process_of_which_nothing_is_told_has_no_number(cli: Cli, log: Any) -> None:
    open_saga(log)
    for segment in log.path.rglob("seg-*"):
        segment.unlink()
    told = cli("status").out
    assert f"{log.writer}: a process" in told
    assert "None" not in told
    (log.path / "writers" / log.writer / "lock").unlink()
    told = cli("status").out
    assert "When the process that wrote there has ended" in told
    assert "None" not in told


def test_the_queue_names_what_recovery_leaves_alone_since_it_is_quarantined(
    cli: Cli, log: Any
) -> None:
    open_saga(log)
    quarantine = ("quarantine", "saga-1", "--reason", "odd", "--by", "soc")
    assert cli(*quarantine).code == 0
    assert cli("queue", "list").code == 0  # its process lives, and is stopped by itself
    log.close()
    assert cli("recover").code == 1
    lift = "agent-saga resume --scope saga:saga-1 --by NAME"
    listed = cli("queue", "list")
    assert (listed.code, "Nothing needs a human" in listed.out) == (1, False)
    assert "is quarantined by soc: odd" in listed.out
    assert lift in listed.out
    assert [one["saga"] for one in cli("queue", "list", "--json").document["untold"]] == ["saga-1"]
    assert "1 saga that nobody can take over" in cli("status").out
    shown = cli("show", "saga-1")
    assert "Nothing undoes it until that is lifted" in shown.out
    assert lift in shown.out
    assert lift in cli("show", "saga-1", "--json").document["next"]
    for command in (("show",), ("close", "--by", "ann", "--reason", "r")):
        refused = cli("queue", command[0], "saga-1", *command[1:])
        assert (refused.code, lift in refused.err) == (4, True)
    assert cli("resume", "--scope", "saga:saga-1", "--by", "ann").code == 0
    assert cli("queue", "list").code == 0
    assert "recovery undoes it" in cli("show", "saga-1").out
    assert cli("recover").code == 0
