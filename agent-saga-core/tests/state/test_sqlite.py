"""What only the SQLite store has: its file, and what it does when processes fork."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

from agent_saga.errors import NotRecordable, StateError
from agent_saga.state import forking
from agent_saga.state import sqlite_schema as schema
from agent_saga.state.base import Change
from agent_saga.state.sqlite import SQLiteStateStore


def test_reading_and_deciding_nothing_make_no_file(store, tmp_path):
    assert store.get("n") is None
    assert store.scan() == []
    assert store.transact(["n"], lambda docs: Change(docs["n"])) is None
    with pytest.raises(ZeroDivisionError):
        store.transact(["n"], lambda _: 1 / 0)
    with pytest.raises(NotRecordable):
        store.transact(["n"], lambda _: Change(None, {"n": {"v": b""}}))
    assert list(tmp_path.iterdir()) == []


def test_the_file_and_its_folder_are_the_owners_only(store, path, count_up):
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


def test_commits_write_over_zeros_that_were_written_once(store, path, count_up):
    write_ahead = path.with_name("state.sqlite-wal")
    store.transact(["n"], count_up)
    filled = write_ahead.stat()
    assert filled.st_size == schema.WRITE_AHEAD_BYTES
    for _ in range(20):
        store.transact(["n"], count_up)
    assert write_ahead.stat().st_size == filled.st_size


def test_filling_touches_nothing_that_another_connection_wrote(store, path, count_up):
    path.parent.mkdir()
    with sqlite3.connect(path) as early:
        early.execute("PRAGMA journal_mode = WAL")
        schema.make_schema(early)
    assert path.with_name("state.sqlite-wal").stat().st_size < schema.WRITE_AHEAD_BYTES
    store.transact(["n"], count_up)
    assert path.with_name("state.sqlite-wal").stat().st_size == schema.WRITE_AHEAD_BYTES
    with SQLiteStateStore(path) as other:
        assert other.transact(["n"], count_up) == 2
    early.close()
    assert store.get("n") == {"n": 2}


@pytest.mark.parametrize("size", [schema.PAGE_BYTES, 4096])
def test_a_file_keeps_the_pages_that_it_was_made_with(store, path, size, count_up):
    """A new one has short pages; one of an earlier release, or of another tool, has others."""
    path.parent.mkdir()
    with sqlite3.connect(path) as early:
        early.execute(f"PRAGMA page_size = {size}")
        early.execute("PRAGMA journal_mode = WAL")
        schema.make_schema(early)
    early.close()
    for n in range(1, 400):
        assert store.transact(["n"], count_up) == n
    store.close()
    assert path.read_bytes()[16:18] == size.to_bytes(2, "big")
    with SQLiteStateStore(path) as again:
        assert again.get("n") == {"n": 399}


def test_a_new_file_has_short_pages_and_moves_them_in_time(store, path, count_up):
    for n in range(1, 1500):
        assert store.transact(["n"], count_up, durable=False) == n
    assert path.with_name("state.sqlite-wal").stat().st_size == schema.WRITE_AHEAD_BYTES
    store.close()
    assert path.read_bytes()[16:18] == schema.PAGE_BYTES.to_bytes(2, "big")


def test_a_document_longer_than_a_page_is_carried(store, path):
    doc = {"text": "x" * 100_000}
    store.transact(["n"], lambda _: Change(None, {"n": doc}))
    assert store.get("n") == doc


def test_a_folder_that_is_there_stays_as_it_is(store, path, count_up):
    path.parent.mkdir(mode=0o755)
    store.transact(["n"], count_up)
    assert not (path.parent / ".gitignore").exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize("error", [PermissionError, AttributeError])
def test_the_file_is_its_owners_where_files_are_made_by_opening_only(
    store, path, monkeypatch, error, count_up
):
    def refuses(*_args):
        raise error

    monkeypatch.setattr(os, "mknod", refuses)
    assert store.transact(["n"], count_up) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["mkdir", "mknod", "fsync"])
def test_what_the_system_refuses_is_named(store, path, monkeypatch, name, count_up):
    def refuses(*_args, **_kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, name, refuses)
    with pytest.raises(StateError, match="Read-only file system") as caught:
        store.transact(["n"], count_up)
    assert str(path) in str(caught.value)
    monkeypatch.undo()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    assert store.transact(["n"], count_up) == 1
    assert {path.parent.stat().st_ino, path.parent.parent.stat().st_ino} <= set(synced)


def _unreadable_schema(path):
    at = path.read_bytes().index(b"CREATE TABLE documents")
    with path.open("r+b") as file:
        file.seek(at + len("CRE"))
        file.write(b"\x80")


def _columns_of_numbers(path):
    """Make a file whose columns hold what ours never do, as a damaged one may."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE documents")
        other.execute("CREATE TABLE documents (key, body)")
        other.executemany("INSERT INTO documents VALUES (?, ?)", [("n", 7), (None, b"{}")])
        other.execute("INSERT INTO documents VALUES (x'80', x'80')")
        other.commit()


