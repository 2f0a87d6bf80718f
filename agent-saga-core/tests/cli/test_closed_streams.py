"""A program whose standard streams were closed does its work, and ends with its own exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_saga.cli.exits import Exit
from agent_saga.cli.switches import switches_of
from agent_saga.wal.reader import scan_log
from agent_saga.wal.takeover import told_apart

CLOSED = pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def agent_saga(folder, words, closed):
    line = f'"$0" -m agent_saga.cli {words} {closed}'
    command = ["/bin/sh", "-c", line, sys.executable]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False)


@CLOSED
def test_a_halt_is_set_and_nothing_is_written_into_the_log(tmp_path, closed):
    done = agent_saga(tmp_path, "halt --scope tool:wire --reason r --by ann", closed)
    assert done.returncode == Exit.NOT_CLEAN  # it reached nobody
    assert b"Traceback" not in done.stdout + done.stderr
    log = tmp_path / "agent-saga.wal"
    assert [entry.scope for entry in switches_of(log).halts] == ["tool:wire"]
    events = [record.event for record in scan_log(log)]
    assert "SWITCH_HALTED" in events
    assert not told_apart(str(log)).alive


@CLOSED
def test_an_error_ends_with_its_own_code(tmp_path, closed):
    (tmp_path / "file").write_text("nothing")
    done = agent_saga(tmp_path, "status --wal-path file", closed)
    assert done.returncode == Exit.NOTHING_VERIFIABLE
    done = agent_saga(tmp_path, "halt --ttl x", closed)
    assert done.returncode == Exit.USAGE
    assert b"Traceback" not in done.stdout + done.stderr
