"""Stores for the tests of this folder, one of them with statements that fail on purpose."""

from __future__ import annotations

import sqlite3

import pytest

from agent_saga.state.base import Change
from agent_saga.state.sqlite import SQLiteStateStore


@pytest.fixture
def count_up():
    """A rule that adds one and answers with the sum."""

    def rule(docs):
        count = (docs["n"] or {"n": 0})["n"] + 1
        return Change(count, {"n": {"n": count}})

    return rule


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
