"""A refusal is with the operating system before its caller sees it: a kill does not lose it."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit, PreFlightGate, RefusedError, Rule
from agent_saga.controls.control import Control
from agent_saga.controls.installed import INSTALLED


def left_by_a_kill(log):
    """Return what the files hold now, whatever the process has in its memory."""
    return b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())


class Late(Control):
    """A control that refuses at its last look, once the step is announced."""

    name = "late"

    def check(self, call):
        """Let everything go on."""

    def recheck(self, call):
        raise RefusedError("not any more", reason="halted")


@pytest.fixture
def late():
    INSTALLED.put("switch", Late())
    yield
    INSTALLED.put("switch", None)


def refused(mode, kit, log, world, event, *semantics):
    async def body(saga):
        for one in semantics:
            undo = world.refund if one == "COMPENSABLE" else None
            tool = kit.safe_tool(mode.fn(world.charge), one, name=one, compensate=undo)
            with pytest.raises(RefusedError):
                await mode.call(tool, 1)
            seen.append(left_by_a_kill(log).count(event))

    seen = []
    mode.attempt(kit, body)
    assert world.charges == []
    return seen


def test_what_a_rule_refused_is_written_before_the_caller_sees_it(mode, tmp_path, world):
    never = Rule("never", lambda call: True, "refuse", "no")
    log = tmp_path / "log"
    kit = AgentKit("refuses", wal=str(log), gate=PreFlightGate(rules=[never]))
    kinds = ("COMPENSABLE", "REVERSIBLE")
    assert refused(mode, kit, log, world, b"STEP_REFUSED", *kinds) == [1, 2]


def test_that_an_announced_call_was_not_started_is_written_before_the_caller_sees_it(
    mode, tmp_path, world, late
):
    log = tmp_path / "log"
    kit = AgentKit("stops", wal=str(log))
    assert refused(mode, kit, log, world, b"STEP_NOT_APPLIED", "COMPENSABLE") == [1]
