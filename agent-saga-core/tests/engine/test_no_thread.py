"""A thread that the system refuses, as while the interpreter ends, leaves a saga to recovery."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent_saga import Applied, MemoryWAL, SagaAborted
from agent_saga.engine.pool import ToolPool


@pytest.fixture
def refused(kit, monkeypatch):
    """Let no thread of the pool be started from now on."""

    def refuse():
        monkeypatch.setattr(kit.runtime.engine(), "pool", ToolPool(1))
        monkeypatch.setattr(ToolPool, "_start", lambda pool: RuntimeError("no new thread"))

    return refuse


def undone(kit, charge):
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        charge()
        raise RuntimeError("the run fails")
    return failed.value.report


def test_an_inverse_that_was_not_called_has_not_failed(kit, world, wal: MemoryWAL, refused):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge", undo_timeout=5)
    tool.undo(lambda result: world.refund(result["id"]))

    def charge():
        tool(1)
        refused()

    report = undone(kit, charge)
    assert report.outcome == "RELEASED"
    assert not report.failed
    assert [record.event for record in wal.read_all()][-1] == "SAGA_RELEASED"


def test_a_prober_that_was_not_asked_has_not_said_that_it_cannot_tell(kit, world, wal, refused):
    def lost(amount):
        world.charge(amount)
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(lost, "COMPENSABLE", name="charge")
    tool.undo(lambda result: world.refund(result["id"]))
    tool.probe(lambda args: Applied({"id": "ch1"}))

    def charge():
        with pytest.raises(ConnectionError):
            tool(1)
        refused()

    report = undone(kit, charge)
    assert report.outcome == "RELEASED"
    assert not report.orphaned


SCRIPT = """
import threading, time
from agent_saga import AgentKit

kit = AgentKit("worker", wal={log!r})

@kit.tool("COMPENSABLE", undo_timeout=5)
def charge():
    print("charged", flush=True)

@charge.undo
def refund():
    print("refunded", flush=True)

def work():
    with kit.transaction():
        charge()
        charged.set()
        threading.main_thread().join()
        time.sleep(0.1)
        raise RuntimeError("it fails")

if __name__ == "__main__":
    charged = threading.Event()
    threading.Thread(target=work).start()
    charged.wait()
"""


def test_a_saga_of_a_thread_that_outlives_the_main_one_is_undone_here_or_later(tmp_path: Path):
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(SCRIPT.format(log=str(tmp_path / "log"))))
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    if "refunded" not in ran.stdout:  # as of Python 3.12, no thread can be started any more
        assert "left to recovery" in ran.stderr
        command = ("-m", "agent_saga.cli", "recover", "--wal-path", str(tmp_path / "log"))
        ran = subprocess.run(
            [sys.executable, *command, "--import", "worker"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert "refunded" in ran.stdout
