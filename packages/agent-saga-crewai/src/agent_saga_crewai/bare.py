"""What CrewAI tries again of a crew or an agent that is run by its own `kickoff` in a boundary.

Rules of this part:

- Such a run is no boundary, and nothing of ours is round it. So hooks of the whole process note, in
  a boundary that is not a run's, which task begins and which attempt at it: a call of a wrapped
  tool that an earlier attempt made is that one, and has no second effect.
- So is a call of a function of the kit that the body of a tool makes, wrapped or not.
- What an agent delegates is a part of the task that it works at: a new attempt at that one may do
  it again.
- Where code takes all hooks of the process away, nothing is noted.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

from crewai.hooks.dispatch import InterceptionPoint, get_hooks, register

from agent_saga.engine.boundary import current_scope
from agent_saga.kit.frameworks import attempts
from agent_saga.kit.frameworks.naming import everywhere
from agent_saga_crewai.attempts import attempts_of
from agent_saga_crewai.place import Place, is_internal, place_of
from agent_saga_crewai.runs import Execution, current_run

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.tool import Tool


class _Trial:
    """What CrewAI may try again: a task of a crew, or what an agent by itself was asked.

    Args:
        saga: the id of the saga that it is in.
        outer: the one that it is inside of, or None.
        task: the task; None for an agent by itself.
        crew: whose task it is.

    Attributes:
        execution: what is the same object in all attempts; that of an agent by itself is known only
            when its model is asked.
        places: where calls of it are made, those of delegated work included.
    """

    __slots__ = ("crew", "execution", "outer", "places", "saga", "task")

    def __init__(self, saga: str, outer: _Trial | None, task: Any = None, crew: Any = None) -> None:
        self.saga, self.outer, self.task, self.crew = saga, outer, task, crew
        self.execution = Execution()
        self.places: set[Place] = set()


class _Begun:
    """The executors that have begun in a saga; they are kept, so that no other has their ids."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._alone: dict[int, tuple[Execution, set[Place]]] = {}

    def again(self, executor: Any, task: Any) -> bool:
        """Say whether an executor has begun to work at a task before."""
        key = (id(executor), id(task))
        known = key in self._known
        self._known[key] = (executor, task)
        return known

    def alone(self, executor: Any) -> tuple[Execution, set[Place]]:
        """Return what belongs to all attempts of an agent by itself."""
        return self._alone.setdefault(id(executor), (Execution(), set()))


_begun: attempts.PerSaga[_Begun] = attempts.PerSaga()
_trial: contextvars.ContextVar[_Trial | None] = contextvars.ContextVar(
    "agent_saga_crewai_trial", default=None
)
_place: contextvars.ContextVar[Place] = contextvars.ContextVar("agent_saga_crewai_place")
"""Where the call that an agent is about to make is made."""
_is_called: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "agent_saga_crewai_is_called", default=False
)
"""Whether the code is inside a call that an agent makes."""


def key_of(saga: Saga, tool: Tool, mac: bytes) -> str | None:
    """Return the key of a call outside any run; None where nothing is tried again."""
    trial = _here(saga)
    if trial is None or tool.reversible:
        return None
    return attempts_of(saga).key(saga, tool, _place.get(Place()), trial.execution, mac)


def _name(saga: Saga, tool: Tool, mac: bytes) -> str | None:
    """Return the key of a call that passes none of this package's tools."""
    return key_of(saga, tool, mac) if _is_called.get() and current_run() is None else None


def watch() -> None:
    """Have the hooks in force, in the whole process."""
    for point, hook in _HOOKS.items():
        if hook not in get_hooks(point):
            register(point, hook)


def _saga() -> Saga | None:
    """Return the saga of a boundary that is not a run's."""
    scope = current_scope.get()
    return None if scope is None or current_run() is not None else scope.saga


def _here(saga: Saga) -> _Trial | None:
    """Return what is tried in a saga; what was begun in another one has been left behind."""
    trial = _trial.get()
    return trial if trial is not None and trial.saga == saga.id else None


def _run_begins(context: Any) -> None:
    """Begin what an agent by itself is asked, where it is no part of something."""
    saga = _saga()
    if saga is not None and is_internal(context.flow) and _here(saga) is None:
        _trial.set(_Trial(saga.id, None))


def _task_begins(context: Any) -> None:
    saga = _saga()
    if saga is not None and context.kind == "task":
        crew = getattr(context.agent, "crew", None)
        _trial.set(_Trial(saga.id, _here(saga), context.task, crew))


def _model_asked(context: Any) -> None:
    """Note that an attempt begins, where the executor has not come round yet."""
    saga, executor = _saga(), context.executor
    trial = None if saga is None else _here(saga)
    if saga is None or trial is None or executor is None or context.iterations != 0:
        return
    begun, place = _begun.of(saga, _Begun), _place_of(context)
    own = trial.task is context.task
    if own and trial.task is None:
        trial.execution, trial.places = begun.alone(executor)
    trial.places.add(place)
    if begun.again(executor, context.task):
        for each in tuple(trial.places) if own else (place,):
            attempts_of(saga).begin(saga, each, trial.execution)


def _tool_called(context: Any) -> None:
    if _trial.get() is not None:
        _place.set(_place_of(context))
        _is_called.set(True)


def _tool_returned(_context: Any) -> None:
    _is_called.set(False)


def _task_ended(context: Any) -> None:
    trial = _trial.get()
    if context.kind == "task" and trial is not None:
        _trial.set(trial.outer)


def _run_ended(context: Any) -> None:
    """Leave what began in a crew, or in an agent by itself, that has ended or failed."""
    trial = _trial.get()
    if trial is None:
        return
    is_agents = trial.task is None and is_internal(context.flow)
    if is_agents or (context.crew is not None and trial.crew is context.crew):
        _trial.set(trial.outer)


def _place_of(context: Any) -> Place:
    return place_of("", context.agent, context.task, context.crew)


_HOOKS: Final = {
    InterceptionPoint.EXECUTION_START: _run_begins,
    InterceptionPoint.PRE_STEP: _task_begins,
    InterceptionPoint.PRE_MODEL_CALL: _model_asked,
    InterceptionPoint.PRE_TOOL_CALL: _tool_called,
    InterceptionPoint.POST_TOOL_CALL: _tool_returned,
    InterceptionPoint.POST_STEP: _task_ended,
    InterceptionPoint.EXECUTION_END: _run_ended,
}

everywhere(_name)
watch()  # functions of the kit may be called before there is any tool of this package
