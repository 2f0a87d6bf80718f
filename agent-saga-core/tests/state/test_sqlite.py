"""What only the SQLite store has: its file, its errors, its batches."""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_saga.errors import NotRecordable, StateError, StateUnavailable
from agent_saga.state.base import Change
from agent_saga.state.sqlite import SQLiteStateStore


def count_up(docs):
    count = (docs["n"] or {"n": 0})["n"] + 1
    return Change(count, {"n": {"n": count}})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log" / "state.sqlite"


@pytest.fixture
def store(path):
    with SQLiteStateStore(path) as store:
        yield store


class Failing(sqlite3.Connection):
    """A connection whose statements fail while a test wants them to."""

    code = 0
    matching = ""
    seen: list[str]

    def execute(self, sql, *args):
        type(self).seen.append(sql)
        if type(self).code and type(self).matching in sql:
            error = sqlite3.OperationalError("made by a test")
            error.sqlite_errorcode = type(self).code
            raise error
        return super().execute(sql, *args)


@pytest.fixture
def failing(path):
    kind = type("Failing", (Failing,), {"seen": []})

    def connect(*args, **kwargs):
        return sqlite3.connect(*args, factory=kind, **kwargs)

    with SQLiteStateStore(path, connect=connect) as store:
        store.failing = kind
        yield store
        kind.code = 0


def test_reading_and_deciding_nothing_make_no_file(store, tmp_path):
    assert store.get("n") is None
    assert store.scan() == []
    assert store.transact(["n"], lambda docs: Change(docs["n"])) is None
    with pytest.raises(ZeroDivisionError):
        store.transact(["n"], lambda _: 1 / 0)
    with pytest.raises(NotRecordable):
        store.transact(["n"], lambda _: Change(None, {"n": {"v": b""}}))
    assert list(tmp_path.iterdir()) == []


def test_the_file_and_its_folder_are_the_owners_only(store, path):
    umask = os.umask(0o022)
    try:
        store.transact(["n"], count_up)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {name: mode for name, mode in modes.items() if name.startswith("state")} == {
        "state.sqlite": 0o600,
        "state.sqlite-wal": 0o600,
        "state.sqlite-shm": 0o600,
    }
    assert (path.parent / ".gitignore").read_text() == "*\n"


def test_a_folder_that_is_there_stays_as_it_is(store, path):
    path.parent.mkdir(mode=0o755)
    store.transact(["n"], count_up)
    assert not (path.parent / ".gitignore").exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_closing_leaves_one_file(path):
    with SQLiteStateStore(path) as store:
        store.transact(["n"], count_up)
    assert sorted(file.name for file in path.parent.iterdir()) == [".gitignore", "state.sqlite"]


def test_two_stores_of_one_process_share_the_file(path):
    with SQLiteStateStore(path) as first, SQLiteStateStore(path) as second:
        answers = [store.transact(["n"], count_up) for store in (first, second) * 5]
    assert answers == list(range(1, 11))


def test_a_store_that_nobody_keeps_closes_itself(path):
    store = SQLiteStateStore(path)
    store.transact(["n"], count_up)
    del store
    gc.collect()
    assert not path.with_name("state.sqlite-wal").exists()


def test_a_program_that_never_closes_ends_and_loses_nothing(path):
    program = (
        "import sys\n"
        "from agent_saga.state.sqlite import SQLiteStateStore\n"
        "from agent_saga.state.base import Change\n"
        "store = SQLiteStateStore(sys.argv[1])\n"
        "store.transact(['n'], lambda _: Change(None, {'n': {'n': 7}}), durable=False)\n"
    )
    command = [sys.executable, "-W", "error", "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    with SQLiteStateStore(path) as store:
        assert store.get("n") == {"n": 7}


def test_a_plain_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "log").write_text("a file")
    with SQLiteStateStore(tmp_path / "log" / "state.sqlite") as store:
        assert store.get("n") is None
        with pytest.raises(StateError, match="log"):
            store.transact(["n"], count_up)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\xff" * 5000, b"SQLite format 3\0"])
