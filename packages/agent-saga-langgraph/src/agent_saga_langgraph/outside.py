"""An effect outside every boundary, on a thread whose saga has not ended: it is not made.

Rules of this part:

- A graph that `saga_run` left waiting, and that is gone on with by its plain `invoke`, would do
  again what it did before it stopped, and the saga would know nothing of it. So before an effect
  that no boundary is round, in a graph with a checkpointer, the thread's newest checkpoints are
  asked whose run made them. If that saga waits, goes on, or its process died, nothing is done.
- A thread whose last saga has ended, or that had none, is as free as a call without a graph.
- Nobody can tell what a log in another place says of the saga; it counts as one that waits if its
  graph does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from agent_saga.domain import identity
from agent_saga.errors import NoBoundary
from agent_saga.kit.frameworks.boundaries import runtime_of
from agent_saga.kit.frameworks.recorded import Recorded, lasts
from agent_saga_langgraph import threads
from agent_saga_langgraph.place import checkpointer
from agent_saga_langgraph.threads import INSIDE, SAGA

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

    from agent_saga.engine.wrap import SagaTool

_LOOKS_BACK: Final = 64
"""How many checkpoints of a thread are asked; more than a run makes before it stops, as a rule."""
_INTERRUPT: Final = "__interrupt__"


class _Owner(NamedTuple):
    """The saga that the newest checkpoint of a thread names.

    Attributes:
        saga: its id in the log.
        waits: the graph stopped at an interrupt there.
    """

    saga: str
    waits: bool


def check(tool: SagaTool[..., Any]) -> None:
    """Refuse an effect outside every boundary where the graph's thread belongs to a saga.

    Raises:
        NoBoundary: so it is.
    """
    saver, thread = _here(tool)
    if thread is not None:
        owner = _owner(itertools.islice(saver.list(thread, limit=_LOOKS_BACK), _LOOKS_BACK))
        if owner is not None and _has_not_ended(tool, owner):
            raise _refusal(tool, thread)


async def check_async(tool: SagaTool[..., Any]) -> None:
    """Refuse it without blocking the event loop; errors as for `check`."""
    saver, thread = _here(tool)
    if thread is not None:
        owner = _owner([one async for one in saver.alist(thread, limit=_LOOKS_BACK)])
        if owner is not None and await asyncio.to_thread(_has_not_ended, tool, owner):
            raise _refusal(tool, thread)


def _here(tool: SagaTool[..., Any]) -> tuple[Any, RunnableConfig | None]:
    """Return the checkpointer of the running graph, and its thread; None where nothing is asked."""
    config = ensure_config()
    saver, thread = checkpointer(config), (config.get("configurable") or {}).get("thread_id")
    if tool.tool.reversible or saver is None or thread is None:
        return saver, None
    return saver, {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def _owner(newest_first: Iterable[CheckpointTuple]) -> _Owner | None:
    for one in newest_first:
        metadata: Mapping[str, Any] = one.metadata or {}
        own, inside = metadata.get(SAGA), metadata.get(INSIDE)
        if isinstance(own, str) or isinstance(inside, str):
            waits = any(channel == _INTERRUPT for _, channel, _ in one.pending_writes or ())
            saga = identity.saga_id_of(own) if isinstance(own, str) else str(inside)
            return _Owner(saga, waits)
    return None


def _has_not_ended(tool: SagaTool[..., Any], owner: _Owner) -> bool:
    kit: Any = tool.kit
    runtime = runtime_of(kit)
    recorded = Recorded(runtime)
    found = recorded.program(owner.saga) if lasts(runtime) else None
    return owner.waits if found is None else threads.usable(found.view.state)


def _refusal(tool: SagaTool[..., Any], thread: RunnableConfig) -> NoBoundary:
    name = str(thread["configurable"]["thread_id"])
    return NoBoundary(
        f"{tool.tool.name} was called outside any boundary, on thread {name!r}, whose saga has not "
        "ended; it did not run.",
        rule="thread",
        reason="the saga would know nothing of it, and what the graph did before it stopped would "
        "be done again",
        fix="Go on with the thread by saga_run(graph, …) or the saga_agent, as it was begun.",
    )
