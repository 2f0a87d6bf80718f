"""The examples as modules, and the world as somebody sees it who uses none of their code."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from urllib.request import urlopen

import pytest

from tools import tree


@pytest.fixture(scope="session", autouse=True)
def _examples_on_the_path():
    sys.path.insert(0, str(tree.ROOT / "examples"))
    yield
    sys.path.remove(str(tree.ROOT / "examples"))


def rows(path, query):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def fetched(port, path):
    with urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
        return json.loads(answer.read())


def seen_from_outside(world):
    """Return what stands, asked of files, databases and services directly."""
    files = (world.folder / "files").iterdir()
    tickets = fetched(world.tickets.port, "tickets")
    return {
        "paid": rows(world.folder / "ledger.sqlite", "SELECT customer, sum(cents) FROM lines"),
        "files": {path.name: path.read_text("utf-8") for path in files},
        "shelf": rows(world.folder / "stock.sqlite", "SELECT item, free FROM shelf"),
        "reserved": rows(world.folder / "stock.sqlite", "SELECT item, pieces FROM reserved"),
        "tickets": [(t["team"], t["text"]) for t in tickets if t["status"] == "open"],
        "flags": fetched(world.flags.port, "flags"),
    }


@pytest.fixture
def outside():
    return seen_from_outside
