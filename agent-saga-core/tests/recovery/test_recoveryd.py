"""`saga-recoveryd` and the commands of the queue, as processes and as a person types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recovery.conftest import SAGA

from agent_saga import compensator
from agent_saga.cli.main import main as root
from agent_saga.cli.recoveryd import _write_health, program
from agent_saga.domain.records import Ev
from agent_saga.errors import NotFound
from agent_saga.recovery.daemon import Result
from agent_saga.recovery.recover import Recovered


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    monkeypatch.setenv("AGENT_SAGA_INVERSE_DELAY", "0")


def dead(log, *, orphan=False):
    past = log.past().begin()
    past.applied("a")
    if orphan:
        past.intent("b")
    past.die()


def once(log, *more):
    return program.main(["--wal-path", str(log.path), "--once", *more], standalone_mode=False)


def test_once_recovers_and_says_so_by_its_exit_code(log, world):
    dead(log)
    assert int(once(log)) == 0
    assert world.undone == ["a"]


def test_once_exits_with_1_while_a_case_needs_a_human(log, world):
    dead(log, orphan=True)
    assert int(once(log)) == 1
    assert int(once(log)) == 1


def test_the_health_file_tells_time_and_counts(log, world, tmp_path):
    dead(log, orphan=True)
    health = tmp_path / "health.json"
    before = time.time()
    once(log, "--health-file", str(health))
    told = json.loads(health.read_text())
    assert before <= told.pop("time") <= time.time()
    assert told == {
        "log": str(log.path),
        "no_log": False,
        "failed": False,
        "not_settled": 1,
        "needs_human": 1,
        "waiting": 0,
        "skipped": 0,
        "damages": 0,
        "missing_handlers": [],
        "untold": "",
    }
    assert [path.name for path in tmp_path.iterdir() if "health" in path.name] == ["health.json"]


def test_a_saga_whose_inverse_is_missing_waits_and_is_told_while_others_go_on(
    log, world, caplog, monkeypatch
):
    """A daemon that has been running for long comes upon what no module of it registers."""
    daemon = log.daemon(leave_missing=False)
    assert daemon.sweep().clean
    past = log.past("lacks").begin()
    past.intent("z")
    inverse = {"handler": "shop.refund", "kwargs": {}, "from": "agent-shop 4.2"}
    past.write(Ev.STEP_COMMITTED, "z", result="z", inverse=inverse)
    past.die()
    dead(log)
    for _ in range(2):
        result = daemon.sweep()
        assert result.missing == ("shop.refund",)
        [one] = result.waiting
        assert one.saga == "lacks"
        assert "shop.refund" in one.reason
        assert "agent-shop 4.2" in one.reason
        assert not result.clean
    assert world.undone == ["a"]
    assert "SAGA_CLAIM" not in log.events("lacks"), "it is no case for ever"
    told = [r for r in caplog.records if r.levelname == "ERROR" and "shop.refund" in r.getMessage()]
    assert len(told) == 1, "once for as long as it waits"

    @compensator("shop.refund")
    def refund():
        world.undone.append("z")

    result = daemon.sweep()
    assert [one.outcome for one in result.sagas] == ["undone"]
    assert result.missing == ()
    assert world.undone == ["a", "z"]


def test_the_health_file_names_the_inverses_that_sagas_wait_for(tmp_path):
    health = tmp_path / "health.json"
    result = Result([Recovered("s", "n", "waiting", "why")], 0, ("shop.refund",))
    _write_health(health, tmp_path, result)
    assert json.loads(health.read_text())["missing_handlers"] == ["shop.refund"]


def test_a_health_file_that_cannot_be_written_stops_nothing_and_is_told(log, world, tmp_path):
    dead(log)
    assert int(once(log, "--health-file", str(tmp_path / "nowhere" / "health.json"))) == 1
    assert world.undone == ["a"]


def test_once_without_a_log_says_so_and_makes_nothing(log):
    with pytest.raises(NotFound, match="There is no log at"):
        once(log)
    assert not log.path.exists()


def test_a_module_that_cannot_be_loaded_is_an_error(log):
    dead(log)
    with pytest.raises(Exception, match="no_such_module"):
        once(log, "--import", "no_such_module")


HANDLERS = """
from pathlib import Path
from agent_saga import compensator

