"""Telling a program what happens to sagas: a callback handler, and events in the graph's stream.

    agent.invoke(inputs, {"callbacks": [SagaCallbackHandler(tell)]})
    for mode, item in agent.stream(inputs, {"callbacks": [SagaCallbackHandler(stream=True)]},
                                   stream_mode=["updates", "custom"]): …

Rules of this part:

- It tells, and decides nothing: what it raises is logged, and changes no run.
- An event is plain data: `event` ("step", "paused", "resumed", "ended"), and what belongs to it.
- Events of steps can be written into the graph's own stream, in its mode "custom", under the key
  `agent_saga`; what comes after the graph's end (its saga's end) reaches `tell` only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from langchain_core.runnables.config import ensure_config
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent
from langgraph.config import get_stream_writer

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.wrap import Invocation

__all__ = ["SagaCallbackHandler"]

log = logging.getLogger("agent_saga.langgraph")

Tell = Callable[[dict[str, Any]], object]


class SagaCallbackHandler(GraphCallbackHandler):
    """Tells what happens to sagas; give it to a run as one of its `callbacks`.

    Args:
        tell: called with each event, on whatever thread it happens; nothing is told without it.
        stream: write the events of steps into the graph's stream, too.
    """

    def __init__(self, tell: Tell | None = None, *, stream: bool = False) -> None:
        super().__init__()
        self._tell = tell
        self._stream = stream

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """Tell that the graph paused."""
        self.told("paused", **_where(event), waits=[one.value for one in event.interrupts])

    def on_resume(self, event: GraphResumeEvent) -> None:
        """Tell that the graph goes on from a checkpoint."""
        self.told("resumed", **_where(event))

    def told(self, event: str, **about: Any) -> None:
        """Tell one event; never raises."""
        if self._tell is None:
            return
        try:
            self._tell({"event": event, **about})
        except Exception:
            log.exception("a SagaCallbackHandler's function failed")

    def step(self, about: dict[str, Any]) -> None:
        """Tell how a step ended, also in the graph's stream where that was asked for."""
        self.told("step", **about)
        if self._stream:
            try:
                get_stream_writer()({"agent_saga": {"event": "step", **about}})
            except Exception:
                log.debug("an event could not be streamed", exc_info=True)


def _where(event: GraphInterruptEvent | GraphResumeEvent) -> dict[str, Any]:
    return {
        "status": event.status,
        "checkpoint": event.checkpoint_id,
        "namespace": list(event.checkpoint_ns),
    }


def step_ended(call: Invocation, error: BaseException | None) -> None:
    """Tell the handlers of the running graph how a call ended."""
    handlers = list(_handlers(ensure_config().get("callbacks")))
    if not handlers:
        return
    about = {
        "saga": call.scope.saga.id,
        "tool": call.tool.name,
        "ended": "well" if error is None else type(error).__name__,
        "arguments": sorted(call.arguments),
    }
    for handler in handlers:
        handler.step(about)


def run_ended(config: Any, before: RollbackReport | None, report: RollbackReport | None) -> None:
    """Tell a run's handlers how its saga ended; a report from before the run is not its own."""
    if report is None or report is before:
        return
    for handler in _handlers((config or {}).get("callbacks")):
        handler.told(
            "ended",
            saga=report.saga_id,
            outcome=report.outcome,
            clean=report.clean,
            undone=[line.tool for line in report.compensated],
            stands=[line.tool for line in report.standing],
        )


def _handlers(callbacks: Any) -> Iterator[SagaCallbackHandler]:
    found = getattr(callbacks, "handlers", callbacks) or ()
    return (one for one in found if isinstance(one, SagaCallbackHandler))
