"""Tasks that one agent lets another execute, by CrewAI's own tools for that.

Rules of this part:

- What the other agent does is in the body of the call: where the agent that delegates is asked
  again, it may come again.
- Two equal calls are two executions, of which each has its own effects. But one that repeats an
  equal one that failed is that one: what it did may come again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_saga_crewai.place import Place
    from agent_saga_crewai.runs import Execution


class Delegated:
    """The executions of delegated tasks in one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Any, Execution]] = {}
        self._failed: dict[tuple[Execution | None, Place | None, Place], Execution] = {}

    def of(self, task: Any) -> Execution | None:
        """Return the execution of a task; None if nobody delegated it."""
        with self._lock:
            found = self._known.get(id(task))
        return None if found is None else found[1]

    def begin(self, task: Any, place: Place, execution: Execution) -> None:
        """Note that a task begins to be executed; what began already goes on.

        Args:
            task: the framework's, which is kept, so that no other one gets its id.
            place: where it is executed.
            execution: what it is, unless it repeats one that failed.
        """
        with self._lock:
            if id(task) not in self._known:
                key = (execution.outer, execution.caller, place)
                self._known[id(task)] = (task, self._failed.pop(key, execution))

    def failed(self, task: Any, place: Place) -> None:
        """Note that the execution of a task failed."""
        with self._lock:
            found = self._known.get(id(task))
            if found is not None:
                execution = found[1]
                self._failed[execution.outer, execution.caller, place] = execution
