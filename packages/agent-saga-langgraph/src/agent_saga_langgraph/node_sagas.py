"""Which saga a boundary inside a graph is, when its node runs on a thread.

Rules of this part:

- The saga's id is made of the checkpoint that the superstep began with and the task in it. So a
  resumed or repeated node finds it again, and the tasks of a fan-out have one each.
- What the nodes of a thread began is noted in the state store before it begins: no checkpoint
  names it, and `rollback_to` must find it. The note goes when the saga has left the log.
- A node that runs at another checkpoint looks at what it did before on its thread. What a completed
  superstep on the way here did is over. What waits where a new input dropped it, or was lost with
  its checkpoint in a crash, is gone on with. Anything else that stands would stand beside this run,
  or happen again: it is refused.
- A thread of which nothing is left, though no process died, was deleted: its id begins a new life.
- A checkpoint that is not stored yet is waited for; where none is stored on the way, nobody can
  tell, and a node that did something before is refused, at once where durability is 'exit'.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.types import StateSnapshot

from agent_saga.domain import identity
from agent_saga.domain.commands import queue_command
from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import BranchRefused, SagaClosed
from agent_saga.recovery.undo_steps import stands
from agent_saga.state.base import one
from agent_saga_langgraph import place as places
from agent_saga_langgraph.lineage import completed
from agent_saga_langgraph.threads import Thread, checkpoint_of
from agent_saga_langgraph.wishes import History

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from agent_saga.kit.frameworks.recorded import Recorded
    from agent_saga.recovery.survey import Found
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc

_WAITS: Final = (SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED)
_NOTES: Final = "langgraph-node/"
_FIELDS: Final = ("saga", "checkpoint", "path", "place")
_HERE: Final = frozenset({SagaState.COMMITTED, *_WAITS})
_UNDONE: Final = (SagaState.ROLLED_BACK, SagaState.CLOSED)
_PATIENCE: Final = 3.0
_PAUSE: Final = 0.02


class Node(NamedTuple):
    """Where a boundary inside a graph stands.

    Attributes:
        thread: the thread's id.
        checkpoint: the outermost graph's, that the superstep began with.
        path: the nodes that lead to it.
        saga: the id of its saga.
    """

    thread: str
    checkpoint: str
    path: str
    saga: str


class Began(NamedTuple):
    """A saga that a node of a thread began, or went on with last.

    Attributes:
        saga: its id.
        checkpoint, path: where the node stood, as in `Node`.
        place: the id that a saga has which begins there.
    """

    saga: str
    checkpoint: str
    path: str
    place: str


def node_at(thread: str, checkpoint: str, metadata: Any) -> Node:
    """Return where the running node stands.

    Args:
        thread: the thread's id.
        checkpoint: the outermost graph's.
        metadata: of the node's configuration.
    """
    namespace = str(metadata.get("langgraph_checkpoint_ns") or "")
    path, task = places.path(namespace), namespace.partition("|")[0]
    inner = [metadata.get("langgraph_step"), metadata.get("langgraph_path")]
    place = json.dumps([checkpoint, task, path, *inner], default=str)
    digest = hashlib.sha256(place.encode()).hexdigest()[:32]
    return Node(thread, checkpoint, path, f"langgraph:{thread}:node:{digest}")


def numbered(name: str, number: int) -> str:
    """Return the id of a node's saga after earlier ones were undone."""
    return name if number == 1 else f"{name}:{number}"


# --- what was begun -------------------------------------------------------------------------------


def _folder(thread: str) -> str:
    return f"{_NOTES}{hashlib.sha256(thread.encode()).hexdigest()[:32]}/"


def _document(thread: str, saga: str) -> str:
    return _folder(thread) + hashlib.sha256(saga.encode()).hexdigest()[:32]


def note(store: StateStore, node: Node, saga: str) -> None:
    """Note, durably, that a node begins a saga, or goes on with one."""
    _put(store, _document(node.thread, saga), dict(zip(_FIELDS, (saga, *node[1:]), strict=True)))


def _put(store: StateStore, key: str, doc: Doc | None) -> None:
    store.transact([key], one(key, lambda _: (doc, None)), durable=True)


def begun_on(store: StateStore, thread: str) -> list[Began]:
    """Return what the nodes of a thread began."""
    return [_began(doc) for _, doc in store.scan(_folder(thread))]


