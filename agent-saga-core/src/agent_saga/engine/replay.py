"""Resuming a saga: which recorded step a call of the new run is.

Rules of this part (design 6, R2):

- A call without a key of its own is an unused recorded step of the same scope and tool with equal
  arguments, the earliest one. If there are unused ones of this tool in this scope and none fits,
  the run has changed: `ReplayConflict`, never silently a second effect. If there are none, it is a
  new step.
- A recorded step that was committed gives its recorded result and does not run. One whose result
  could not be recorded faithfully gives `ResultNotRecorded`, never a stand-in.
- A saga that has ended only reads: recorded results are given, and a new step is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent_saga.errors import ReplayConflict

if TYPE_CHECKING:
    from agent_saga.engine.saga import Scope
    from agent_saga.engine.step import Step
    from agent_saga.engine.wrap import Invocation

_Place = tuple[tuple[str, ...], str]


class Replay:
    """The recorded steps of a resumed saga that no call of the new run was matched with yet.

    Args:
        steps: the recorded steps, oldest first.
        scopes: the recorded savepoints by path.
    """

    __slots__ = ("_unused", "scopes")

    def __init__(self, steps: Iterable[Step], scopes: dict[tuple[str, ...], Scope]) -> None:
        self.scopes = scopes
        self._unused: dict[_Place, list[Step]] = {}
        for step in steps:
            if not step.keyed:
                self._unused.setdefault((step.scope.path, step.tool.name), []).append(step)

    def match(self, call: Invocation, digest: bytes) -> Step | None:
        """Return the recorded step that a call is; None when it is a new one.

        Raises:
            ReplayConflict: recorded steps of this tool are left, and none has these arguments.
        """
        unused = self._unused.get((call.scope.path, call.tool.name))
        if not unused:
            return None
        for step in unused:
            if step.mac == digest:
                unused.remove(step)
                rebind(step, call)
                return step
        raise ReplayConflict(
            f"The resumed run calls {call.tool.name} with other arguments than the recorded one.",
            fix="Resume with the same inputs, or start a saga of its own (another saga_id).",
        )


def rebind(step: Step, call: Invocation) -> None:
    """Give a recorded step the functions of the tool that the new run calls it with."""
    if step.compensation is None and step.provisional is None:
        step.missing = step.missing or ""
    step.tool = call.tool
    step.scope = call.scope
    step.owner = call.owner
    step.named = call.named
    step.arguments, step.args, step.kwargs = call.arguments, call.args, call.kwargs
