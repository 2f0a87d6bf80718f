"""Workflows whose steps are seen: how a step is known when the framework runs it again.

Rules of this part:

- The class of a workflow is extended, never changed. Its steps do what they did; round each of them
  stands what notes its execution.
- A step that the framework runs again has the same piece of work: by its retry policy, because an
  event came that it waited for, or because its context was restored.
- A call in a step that asks a human lets the step wait for the answer, whoever caught the question
  on the way. The step is run again when the answer is there. A run inside the step fails, and is
  begun again by it.
- What ends the program does not leave a step: it would end the event loop, and nothing would be
  undone. No step begins behind it, and it is raised when everything was undone.
- Of an agent's steps, the one that asks the model is a turn, and the one that calls a tool names
  the call. Neither begins when the run has been stopped. Whether the run goes on after a tool has
  failed is asked before the tool's result is taken in.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from workflows import Context, Workflow
from workflows.events import Event

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.endings import step_of
from agent_saga.engine.quitting import LEAVES_A_TOOL, ProgramEnds, held
from agent_saga.errors import ApprovalDenied, ApprovalPending
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.asking import ApprovalGiven, asked_by
from agent_saga_llamaindex.attempts import Attempts, attempts_of
from agent_saga_llamaindex.calls import Call, Execution, Run, calling, executing, running
from agent_saga_llamaindex.effects import RefusedCall

Step = Callable[..., Any]
_ASKS_MODEL = "run_agent_step"
_CALLS_TOOL = "call_tool"
_TAKES_RESULT = "aggregate_tool_results"
_ASKS = "agent-saga "


class SagaWorkflow:
    """A workflow whose steps are seen; made from the class of a workflow."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a run, as the workflow's class does, and let the boundary round it know of it."""
        around, place = running.get(), executing.get()
        if around is None or place is None:
            return super().run(*args, **kwargs)  # type: ignore[misc]
        is_own = place is around.root and not around.handlers
        token = executing.set(place if is_own else place.run_inside())
        try:
            handler = super().run(*args, **kwargs)  # type: ignore[misc]
        finally:
            executing.reset(token)
        around.handlers.append(handler)
        return handler


def seen_class(base: type[Any], mixin: type[Any] | None = None) -> type[Any]:
    """Return a class like a workflow's, the executions of whose steps are noted.

    Args:
        base: the workflow's class.
        mixin: what its objects can do besides; None for a workflow that is no agent.
    """
    methods, free = seams.steps_of(base)
    kept = _classes.get((base, mixin))
    if kept is not None and kept[0] == free:
        return kept[1]
    noted = _of_agent if mixin is not None else _of_workflow
    own = {name: noted(name, step) for name, step in methods.items() if name not in free}
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    bases = (mixin or SagaWorkflow, base)
    made: type[Any] = types.new_class(
        base.__name__, bases, exec_body=lambda body: body.update({**names, **own})
    )
    made.__doc__ = base.__doc__
    seams.add_free_steps(made, {name: noted(name, step) for name, step in free.items()})
    _classes[base, mixin] = (free, made)
    return made


def seen(workflow: Workflow) -> Any:
    """Return a workflow that is no agent with its steps seen; it shares all that it keeps."""
    if isinstance(workflow, SagaWorkflow):
        return workflow
    found = _seen.get(workflow)
    cls = seen_class(type(workflow))
    if found is None or type(found) is not cls:
        found = object.__new__(cls)
        object.__setattr__(found, "__dict__", workflow.__dict__)
        _seen[workflow] = found
    return found


_classes: dict[tuple[type[Any], type[Any] | None], tuple[dict[str, Any], type[Any]]] = {}
_seen: WeakKeyDictionary[Workflow, Any] = WeakKeyDictionary()


def _of_workflow(name: str, step: Step) -> Step:
    if inspect.iscoroutinefunction(step):

        @functools.wraps(step)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            if not _is_begun():
                return await step(*args, **kwargs)
            while True:
                with _executing(name, _events(args, kwargs)) as asked:
                    result = asked.result = await step(*args, **kwargs)
                if asked.question is None:
                    return result
                _hear(await _waiting(asked.question))

        return arun

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not _is_begun():
            return step(*args, **kwargs)
        while True:
            with _executing(name, _events(args, kwargs)) as asked:
                result = asked.result = step(*args, **kwargs)
            if asked.question is None:
                return result
            _hear(seams.at_once(_waiting(asked.question)))

    return run


def _of_agent(name: str, step: Step) -> Step:
    if name not in (_ASKS_MODEL, _CALLS_TOOL, _TAKES_RESULT):
        return _of_workflow(name, step)
    around = _call if name == _CALLS_TOOL else _turn if name == _ASKS_MODEL else _goes_on

    @functools.wraps(step)
    async def run(*args: Any, **kwargs: Any) -> Any:
        check_goes_on()
        async with around(_events(args, kwargs)):
            result = await step(*args, **kwargs)
        _look_at(result)
        check_goes_on()
        return result

    return _of_workflow(name, run)


def _look_at(result: Any) -> None:
    """Stop a run that a tool's failure undoes, where the tool failed outside of any step.

    It may be a callback of the program that failed, behind the effect, or a tool that is only a
    read and no step. A call that was refused is no failure.
    """
    run, output = running.get(), getattr(result, "tool_output", None)
    error = getattr(output, "exception", None)
    if run is None or run.on_tool_failure != "rollback" or not isinstance(error, Exception):
        return
    if not isinstance(error, RefusedCall):
        run.stop = run.stop or error


