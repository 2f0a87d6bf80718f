"""Runs of pytest in forks: each ends as a process would, and starts with what they share."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tools import forks, tree

PROGRAM = """
import json, os, sys, threading
from tools import forks

folder = sys.argv[1]
forks.load(["agent-saga-core/tests/engine/test_names.py", folder + "/test_sets.py"])
del sys.modules["pytest_timeout"]
import pytest_timeout  # as what a file imports of a package that has a plugin, too
loaded = [name for name in ("pytest", "msgspec", "agent_saga.kit") if name in sys.modules]
codes = [
    forks.run(["-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", *more])[0]
    for more in (
        [folder + "/test_green.py"],
        [folder + "/test_red.py"],
        [folder + "/test_unreadable.py"],
        ["-p", "no_such_plugin", folder + "/test_green.py"],
        ["-p", "breaks", folder + "/test_green.py"],
        [folder + "/test_killed.py"],
        ["-p", "fills", folder + "/test_many.py"],
    )
]
said = forks.run([folder + "/test_red.py"])[1]
sys.parent = True
threading.Thread(target=threading.Event().wait, daemon=True).start()
threaded = [
    forks.run(["-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", folder + name])[0]
    for name in ("/test_anew.py", "/test_red.py", "/test_unreadable.py")
]
found = [sys.modules["foreign"].FOUND, os.environ.get("SET_BY_A_TEST")]
told = {"loaded": loaded, "codes": codes, "said": said, "threaded": threaded, "found": found}
print(json.dumps(told))
"""
FILES = {
    "test_green": "def test_it(): pass",
    "test_red": "import os\ndef test_it():\n    os.write(1, b'by hand')\n    assert False, 'red'",
    "test_unreadable": "import no_such_module",
    "test_killed": "import os\ndef test_it(): os.kill(os.getpid(), 9)",
    "test_many": "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_it(n): pass",
    "test_anew": "import sys\ndef test_it(): assert not hasattr(sys, 'parent')",
    "test_sets": "import os\nos.environ['SET_BY_A_TEST'] = 'yes'\nimport foreign",
    "foreign": "import os\nFOUND = os.environ.get('SET_BY_A_TEST')",
    "fills": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))",
    "breaks": "def pytest_configure(config): raise LookupError('it breaks')",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forks")
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", f"import sys; sys.path.append({str(folder)!r})\n{PROGRAM}"]
    done = subprocess.run(
        [*command, folder], cwd=tree.ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_what_others_made_is_loaded_once_and_nothing_of_ours(seen):
    assert seen["loaded"] == ["pytest", "msgspec"]


def test_only_a_failing_test_ends_like_one(seen):
    green, red, unreadable, unknown, broken, killed, full = seen["codes"]
    assert (green, red) == (0, 1)
    assert not {unreadable, unknown, broken, killed, full} & {0, 1}
    assert broken == forks.BROKEN
    assert killed == -9


def test_where_a_thread_would_be_lost_each_is_started_anew(seen):
    green, red, unreadable = seen["threaded"]
    assert (green, red) == (0, 1)
    assert unreadable not in {0, 1}


def test_what_a_run_says_is_handed_back(seen):
    assert "assert False" in seen["said"]
    assert "by hand" in seen["said"]


def test_what_is_loaded_early_finds_what_the_test_files_set_and_it_is_set_no_longer(seen):
    assert seen["found"] == ["yes", None]
