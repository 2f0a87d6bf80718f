"""The README shows what its first command really prints."""

from __future__ import annotations

import re
import subprocess
import sys

from tools import pages, tree

README = (tree.ROOT / "README.md").read_text("utf-8")


def masked(text):
    """Return a text without what differs from run to run."""
    return re.sub(r"'shop-agent' \S+", "'shop-agent' ID", re.sub(r"\[\S{8}\]", "[ID]", text))


def test_the_table_and_the_report_are_those_of_the_demo(tmp_path):
    demo = [sys.executable, str(tree.ROOT / "examples" / "demo.py")]
    printed = subprocess.run(demo, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    shown = [block.text for block in pages.blocks(README) if block.language == "text"]
    assert len(shown) == 2
    for text in shown:
        assert masked(text) in masked(printed)


def test_it_is_short():
    assert len(README.splitlines()) < 200


def test_it_names_both_commands_and_the_package():
    commands = pages.commands(README)
    assert [c for c in commands if "run.py" in c] == ["python3 run.py demo", "python3 run.py test"]
    assert "pip install agent-saga-core" in commands
