"""A SQLite store whose disk fails, hangs or is busy; which statements it uses, and when."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state.base import Change
from agent_saga.state.sqlite import SQLiteStateStore


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
def test_a_failing_disk_is_told_and_nothing_is_changed(failing, code, what, matching, count_up):
    failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = code, matching
    for _ in range(2):
        with pytest.raises(StateError, match=what) as caught:
            failing.transact(["n"], count_up)
        assert caught.value.fix
    failing.failing.code = 0
    assert failing.transact(["n"], count_up) == 2


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC])
def test_after_a_failed_sync_all_is_moved_and_synced_before_going_on(failing, code, count_up):
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


@pytest.mark.parametrize("matching", ["COMMIT", "CREATE TABLE", "user_version ="])
def test_what_sqlite_rolled_back_itself_hides_no_failed_write(failing, matching, count_up):
    execute = failing.failing.execute

    def rolled_back(self, sql, *args):
        if matching in sql and failing.failing.code:
            execute(self, "ROLLBACK")  # as SQLite does after such an error
        return execute(self, sql, *args)

    failing.failing.execute = rolled_back
    failing.failing.code, failing.failing.matching = sqlite3.SQLITE_IOERR_FSYNC, matching
    with pytest.raises(StateError, match="could not be read or written"):
        failing.transact(["n"], count_up)
    failing.failing.code = 0
    failing.failing.seen.clear()
    assert failing.transact(["n"], count_up) == 1
    assert any("wal_checkpoint(TRUNCATE)" in sql for sql in failing.failing.seen)


def test_busy_is_waited_for_and_then_unavailable(failing, count_up):
    failing.transact(["n"], count_up)
    failing.failing.code, failing.failing.matching = sqlite3.SQLITE_BUSY, "BEGIN IMMEDIATE"
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        failing.transact(["n"], count_up, timeout=0.05)
    failing.failing.code = 0
    assert failing.transact(["n"], count_up) == 2


def test_a_disk_that_hangs_is_unavailable_and_the_ending_unknown(failing, count_up):
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


def test_durability_is_asked_per_transaction(failing, count_up):
    levels = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}
    failing.transact(["n"], count_up)
    for durable in (False, True, True, False):
        failing.transact(["n"], count_up, durable=durable)
    set_to = [sql for sql in failing.failing.seen if sql.startswith("PRAGMA synchronous")]
    assert set_to == [levels[True], levels[False], levels[True], levels[False]]


def test_every_write_begins_immediate(failing, count_up):
    failing.transact(["n"], count_up)
    failing.transact(["n"], lambda docs: Change(docs["n"]))
    seen = failing.failing.seen
    writes = [at for at, sql in enumerate(seen) if sql.startswith(("INSERT", "CREATE"))]
    begins = [[sql for sql in seen[:at] if sql.startswith("BEGIN")][-1] for at in writes]
    assert len(begins) >= 2
    assert set(begins) == {"BEGIN IMMEDIATE"}


def test_what_waits_together_shares_one_transaction(failing, count_up):
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


def test_a_file_beside_it_that_goes_while_it_is_looked_at_is_no_trouble(
    tmp_path, monkeypatch, count_up
):
    """Whoever closes the last connection removes it: at any moment, in any process."""
    path = tmp_path / "state.sqlite"
    first = SQLiteStateStore(path)
    first.transact(["n"], count_up)
    first.close()
    beside = Path(f"{path}-wal")
    beside.touch()
    look = os.lstat

    def looked(place, **options):
        found = look(place, **options)
        if str(place) == str(beside):
            beside.unlink()
        return found

    monkeypatch.setattr(os, "lstat", looked)
    second = SQLiteStateStore(path)
    assert second.transact(["n"], count_up) == 2
    second.close()
