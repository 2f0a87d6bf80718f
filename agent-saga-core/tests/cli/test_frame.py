"""The frame: commands found lazily, exit codes, errors without tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from agent_saga.cli import group
from agent_saga.cli.exits import Exit, exit_of
from agent_saga.cli.main import main
from agent_saga.errors import (
    AgentSagaError,
    ConfigurationError,
    NoBoundary,
    PluginError,
    StateError,
    WALPathError,
)
from agent_saga.plugins.manager import PluginManager
from agent_saga.plugins.process import BUILTINS
from agent_saga.plugins.registry import Handlers

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Cli


def test_the_version_is_that_of_the_distribution(cli: Cli) -> None:
    run = cli("--version")
    assert run.code == 0
    assert run.out.startswith("agent-saga ")


def test_help_lists_every_command_with_its_line(cli: Cli) -> None:
    run = cli("--help")
    assert run.code == 0
    for name in ("doctor", "guarantees", "list", "queue", "recover", "show", "undo"):
        assert f"\n  {name}  " in run.out


@pytest.mark.parametrize("name", ["doctor", "guarantees", "list", "recover", "show", "undo"])
def test_every_command_takes_the_common_options(cli: Cli, name: str) -> None:
    run = cli(name, "--help")
    assert run.code == 0
    assert "--wal-path" in run.out
    assert "--json" in run.out


@pytest.mark.parametrize("words", [["nonsense"], ["list", "--nonsense"], ["show"], []])
def test_wrong_usage_exits_with_2(cli: Cli, words: list[str]) -> None:
    run = cli(*words)
    assert run.code == 2
    assert "Usage" in run.err + run.out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), Exit.USAGE),
        (PluginError("x"), Exit.USAGE),
        (NoBoundary("x"), Exit.REFUSED),
        (WALPathError("x"), Exit.NOTHING_VERIFIABLE),
        (StateError("x"), Exit.NOTHING_VERIFIABLE),
        (AgentSagaError("x"), Exit.NOTHING_VERIFIABLE),
    ],
)
def test_no_error_ends_with_0(error: AgentSagaError, code: Exit) -> None:
    assert exit_of(error) is code


def test_an_error_of_ours_is_told_without_a_traceback(cli: Cli) -> None:
    run = cli("list", "--wal-path", "memory:")
    assert run.code == 2
    assert run.out == ""
    assert run.err.startswith("Error: A log in memory ends with its process")


def test_another_scheme_is_refused_by_name(cli: Cli) -> None:
    run = cli("list", "--wal-path", "redis://somewhere")
    assert run.code == 2
    assert "not redis" in run.err


def test_the_log_is_found_as_the_library_finds_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"Log: {tmp_path / 'agent-saga.wal'}\n" in cli("list").out
    monkeypatch.setenv("AGENT_SAGA_WAL", "elsewhere")
    assert f"Log: {tmp_path / 'elsewhere'}\n" in cli("list").out
    assert f"Log: {tmp_path / 'named'}\n" in cli("list", "--wal-path", "file:named").out
    assert list(tmp_path.iterdir()) == []


def use(monkeypatch: pytest.MonkeyPatch, **environ: str) -> PluginManager:
    """Give the command line a plugin manager of its own."""
    manager = PluginManager(BUILTINS, environ=environ, handlers=Handlers())
    monkeypatch.setattr(group, "process_plugins", lambda: manager)
    return manager


def test_a_broken_plugin_keeps_nobody_from_looking(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, AGENT_SAGA_LOAD_PLUGINS="not-installed")
    assert cli("list").code == 3
    listed = cli("--help")
    assert "Only the core's commands are listed" in listed.err
    assert "doctor" in listed.out
    assert cli("foreign").code == 2


class Brings:
    """A plugin that brings commands."""

    def __init__(self, **addresses: str) -> None:
        from agent_saga.plugins.markers import hookimpl

        def add(registry: object) -> None:
            for name, address in addresses.items():
                registry.add(name, address, summary="A foreign command.")  # type: ignore[attr-defined]

        self.saga_register_commands = hookimpl(add)


@click.command("foreign")
def foreign() -> Exit:
    return Exit.REFUSED


def test_a_plugins_command_is_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = use(monkeypatch, AGENT_SAGA_LOAD_PLUGINS="")
    manager.register(Brings(foreign=f"{__name__}:foreign"), "acme")
    assert cli("foreign").code == 4
    assert "A foreign command." in cli("--help").out


@pytest.mark.parametrize("address", ["no_such_module:x", "os:no_such_name", "os:sep"])
def test_a_command_that_is_not_where_it_says_is_an_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    manager = use(monkeypatch, AGENT_SAGA_LOAD_PLUGINS="")
    manager.register(Brings(foreign=address), "acme")
    run = cli("foreign")
    assert run.code == 2
    assert run.err.startswith("Error: ")


def test_interrupting_ends_without_a_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*words: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(group.CommandGroup, "main", interrupt)
    run = cli("list")
    assert run.code == 130
    assert run.err.startswith("Error: Interrupted.")


PROGRAM = "import sys; from agent_saga.cli.main import main; sys.exit(main(sys.argv[1:]))"


def program(*words: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *words]


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        program("doctor"),
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert run.returncode != 0
    assert run.stderr == ""


def test_a_terminal_that_cannot_show_a_character_gets_an_escape(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    run = subprocess.run(
        program("list", "--wal-path", "prüfung"),
        cwd=tmp_path, env=environ, capture_output=True, check=False,
    )  # fmt: skip
    assert run.returncode == 3
    assert rb"pr\xfcfung" in run.stdout


def test_reading_loads_neither_a_plugin_nor_the_engine(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom agent_saga.cli.main import main\nmain(['list'])\n"
        "from agent_saga.plugins import process\n"
        "sys.exit(len(process._made))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_words_of_the_process_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["agent-saga", "--version"])
    assert main() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("undo", "", "--by", "ann", "--reason", "r"),
        ("undo", "x", "--to", "", "--by", "ann", "--reason", "r"),
        ("queue", "show", ""),
        ("queue", "retry", "", "--by", "ann"),
        ("queue", "close", " ", "--by", "ann", "--reason", "r"),
        ("quarantine", "", "--by", "ann", "--reason", "r"),
        ("show", ""),
    ],
)
def test_an_empty_name_is_no_name(cli: Cli, words: tuple[str, ...]) -> None:
    """It begins every id, so it would mean whatever single saga there is."""
    run = cli(*words)
    assert run.code == Exit.USAGE
    assert "it is empty" in run.err
