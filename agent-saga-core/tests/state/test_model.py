"""Any sequence of uses of a store is what a plain dict would do; kills change none of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_saga.errors import StateError
from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.sqlite import SQLiteStateStore

KEYS = st.sampled_from(["a", "a/b", "a/c", "b", "é", "a\x00"])
DOCS = st.none() | st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 3), max_size=2)
PUTS = st.dictionaries(KEYS, DOCS, min_size=1, max_size=3)


class Stores(RuleBasedStateMachine):
    """A store in memory, one on the disk, and the dict that both must equal."""

    @initialize()
    def begin(self):
        self.folder = tempfile.mkdtemp()
        self.memory = MemoryStateStore()
        self.disk = self._open()
        self.model = {}

    def _open(self):
        return SQLiteStateStore(Path(self.folder) / "log" / "state.sqlite")

    @rule(puts=PUTS, durable=st.booleans())
    def put(self, puts, durable):
        before = {key: self.model.get(key) for key in puts}
        for store in (self.memory, self.disk):
            seen = store.transact(
                list(puts), lambda docs: Change(dict(docs), puts), durable=durable
            )
            assert seen == before
        self.model.update(puts)
        self.model = {key: doc for key, doc in self.model.items() if doc is not None}

    @rule(puts=PUTS, error=st.sampled_from([LookupError, StateError, SystemExit]))
    def fail(self, puts, error):
        def fails(docs):
            for doc in docs.values():
                if doc is not None:
                    doc["x"] = 99
            raise error

        for store in (self.memory, self.disk):
            with pytest.raises(error):
                store.transact(list(puts), fails)

    @rule(key=KEYS)
    def get(self, key):
        assert self.memory.get(key) == self.disk.get(key) == self.model.get(key)

    @rule(prefix=st.sampled_from(["", "a", "a/", "é", "zz"]))
    def scan(self, prefix):
        wanted = sorted(item for item in self.model.items() if item[0].startswith(prefix))
        assert self.memory.scan(prefix) == self.disk.scan(prefix) == wanted

    @rule()
    def reopen(self):
        self.disk.close()
        self.disk = self._open()

    @invariant()
    def no_file_before_the_first_write(self):
        if not self.model and not self.disk.path.exists():
            assert list(Path(self.folder).iterdir()) == []

    def teardown(self):
        if hasattr(self, "disk"):
            self.disk.close()
            shutil.rmtree(self.folder)


Stores.TestCase.settings = settings(
    deadline=None,
    max_examples=20,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStores = pytest.mark.property(Stores.TestCase)

COUNTS = """
import sys
from agent_saga.state.sqlite import SQLiteStateStore
from agent_saga.state.base import Change

def count_up(docs):
    left, right = docs["left"] or {"n": 0}, docs["right"] or {"n": 0}
    assert left == right
    return Change(left["n"] + 1, {"left": {"n": left["n"] + 1}, "right": {"n": right["n"] + 1}})

store = SQLiteStateStore(sys.argv[1], timeout=60)
for turn in range(100_000):
    print(store.transact(["left", "right"], count_up, durable=turn % 3 == 0), flush=True)
"""


@pytest.mark.crash
def test_processes_that_are_killed_anywhere_leave_whole_transactions(tmp_path):
    path = tmp_path / "log" / "state.sqlite"
    answered = []
    for turn in range(4):
        command = [sys.executable, "-c", COUNTS, str(path)]
        crowd = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        for process in crowd:
            lines = random.Random(turn).randrange(1, 20)
            answered += [int(process.stdout.readline()) for _ in range(lines)]
        for process in crowd:
            process.kill()
        for process in crowd:
            answered += [int(line) for line in process.stdout.read().split("\n")[:-1]]
            process.stdout.close()
            process.wait()
    with SQLiteStateStore(path) as store:
        left, right = store.get("left"), store.get("right")
    assert left == right
    assert len(answered) == len(set(answered))
    assert max(answered) <= left["n"] <= len(answered) + 12
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()
