"""Is this installation fit to protect an agent?"""

from __future__ import annotations

import stat
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.cli.diagnosis import (
    HINT,
    OK,
    PROBLEM,
    folder_finding,
    handler_findings,
    stranger_finding,
    variable_findings,
)
from agent_saga.domain.records import Ev
from agent_saga.plugins.manager import PluginManager
from agent_saga.plugins.registry import Handlers, process_handlers

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Cli


def problems(document: Any) -> list[str]:
    return [f["text"] for f in document["findings"] if f["level"] == PROBLEM]


def test_a_sound_installation_has_no_problem(cli: Cli, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    run = cli("doctor")
    assert run.code == 0
    assert f"Log: {log.path}" in run.out
    assert "AGENT_SAGA_SETTLE " in run.out
    assert "agent-saga-core" in run.out
    assert "Only its owner can reach the log's folder." in run.out
    told = cli("doctor", "--json")
    assert told.code == 0
    assert problems(told.document) == []
    names = [plugin["name"] for plugin in told.document["plugins"]]
    assert "agent-saga-core" in names
    assert {"variable", "value", "default", "meaning"} == set(told.document["settings"][0])


def test_looking_makes_nothing(cli: Cli, tmp_path: Path) -> None:
    run = cli("doctor")
    assert run.code == 0
    assert "There is no log yet" in run.out
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_an_open_saga_needs_and_nobody_registered_is_a_problem(
    cli: Cli, log: Any, tmp_path: Path
) -> None:
    log.begin()
    log.charged()
    log.close()
    run = cli("doctor")
    assert run.code == 1
    assert "The handler 'acme.refund' is not registered here; in saga saga-1" in run.out
    (tmp_path / "handlers_for_doctor.py").write_text(
        "from agent_saga.plugins.registration import compensator\n"
        "@compensator('acme.refund')\ndef refund(id): ...\n"
    )
    with process_handlers().isolated():
        assert cli("doctor", "--import", "handlers_for_doctor").code == 0
    assert cli("doctor", "--import", "no_such_module_anywhere").code == 2


def test_a_finished_saga_needs_no_handler(cli: Cli, log: Any) -> None:
    log.begin()
    log.charged()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    assert cli("doctor").code == 0


def test_a_folder_that_others_can_reach_is_a_problem(cli: Cli, log: Any) -> None:
    log.begin()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    log.path.chmod(0o755)
    run = cli("doctor")
    assert run.code == 1
    assert "chmod 700" in run.out


def test_a_file_in_the_logs_place_is_a_problem(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent-saga.wal").write_text("x")
    run = cli("doctor")
    assert run.code == 1
    assert "There is a plain file where the log's folder should be" in run.out


def test_a_setting_that_cannot_be_read_is_a_problem_and_not_the_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SAGA_SETTLE", "soon")
    monkeypatch.setenv("AGENT_SAGA_OUTSDE", "refuse")
    run = cli("doctor")
    assert run.code == 1
    assert "The variable AGENT_SAGA_SETTLE cannot be 'soon'." in run.out
    assert "Did you mean AGENT_SAGA_OUTSIDE?" in run.out


def test_plugins_that_cannot_be_loaded_are_a_problem_and_not_the_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_saga.cli.commands import doctor

    manager = PluginManager(
        environ={"AGENT_SAGA_LOAD_PLUGINS": "not-installed"}, handlers=Handlers()
    )
    monkeypatch.setattr(doctor, "process_plugins", lambda: manager)
    run = cli("doctor")
    assert run.code == 1
    assert "The plugins cannot be loaded" in run.out
    assert problems(cli("doctor", "--json").document)


def test_the_strangers_distribution_is_a_problem(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.9" if name == "agent-saga" else real(name)
    )
    run = cli("doctor")
    assert run.code == 1
    assert "The distribution agent-saga 0.9 is installed" in run.out


def test_a_damaged_log_is_a_problem(cli: Cli, log: Any) -> None:
    log.begin()
    log.sync()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.close()
    file = next(log.path.glob("writers/*/seg-*"))
    content = bytearray(file.read_bytes())
    content[5] = 0xFF
    file.write_bytes(content)
    run = cli("doctor")
    assert run.code == 1
    assert "DAMAGE" in run.out


# --- the judgements alone -------------------------------------------------------------------------


def test_a_stranger() -> None:
    assert stranger_finding(None).level == OK
    assert stranger_finding("0.9").level == PROBLEM


def test_variables() -> None:
    known = ["AGENT_SAGA_WAL", "AGENT_SAGA_SETTLE"]
    assert variable_findings(known, known) == []
    assert variable_findings(["AGENT_SAGA_PG_DRIVER"], known) == []
    (finding,) = variable_findings(["AGENT_SAGA_SETLE"], known)
    assert finding.level == HINT
    assert finding.fix == "Did you mean AGENT_SAGA_SETTLE?"


@pytest.mark.parametrize(
    ("mode", "owner", "level"),
    [(0o700, 1, OK), (0o700, 2, HINT), (0o750, 1, PROBLEM), (0o701, 1, PROBLEM)],
)
def test_who_may_reach_the_folder(mode: int, owner: int, level: str) -> None:
    assert folder_finding(stat.S_IFDIR | mode, owner, 1).level == level


def test_missing_handlers() -> None:
    assert [f.level for f in handler_findings({})] == [OK]
    one, many = handler_findings({"a": ["s1"], "b": ["s1", "s2"]})
    assert "in saga s1 it is needed" in one.text
    assert "in 2 sagas (s1, …) it is needed" in many.text
