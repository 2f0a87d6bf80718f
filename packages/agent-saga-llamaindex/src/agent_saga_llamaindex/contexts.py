"""The context of a run as the place where its saga is noted, and from which any process goes on.

Rules of this part:

- The saga's id lies in the store of the workflow's context, from the first moment. With it lies a
  mark, which is another one after each time that the run was suspended: a context is gone on with
  once, from where the saga was suspended for the last time.
- A context that was taken while steps were running, whose process died, can be gone on with, too.
  Each step of the saga tells the piece of work that it belongs to: what the context does not know
  of came later.
- What LlamaIndex leaves out of the context (the memory of an agent) is kept beside the id.
- Who holds a context of a saga that has ended, or has gone further, is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from workflows import Context

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga.kit.frameworks.recorded import RecordedSaga
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.calls import Path

NOTE = "agent_saga"
"""Under which name a context's store holds what belongs to the saga."""

_MEMORY = "memory"
_GOES_ON = (SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED, SagaState.UNWINDING)


class Taken(NamedTuple):
    """A context that a run goes on with.

    Attributes:
        context: the framework's.
        saga: the id of its saga in the log.
        mark: the one that the saga was suspended with for the last time; empty for never.
        last: the number of the last piece of work that it knows of.
        messages: those of the agent's memory.
        is_idle: no step of the workflow has work to do, or waits for an event.
        in_flight: it was taken while steps were running.
    """

    context: Context[Any]
    saga: str
    mark: str
    last: int
    messages: list[Any]
    is_idle: bool
    in_flight: bool

    def blurs(self, place: Path) -> bool:
        """Say whether what is handled at a place may have been handled before at another one."""
        number = seams.number_of(place[1]) if len(place) > 1 else None
        return self.in_flight and (number is None or number <= self.last)

    def knows(self, kept: frozenset[str], step: str, place: Path) -> bool:
        """Say whether a recorded step was made before the context was taken.

        Args:
            kept: the steps that stood when the saga was suspended.
            step: its id.
            place: where it was made.
        """
        number = seams.number_of(place[1]) if len(place) > 1 else None
        return step in kept or (number is not None and number <= self.last)

    def check(self, log: RecordedSaga) -> None:
        """Refuse to go on from here if the saga is not where the context is.

        Raises:
            SagaClosed: it has ended, or has gone further.
        """
        state = log.state
        if state in _GOES_ON and str(log.awaits.get("mark") or "") == self.mark:
            return
        if state is None:
            how = "has left no record in this log"
        elif state in _GOES_ON:
            how = "has gone further than the context"
        else:
            how = f"is {state.value}; the context tells of a world that may no longer be so"
        raise SagaClosed(
            f"The saga {self.saga} {how}.",
            rule="ended",
            reason="a context is gone on with once",
            fix="Take the context of the last result that waits, or begin anew.",
        )


def restored(workflow: Any, context: Any) -> Context[Any] | None:
    """Return a context for a run: as it is, or read from plain data.

    Raises:
        ConfigurationError: its run goes on in this process.
    """
    if isinstance(context, Mapping):
        return Context.from_dict(workflow, dict(context))
    if not isinstance(context, Context) or not seams.is_begun(context):
        return context  # type: ignore[no-any-return]
    if context.is_running:
        raise ConfigurationError("A run of this context is going on; wait for its end.")
    found = seams.taken(context)
    return Context.from_dict(workflow, found) if found["is_running"] else context


async def taken(context: Context[Any] | None, key: str | None) -> Taken | None:
    """Return the context that a run goes on with; None if it begins.

    Raises:
        ConfigurationError: it is in the middle of a run that was none of `saga_run`.
    """
    if context is None or not context.is_running:
        return None
    note = await context.store.get(NOTE, default=None)
    if not isinstance(note, Mapping) or not note.get("saga"):
        raise ConfigurationError(
            "The context was taken while a run was going on that was none of saga_run: its "
            "unfinished steps would run again, and nothing tells what they did.",
            fix="Begin anew, with the memory of the conversation if need be.",
        )
    saga = str(note["saga"])
    if key is not None and saga not in (key, identity.saga_id_of(key)):
        raise ConfigurationError(f"The context belongs to another saga than {key!r}: {saga}.")
    found = seams.taken(context)
    mark, messages = str(note.get("mark") or ""), list(note.get("messages") or ())
    rests = seams.is_at_rest(found)
    is_idle = rests and not seams.waits(found)
    return Taken(context, saga, mark, seams.last_work(found), messages, is_idle, not rests)


class Note:
    """What a run writes into its context.

    Args:
        saga: the saga's id in the log.
        found: the context that it goes on with, or None.
    """

    def __init__(self, saga: str, found: Taken | None) -> None:
        self.mark = "" if found is None else found.mark
        self.is_kept = False
        self._saga = saga
        self._messages = [] if found is None else found.messages

    async def write(self, context: Context[Any]) -> None:
        """Note the saga in a context; one whose state takes no name of ours has none."""
        note = {"saga": self._saga, "mark": self.mark, "messages": self._messages}
        try:
            await context.store.set(NOTE, note)
        except (ValueError, TypeError, AttributeError):
            return
        self.is_kept = True

    async def of_turn(self, context: Context[Any]) -> None:
        """Keep the memory that an agent has when its model is asked."""
        memory = await context.store.get(_MEMORY, default=None)
        if isinstance(memory, BaseMemory):
            self._messages = list(await memory.aget_all())
            await self.write(context)

    async def renewed(self, context: Context[Any]) -> dict[str, Any]:
        """Give the context a new mark, and return it as plain data.

        Raises:
            ConfigurationError: another process could not go on from it.
        """
        self.mark = os.urandom(8).hex()
        await self.write(context)
        if not self.is_kept:
            raise ConfigurationError(
                "The run waits, and the state of its workflow is of a class that has no place for "
                "the saga's id.",
                fix=f"Give the class of the state a field {NOTE}: Any = None.",
            )
        try:
            return seams.taken(context)
        except Exception as error:
            raise ConfigurationError(
                f"The run waits, and its context cannot be put away: {error}",
                fix="Let state and events of the workflow be what LlamaIndex can serialise.",
            ) from error


async def give_memory(workflow: Any, context: Context[Any], found: Taken, memory: Any) -> None:
    """Give an agent that goes on the memory that its context was taken without."""
    if isinstance(workflow, AgentWorkflow):
        llm = workflow.agents[workflow.root_agent].llm
    elif isinstance(workflow, BaseWorkflowAgent):
        llm = workflow.llm
    else:
        return
    if memory is None and await context.store.get(_MEMORY, default=None) is not None:
        return
    kept = memory or ChatMemoryBuffer.from_defaults(chat_history=found.messages, llm=llm)
    await context.store.set(_MEMORY, kept)


async def forget_notes(workflow: Any, context: Context[Any]) -> None:
    """Let agents forget what they noted in a run that is undone.

    They show it to their model when the context is used for another run; there it would tell of
    effects that the world no longer has. What is in their memory remains.
    """
    for key in seams.notes_of(workflow):
        with contextlib.suppress(Exception):  # a workflow may let its state hold what it likes
            if await context.store.get(key, default=None):
                await context.store.set(key, [])
