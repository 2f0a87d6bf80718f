"""Graphs that stop at an interrupt in a boundary that does not know of their run.

Rules of this part:

- A boundary of the program does not wait, and is committed when the program leaves it. A graph in
  it whose run is no boundary, and that stops after something was done in it, fails: nothing would
  wait with what it did, and without a checkpointer nothing could go on with it.
- It fails where the node stops, past every handler of errors: a program that takes its stream may
  leave it at the interrupt. What another node does meanwhile is seen at the graph's end.
- One in which nothing was done may stop, and wait. So may one on a thread, whose program goes on
  with it in the same boundary: what a tool of LangChain does in it is refused (see `effects`), and
  what the program calls itself is the program's.
- A graph tells of a breakpoint only those handlers that it is given: one is not seen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.errors import GraphInterrupt

from agent_saga.errors import NotSuspendable
from agent_saga.kit.frameworks.attempts import stands
from agent_saga_langgraph.witness import is_node

if TYPE_CHECKING:
    from uuid import UUID

    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step


class _Begun(NamedTuple):
    """How a graph was begun.

    Attributes:
        before: the steps that stood before.
        on_thread: it may have a checkpointer: LangGraph asks for the id of a thread then.
    """

    before: frozenset[str]
    on_thread: bool


class Stops:
    """The runs of graphs in a boundary, and which of them stopped."""

    __slots__ = ("_begun", "_stopped")

    def __init__(self) -> None:
        self._begun: dict[UUID, _Begun] = {}
        self._stopped: set[UUID] = set()

    def begun(
        self, graph: UUID | None, tags: Sequence[str], about: Mapping[str, Any], saga: Saga
    ) -> None:
        """Note what stood when the first node of a graph was begun."""
        if graph is not None and is_node(tags) and graph not in self._begun:
            before = frozenset(step.id for step in _standing(saga))
            self._begun[graph] = _Begun(before, "thread_id" in about)

    def node_ended(
        self, graph: UUID | None, tags: Sequence[str], error: BaseException, saga: Saga | None
    ) -> NotSuspendable | None:
        """Return the error of a graph one of whose nodes stops, after something was done in it."""
        if graph not in self._begun or not is_node(tags) or not isinstance(error, GraphInterrupt):
            return None
        self._stopped.add(graph)
        return self._refusal(graph, saga)

    def ended(self, run: UUID, saga: Saga | None) -> NotSuspendable | None:
        """Forget a graph; return its error if it stopped after something was done in it."""
        refusal = self._refusal(run, saga) if run in self._stopped else None
        self.forget(run)
        return refusal

    def forget(self, run: UUID) -> None:
        """Forget a graph that has ended."""
        self._begun.pop(run, None)
        self._stopped.discard(run)

    def _refusal(self, graph: UUID, saga: Saga | None) -> NotSuspendable | None:
        begun, stand = self._begun[graph], [] if saga is None else _standing(saga)
        done = [step for step in stand if step.id not in begun.before]
        names = sorted({step.tool.name for step in done if step.keyed or not begun.on_thread})
        if not names:
            return None
        return NotSuspendable(
            f"A graph that called {', '.join(names)} stops at an interrupt, inside a boundary that "
            "knows nothing of its run and would be committed while the graph waits.",
            fix="Run the graph with saga_run(graph, …), or make it a saga_agent, with a "
            "checkpointer and where no other boundary is open.",
        )


def _standing(saga: Saga) -> list[Step]:
    return [step for step in tuple(saga.steps.values()) if stands(step)]
