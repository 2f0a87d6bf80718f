"""`agent-saga status`: every section, what needs attention, and that looking changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_saga import RecoveryDaemon, Settings
from agent_saga.cli import status as sections
from agent_saga.domain.records import Ev
from agent_saga.errors import StateError
from agent_saga.recovery.seen import last_seen, note_pass
from agent_saga.wal.directory import POISONED_FILE
from agent_saga.wal.file import FileWAL
from agent_saga.wal.os_port import OsPort

QUICK = Settings(settle_after=0.0)


def told(cli: Any, *words: str) -> Any:
    run = cli("status", "--json", *words)
    return run.code, run.document


def test_no_log_is_told_and_made_by_nobody(cli: Any, tmp_path: Path) -> None:
    run = cli("status")
    assert run.code == 3
    assert "no log here" in run.out
    assert not (tmp_path / "agent-saga.wal").exists()
    code, document = told(cli)
    assert code == 3
    assert document["sections"] == {}


def test_a_live_writer_and_its_open_saga_need_nobody(cli: Any, log: Any) -> None:
    log.begin()
    log.charged()
    log.sync()
    code, document = told(cli)
    assert code == 0
    found = document["sections"]
    assert found["sagas"]["open"] == ["saga-1"]
    [writer] = found["writers"]["alive"]
    assert writer["pid"] == os.getpid()
    assert writer["poisoned"] is None
    assert found["recovery"]["seen_us"] is None
    assert "1 open, 0 suspended, 0 held" in cli("status").out


def test_what_a_dead_process_left_needs_attention(cli: Any, log: Any) -> None:
    log.begin()
    log.charged()
    log.close()
    run = cli("status")
    assert run.code == 1
    assert "agent-saga recover --wal-path" in run.out
    assert "! sagas:" in run.out
    code, document = told(cli)
    assert code == 1
    assert document["sections"]["sagas"]["left"] == ["saga-1"]
    assert document["sections"]["writers"]["dead"] == 1
    assert document["sections"]["recovery"]["attention"], "nobody has looked yet"


def test_a_case_needs_attention_and_has_an_age(cli: Any, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_UNWINDING, {"cause": "x", "scope": []})
    log.add(Ev.SAGA_STUCK, {})
    log.close()
    code, document = told(cli)
    assert code == 1
    assert document["sections"]["queue"]["cases"] == ["saga-1"]
    assert document["sections"]["queue"]["oldest_s"] >= 0
    assert "1 case, the oldest for" in cli("status").out


def test_a_suspended_saga_and_its_deadline(cli: Any, log: Any) -> None:
    log.begin()
    deadline = 4_000_000_000_000_000
    log.add(Ev.SAGA_SUSPENDED, {"reason": "x", "deadline": deadline, "at_deadline": "undo"})
    log.close()
    code, document = told(cli)
    assert code == 0
    assert document["sections"]["sagas"]["suspended"] == ["saga-1"]
    assert document["sections"]["sagas"]["next_deadline_us"] == deadline
    assert "2096-10-02" in cli("status").out


def test_recovery_that_passes_is_seen(cli: Any, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    RecoveryDaemon(log.path, settings=QUICK, by="the tests").sweep()
    code, document = told(cli)
    assert code == 0
    seen = document["sections"]["recovery"]
    assert (seen["by"], seen["pid"]) == ("the tests", os.getpid())
    assert "last seen 0 s ago: the tests" in cli("status").out


def test_a_daemon_without_a_log_makes_none(tmp_path: Path) -> None:
    RecoveryDaemon(tmp_path / "none", settings=QUICK).sweep()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"time": 1}', "null", "[" * 10_000, "\xff"])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "recovery.seen").write_bytes(text.encode("latin-1"))
    assert last_seen(tmp_path) is None


@pytest.mark.parametrize("field", ["time", "pid", "by", "host"])
def test_a_note_of_another_form_is_none(tmp_path: Path, field: str) -> None:
    (tmp_path / "writers").mkdir()
    note_pass(str(tmp_path), "x")
    data = json.loads((tmp_path / "recovery.seen").read_text())
    (tmp_path / "recovery.seen").write_text(json.dumps({**data, field: ["x"]}))
    assert last_seen(tmp_path) is None


# --- a log that cannot be written -----------------------------------------------------------------


def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


class Broken(OsPort):
    """A disk that fails every sync of data from now on."""

    def fdatasync(self, fd: int) -> None:
        raise OSError(5, "the disk is gone")


@pytest.mark.guarantee("STATUS-1")
def test_a_writer_whose_log_failed_is_named(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent-saga.wal"
    wal = FileWAL(path, Broken())
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1, payload={"about": {"name": "x", "labels": {}}})
    with pytest.raises(Exception, match=r"gone|written"):
        wal.barrier_sync()
    # Who waited is woken first, lest a disk that hangs keep them.
    until(lambda: any(path.glob(f"writers/*/{POISONED_FILE}")))
    code, document = told(cli)
    assert code == 1
    [writer] = document["sections"]["writers"]["alive"]
    assert "the disk is gone" in writer["poisoned"]
    assert "CANNOT be written" in cli("status").out
    wal.close(0.1)
    assert told(cli)[1]["sections"]["writers"]["poisoned"] == 0, "its process is gone"


# --- sections -------------------------------------------------------------------------------------


def test_a_section_that_cannot_be_looked_at_needs_attention(
    cli: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.begin()
    log.sync()

    def breaks(scene: Any) -> Any:
        raise StateError("it is damaged")

    monkeypatch.setitem(sections.SECTIONS, "queue", breaks)  # type: ignore[arg-type]
    code, document = told(cli)
    assert code == 1
    assert "it is damaged" in document["sections"]["queue"]["error"]
    assert document["sections"]["sagas"]["open"] == ["saga-1"]


def test_texts_of_the_log_forge_no_line(cli: Any, log: Any) -> None:
    log.begin(saga="a\nb\x1b[2J")
    log.close()
    assert "\x1b" not in cli("status").out
    assert "a\\nb" in cli("status").out


def test_a_killed_process_is_told_from_a_living_one(cli: Any, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from agent_saga import AgentKit\n"
        "kit = AgentKit('k', wal='agent-saga.wal')\n"
        "@kit.tool('COMPENSABLE')\n"
        "def act() -> int: return 1\n"
        "@act.undo\n"
        "def unact(result): ...\n"
        "with kit.transaction():\n"
        "    act()\n"
        "    print('open', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        code, document = told(cli)
        assert code == 0
        assert [one["pid"] for one in document["sections"]["writers"]["alive"]] == [process.pid]
        assert len(document["sections"]["sagas"]["open"]) == 1
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    code, document = told(cli)
    assert code == 1
    assert document["sections"]["writers"]["alive"] == []
    assert len(document["sections"]["sagas"]["left"]) == 1
