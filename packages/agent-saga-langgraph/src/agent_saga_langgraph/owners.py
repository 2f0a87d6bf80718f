"""To whom a thread's effects belong: its own sagas, a program's, another log's, another graph's.

Rules of this part:

- A run with a thread, inside a boundary of the program, is a part of the program's saga: what
  becomes of that is the program's to say. While it is open nobody else goes on with the thread; if
  it was undone, the thread's state tells of effects that the world no longer has.
- A log that knows nothing of what the thread's checkpoints name is another log than that of its
  runs: nothing is gone on with, and nothing called undone, on its word.
- Graphs with checkpointers of their own may use one id for different threads. A run that finds an
  unfinished saga under its thread's id, of which its checkpointer knows nothing, goes on with it
  only if the same graph may have begun it and lost its checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from langgraph.prebuilt import ToolNode

from agent_saga.domain import identity
from agent_saga.domain.commands import quoted
from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import ClaimRefused, ConfigurationError, UndoRefused
from agent_saga_langgraph import logs, node_sagas, threads

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot

    from agent_saga.kit.frameworks.recorded import Recorded
    from agent_saga.recovery.survey import Found
    from agent_saga_langgraph.threads import Thread

_OTHER_KIT = "Give the kit= of the thread's runs: another log knows nothing of their effects."


# --- a boundary of the program --------------------------------------------------------------------


def check_program(thread: Thread, recorded: Recorded, inside: str, *, resuming: bool) -> None:
    """See that the program's saga that the last run was a part of lets another run begin.

    Args:
        thread: where the run begins.
        recorded: what the log tells.
        inside: the id of the saga round the new run, or an empty string.
        resuming: the run goes on with what waits.

    Raises:
        ClaimRefused: that saga has not ended.
        SagaClosed: it was undone, or has ended while the graph waits.
    """
    program = thread.inside
    if program is None or program == inside:
        return
    found = recorded.program(program)
    state = None if found is None or threads.did_nothing(found) else found.view.state
    if threads.usable(state) and state is not None:
        raise ClaimRefused(
            f"The last run of thread {thread.id!r} is a part of saga {program}, a boundary of the "
            f"program that is {state.value}.",
            fix="Go on with the thread when that boundary has ended; if its process is dead, let "
            f"recovery end it: {recorded.command('recover --import MODULE')}",
        )
    if state is not None and not thread.begins_branch:
        threads.check_ended(thread, program, state, resuming=resuming)


def check_free(thread: Thread, recorded: Recorded, *, resuming: bool) -> None:
    """See that a run inside a boundary takes nothing that belongs to a saga of the thread's own.

    Raises:
        ClaimRefused: such a saga waits, or has not ended.
        SagaClosed: it was undone.
    """
    own = thread.saga
    if own is None or threads.did_nothing(recorded.found(own)):
        return
    if not threads.continued(thread, own, recorded.state(own), resuming=resuming):
        return
    raise ClaimRefused(
        f"Thread {thread.id!r} waits in a saga of its own, {identity.saga_id_of(own)}; a run "
        "inside another boundary cannot go on with it.",
        fix="Go on with it by saga_run(graph, …) where no other boundary is open.",
    )


# --- another log ----------------------------------------------------------------------------------


def check_log(thread: Thread, recorded: Recorded) -> None:
    """See that a run which goes on, or begins a branch, is told of what the thread did.

    Raises:
        ConfigurationError: that stands in another log.
    """
    last = [] if thread.made is None else [thread.made]
    matters = thread.snapshots if thread.branched else last if thread.waits else []
    other = _other_log(matters, recorded)
    if other:
        raise ConfigurationError(
            f"The runs of thread {thread.id!r} are recorded in another log, {other}.",
            fix=_OTHER_KIT,
        )


def check_whole(thread: Thread, recorded: Recorded) -> None:
    """See that the log tells of everything that a thread did.

    Raises:
        UndoRefused: a part of it stands in another log.
    """
    other = _other_log(thread.snapshots, recorded)
    if other:
        raise UndoRefused(
            f"Runs of thread {thread.id!r} are recorded in another log, {other}; nothing was "
            "undone.",
            fix=_OTHER_KIT,
        )


def _other_log(snapshots: Iterable[StateSnapshot], recorded: Recorded) -> str:
    """Return where another log is that checkpoints name; empty if there is none.

    A log whose state store was lost has a new identity, and still tells of its sagas.
    """
    own, named = logs.identity_in(logs.mark_of(recorded)), dict[str, set[str]]()
    for snapshot in snapshots:
        mark, saga = threads.log_of(snapshot), threads.saga_id_of(snapshot)
        if saga is not None and mark and logs.identity_in(mark) != own:
            named.setdefault(mark, set()).add(saga)
    return next((logs.told(m) for m, sagas in named.items() if not recorded.has_had(sagas)), "")


# --- another graph --------------------------------------------------------------------------------


def graph_name(graph: Any) -> str:
    """Return what tells a graph from others in every process: its name, nodes and tools."""
    nodes = dict(getattr(graph, "nodes", None) or {})
    tools = [getattr(node, "bound", None) for node in nodes.values()]
    names = [name for one in tools if isinstance(one, ToolNode) for name in one.tools_by_name]
    text = "\n".join([*sorted(nodes), "", *sorted(names)])
    return f"{getattr(graph, 'name', '')} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def check_graph(thread: Thread, graph: str, recorded: Recorded, saga: str) -> None:
    """See that an unfinished saga, of which the thread tells nothing, may be this graph's.

    Raises:
        ConfigurationError: it is another graph's.
    """
    found = recorded.found(saga)
    if found is None or thread.latest is not None:
        return
    if found.view.state is SagaState.SUSPENDED or not _same(found, graph, recorded):
        words = f"undo {quoted(found.id)} --by NAME --reason WHY --import MODULE"
        undo = recorded.command(words)
        raise ConfigurationError(
            f"The log has an unfinished saga of a thread {thread.id!r}, {found.id}, of which the "
            "checkpointer of this graph knows nothing: another graph has the same thread_id, or "
            "its checkpoints were lost.",
            fix=f"Take a thread_id that no other graph uses; or end that saga first: {undo}",
        )


def sagas_of(thread: Thread, graph: str, recorded: Recorded) -> list[Found]:
    """Return every saga that a thread had, the earliest first; none of another graph's."""
    named = {threads.saga_id_of(snapshot) for snapshot in thread.snapshots}
    names, number = set(thread.sagas), 1
    found = recorded.all(names, thread.programs)
    ends, more = thread.ends, True
    while more:
        number += 1
        known = {one.id for one in found}
        ends = [end for end in ends if _begun(thread, end, number - 1) in known]
        again = recorded.all(thread.begun(end, number) for end in ends)
        found += [one for one in again if one.id not in known]
        more = bool(again)
    start = {_begun(thread, "start", one) for one in range(1, number + 1)}
    others = [
        one
        for one in found
        if one.id in start and one.id not in named and _is_other(one, graph, recorded)
    ]
    kept = [one for one in found if one not in others]
    kept += node_sagas.sagas_of_nodes(thread, recorded)
    return sorted(kept, key=lambda one: one.view.began)


def _begun(thread: Thread, end: str, number: int) -> str:
    return identity.saga_id_of(thread.begun(end, number))


def _is_other(found: Found, graph: str, recorded: Recorded) -> bool:
    """Say whether a saga that no checkpoint names is another graph's.

    What was committed or waits had its checkpoints stored before.
    """
    stored = found.view.state in (SagaState.COMMITTED, SagaState.SUSPENDED)
    return stored or not _same(found, graph, recorded)


def _same(found: Found, graph: str, recorded: Recorded) -> bool:
    label = recorded.label(found, threads.LABEL)
    begun_by = label.get("graph") if isinstance(label, Mapping) else None
    return begun_by in (None, graph)
