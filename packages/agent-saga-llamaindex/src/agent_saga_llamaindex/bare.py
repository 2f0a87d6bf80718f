"""What LlamaIndex runs again of a workflow that is run by its own `run` in a boundary.

Rules of this part:

- Such a run is no boundary, and its steps are those of the framework. But it tells, where a tool or
  a function of the kit is called, which step runs and at which piece of work: a step that is run
  again, after a failure or when an event comes that it waited for, has the same one. So an equal
  call of it is the same call.
- Runs and pieces of work mean nothing in another process. So the key of a call tells only which of
  the equal calls it is: a boundary that is resumed, and whose program runs the workflow again,
  comes to the recorded ones, in order. Where it leaves some out, everything is undone.
- A call that equals one without a known outcome is that one.
- A workflow that such a step runs itself is another run each time: nothing tells that it comes
  again. `saga_run` knows it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.attempts import PerSaga, equal, tell_left_out, unsettled
from agent_saga.kit.frameworks.naming import everywhere
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.calls import running

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

Call = tuple[str, bytes]
"""A tool's name, and the arguments' fingerprint."""


class _Made:
    """Which calls the executions of steps have made in a saga; the executions are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, tuple[Any, Counter[Call]]] = {}
        self._order: dict[Call, list[tuple[str, str, str, int]]] = {}

    def number(self, worker: Any, run: str, call: Call) -> int:
        """Return which of the equal calls of the saga an execution makes now.

        Args:
            worker: the framework's object of the execution.
            run: the framework's id of the run of the workflow.
            call: what is called.
        """
        with self._lock:
            made = self._of.setdefault(id(worker), (worker, Counter()))[1]
            at = (run, seams.step_name(worker), seams.work_of(worker), made[call])
            made[call] += 1
            known = self._order.setdefault(call, [])
            if at not in known:
                known.append(at)
            return known.index(at)

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary did before, and has not come to."""
        with self._lock:
            made = {call: len(known) for call, known in self._order.items()}
        read = [(step, _read(step)) for step in tuple(saga.keyed.values())]
        return [step for step, mark in read if mark and mark[1] >= made.get(mark[0], 0)]


def _read(step: Step) -> tuple[Call, int] | None:
    """Return which call a step is, and which of the equal ones; None if its key is another's."""
    try:
        key = json.loads(step.key[-1])
        return (step.tool.name, bytes.fromhex(key["mac"])), int(key["number"])
    except (ValueError, TypeError, LookupError):
        return None


_made: PerSaga[_Made] = PerSaga()


def key_of(saga: Saga, tool: Tool, mac: bytes) -> str | None:
    """Return the key of a call outside any run; None where no step's piece of work is known.

    Args:
        saga: whose step it is.
        tool: what is called.
        mac: the arguments' fingerprint.
    """
    worker, run = seams.worker(), seams.run_id()
    work = "" if worker is None else seams.work_of(worker)
    if tool.reversible or not (run and work):
        return None
    number = _made.of(saga, _Made).number(worker, run, (tool.name, mac))
    lost = [one for one in tuple(saga.unsettled.values()) if equal(one, tool, mac)]
    for step in filter(unsettled, lost):
        return step.key[-1] if step.keyed else None
    return json.dumps({"mac": mac.hex(), "number": number})


def _name(saga: Saga, tool: Tool, mac: bytes) -> str | None:
    """Return the key of a call that passes none of this package's tools."""
    return None if running.get() is not None else key_of(saga, tool, mac)


everywhere(_name)
tell_left_out(lambda saga: _made.of(saga, _Made).left_out(saga))
