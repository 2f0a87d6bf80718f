"""What runs the pages notices when a page says something else than what happens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools import starting, tree


def run(folder, page):
    (folder / "page.md").write_text(page.replace("'''", "```"), "utf-8")
    command = [sys.executable, "-m", "tools.pages", "page.md"]
    environ = {"PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


GOOD = """
'''python
n = 1
'''
'''python
# saved.py
print("from a file")
'''
'''console
$ python saved.py
from a file
'''
'''python
import asyncio

await asyncio.sleep(0)
print("n is", n, "at", object())
'''
'''output
n is 1 at <object ...>
'''
"""


def test_a_page_that_tells_the_truth(tmp_path):
    done = run(tmp_path, GOOD)
    assert done.returncode == 0, done.stderr
    assert "5 blocks ran" in done.stdout


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (GOOD.replace("n is 1", "n is 2"), "the page says"),
        (GOOD.replace("\nfrom a file", "\nfrom nowhere"), "the page says"),
        ("'''python\nraise ValueError('no')\n'''", "line 2"),
        ("'''console\n$ python -c 'raise SystemExit(3)'\n'''", "ended with 3"),
        ("'''python\nx = 1\n", "not closed"),
    ],
)
def test_a_page_that_does_not(tmp_path, page, said):
    done = run(tmp_path, page)
    assert done.returncode != 0
    assert said in done.stderr


def test_no_page_is_run_among_the_sources():
    before = set(tree.ROOT.iterdir())
    page = tree.ROOT / "docs" / "how-to" / "recover-after-a-crash.md"
    done = starting.page(page, tree.ROOT)
    assert done.returncode == 1
    assert "run this in an empty folder" in done.stderr
    assert set(tree.ROOT.iterdir()) - before == set()