def _began(doc: Doc) -> Began:
    return Began(*(str(doc[name]) for name in _FIELDS))


def forget(recorded: Recorded) -> None:
    """Drop the notes of all sagas that have left the log: nothing can be told or undone of them."""
    notes = {_began(doc).saga: key for key, doc in recorded.store.scan(_NOTES)}
    for saga in recorded.departed(notes):
        _put(recorded.store, notes[saga], None)


def checkpoints_of(recorded: Recorded, thread: str) -> dict[str, str]:
    """Return the checkpoint at which each saga of a node was last, by the log's own id."""
    begun = begun_on(recorded.store, thread)
    return {identity.saga_id_of(one.saga): one.checkpoint for one in begun}


def sagas_of_nodes(thread: Thread, recorded: Recorded) -> list[Found]:
    """Return the sagas that nodes of a thread began and that may count, the earliest first.

    One that was undone when its node failed does not: the graph was told.
    """
    known = {checkpoint_of(snapshot.config) for snapshot in thread.snapshots}
    return [
        found
        for began, found in _found(begun_on(recorded.store, thread.id), recorded)
        if (began.checkpoint in known or recorded.may_have_died(found))
        and (found.view.state not in _UNDONE or recorded.was_committed(found))
    ]


def _found(begun: list[Began], recorded: Recorded) -> list[tuple[Began, Found]]:
    """Return those that left records, the earliest first; the log is read once."""
    by_id = {identity.saga_id_of(one.saga): one for one in begun}
    return [(by_id[found.id], found) for found in recorded.all(one.saga for one in begun)]


# --- which saga it is -----------------------------------------------------------------------------


def own_saga(node: Node, recorded: Recorded) -> tuple[str, bool]:
    """Return the id of the saga that a node begins, or goes on with, at its own checkpoint.

    Returns:
        The id, and whether the saga has begun.

    Raises:
        SagaClosed: an earlier attempt at the node was not undone as a whole.
    """
    begun = {one.saga: one for one in begun_on(recorded.store, node.thread)}
    for one_begun in begun.values():
        if one_begun.place == node.saga and recorded.state(one_begun.saga) in _HERE:
            return one_begun.saga, True
    number, saga = 1, node.saga
    while saga in begun and (begun[saga].place != node.saga or _is_undone(node, saga, recorded)):
        number += 1
        saga = numbered(node.saga, number)
    return saga, False


def _is_undone(node: Node, saga: str, recorded: Recorded) -> bool:
    """Say whether an earlier attempt was undone; False if it left no record.

    Raises:
        SagaClosed: something of it stands.
    """
    state = recorded.state(saga)
    if state is None or state in _UNDONE:
        return state is not None
    raise SagaClosed(
        f"An earlier attempt at the node {node.path} of thread {node.thread!r} could not be undone "
        f"as a whole: saga {identity.saga_id_of(saga)} is {state.value}.",
        rule="undone",
        reason="what stands of it would happen again",
        fix=queue_command(identity.saga_id_of(saga), recorded.path),
    )


def earlier(node: Node, recorded: Recorded) -> list[tuple[Began, Found]]:
    """Return what a node must know of its thread's other checkpoints.

    That is what stands of what the same node did, and what any node did that was undone since.
    Notes of which the log tells nothing are looked through, and dropped if their sagas have left.
    """
    begun = begun_on(recorded.store, node.thread)
    others = [one for one in begun if one.checkpoint != node.checkpoint]
    found = _found(others, recorded)
    if len(found) < len(others):
        forget(recorded)
    return [
        (began, saga)
        for began, saga in found
        if _is_missing(saga, recorded)
        or (began.path == node.path and any(stands(saga, step) for step in saga.view.steps))
    ]


def _is_missing(found: Found, recorded: Recorded) -> bool:
    """Say whether a saga was undone after its node had been left."""
    return found.view.state in _UNDONE and recorded.was_committed(found)


