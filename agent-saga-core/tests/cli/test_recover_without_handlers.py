"""Recovery that was started without the modules it needs refuses, and leaves all as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

AGENT = """
import os
from agent_saga import AgentKit
kit = AgentKit("agent")

@kit.tool("COMPENSABLE")
def act():
    with open(os.environ["WORLD"], "a") as world:
        world.write("act ")
    return 1

@act.undo
def undo_act(result):
    with open(os.environ["WORLD"], "a") as world:
        world.write("undo ")

if __name__ == "__main__":
    with kit.transaction():
        act()
        os._exit(9)
"""


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    (tmp_path / "left_behind.py").write_text(textwrap.dedent(AGENT))
    assert run(tmp_path, "left_behind.py") == 9
    return tmp_path


def run(folder: Path, *words: str) -> int:
    env = {
        **os.environ,
        "WORLD": str(folder / "world"),
        "AGENT_SAGA_WAL": str(folder / "log"),
        "AGENT_SAGA_SETTLE_AFTER": "0",
    }
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, check=False
    ).returncode


@pytest.mark.crash
@pytest.mark.parametrize("command", [["agent_saga.cli", "recover"], ["agent_saga.cli.recoveryd"]])
def test_it_refuses_first_and_recovers_when_the_module_is_named(
    left_behind: Path, command: list[str]
) -> None:
    once = [] if "recover" in command else ["--once"]
    assert run(left_behind, "-m", *command, *once) == 4
    assert (left_behind / "world").read_text() == "act "
    assert run(left_behind, "-m", *command, *once, "--import", "left_behind") == 0
    assert (left_behind / "world").read_text() == "act undo "


@pytest.mark.crash
def test_who_says_that_they_are_gone_gets_a_case_for_a_human(left_behind: Path) -> None:
    assert run(left_behind, "-m", "agent_saga.cli", "recover", "--leave-missing") == 1
    assert run(left_behind, "-m", "agent_saga.cli", "queue", "list") == 1
    assert (left_behind / "world").read_text() == "act "
