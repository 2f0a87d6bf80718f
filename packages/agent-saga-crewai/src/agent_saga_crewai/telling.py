"""Telling a program what happens to sagas, as events on CrewAI's own event bus.

    @crewai_event_bus.on(SagaEndedEvent)
    def note(source, event): print(event.outcome, event.undone)

    SagaEventListener(print)                     # or all of them, as plain data

Rules of this part:

- It tells, and decides nothing: CrewAI runs handlers on threads of its own, in no promised order,
  and what they raise changes no run.
- Arguments are told by name only; what they hold stands in the log, where secrets are masked.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from crewai.events import BaseEventListener, crewai_event_bus, event_context
from crewai.events.base_events import BaseEvent

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.wrap import Invocation

__all__ = ["SagaEndedEvent", "SagaEventListener", "SagaPausedEvent", "SagaStepEvent"]

log = logging.getLogger("agent_saga.crewai")


class SagaStepEvent(BaseEvent):
    """How a tool call ended."""

    type: Literal["saga_step"] = "saga_step"
    saga: str
    tool: str
    ended: str
    arguments: list[str]


class SagaPausedEvent(BaseEvent):
    """A run waits for a human."""

    type: Literal["saga_paused"] = "saga_paused"
    saga: str
    waits: dict[str, Any]


class SagaEndedEvent(BaseEvent):
    """How the saga of a run ended."""

    type: Literal["saga_ended"] = "saga_ended"
    saga: str
    outcome: str
    clean: bool
    undone: list[str]
    stands: list[str]


class SagaEventListener(BaseEventListener):
    """Gives each event of sagas to a function, as plain data.

    Args:
        tell: called with each event, on a thread of CrewAI's event bus.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], object]) -> None:
        self._tell = tell
        super().__init__()

    def setup_listeners(self, crewai_event_bus: Any) -> None:
        """Register with the event bus; the framework calls it."""
        for kind in (SagaStepEvent, SagaPausedEvent, SagaEndedEvent):
            crewai_event_bus.register_handler(kind, self._told)

    def _told(self, source: Any, event: BaseEvent) -> None:
        named = set(type(event).model_fields) - set(BaseEvent.model_fields)
        self._tell({"event": event.type, **event.model_dump(include=named)})


def step_ended(call: Invocation, error: BaseException | None) -> None:
    """Tell how a call ended."""
    _emit(
        SagaStepEvent(
            saga=call.scope.saga.id,
            tool=call.tool.name,
            ended="well" if error is None else type(error).__name__,
            arguments=sorted(call.arguments),
        )
    )


def run_paused(saga: str, question: Any) -> None:
    """Tell that a run waits."""
    known = ("id", "text", "tool", "rule", "reason", "message", "flow")
    _emit(SagaPausedEvent(saga=saga, waits={n: question[n] for n in known if n in question}))


def run_ended(before: RollbackReport | None, report: RollbackReport | None) -> None:
    """Tell how the saga of a run ended; a report from before the run is not its own."""
    if report is None or report is before or report.outcome == "SUSPENDED":
        return
    _emit(
        SagaEndedEvent(
            saga=report.saga_id,
            outcome=report.outcome,
            clean=report.clean,
            undone=[line.tool for line in report.compensated],
            stands=[line.tool for line in report.standing],
        )
    )


@contextlib.contextmanager
def scopes_closed() -> Iterator[None]:
    """Close the scopes of events that a run leaves open.

    CrewAI closes none round a tool that ends a run, and begins nothing more in a context in which a
    hundred are open. It keeps them under a name of its own, which is not promised; without that
    name they stay open.
    """
    stack = getattr(event_context, "_event_id_stack", None)
    before = None if stack is None else stack.get()
    try:
        yield
    finally:
        if before is not None:
            event_context.restore_event_scope(before)


def _emit(event: BaseEvent) -> None:
    try:
        crewai_event_bus.emit(_SOURCE, event)
    except Exception:
        log.exception("an event could not be told")


_SOURCE = object()
