"""One saga stops no other, what stands is told, and a module may change the directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.domain.records import Ev

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Cli

HANDLERS = """
    import os
    from pathlib import Path
    from agent_saga import compensator

    HERE = Path(__file__).parent

    @compensator("acme.refund")
    def refund(id):
        with (HERE / "undone").open("a") as file:
            file.write(id + " ")
"""


@pytest.fixture
def two(log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two sagas of a process that died; the inverse of one is nowhere."""
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    (tmp_path / "acme_handlers.py").write_text(textwrap.dedent(HANDLERS))
    log.begin("whole")
    log.charged("whole")
    log.begin("lacks")
    log.charged("lacks", {"handler": "gone.handler", "kwargs": {}})
    log.close()
    return log


def run(folder: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0"}
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize(
    "program", [("agent_saga.cli", "recover"), ("agent_saga.cli.recoveryd", "--once")]
)
def test_a_saga_whose_inverse_is_missing_stops_no_other(
    two: Any, tmp_path: Path, program: tuple[str, ...]
) -> None:
    done = run(tmp_path, *program, "--import", "acme_handlers")
    assert done.returncode == 1
    assert (tmp_path / "undone").read_text() == "c1 "
    told = done.stdout + done.stderr
    assert "lacks" in told
    assert "'gone.handler'" in told
    again = run(tmp_path, *program, "--import", "acme_handlers")
    assert again.returncode == 4, "there is nothing that it could do without the inverse"
    assert "gone.handler" in again.stderr
    assert (tmp_path / "undone").read_text() == "c1 "


@pytest.mark.crash
def test_the_service_starts_although_one_inverse_is_missing(two: Any, tmp_path: Path) -> None:
    words = ["--import", "acme_handlers", "--interval", "0.1", "--health-file", "health"]
    service = subprocess.Popen(
        [sys.executable, "-m", "agent_saga.cli.recoveryd", *words],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with service:
        try:
            assert service.stderr is not None
            line = service.stderr.readline()
            while "saga lacks waits" not in line:
                assert line, "it ended"
                line = service.stderr.readline()
            assert "'gone.handler'" in line
        finally:
            service.terminate()
    assert (tmp_path / "undone").read_text() == "c1 "
    assert json.loads((tmp_path / "health").read_text())["missing_handlers"] == ["gone.handler"]


def test_a_dry_run_is_refused_only_if_the_pass_would_be(two: Any, tmp_path: Path) -> None:
    first = run(tmp_path, "agent_saga.cli", "recover", "--dry-run", "--import", "acme_handlers")
    assert first.returncode == 1
    assert "whole 'checkout' is to be undone" in first.stdout
    assert "lacks 'checkout' waits" in first.stdout
    assert run(tmp_path, "agent_saga.cli", "recover", "--dry-run").returncode == 4


@pytest.mark.parametrize("words", [("recover",), ("undo", "saga-1", "--by", "a", "--reason", "b"),
                                   ("queue", "retry", "saga-1", "--by", "a")])  # fmt: skip
def test_while_an_approved_effect_stands_it_does_not_exit_with_0(
    cli: Cli, log: Any, words: tuple[str, ...]
) -> None:
    log.begin()
    call = {"tool": "wire", "semantics": "IRREVERSIBLE"}
    log.add(
        Ev.STEP_INTENT, {"call": call, "args": {}, "approved_by": "ann"}, saga="saga-1", step="s"
    )
    log.add(Ev.STEP_COMMITTED, {"result": 1}, saga="saga-1", step="s")
    if words[0] == "undo":
        log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
        words = (*words, "--leave-the-rest")
    if words[0] == "queue":
        log.add(Ev.SAGA_UNWINDING, {"cause": "x", "scope": []})
        log.add(Ev.SAGA_STUCK, {})
    log.close()
    done = cli(*words)
    assert done.code == 1
    assert "wire" in done.out
    if words == ("recover",):
        assert "wire stands, approved by ann" in done.out
        assert cli("recover").code == 0, "nothing is left to do, and it was told"


ELSEWHERE = """
    import os, acme_handlers
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
"""


@pytest.mark.crash
@pytest.mark.parametrize("words", [
    ("agent_saga.cli", "recover"),
    ("agent_saga.cli", "queue", "retry", "whole", "--by", "ann"),
    ("agent_saga.cli", "undo", "whole", "--by", "ann", "--reason", "x"),
    ("agent_saga.cli.recoveryd", "--once", "--health-file", "health", "--notify", "./notify.sh"),
], ids=lambda words: words[1])  # fmt: skip
def test_a_module_that_changes_the_working_directory_changes_no_path(
    two: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "goes_away.py").write_text(textwrap.dedent(ELSEWHERE))
    (tmp_path / "second.py").write_text("")
    (tmp_path / "notify.sh").write_text("#!/bin/sh\ncat > told\n")
    (tmp_path / "notify.sh").chmod(0o755)
    modules = ("--import", "goes_away", "--import", "second")
    done = run(tmp_path, *words, "--wal-path", "agent-saga.wal", *modules)
    assert done.returncode in (1, 4), done.stderr
    assert "no log" not in done.stderr
    assert "whole" in done.stdout + done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []
    if "--once" in words:
        assert (tmp_path / "health").exists()
        assert (tmp_path / "undone").read_text() == "c1 "


def test_a_health_file_that_cannot_be_written_is_told_and_stops_nothing(
    two: Any, tmp_path: Path
) -> None:
    words = ("--once", "--import", "acme_handlers", "--leave-missing")
    first = run(tmp_path, "agent_saga.cli.recoveryd", *words, "--health-file", "no/folder/health")
    assert first.returncode == 1
    assert "no/folder/health cannot be written (No such file or directory)" in first.stderr
    assert "Traceback" not in first.stderr
    assert (tmp_path / "undone").read_text() == "c1 "
