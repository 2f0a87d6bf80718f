"""What a thread's checkpoints say about steps: which led to a checkpoint, which stand beside it.

Rules of this part:

- A step belongs to the checkpoint that its superstep began with. It led to a target if that
  superstep was completed on the way to it; otherwise it came after, or on a branch beside it.
- A copy of a checkpoint (a fork) is where the original is: what led to the one led to the other.
  A copy that a replay makes of its first checkpoint repeats that checkpoint's superstep: what the
  superstep did the first time stands beside.
- A saga of the program may hold steps of other threads, and of none: those stand elsewhere.
- A checkpoint that was lost places nothing. Its step is placed by its saga, where all of that lies
  on one side; else it is ambiguous, and nobody guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import SagaState, ScopeState, StepState
from agent_saga_langgraph import place as places
from agent_saga_langgraph.threads import checkpoint_of, saga_id_of, scope_of, source_of

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot

    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step
    from agent_saga_langgraph.threads import Thread

_NOTHING: Mapping[str, str] = {}
_PART = (ScopeState.NEW, ScopeState.OPEN, ScopeState.LEFT)


class Side(Enum):
    """Where a step stands, seen from a target."""

    BEFORE = "before"
    AFTER = "after"
    BESIDE = "beside"
    ELSEWHERE = "elsewhere"
    UNPLACED = "unplaced"


class Lineage:
    """A thread's checkpoints, seen from one of them.

    Args:
        thread: all checkpoints of the thread, and its line: the target and those that led to it.
        nodes: the checkpoint at which each saga of a node was last, by the saga's id.
    """

    __slots__ = (
        "_all",
        "_completed",
        "_line",
        "_newest",
        "_nodes",
        "_programs",
        "_sagas",
        "_scope",
        "done",
        "target",
    )

    def __init__(self, thread: Thread, nodes: Mapping[str, str] = _NOTHING) -> None:
        self._nodes = nodes
        snapshots, line = thread.snapshots, thread.line
        self._programs, self._scope = thread.programs, scope_of(thread.id)
        self.target = checkpoint_of(line[0].config) if line else ""
        self._all = {checkpoint_of(snapshot.config) for snapshot in snapshots}
        self._line = {checkpoint_of(snapshot.config) for snapshot in line}
        self.done = completed(snapshots, line)
        self._completed = {
            checkpoint_of(s.parent_config) for s in snapshots if source_of(s) == "loop"
        }
        self._newest: dict[str, str] = {}
        self._sagas: dict[str, set[str]] = {}
        for snapshot in snapshots:
            saga, checkpoint = saga_id_of(snapshot), checkpoint_of(snapshot.config)
            if saga is not None:
                self._newest.setdefault(saga, checkpoint)
                self._sagas.setdefault(saga, set()).add(checkpoint)

    def side(self, step: Step, saga: Saga) -> Side:
        """Say where a step stands; `UNPLACED` when its checkpoint does not tell."""
        if saga.id in self._programs and self._own_scopes(step.scope) is None:
            return Side.ELSEWHERE
        checkpoint = self.checkpoint(step, saga)
        if checkpoint in self.done:
            return Side.BEFORE
        if checkpoint and checkpoint == self.target:
            return Side.AFTER
        beside = checkpoint in self._all and checkpoint not in self._line
        if beside or checkpoint in self._completed:
            return Side.BESIDE
        return self._by_saga(saga)

    def _by_saga(self, saga: Saga) -> Side:
        own = self._sagas.get(saga.id, set())
        if own and not own & self._line:
            return Side.BESIDE
        if saga.state is SagaState.COMMITTED and self._newest.get(saga.id) in self._line:
            return Side.BEFORE
        return Side.UNPLACED

    def is_missing(self, step: Step) -> bool:
        """Say whether the target tells of an effect that was undone since.

        What a nested run undid by itself was told to the graph, and is not missing.
        """
        if step.tool.reversible or step.state is not StepState.COMPENSATED:
            return False
        scopes = self._own_scopes(step.scope)
        if scopes is None or any(scope.state not in _PART for scope in scopes):
            return False
        return self.checkpoint(step, step.saga) in self.done

    def checkpoint(self, step: Step, saga: Saga) -> str:
        """Return the checkpoint that a step's superstep began with, or an empty string.

        A node that goes on with what a new input dropped has it at its own.
        """
        if saga.id in self._nodes:
            return self._nodes[saga.id]
        mark = places.read(step.key[-1]) if step.key else None
        return "" if mark is None else mark.checkpoint

    def _own_scopes(self, scope: Scope) -> list[Scope] | None:
        """Return the savepoints that the thread's run opened round a step; None for another's."""
        inside = scope.saga.id in self._programs
        scopes: list[Scope] = []
        one: Scope | None = scope
        while one is not None and one.parent is not None:
            if inside and one.path[-1].rpartition("#")[0] == self._scope:
                return scopes
            scopes.append(one)
            one = one.parent
        return None if inside else scopes


def completed(snapshots: Iterable[StateSnapshot], line: Iterable[StateSnapshot]) -> frozenset[str]:
    """Return the checkpoints of a line whose supersteps were completed on the way along it."""
    looped: dict[str, list[StateSnapshot]] = {}
    for snapshot in snapshots:
        if source_of(snapshot) == "loop":
            looped.setdefault(checkpoint_of(snapshot.parent_config), []).append(snapshot)
    done = set()
    for snapshot in line:
        parent, source = checkpoint_of(snapshot.parent_config), source_of(snapshot)
        copied = source == "fork" and any(
            _same_values(one, snapshot) for one in looped.get(parent, ())
        )
        if parent and (source == "loop" or copied):
            done.add(parent)
    return frozenset(done)


def _same_values(one: StateSnapshot, other: StateSnapshot) -> bool:
    try:
        return one.next == other.next and bool(one.values == other.values)
    except Exception:  # values are the user's: comparing them may do anything
        return False
