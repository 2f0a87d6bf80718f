"""Going back in time: `rollback_to`, and what a run on a branch must not pass over.

Rules of this part:

- A graph's checkpoint is no more than a note; the world does not go back with it. So a run may
  begin at an earlier checkpoint only when no effect stands that came after it: such effects would
  stand beside the branch, or happen again. They are listed, and `rollback_to` undoes them. An edit
  by hand that makes an earlier node come next goes back as well.
- `rollback_to` undoes exactly the steps that did not lead to its target, latest first, in every
  saga of the thread; then it copies the target, so that the thread goes on from there.
- What cannot be undone, and what nobody can place, is refused before anything is undone.
- A crash in the middle leaves steps undone and the thread as it was; calling it again goes on. A
  thread whose state tells of effects that were undone is not gone on with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.errors import InvalidUpdateError

from agent_saga.domain import identity
from agent_saga.domain.commands import quoted
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.report import RollbackReport
from agent_saga.engine.boundary import last_reports
from agent_saga.engine.saga import Saga
from agent_saga.errors import BranchRefused, SagaClosed, SagaError, UndoRefused
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga.recovery.survey import Found
from agent_saga.recovery.undo_steps import check_steps, stands, undo_steps
from agent_saga.runtime.composition import process_runtime
from agent_saga_langgraph import node_sagas, owners, threads
from agent_saga_langgraph.lineage import Lineage, Side
from agent_saga_langgraph.threads import Thread

__all__ = ["rollback_to", "rollback_to_sync"]

_TO_DO = "rollback_to(graph, config, kit=kit) undoes them; on_branch='keep' lets them stand."
_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})
_STAYS = (Side.BEFORE, Side.ELSEWHERE)


class Part(NamedTuple):
    """Steps of one saga.

    Attributes:
        found: the saga as the log tells it.
        saga: the same with its steps.
        steps: the ids of those that are meant.
    """

    found: Found
    saga: Saga
    steps: list[str]

    def names(self) -> list[str]:
        """Return what a person is told of each step."""
        steps = [self.saga.steps[step] for step in self.steps]
        return [f"{step.tool.name}({_shown(step.arguments)})" for step in steps]


def _shown(arguments: Any) -> str:
    pairs = ", ".join(f"{name}={value!r}" for name, value in dict(arguments).items())
    return pairs if len(pairs) <= 80 else f"{pairs[:77]}..."


# --- a run on a branch ----------------------------------------------------------------------------


def check_begin(
    thread: Thread,
    lineage: Lineage,
    log: Recorded,
    graph: str,
    *,
    on_branch: str,
    named: str | None = None,
    resuming: bool = False,
) -> list[str]:
    """See that a run may begin where it is asked to; return the effects that it leaves standing.

    Args:
        thread: where the run begins.
        lineage: the thread's checkpoints, seen from there.
        log: what is recorded.
        graph: what tells the graph from others.
        on_branch: "refuse", or "keep" to let effects of other branches stand.
        named: the id that the caller gave the saga, which says that the thread's own is over.
        resuming: the run goes on with what waits.

    Raises:
        BranchRefused: effects stand that came after that checkpoint, or after what an edit by hand
            went back to.
        SagaClosed: the checkpoint tells of effects that were undone.
    """
    continued = thread.saga
    if thread.branched:
        known = owners.sagas_of(thread, graph, log)
    else:
        last = log.program(thread.inside) if continued is None else log.found(continued)
        known = [] if last is None else [last]
    sagas = [(found, log.rebuilt(found)) for found in known]
    if named is None:
        _check_missing(thread, lineage, sagas)
    again = _gone_back(thread, lineage, sagas) if resuming and named is None else []
    if again and on_branch != "keep":
        raise _branch_refused(thread, again, "The state was edited so that the run goes back on")
    if not thread.branched:
        return again
    older = thread.latest is not thread.snapshots[0]
    goes_on = "" if older or continued is None else identity.saga_id_of(continued)
    left = []
    for found, saga in sagas:
        own = found.id == goes_on
        steps = [s for s in found.view.steps if _is_left(found, saga, s, lineage, own=own)]
        left += Part(found, saga, steps).names()
    if left and (on_branch != "keep" or _still_open(continued, log)):
        raise _branch_refused(thread, left, "The run would begin at an earlier point of")
    return [*again, *(name for name in left if name not in again)]


def _gone_back(thread: Thread, lineage: Lineage, sagas: Iterable[tuple[Found, Saga]]) -> list[str]:
    """Return the effects that stand, and that an edit by hand makes happen again."""
    passed, again = thread.gone_back(), []
    for found, saga in sagas if passed else ():
        steps = [step for step in found.view.steps if stands(found, step)]
        steps = [step for step in steps if lineage.checkpoint(saga.steps[step], saga) in passed]
        again += Part(found, saga, steps).names()
    return again


def _is_left(found: Found, saga: Saga, step: str, lineage: Lineage, *, own: bool) -> bool:
    """Say whether a step stands that a run beginning at the target would leave behind."""
    if not stands(found, step):
        return False
    side = lineage.side(saga.steps[step], saga)
    if own:
        return side is Side.BESIDE
    if side is Side.UNPLACED:
        return found.view.state in _GOES_ON
    return side not in _STAYS


def _still_open(saga: str | None, log: Recorded) -> bool:
    return saga is not None and log.state(saga) in _GOES_ON


def _branch_refused(thread: Thread, left: list[str], what: str) -> BranchRefused:
    listed = "".join(f"\n  - {name}" for name in left)
    return BranchRefused(
        f"{what} thread {thread.id!r}; these effects came "
        f"after it, and would stand beside it or happen again:{listed}",
        rule="branch",
        reason="effects of another branch stand",
        fix=_TO_DO,
    )


def _check_missing(thread: Thread, lineage: Lineage, sagas: Iterable[tuple[Found, Saga]]) -> None:
    missing = [
        f"{step.tool.name}({_shown(step.arguments)})"
        for _, saga in sagas
        for step in saga.steps.values()
        if lineage.is_missing(step)
    ]
    if missing:
        listed = "".join(f"\n  - {name}" for name in missing)
        raise SagaClosed(
            f"The checkpoint of thread {thread.id!r} tells of effects that were undone:{listed}",
            rule="undone",
            reason="the world no longer has what the state tells of",
            fix="Go back to a checkpoint before them with rollback_to(graph, config), or take "
            "another thread_id.",
        )


# --- rolling back ---------------------------------------------------------------------------------


async def rollback_to(
    graph: Any,
    config: RunnableConfig,
    *,
    kit: AgentKit | None = None,
    by: str = "rollback_to",
    reason: str = "the graph went back in time",
) -> RunnableConfig:
    """Undo every effect that came after a checkpoint, then copy it: its thread goes on there.

    Args:
        graph: a compiled graph with a checkpointer, or a `saga_agent`.
        config: names the thread and the checkpoint: that of a snapshot of `get_state_history`.
        kit: whose log it is; that of the `saga_agent`, or the process's, when not given.
        by: who goes back, for the record.
        reason: why, for the record.

    Returns:
        The configuration of the copy; so is the thread's latest checkpoint now.

    Raises:
        UndoRefused: an effect cannot be undone, cannot be placed, or stands in another log; nothing
            was undone.
        SagaError: an inverse did not succeed; the thread is as it was.
        SagaClosed: the checkpoint tells of effects that were undone.
        ClaimRefused: a run is going on.

    A crash leaves the thread as it was; calling it again goes on, and undoes nothing twice.
    """
    name = threads.thread_of(config)
    snapshots = [s async for s in graph.aget_state_history(threads.latest_of(config))]
    log, told = Recorded(_runtime(graph, kit)), owners.graph_name(graph)

    def undo() -> RollbackReport:
        return _rolled_back(Thread(name, snapshots, _wanted(config)), log, told, by, reason)

    last_reports.set(await asyncio.to_thread(undo))
    try:
        return await graph.aupdate_state(config, None, as_node="__copy__")  # type: ignore[no-any-return]
    except InvalidUpdateError:
        return config


def rollback_to_sync(
    graph: Any,
    config: RunnableConfig,
    *,
    kit: AgentKit | None = None,
    by: str = "rollback_to",
    reason: str = "the graph went back in time",
) -> RunnableConfig:
    """Go back in time as `rollback_to` does; arguments, result and errors as there."""
    snapshots = list(graph.get_state_history(threads.latest_of(config)))
    thread = Thread(threads.thread_of(config), snapshots, _wanted(config))
    log, told = Recorded(_runtime(graph, kit)), owners.graph_name(graph)
    last_reports.set(_rolled_back(thread, log, told, by, reason))
    try:
        return graph.update_state(config, None, as_node="__copy__")  # type: ignore[no-any-return]
    except InvalidUpdateError:
        return config


def _runtime(graph: Any, kit: AgentKit | None) -> Any:
    own = kit if kit is not None else getattr(graph, "saga_kit", None)
    return process_runtime() if own is None else own.runtime


def _wanted(config: RunnableConfig) -> str:
    wanted = threads.checkpoint_of(config)
    if not wanted:
        raise UndoRefused(
            "The configuration names no checkpoint to go back to.",
            fix="Give that of a snapshot: next(graph.get_state_history(config)).config.",
        )
    return wanted


def _rolled_back(thread: Thread, log: Recorded, graph: str, by: str, reason: str) -> RollbackReport:
    owners.check_whole(thread, log)
    lineage = Lineage(thread, node_sagas.checkpoints_of(log, thread.id))
    sagas = [(found, log.rebuilt(found)) for found in owners.sagas_of(thread, graph, log)]
    _check_missing(thread, lineage, sagas)
    parts = [_after(log, found, saga, lineage) for found, saga in reversed(sagas)]
    chosen = [part for part in parts if part.steps]
    for part in chosen:
        check_steps(log.place, part.found, part.steps)
    whole = RollbackReport("", f"thread {thread.id}", log.place.wal.address)
    for part in chosen:
        report = undo_steps(log.place, part.found.id, part.steps, by=by, reason=reason)
        _add(whole, report)
        if report.standing:
            raise SagaError(
                f"Thread {thread.id!r} was not taken back: an effect may stand.\n"
                f"{report.summary()}",
                report=whole,
                fix=report.next_command(),
            )
    whole.outcome = "ROLLED_BACK"
    return whole


def _add(whole: RollbackReport, report: RollbackReport) -> None:
    whole.saga_id = ", ".join(filter(None, (whole.saga_id, report.saga_id)))
    for lines in ("compensated", "failed", "orphaned", "unresolved", "kept", "left", "notes"):
        getattr(whole, lines).extend(getattr(report, lines))
    whole.outcome = report.outcome


def _after(log: Recorded, found: Found, saga: Saga, lineage: Lineage) -> Part:
    """Return the steps of a saga that stand and did not lead to the target."""
    sides = {step: lineage.side(saga.steps[step], saga) for step in found.view.steps}
    standing = [step for step in sides if stands(found, step)]
    unplaced = [step for step in standing if sides[step] is Side.UNPLACED]
    if unplaced:
        names = ", ".join(Part(found, saga, unplaced).names())
        undo = f"undo {quoted(found.id)} --by NAME --reason WHY --import MODULE"
        raise UndoRefused(
            f"Saga {found.id} has effects of which nobody can say whether they came before that "
            f"checkpoint, since their own was lost or dropped: {names}.",
            fix="Go on with the thread until the run ends, or undo the whole saga: "
            f"{log.command(undo)}",
        )
    return Part(found, saga, [step for step in standing if sides[step] not in _STAYS])