def test_a_damaged_file_is_named_and_kept(store, path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    for use in (lambda: store.transact(["n"], count_up), lambda: store.get("n"), store.scan):
        with pytest.raises(StateError) as caught:
            use()
        assert str(path) in str(caught.value)
        assert "move the file away" in caught.value.fix
    assert path.read_bytes() == content


def test_damage_inside_is_found_and_named(path):
    with SQLiteStateStore(path) as store:
        for n in range(200):
            store.transact([f"k{n}"], lambda _, n=n: Change(None, {f"k{n}": {"v": "x" * 500}}))
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\x5a" * (40960 - 8192)
    path.write_bytes(content)
    with SQLiteStateStore(path) as store, pytest.raises(StateError, match="damaged"):
        store.scan()


def test_another_programs_database_is_refused_unchanged(store, path):
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    for use in (lambda: store.transact(["n"], count_up), lambda: store.get("n")):
        with pytest.raises(StateError, match="another program"):
            use()
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(store, path):
    store.transact(["n"], count_up)
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with SQLiteStateStore(path) as second, pytest.raises(StateError, match="schema version 99"):
        second.get("n")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"[]", "damaged"),
        (b'{"v":1,"doc":[]}', "damaged"),
        (b'{"v":2,"doc":{}}', "format 2"),
        (b'{"doc":{}}', "damaged"),
    ],
)
def test_a_damaged_document_is_named_and_the_others_go_on(store, path, body, what):
    store.transact(["n"], count_up)
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO documents VALUES ('bad', ?)", (body,))
    other.close()
    for use in (lambda: store.get("bad"), lambda: store.transact(["bad"], Change)):
        with pytest.raises(StateError, match=what) as caught:
            use()
        assert "'bad'" in str(caught.value)
    assert store.transact(["n"], count_up) == 2


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_went_away_is_refused_from_then_on(store, path, replace):
    store.transact(["n"], count_up)
    path.rename(path.with_name("moved"))
    if replace:
        with SQLiteStateStore(path) as other:
            other.transact(["n"], count_up)
    for use in (lambda: store.transact(["n"], count_up), lambda: store.get("n")):
        with pytest.raises(StateError, match="removed or replaced"):
            use()
    assert path.exists() is replace


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (sqlite3.SQLITE_FULL, "no room"),
        (sqlite3.SQLITE_IOERR_FSYNC, "could not be read or written"),
        (sqlite3.SQLITE_READONLY, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened"),
        (sqlite3.SQLITE_CORRUPT, "damaged"),
        (sqlite3.SQLITE_MISUSE, "cannot be used"),
    ],
)
@pytest.mark.parametrize("matching", ["BEGIN IMMEDIATE", "INSERT", "COMMIT"])
def test_a_failing_disk_is_told_and_nothing_is_changed(failing, code, what, matching):
    failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = code, matching
    for _ in range(2):
        with pytest.raises(StateError, match=what) as caught:
            failing.transact(["n"], count_up)
        assert caught.value.fix
    failing.failing.code = 0
    assert failing.transact(["n"], count_up) == 2


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC])
def test_after_a_failed_sync_all_is_moved_and_synced_before_going_on(failing, code):
    failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = code, "COMMIT"
    with pytest.raises(StateError):
        failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = code, "wal_checkpoint"
    for _ in range(2):
        with pytest.raises(StateError):
            failing.get("n")
    failing.failing.code = 0
    failing.failing.seen.clear()
    assert failing.get("n") == {"n": 1}
    assert any("wal_checkpoint(TRUNCATE)" in sql for sql in failing.failing.seen)
    failing.failing.seen.clear()
    failing.transact(["n"], count_up)
    assert not any("wal_checkpoint" in sql for sql in failing.failing.seen)


def test_busy_is_waited_for_and_then_unavailable(failing):
    failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = sqlite3.SQLITE_BUSY, "BEGIN IMMEDIATE"
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        failing.transact(["n"], count_up, timeout=0.05)
    failing.failing.code = 0
    assert failing.transact(["n"], count_up) == 2


