"""In which try of something that is done again the running code is.

Rules of this part:

- What LangChain repeats (`with_retry`) has other runs each time, and a later one is told by its
  tag. So of what runs are inside, each keeps whose child it is, and in which try; `witness` sees
  them begin.
- A tool that failed may be called again, by a middleware: what it calls itself is then in another
  try of that call.
- LangChain leaves what it set when a run began behind it, where the run was begun. What goes on
  there when the run has ended is not inside it; what the run itself started still is.
- Outside any graph nobody can tell which of several calls a later try repeats: it is refused.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from langchain_core.runnables.config import ensure_config
from langgraph.errors import GraphBubbleUp

from agent_saga.errors import ReplayConflict
from agent_saga.kit.frameworks.attempts import stands

if TYPE_CHECKING:
    from uuid import UUID

    from agent_saga.engine.saga import Saga
    from agent_saga.engine.tool import Tool

_RETRY = "retry:attempt:"
"""How the tag begins that LangChain gives what it runs again; the first try has none."""


class Try:
    """One run inside another, which LangChain may begin again; or one call of a tool.

    Attributes:
        of: the run that it is inside, or itself if none is known, or the step's key; number: which
            try it is.
        begun_in: the run that the code was in that began it, or None.
        ended: nothing more is to be heard of it, whatever came of it.
        done: it ended well, and so is not repeated: several may have been begun beside each other.
        failed: it ended with an error.
    """

    __slots__ = ("begun_in", "done", "ended", "failed", "number", "of")

    def __init__(self, of: object, number: int, begun_in: object = None) -> None:
        self.of, self.number, self.begun_in = of, number, begun_in
        self.done = self.failed = self.ended = False


Tries = tuple[Try, ...]
"""The runs round the running code, outermost first."""

tries: contextvars.ContextVar[Tries] = contextvars.ContextVar(
    "agent_saga_langgraph_tries", default=()
)
"""What was begun here, or round it; those may be among it that have ended: see `tries_here`."""


def tries_here() -> Tries:
    """Return the runs round the running code, without what was begun here before and has ended."""
    seen = tries.get()
    if seen and seen[-1].ended:
        run = _running()
        while seen and seen[-1].ended and seen[-1].begun_in == run:
            seen = seen[:-1]
    return seen


def leave_ended() -> None:
    """Leave behind what has ended before a call of a tool, which is a run itself, is made."""
    tries.set(tries_here())


def _running() -> object:
    """Return the run that the running code is in, as LangChain tells it to what is called next."""
    return getattr(ensure_config().get("callbacks"), "parent_run_id", None)


@contextlib.contextmanager
def trying(one: Try | None) -> Iterator[None]:
    """Know of what a call of a tool calls itself that it is called again when this one is."""
    if one is None:
        yield
        return
    token = tries.set((*tries_here(), one))
    try:
        yield
        one.done = True
    finally:
        tries.reset(token)


class Runs:
    """The runs of LangChain that were begun and have not ended.

    Attributes:
        last: the last try of each run that something was tried again in.
    """

    __slots__ = ("_tries", "last")

    def __init__(self) -> None:
        self._tries: dict[UUID, Tries] = {}
        self.last: dict[object, int] = {}

    def begun(self, run: UUID, parent: UUID | None, tags: Sequence[str]) -> None:
        """Keep whose child a run is, and in which try."""
        here = Try(run if parent is None else parent, _number(tags), _running())
        above = () if parent is None else self._tries.get(parent)
        if here.number > 1:
            self.last[here.of] = here.number
        self._tries[run] = (*(tries_here() if above is None else above), here)
        tries.set(self._tries[run])

    def ended(self, run: UUID, error: BaseException | None = None) -> None:
        """Keep how a run ended; one that stopped at an interrupt has done neither."""
        for one in self._tries.pop(run, ())[-1:]:
            one.ended, one.done = True, error is None
            one.failed = error is not None and not isinstance(error, GraphBubbleUp)

    def was_tried_again(self, tried: Tries) -> bool:
        """Say whether a call was made in a try that was not the last one."""
        return any(self.last.get(one.of, 1) > one.number and not one.done for one in tried)


def _number(tags: Sequence[str]) -> int:
    """Return which try of something a run is."""
    numbers = (tag.removeprefix(_RETRY) for tag in tags if tag.startswith(_RETRY))
    return next((int(number) for number in numbers if number.isdigit()), 1)


def tried_apart(one: Tries, other: Tries) -> bool:
    """Say whether a call was made in a try, and another one in a later try in its place."""
    later = {each.of: each.number for each in other}
    return any(later.get(each.of, 1) > each.number and not each.done for each in one)


def failed(tried: Tries) -> bool:
    """Say whether something failed that a call was made in."""
    return any(one.failed for one in tried)


def check_tries(saga: Saga, tool: Tool) -> None:
    """Refuse a call that a try before this one may have made, where no graph tells its place.

    Raises:
        ReplayConflict: so it is.
    """
    if tool.reversible or all(one.number == 1 for one in tries_here()):
        return
    called = [step for step in tuple(saga.steps.values()) if step.tool.name == tool.name]
    if any(stands(step) and not step.keyed for step in called):
        raise ReplayConflict(
            f"{tool.name} was called in something that is tried again (with_retry), and what it "
            "did before stands; nobody can tell whether it is repeated. It was not run.",
            fix="Let each try be a boundary: saga_agent(…).with_retry(…); or make it a node of a "
            "graph with a retry_policy.",
        )
