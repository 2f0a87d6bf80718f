"""Every example runs as a user starts it: in an empty folder, without credentials or settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools import tree

EXAMPLES = [p for p in tree.files() if p.parent == tree.ROOT / "examples" and p.suffix == ".py"]
FAILS_AT = ("charge", "write_file", "reserve", "open_ticket", "set_flag", "none")


def start(folder, path, *arguments):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENT_SAGA")}
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=folder,
        env={**environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_promised_programs_are_there():
    names = {path.name for path in EXAMPLES}
    assert names >= {"demo.py", "multi_domain.py", "chaos_demo.py", "langgraph_agent.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_leaves_nothing_behind(path, tmp_path):
    done = start(tmp_path, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", FAILS_AT)
def test_five_systems_with_every_argument(step, when, tmp_path):
    path = tree.ROOT / "examples" / "multi_domain.py"
    done = start(tmp_path, path, "--fail-at", step, "--when", when)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "The boundary was committed." if step == "none" else "was undone: clean."
    assert said in done.stdout
    assert done.stdout.endswith("The world is as it must be.\n")


def test_chaos_compares_every_fault_in_two_runs(tmp_path):
    done = start(tmp_path, tree.ROOT / "examples" / "chaos_demo.py")
    lines = [line for line in done.stdout.splitlines() if "undone: clean" in line]
    assert len(lines) == 14
    assert "13 optimistic ones left something behind" in done.stdout