@compensator("undo")
def undo(what, *, idempotency_key):
    with (Path(__file__).parent / "undone").open("a") as file:
        file.write(what + "\\n")
"""


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_as_a_service_it_waits_for_a_log_recovers_and_ends_on_a_signal(log, tmp_path, number):
    (tmp_path / "handlers_of_the_test.py").write_text(HANDLERS)
    health, undone = tmp_path / "health.json", tmp_path / "undone"
    words = [sys.executable, "-m", "agent_saga.cli.recoveryd", "--wal-path", str(log.path)]
    words += ["--interval", "0.1", "--import", "handlers_of_the_test", "--health-file", str(health)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    service = subprocess.Popen(words, env=env, stderr=subprocess.PIPE)
    try:
        until(health.exists)
        dead(log)
        until(lambda: undone.exists() and "a" in undone.read_text())
        service.send_signal(number)
        assert service.wait(30) == 0
    finally:
        service.kill()
        service.communicate()
    assert undone.read_text() == "a\n"
    assert log.view().clean


def until(holds):
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


# --- the commands of the queue --------------------------------------------------------------------


@pytest.fixture
def typed(log, capsys):
    """Type a command; return its exit code and everything that it printed."""

    def run(*words):
        code = root([*words, "--wal-path", str(log.path)])
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


def test_the_way_of_a_case_through_the_command_line(log, world, typed):
    dead(log, orphan=True)
    code, told = typed("recover")
    assert (code, "needs a human" in told, "agent-saga queue list" in told) == (1, True, True)
    code, told = typed("queue", "list")
    assert (code, SAGA in told) == (1, True)
    code, told = typed("queue", "show", SAGA[:8])
    assert "tool_b" in told
    assert f"agent-saga queue close {SAGA}" in told
    assert typed("queue", "close", SAGA, "--by", "ann", "--reason", "refunded by hand")[0] == 0
    assert typed("queue", "list") == (0, f"Log: {log.path}\nNothing needs a human.\n")
    assert typed("recover") == (0, f"Log: {log.path}\nThere is nothing to recover.\n")


@pytest.mark.parametrize("words", [["--by", " ", "--reason", "x"], ["--by", "x", "--reason", ""]])
def test_a_blank_name_or_reason_is_refused(log, world, typed, words):
    dead(log, orphan=True)
    typed("recover")
    assert typed("queue", "close", SAGA, *words)[0] not in (0, 1)
    assert SAGA in typed("queue", "list")[1]


def test_undo_by_the_command_line(log, world, typed):
    past = log.past().begin()
    past.applied("a")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    words = ["undo", SAGA, "--by", "ann", "--reason", "the wrong order"]
    code, told = typed(*words, "--dry-run")
    assert (code, "Nothing was run." in told) == (0, True)
    assert world.undone == []
    assert typed(*words)[0] == 0
    assert world.undone == ["a"]
    assert typed(*words)[0] == 4
    assert world.undone == ["a"]


def test_nothing_is_made_where_there_is_no_log(log, typed):
    for words in (["recover"], ["undo", "x", "--by", "a", "--reason", "b"], ["queue", "list"]):
        typed(*words)
        assert not Path(log.path).exists()


@pytest.mark.crash
def test_a_command_says_once_what_became_of_a_saga(log):
    dead(log, orphan=True)
    words = [sys.executable, "-m", "agent_saga.cli", "recover", "--wal-path", str(log.path)]
    run = subprocess.run(
        [*words, "--leave-missing"], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 1
    assert run.stderr == ""
    assert run.stdout.count("needs a human") == 1
