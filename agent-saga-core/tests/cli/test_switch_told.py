"""What `halt` and `resume` say is so now, and an empty path names no log."""

from __future__ import annotations

import pytest

from agent_saga.cli.exits import Exit
from agent_saga.controls.switch.kill_switch import KillSwitch
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.runtime.stores import FileSwitchStore


class Earlier:
    """The wall clock as it was an hour ago."""

    def now_us(self):
        return SYSTEM_CLOCK.now_us() - 3_600_000_000

    def monotonic(self):
        return SYSTEM_CLOCK.monotonic() - 3600


def test_a_halt_that_is_over_is_not_told_as_one_that_holds(cli, tmp_path, monkeypatch):
    log = tmp_path / "log"
    acting = "agent_saga.controls.switch.acting"
    with monkeypatch.context() as patch:
        now = SYSTEM_CLOCK.monotonic()
        patch.setattr(f"{acting}.here", lambda: (now - 3600, "another run"))
        switch = KillSwitch(FileSwitchStore(log), clock=Earlier())
        switch.halt("tool:wire", reason="a while", by="ann", ttl=60)
    done = cli("resume", "--scope", "*", "--by", "ann", "--wal-path", log)
    assert done.code == Exit.NOTHING_VERIFIABLE
    assert "Still" not in done.out
    assert "Nothing is halted or quarantined now." in done.out
    told = cli("resume", "--scope", "*", "--by", "ann", "--wal-path", log, "--json")
    assert told.document["holds"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("halt", "--reason", "r", "--by", "ann"),
        ("resume", "--scope", "*", "--by", "ann"),
        ("status",),
        ("verify",),
        ("approvals", "list"),
        ("limits",),
        ("breaker", "status"),
        ("doctor",),
    ],
)
def test_an_empty_path_is_no_log_of_another_name(cli, tmp_path, words):
    done = cli(*words, "--wal-path", "")
    assert done.code == Exit.USAGE
    assert "empty" in done.err
    assert not list(tmp_path.iterdir())


def test_a_tag_that_the_log_does_not_know_may_be_one_of_a_policy(cli, tmp_path):
    done = cli("halt", "--scope", "tag:money", "--reason", "r", "--by", "ann")
    assert "no tool that this log knows" in done.err
    assert "policy file" in done.err
    named = cli("halt", "--scope", "tool:wire", "--reason", "r", "--by", "ann")
    assert "policy file" not in named.err


def test_a_file_of_somebody_else_is_not_to_be_moved_before_all(cli, tmp_path):
    other = tmp_path / "passwd"
    other.write_text("root:x:0:0")
    done = cli("verify", "--wal-path", other)
    assert done.code == Exit.NOTHING_VERIFIABLE
    assert done.err.index("Name another path") < done.err.index("mv ")
