"""A look at whether a writer lives keeps nobody from taking its saga over."""

from __future__ import annotations

import time
from types import SimpleNamespace

from agent_saga import AgentKit
from agent_saga.wal import takeover
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import writers_of


def test_a_look_that_holds_a_dead_owners_lock_is_not_taken_for_its_owner(tmp_path, monkeypatch):
    log = str(tmp_path / "log")
    kit = AgentKit("shop", wal=log)
    with kit.transaction():
        kit.safe_tool(dict, "COMPENSABLE", lambda result: None, name="charge")(n=1)
    [writer] = writers_of(log, OsPort())
    assert takeover.dead_owner(log, writer) is None
    kit.runtime.wal.close()
    held = takeover.dead_writer(log, writer)
    assert held is not None
    assert takeover.dead_writer(log, writer) is None  # so it seems to live
    ended = {**vars(time), "sleep": lambda seconds: held.close()}
    monkeypatch.setattr(takeover, "time", SimpleNamespace(**ended))
    with takeover.dead_owner(log, writer) as found:
        assert found.writer == writer
