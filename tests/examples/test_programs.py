"""Every example runs as a user starts it: in an empty folder, without credentials or settings.

The examples of a framework run where it is installed: `tests/frameworks`.
"""

from __future__ import annotations

import pytest

from tools import places, tree
from tools.starting import program

FOLDER = tree.ROOT / "examples"
EXAMPLES = [path for path in places.programs(places.SHARED) if path.parent == FOLDER]
FAILS_AT = ("charge", "write_file", "reserve", "open_ticket", "set_flag", "none")


def test_the_promised_programs_are_there():
    assert {path.name for path in EXAMPLES} >= {"demo.py", "multi_domain.py", "chaos_demo.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_leaves_nothing_behind(path, tmp_path):
    done = program(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", FAILS_AT)
def test_five_systems_with_every_argument(step, when, tmp_path):
    path = FOLDER / "multi_domain.py"
    done = program(path, tmp_path, "--fail-at", step, "--when", when)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "The boundary was committed." if step == "none" else "was undone: clean."
    assert said in done.stdout
    assert done.stdout.endswith("The world is as it must be.\n")


def test_chaos_compares_every_fault_in_two_runs(tmp_path):
    done = program(FOLDER / "chaos_demo.py", tmp_path)
    lines = [line for line in done.stdout.splitlines() if "undone: clean" in line]
    assert len(lines) == 14
    assert "13 optimistic ones left something behind" in done.stdout