def taken_over(
    node: Node,
    before: Iterable[tuple[Began, Found]],
    tuples: list[CheckpointTuple],
    recorded: Recorded,
) -> str | None:
    """Return the earlier saga that a node goes on with; None where it begins one.

    Args:
        node: where it stands.
        before: what it did at other checkpoints.
        tuples: the thread's checkpoints, newest first.
        recorded: what the log tells.

    Raises:
        BranchRefused: something stands that would stand beside this run, or happen again.
        SagaClosed: the checkpoint tells of effects that were undone.
    """
    thread = _thread(node, tuples)
    if thread is None:
        raise _refused(node, [began for began, _ in before], "nobody can tell when they happened")
    line = {checkpoint_of(snapshot.config) for snapshot in thread.line}
    known = {checkpoint_of(snapshot.config) for snapshot in thread.snapshots}
    done, beside = completed(thread.snapshots, thread.line), []
    for began, found in before:
        waits = found.view.state in _WAITS
        if _is_missing(found, recorded):
            if began.checkpoint in done:
                raise _missing(node, began)
            continue
        if began.checkpoint in done:
            continue
        if began.checkpoint in known:
            if waits and began.checkpoint in line:
                return began.saga
            beside.append(began)
        elif recorded.may_have_died(found):
            if waits and found.view.state is not SagaState.SUSPENDED:
                return began.saga
            beside.append(began)
    if beside:
        raise _refused(node, beside, "they would stand beside it, or happen again")
    return None


def _refused(node: Node, begun: Iterable[Began], why: str) -> BranchRefused:
    return BranchRefused(
        f"The node {node.path} of thread {node.thread!r} took effect in earlier runs that did not "
        f"lead here, and {why}: saga {', '.join(one.saga for one in begun)}.",
        rule="branch",
        reason="effects of another branch stand",
        fix="rollback_to(graph, config, kit=kit) undoes what came after a checkpoint; or take "
        "another thread_id. durability='sync' stores each checkpoint before the next node runs.",
    )


def _missing(node: Node, began: Began) -> SagaClosed:
    return SagaClosed(
        f"The checkpoint of thread {node.thread!r} tells of what the node {began.path} did, which "
        f"was undone since: saga {began.saga}.",
        rule="undone",
        reason="the world no longer has what the state tells of",
        fix="Go back to a checkpoint before it with rollback_to(graph, config, kit=kit), or take "
        "another thread_id.",
    )


def history_of(node: Node, kept: object) -> History:
    """Return what the thread's checkpoints say about the steps of a node's saga.

    Args:
        node: where it stands.
        kept: what an earlier process kept of steps that were met again.
    """
    return History((), (node.checkpoint,), (), kept)


# --- the thread's checkpoints ---------------------------------------------------------------------


def _thread(node: Node, tuples: list[CheckpointTuple]) -> Thread | None:
    """Return the thread as seen from the node; None if its own checkpoint is not stored."""
    snapshots = [
        StateSnapshot(
            values=one.checkpoint.get("channel_values"),
            next=(),
            config=one.config,
            metadata=one.metadata,
            created_at=None,
            parent_config=one.parent_config,
            tasks=(),
            interrupts=(),
        )
        for one in tuples
    ]
    if node.checkpoint not in {checkpoint_of(snapshot.config) for snapshot in snapshots}:
        return None
    return Thread(node.thread, snapshots, node.checkpoint)


def _outermost(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def stored(config: RunnableConfig, node: Node) -> list[CheckpointTuple]:
    """Return a thread's checkpoints, when the node's own is among them or will not come."""
    saver, until = places.checkpointer(config), time.monotonic() + _patience(config)
    while True:
        found = list(saver.list(_outermost(node.thread)))
        if _has(found, node) or time.monotonic() >= until:
            return found
        time.sleep(_PAUSE)


async def stored_async(config: RunnableConfig, node: Node) -> list[CheckpointTuple]:
    """Do what `stored` does without blocking the event loop."""
    saver, until = places.checkpointer(config), time.monotonic() + _patience(config)
    while True:
        found = [one async for one in saver.alist(_outermost(node.thread))]
        if _has(found, node) or time.monotonic() >= until:
            return found
        await asyncio.sleep(_PAUSE)


def _patience(config: RunnableConfig) -> float:
    """Return for how many seconds a checkpoint is waited for."""
    return _PATIENCE if places.stores_on_the_way(config) else 0.0


def _has(found: list[CheckpointTuple], node: Node) -> bool:
    return any(checkpoint_of(one.config) == node.checkpoint for one in found)
