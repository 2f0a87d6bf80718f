"""A pass that did not come to every saga says so, wherever its result is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recovery.conftest import SAGA, Log, World

from agent_saga import compensator
from agent_saga.cli.main import main
from agent_saga.cli.recoveryd import _write_health
from agent_saga.domain.records import Ev
from agent_saga.recovery.daemon import Result
from agent_saga.recovery.seen import last_seen


def dead(log: Log, saga: str = SAGA, handler: str = "undo") -> None:
    past = log.past(saga).begin()
    past.applied("a", handler=handler)
    past.die()


@pytest.mark.guarantee("RECOVER-25")
def test_a_pass_after_a_stop_is_made_and_is_not_clean_for_nothing(log: Log, world: World) -> None:
    dead(log)
    daemon = log.daemon()
    daemon.stop()
    result = daemon.recover_all()
    assert world.undone == ["a"]
    assert result.clean


@pytest.mark.guarantee("RECOVER-25")
@pytest.mark.parametrize("patient", [True, False])
def test_a_pass_that_is_cut_short_is_not_clean(log: Log, world: World, patient: bool) -> None:
    daemon = log.daemon()

    @compensator("stops")
    def stops(what: str, *, idempotency_key: str) -> None:
        world.undo(what, idempotency_key)
        daemon.stop()

    for saga in ("one", "two", "three"):
        dead(log, saga, handler="stops")
    result = daemon.recover_all() if patient else daemon.sweep()
    assert [one.outcome for one in result.sagas] == ["undone"]
    assert (result.skipped, result.clean) == (2, False)
    assert last_seen(log.path) is None, "it was no pass over the log"
    assert log.daemon().recover_all().clean
    assert world.undone == ["a"] * 3


def test_watching_ends_for_good(log: Log, world: World) -> None:
    dead(log)
    daemon = log.daemon()
    daemon.stop()
    daemon.watch(0.1)
    assert world.undone == []


@pytest.mark.guarantee("RECOVER-25")
def test_the_health_file_tells_of_what_was_not_seen(tmp_path: Path, log: Log) -> None:
    health = tmp_path / "health.json"
    _write_health(health, log.path, Result([], 0, untold="it cannot be read", skipped=2))
    told = json.loads(health.read_text())
    assert (told["untold"], told["skipped"]) == ("it cannot be read", 2)
    assert (told["log"], told["no_log"]) == (str(log.path), True)
    dead(log)
    _write_health(health, log.path, Result([], 0))
    assert json.loads(health.read_text())["no_log"] is False


def test_the_command_tells_of_none_that_it_came_to(
    log: Log, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    dead(log)
    log.close()
    assert main(["recover", "--wal-path", str(log.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 0


def test_what_stays_wrong_with_the_state_store_is_logged_once(
    log: Log, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    dead(log)
    daemon = log.daemon()
    daemon.sweep()
    (log.path / "state.sqlite").unlink()
    for _ in range(3):
        assert daemon.sweep().untold
    told = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert len(told) == len(set(told)) == 2


def test_the_document_tells_what_stands_although_it_was_undone(
    log: Log, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    past = log.past().begin()
    past.intent("p", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "p", result="sent")
    past.die()
    dead(log, "another")
    log.close()
    assert main(["recover", "--wal-path", str(log.path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["sagas"]
    assert {one["saga"]: (one["outcome"], one["stands"]) for one in told} == {
        SAGA: ("undone", True),
        "another": ("undone", False),
    }
