"""Every example runs as a user starts it: in an empty folder, without credentials or settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools import tree

EXAMPLES = [p for p in tree.files() if p.parent == tree.ROOT / "examples" and p.suffix == ".py"]


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path, tmp_path):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENT_SAGA")}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
