"""Which saga a run on a thread belongs to. Judges what was read; reads nothing itself.

Rules of this part:

- Without a checkpointer nothing can be resumed: every run is a saga of its own, unless it is given
  a key.
- With one, the saga's id stands in the metadata of the checkpoints that its run made. A new id is
  the thread and the checkpoint that the run begins at: so a run whose first checkpoint was lost in
  a crash is found again.
- A saga that waits, or whose process died, is gone on with. One that has ended is not; the thread
  of one that was undone is refused, since its state tells of effects that the world no longer has.
- A new input on a thread that waits drops what waits: what was done there is lost to the graph.
- Going on from an older checkpoint is refused: the effects of the branch that it leaves would
  stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, StateSnapshot

from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga_langgraph.attempts import History

SAGA: Final = "agent_saga"
"""The key in a checkpoint's metadata under which the saga's id stands."""

_BY_HAND = ("update", "fork")
"""How checkpoints that no run made call their source."""

_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})


class Thread:
    """What a graph's checkpointer says about a thread.

    Args:
        id: the thread's id.
        latest: its state now; None for one that a graph has never run on.
        line: the checkpoints that led there, newest first.
    """

    __slots__ = ("id", "latest", "line")

    def __init__(self, id: str, snapshots: Iterable[StateSnapshot]) -> None:  # noqa: A002
        by_id = {checkpoint_of(snapshot.config): snapshot for snapshot in snapshots}
        self.id = id
        self.line: list[StateSnapshot] = []
        at = next(iter(by_id), "")
        while at in by_id:
            snapshot = by_id.pop(at)
            self.line.append(snapshot)
            at = checkpoint_of(snapshot.parent_config)
        self.latest = self.line[0] if self.line else None

    @property
    def saga(self) -> str | None:
        """The id of the saga whose run made the latest checkpoint that a run made."""
        made = [s for s in self.line if (s.metadata or {}).get("source") not in _BY_HAND]
        return saga_of(made[0]) if made else None

    @property
    def waits(self) -> bool:
        """Whether the graph stands before work that it has not done."""
        return self.latest is not None and stopped_early(self.latest)

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What the thread waits for."""
        return tuple(self.latest.interrupts) if self.latest is not None else ()

    def begun_at(self, number: int = 1) -> str:
        """Return the id of a saga that begins here; later numbers where earlier ones are used."""
        at = checkpoint_of(self.latest.config) if self.latest is not None else "start"
        return f"langgraph:{self.id}:{at}" + (f":{number}" if number > 1 else "")

    def history(self, *, resuming: bool) -> History:
        """Return which supersteps were completed, and which checkpoints still count.

        Args:
            resuming: the run goes on with what waits; a new input drops it instead.
        """
        done: set[str] = set()
        dropped: set[str] = set()
        for snapshot in self.line:
            source = (snapshot.metadata or {}).get("source")
            groups = {"loop": done, "input": dropped}
            if source in groups:
                groups[source].add(checkpoint_of(snapshot.parent_config))
        if self.latest is not None and not resuming:
            dropped.add(checkpoint_of(self.latest.config))
        known = {checkpoint_of(snapshot.config) for snapshot in self.line}
        return History(done, known - dropped)


def checkpoint_of(config: RunnableConfig | None) -> str:
    """Return the checkpoint that a configuration names, or an empty string."""
    return str(((config or {}).get("configurable") or {}).get("checkpoint_id") or "")


def thread_of(config: RunnableConfig) -> str:
    """Return the thread that a run is on.

    Raises:
        ConfigurationError: the configuration names none, and the graph has a checkpointer.
    """
    thread = (config.get("configurable") or {}).get("thread_id")
    if thread is None:
        raise ConfigurationError(
            "The graph has a checkpointer, and the configuration names no thread.",
            fix='Give config={"configurable": {"thread_id": "…"}}.',
        )
    return str(thread)


def saga_of(snapshot: StateSnapshot | None) -> str | None:
    """Return the id of the saga whose run made a checkpoint, or None."""
    found: Mapping[str, Any] = (snapshot.metadata if snapshot is not None else None) or {}
    saga = found.get(SAGA)
    return saga if isinstance(saga, str) else None


def stopped_early(snapshot: StateSnapshot) -> bool:
    """Say whether work remains; a task whose writes are stored is not `next`, and not yet done."""
    return bool(snapshot.next or snapshot.tasks)


def goes_on(given: object) -> bool:
    """Say whether a run's input goes on with what waits, rather than beginning something."""
    return given is None or (isinstance(given, Command) and given.resume is not None)


def check_latest(thread: Thread, config: RunnableConfig) -> None:
    """Refuse to go back in time.

    Raises:
        ConfigurationError: the configuration names a checkpoint that is not the latest.
    """
    wanted = checkpoint_of(config)
    if wanted and (thread.latest is None or wanted != checkpoint_of(thread.latest.config)):
        raise ConfigurationError(
            "The run would begin at an older checkpoint of its thread; the effects of the steps "
            "after it would stand, and happen again.",
            fix="Leave checkpoint_id out to go on from the latest one, or take another thread.",
        )


def usable(state: SagaState | None) -> bool:
    """Say whether a saga can be gone on with; None is one that has no record."""
    return state is None or state in _GOES_ON


def continued(thread: Thread, saga: str, state: SagaState | None, *, resuming: bool) -> bool:
    """Say whether a run goes on with the saga that the thread's latest checkpoint names.

    Args:
        thread: where the run is.
        saga: the saga's id.
        state: the saga's, as its log tells; None when it left no record.
        resuming: the run's input goes on with what waits.

    Raises:
        SagaClosed: the saga was undone, or has ended while the thread waits.
    """
    if state in _GOES_ON or (state is None and thread.waits):
        return True
    if state in (None, SagaState.COMMITTED) and not (resuming and thread.waits):
        return False
    how = "has been committed" if state is SagaState.COMMITTED else f"is {state.value}"  # type: ignore[union-attr]
    raise SagaClosed(
        f"The saga {saga!r} of thread {thread.id!r} {how}; the thread's state tells of effects "
        "that the world may no longer have, or would repeat them.",
        rule="ended",
        reason="a run cannot go on in a saga that has ended",
        fix="Take another thread_id; or give key='…' to begin a saga of its own on this thread.",
    )
