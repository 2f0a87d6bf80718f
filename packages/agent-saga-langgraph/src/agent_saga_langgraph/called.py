"""Calls of tasks (`@task`) by a workflow, noted before LangGraph sees them.

LangGraph knows a called task by its number within the workflow, and by its name. When a workflow is
run again after an interrupt or a crash, the recorded result is given to whatever call has that
number, and nobody is told: no callback, no configuration. So something stands in for the call of a
task itself.

Rules of this part:

- Each call has its number and a fingerprint of what is called: the task's name and its arguments.
  An argument that shows no state of its own counts by its type.
- A call under the number of another one that had come to something is refused, and the run fails:
  the recorded result would be given to it, or the numbers of all later calls are shifted.
- Calls are noted in the order in which LangGraph counts them, also if several threads make them.
- What is stood in for is not promised. Where it is not there, nothing is noted, and `attempts`
  refuses what nobody can tell apart.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables.config import ensure_config
from langgraph.func import task

from agent_saga.engine.boundary import current_scope
from agent_saga.wal.encoding import mac
from agent_saga_langgraph.attempts import attempts_of
from agent_saga_langgraph.effects import ToolFailed
from agent_saga_langgraph.place import here
from agent_saga_langgraph.witness import Called, turns_at

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga_langgraph.witness import Turn

_MARK: Final = "agent_saga_stands_in"


_Tasks: Final[Any] = type(task(lambda: None))
"""The class of tasks."""


def stand_in() -> None:
    """See that calls of tasks are noted; outside a boundary of ours they are left alone."""
    own: Any = vars(_Tasks).get("__call__")
    if own is None or stands_in():
        return

    @functools.wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _noted(self, args, kwargs):
            return own(self, *args, **kwargs)

    setattr(call, _MARK, True)
    _Tasks.__call__ = call


def stands_in() -> bool:
    """Say whether calls of tasks can be noted."""
    return hasattr(vars(_Tasks).get("__call__"), _MARK)


@contextlib.contextmanager
def _noted(own: Any, args: Any, kwargs: Any) -> Iterator[None]:
    scope, turn = current_scope.get(), _turn()
    if scope is None or turn is None:
        yield
        return
    with turn.task.lock:
        _note(scope.saga, turn, own, (args, kwargs))
        try:
            yield
        except BaseException:
            turn.lose_count()  # nobody knows whether LangGraph counted it
            raise


def _turn() -> Turn | None:
    """Return the turn of the running code; None where nobody watches it."""
    metadata = ensure_config().get("metadata") or {}
    seen = turns_at(str(metadata.get("langgraph_checkpoint_ns") or ""))
    return seen[-1] if seen else None


def _note(saga: Saga, turn: Turn, own: Any, given: Any) -> None:
    name = str(getattr(getattr(own, "func", None), "__name__", ""))
    fingerprint = mac(saga.salt, [name, _comparable(saga, given)]).hex()
    number = turn.call(Called(fingerprint, getattr(own, "cache_policy", None) is not None))
    place = None if number is None else here()
    if number is None or place is None:
        return
    other = attempts_of(saga).given_to_another(saga, place.spot, number, fingerprint)
    if other is not None:
        raise ToolFailed(other)


def _comparable(saga: Saga, given: Any) -> list[Any]:
    args, kwargs = given
    pairs = [*enumerate(args), *sorted(kwargs.items())]
    return [[name, _fingerprint(saga, value)] for name, value in pairs]


def _fingerprint(saga: Saga, value: Any) -> str:
    found = mac(saga.salt, value)
    same = found == mac(saga.salt, value)
    return found.hex() if same else f"{type(value).__module__}.{type(value).__qualname__}"
