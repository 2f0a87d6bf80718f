"""What LlamaIndex runs again of a workflow that is run by its own `run` in a boundary.

Rules of this part:

- Such a run is no boundary, and its steps are those of the framework. But it tells, where a tool is
  called, which step runs and at which piece of work: a step that is run again, after a failure or
  when an event comes that it waited for, has the same one. So an equal call of it is the same call.
- A call that equals one without a known outcome is that one.
- A workflow that such a step runs itself is another run each time: nothing tells that it comes
  again. `saga_run` knows it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.attempts import PerSaga, equal, unsettled
from agent_saga_llamaindex import seams

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.tool import Tool


class _Made:
    """How many equal calls each execution of a step has made; the executions are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, tuple[Any, Counter[tuple[str, bytes]]]] = {}

    def number(self, worker: Any, tool: str, mac: bytes) -> int:
        """Return how many equal calls an execution has made before."""
        with self._lock:
            made = self._of.setdefault(id(worker), (worker, Counter()))[1]
            made[tool, mac] += 1
            return made[tool, mac] - 1


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
    number = _made.of(saga, _Made).number(worker, tool.name, mac)
    lost = [one for one in tuple(saga.unsettled.values()) if equal(one, tool, mac)]
    for step in filter(unsettled, lost):
        return step.key[-1] if step.keyed else None
    at = {"run": run, "step": seams.step_name(worker), "work": work}
    return json.dumps({**at, "mac": mac.hex(), "number": number})