@contextlib.asynccontextmanager
async def _turn(_events: tuple[Any, ...]) -> Any:
    run, call = running.get(), calling.get()
    if run is not None:
        if run.before_turn is not None:
            await run.before_turn()
            check_goes_on()
        run.counts.turn(call.inside if call is not None else ())
        if run.keep is not None and _is_outermost(run):
            await run.keep(Context.get_step_context())
    yield


@contextlib.asynccontextmanager
async def _call(events: tuple[Any, ...]) -> Any:
    outer = calling.get()
    id_ = str(getattr(events[0], "tool_id", "")) if events else ""
    token = calling.set(Call(id_, outer.inside if outer is not None else ()))
    try:
        yield
    finally:
        calling.reset(token)


@contextlib.asynccontextmanager
async def _goes_on(_events: tuple[Any, ...]) -> Any:
    """Go on after a tool has failed only if a human says so."""
    run = running.get()
    for request, question in tuple(run.failures.items()) if run is not None else ():
        answer = run.answers.find(request) if run is not None and run.answers is not None else None
        if run is not None and answer is None:
            raise ApprovalPending(str(question["reason"]), question=question)
        if run is not None and answer is not None and not answer.approved:
            run.stop = run.stop or ApprovalDenied(
                f"A tool had failed, and {answer.by} said no to going on.",
                rule=str(question["rule"]),
                reason=answer.note or "a human decided so",
            )
            check_goes_on()
        if run is not None:
            run.failures.pop(request, None)
    yield


def check_goes_on() -> None:
    """Stop here if nothing of the run may begin any more.

    Raises:
        Exception: why not.
    """
    run = running.get()
    if run is not None and run.stop is not None:
        raise run.stop


# --- executions ----------------------------------------------------------------------------------


class _Asked:
    """What a step made, and what it must wait for: a question of the gate, or nothing."""

    question: Mapping[str, Any] | None = None
    result: Any = None


def _is_begun() -> bool:
    """Say whether a step is run by the framework, and not called by another step."""
    outer, worker = executing.get(), seams.worker()
    if outer is None or worker is None:
        return False
    return all(each.worker is not worker for each in outer.chain())


@contextlib.contextmanager
def _executing(name: str, events: tuple[Any, ...]) -> Iterator[_Asked]:
    """Note an execution of a step; take what it asks a human from whatever becomes of it."""
    outer, worker = executing.get(), seams.worker()
    run, scope, asked = running.get(), current_scope.get(), _Asked()
    if outer is None or run is None or scope is None:
        yield asked
        return
    if isinstance(run.stop, ProgramEnds):
        raise run.stop
    execution = _execution(run, attempts_of(scope.saga), (name, seams.work_of(worker)), events)
    run.lineage.begin(worker, execution.place)
    token = executing.set(execution)
    try:
        yield asked
    except LEAVES_A_TOOL as raised:
        error = held(raised)
        if isinstance(error, ProgramEnds):
            run.stop = run.stop or error
        asked.question = _question(execution, error)
        if asked.question is None and error is raised:
            raise
        if asked.question is None:
            raise error from raised
    else:
        asked.question = _question(execution, None)
    finally:
        executing.reset(token)
        run.lineage.end(worker, asked.result)
    if asked.question is None:
        seams.drop_waiters(_ASKS)
    elif not _is_outermost(run):
        raise ApprovalPending(str(asked.question["reason"]), question=asked.question)


def _execution(
    run: Run, attempts: Attempts, own: tuple[str, str], events: tuple[Any, ...]
) -> Execution:
    outer, worker = executing.get() or run.root, seams.worker()
    work = (*outer.place, *own)
    place, line = run.lineage.found(work, events)
    if place is work:
        place = attempts.place(work, line)
        run.lineage.settle(work, place, line)
    return Execution(place, outer, line=line, before=attempts.count, worker=worker)


def _question(execution: Execution, error: Exception | None) -> Mapping[str, Any] | None:
    run = running.get()
    if run is None or run.answers is None or run.stop is not None:
        return None
    known = next(iter(execution.pending.values()), None)
    if known is None and isinstance(error, ApprovalPending) and error.question:
        step = step_of(error)
        key = [step.tool.name, step.key[-1]] if step is not None and step.keyed else None
        return {**error.question, "step": key}
    return known


def _is_outermost(run: Run) -> bool:
    """Say whether the steps here are those of the workflow that the run began with."""
    here = executing.get()
    return here is not None and (here is run.root or here.outer is run.root)


async def _waiting(question: Mapping[str, Any]) -> Any:
    """Let the step wait for the answer to a question of the gate; return it if it is there."""
    run, request = running.get(), str(question["id"])
    if run is not None and run.answers is not None:
        run.answers.open.setdefault(request, question)
    return await Context.get_step_context().wait_for_event(
        ApprovalGiven,
        waiter_event=asked_by(question),
        waiter_id=f"{_ASKS}{request} {seams.work_of(seams.worker())}",
        requirements={"request": request},
        timeout=None,
    )


def _hear(event: Any) -> None:
    run = running.get()
    if run is not None and run.answers is not None:
        run.answers.hear(event)


def _events(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found += value if isinstance(value, list) else [value]
    return tuple(value for value in found if isinstance(value, Event))