@pytest.mark.parametrize("harm", [_unreadable_schema, _columns_of_numbers])
def test_a_damaged_file_is_told_whatever_stands_in_it(path, count_up, harm):
    with SQLiteStateStore(path) as store:
        store.transact(["n"], count_up)
    harm(path)
    with SQLiteStateStore(path) as store:
        for use in (lambda: store.get("n"), lambda: store.scan(""), lambda: store.scan("n")):
            with pytest.raises(StateError, match="damaged"):
                use()
        with pytest.raises(StateError, match="damaged"):
            store.transact(["n"], count_up)


def test_a_file_system_without_shared_memory_is_refused(path, count_up):
    class NoWriteAhead(sqlite3.Connection):
        def execute(self, sql, *args):
            return super().execute(sql.replace("= WAL", "= DELETE"), *args)

    def connect(*args, **kwargs):
        return sqlite3.connect(*args, factory=NoWriteAhead, **kwargs)

    with (
        SQLiteStateStore(path, connect=connect) as store,
        pytest.raises(StateError, match="share memory"),
    ):
        store.transact(["n"], count_up)


def test_closing_leaves_one_file(path, count_up):
    with SQLiteStateStore(path) as store:
        store.transact(["n"], count_up)
    assert sorted(file.name for file in path.parent.iterdir()) == [".gitignore", "state.sqlite"]


def test_two_stores_of_one_process_share_the_file(path, count_up):
    with SQLiteStateStore(path) as first, SQLiteStateStore(path) as second:
        answers = [store.transact(["n"], count_up) for store in (first, second) * 5]
    assert answers == list(range(1, 11))


def test_a_store_that_nobody_keeps_closes_itself(path, count_up):
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
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    with SQLiteStateStore(path) as store:
        assert store.get("n") == {"n": 7}


def test_a_plain_file_in_place_of_the_folder_is_named(tmp_path, count_up):
    (tmp_path / "log").write_text("a file")
    with SQLiteStateStore(tmp_path / "log" / "state.sqlite") as store:
        assert store.get("n") is None
        with pytest.raises(StateError, match="log"):
            store.transact(["n"], count_up)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\xff" * 5000, b"SQLite format 3\0"])
def test_a_damaged_file_is_named_and_kept(store, path, content, count_up):
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


def test_another_programs_database_is_refused_unchanged(store, path, count_up):
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    for use in (lambda: store.transact(["n"], count_up), lambda: store.get("n")):
        with pytest.raises(StateError, match="another program"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize("moment", ["application_id", "user_version", "sqlite_master"])
def test_a_file_that_another_process_fills_meanwhile_is_no_foreign_one(path, count_up, moment):
    path.parent.mkdir()
    path.touch()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA journal_mode = WAL")

    class Interrupted(sqlite3.Connection):
        def execute(self, sql, *args):
            found = super().execute(sql, *args)
            if moment in sql:
                schema.make_schema(other)
            return found

    def connect(*args, **kwargs):
        return sqlite3.connect(*args, factory=Interrupted, **kwargs)

    with SQLiteStateStore(path, connect=connect) as store:
        assert store.transact(["n"], count_up) == 1
    other.close()


def test_a_newer_schema_is_refused(store, path, count_up):
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
def test_a_damaged_document_is_named_and_the_others_go_on(store, path, body, what, count_up):
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
def test_a_file_that_went_away_is_refused_from_then_on(store, path, replace, count_up):
    store.transact(["n"], count_up)
    path.rename(path.with_name("moved"))
    if replace:
        with SQLiteStateStore(path) as other:
            other.transact(["n"], count_up)
    for use in (lambda: store.transact(["n"], count_up), lambda: store.get("n")):
        with pytest.raises(StateError, match="removed or replaced"):
            use()
    assert path.exists() is replace


@pytest.mark.crash
def test_a_fork_inherits_no_connection_even_when_others_are_writing(
    store, path, count_up, monkeypatch
):
    monkeypatch.setattr(forking, "PATIENCE", 60.0)
    stop = threading.Event()
    counts = [0]

    def keep_writing():
        while not stop.is_set():
            counts[0] = store.transact(["n"], count_up, timeout=60.0)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            with _ended_here():
                store.transact(["mine"], lambda _: Change(None, {"mine": {}}), timeout=60.0)
                assert not _open_in_this_process(path, store)
        children.append(child)
    endings = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    writer.join()
    assert endings == [0] * 8
    assert store.get("n") == {"n": counts[0]}
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


@contextlib.contextmanager
def _ended_here():
    """End a forked child, whatever goes wrong in it: it must not go on with the parent's tests."""
    failed = 1
    try:
        yield
        failed = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(failed)


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
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout == "['after', 'before', 'child', 'parent']\n", ended.stderr