def test_a_disk_that_hangs_is_unavailable_and_the_ending_unknown(failing):
    go_on = threading.Event()
    reached = threading.Event()
    failing.transact(["n"], count_up)
    execute = failing.failing.execute

    def hang(self, sql, *args):
        if sql == "COMMIT":
            reached.set()
            go_on.wait(30)
        return execute(self, sql, *args)

    failing.failing.execute = hang
    caught = []

    def use():
        try:
            failing.transact(["n"], count_up, timeout=0.2)
        except StateUnavailable as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    assert reached.wait(30)
    thread.join(30)
    assert "unknown" in caught[0]
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        failing.transact(["n"], count_up, timeout=0.05)
    go_on.set()
    assert failing.transact(["n"], count_up) == 3


def test_durability_is_asked_per_transaction(failing):
    levels = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}
    failing.transact(["n"], count_up)
    for durable in (False, True, True, False):
        failing.transact(["n"], count_up, durable=durable)
    set_to = [sql for sql in failing.failing.seen if sql.startswith("PRAGMA synchronous")]
    assert set_to == [levels[True], levels[False], levels[True], levels[False]]


def test_every_write_begins_immediate(failing):
    failing.transact(["n"], count_up)
    failing.transact(["n"], lambda docs: Change(docs["n"]))
    begins = [sql for sql in failing.failing.seen if sql.startswith("BEGIN")]
    assert begins
    assert set(begins) == {"BEGIN IMMEDIATE"}


def test_what_waits_together_shares_one_transaction(failing):
    failing.transact(["n"], count_up)
    inside, go_on = threading.Event(), threading.Event()

    def held(docs):
        inside.set()
        go_on.wait(30)
        return count_up(docs)

    def fails(docs):
        raise LookupError

    answers = []

    def use(rule):
        try:
            answers.append(failing.transact(["n"], rule))
        except LookupError:
            answers.append("failed")

    threads = [threading.Thread(target=use, args=(held,))]
    threads[0].start()
    assert inside.wait(30)
    failing.failing.seen.clear()
    threads += [threading.Thread(target=use, args=(r,)) for r in (count_up, fails, count_up)]
    for thread in threads[1:]:
        thread.start()
    while failing._worker._jobs.qsize() < 3:
        threading.Event().wait(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == [2, 3, 4, "failed"]
    assert failing.failing.seen.count("COMMIT") == 2
    assert failing.failing.seen.count("BEGIN IMMEDIATE") == 1


@pytest.mark.crash
def test_a_fork_inherits_no_connection_even_when_others_are_writing(store, path):
    stop = threading.Event()
    counts = [0]

    def keep_writing():
        while not stop.is_set():
            counts[0] = store.transact(["n"], count_up)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            answer = store.transact(["mine"], lambda _: Change(1, {"mine": {}}))
            os._exit(0 if answer == 1 and not _open_in_this_process(path, store) else 1)
        children.append(child)
    endings = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    writer.join()
    assert endings == [0] * 8
    assert store.get("n") == {"n": counts[0]}
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


def _open_in_this_process(path, store):
    """Descriptors of the database beyond those of the child's own connection."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return names.count(str(path)) > 1


@pytest.mark.crash
def test_a_child_that_ends_as_usual_leaves_the_parents_store_whole(path):
    program = (
        "import os, sys\n"
        "from agent_saga.state.sqlite import SQLiteStateStore\n"
        "from agent_saga.state.base import Change\n"
        "store = SQLiteStateStore(sys.argv[1])\n"
        "put = lambda key: store.transact([key], lambda _: Change(None, {key: {}}))\n"
        "put('before')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    put('child')\n"
        "    sys.exit(0)\n"
        "put('parent')\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "put('after')\n"
        "print([key for key, _ in store.scan()])\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "['after', 'before', 'child', 'parent']\n", ended.stderr
