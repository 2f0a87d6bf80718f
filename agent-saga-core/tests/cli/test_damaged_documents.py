"""Whatever stands in the state store, a command answers: with what it can tell, or an error."""

from __future__ import annotations

import contextlib

import pytest

from agent_saga import AgentKit, Compensation, FileWAL
from agent_saga.cli.exits import Exit
from agent_saga.state.base import Change
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

DOCUMENTS = [
    *[{}, {"a": 1}, {"held": 5}, {"held": {"x": 5}}, {"tools": []}, {"grants": 5}],
    {"tools": {"x": 5}, "axis": [1, 2, 3, 4]},
    {"tools": {"x": {}}, "axis": []},
    *[{"state": "PENDING"}, {"state": "x"}, {"grants": [{}]}, {"rev": "x"}],
    {"rev": 1, "halts": [{}], "quarantined": {}},
    {"boot": 5, "logs": 5},
]
WHO = ("--by", "b")
APPROVER = ("--approver", "ann")
COMMANDS = [
    ("limits",),
    ("breaker", "status"),
    ("breaker", "reset", "x", *WHO),
    ("approvals", "list"),
    ("approvals", "approve", "aa", *APPROVER),
    ("approvals", "deny", "aa", *APPROVER),
    ("approvals", "challenge", "aa"),
    ("approvals", "review", "aa", *APPROVER),
    ("status",),
    ("doctor",),
    ("recover",),
    ("halt", "--reason", "r", *WHO),
    ("resume", "--scope", "*", *WHO),
    ("resume", "--scope", "saga:x", *WHO),
]


@pytest.mark.parametrize(
    "key", ["limit/x/", "breaker", "switch", "approval/aa", "grant/aa", "limits"]
)
def test_a_damaged_document_ends_no_command_with_a_traceback(cli, tmp_path, key):
    log = tmp_path / "log"
    with contextlib.closing(FileWAL(log)) as wal:
        kit = AgentKit("kit", wal=wal)
        tool = kit.safe_tool(int, "COMPENSABLE", lambda r: Compensation.none("nothing to undo"))
        with kit.transaction():
            tool(1)
    with SQLiteStateStore(log / FILE_NAME) as state:
        for doc in DOCUMENTS:
            for command in COMMANDS:
                state.transact([key], lambda docs, doc=doc: Change(None, {key: doc}))
                done = cli(*command, "--wal-path", log)
                assert done.code in set(Exit), (command, doc)
                assert "Traceback" not in done.err


def test_a_damaged_request_is_told_beside_the_others(cli, tmp_path):
    log = tmp_path / "log"
    with SQLiteStateStore(log / FILE_NAME) as state:
        state.transact(["approval/aa"], lambda docs: Change(None, {"approval/aa": {"a": 1}}))
    listed = cli("approvals", "list", "--wal-path", log)
    assert listed.code == Exit.NOT_CLEAN
    assert "Damaged, and refused where it is needed: approval/aa" in listed.out
    assert cli("approvals", "list", "--json", "--wal-path", log).document["damaged"]
