"""Calls that nobody awaits, made by another thread while the boundary is left."""

from __future__ import annotations

import sys

from agent_saga import AgentKit, MemoryWAL
from agent_saga.engine.scope import Scope


class Call:
    """What the boundary knows of a call that was never awaited."""

    def __init__(self) -> None:
        self.__qualname__ = "read"

    def close(self) -> None: ...


def test_a_call_that_is_made_while_the_boundary_looks_for_them_disturbs_it_not():
    """A call is made between any two instructions of the look, as a thread may make it."""
    with AgentKit("late", wal=MemoryWAL()).transaction() as saga:
        calls = saga._scope.unawaited
        calls.update({number: Call() for number in range(3)})

        def between(frame, event, arg):
            if frame.f_code.co_filename != Scope.drop_unawaited.__code__.co_filename:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and len(calls) < 50:
                calls[len(calls)] = Call()
            return between

        before = sys.gettrace()
        sys.settrace(between)
        try:
            names = saga._scope.drop_unawaited()
        finally:
            sys.settrace(before)
            calls.clear()
    assert names == ["read"]
