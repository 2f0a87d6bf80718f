"""Which earlier step a call is, when something is called again or a run is gone on with.

Rules of this part, in this order:

1. A model's call with the same key is the same step.
2. A call that equals one without a known outcome is that one: a blind retry, also of what the
   program called itself.
3. In a saga that is gone on with: so is an equal call that was recorded and stands, whatever its
   id, unless the run's state tells of it. What an earlier process did and the run neither knows nor
   repeats is not passed over: the run fails, and everything is undone.
4. Tools of two agents may have one name and do different things. So by 2 and 3 a call is one of the
   same agent, inside the same agents, or one of another agent whose tool calls the same. An equal
   call of another agent may else be that call, or another one: it is neither answered nor made.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

from agent_saga.errors import OutcomeUnknown, ReplayConflict
from agent_saga.kit.frameworks import attempts
from agent_saga.kit.frameworks.attempts import equal, full_key, stands, unnamed, unsettled
from agent_saga_autogen import calls

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

_OURS = __name__.partition(".")[0]
_FIX = "Give the tools of the two agents different names, if they do different things."


class Attempts:
    """Which steps of a saga may return; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        kept: the ids of steps that the run's state knows of.

    Attributes:
        runs: which run it is that begins inside a boundary of the program's own.
    """

    def __init__(self, saga: Saga, kept: Container[str] = ()) -> None:
        self._lock = threading.Lock()
        self.runs = attempts.Runs()
        recorded = [step for step in saga.keyed.values() if stands(step)]
        self._left = attempts.Left(step for step in recorded if step.id not in kept)
        self._numbers: Counter[tuple[calls.Path, str, bytes]] = Counter()
        self._given: dict[str, Step] = {}  # to another agent, by its call's key

    def key(self, saga: Saga, tool: Tool, run: calls.Run, mac: bytes) -> str | None:
        """Return the key of a call that is made here; None for a step without one that it is.

        Args:
            saga: whose step it is.
            tool: what is called.
            run: the run that it is made in.
            mac: the arguments' fingerprint.

        Raises:
            OutcomeUnknown: it may be a call of another agent that ended without its answer.
            ReplayConflict: it may be a call that another agent made in an earlier attempt.
        """
        call = calls.calling.get()
        agents = () if call is None else call.agents
        named = calls.key_of(call, run, mac) if call is not None and call.id else None
        with self._lock:
            step = None if named is None else self._named(saga, tool, named)
            if step is None and any(equal(one, tool, mac) for one in unnamed(saga)):
                return None
            if step is None:
                step = self._earlier(saga, tool, mac, run, agents)
            if step is None:
                free = named is not None and full_key(tool, named) not in saga.keyed
                return named if free else self._fresh(saga, tool, mac, agents)
            self._left.take(step)
            if named is not None and calls.agents_of(step.key[-1]) != agents:
                self._given[named] = step
            return step.key[-1]

    def _named(self, saga: Saga, tool: Tool, named: str) -> Step | None:
        """Return the step that a call's key names; what another agent was given is not it."""
        step = self._given.get(named) or saga.keyed.get(full_key(tool, named))
        others = (one for key, one in self._given.items() if key != named)
        return None if any(one is step for one in others) else step

    def _fresh(self, saga: Saga, tool: Tool, mac: bytes, agents: calls.Path) -> str:
        while True:
            self._numbers[agents, tool.name, mac] += 1
            key = calls.unnamed_key(agents, self._numbers[agents, tool.name, mac], mac)
            if full_key(tool, key) not in saga.keyed:
                return key

    def _earlier(
        self, saga: Saga, tool: Tool, mac: bytes, run: calls.Run, agents: calls.Path
    ) -> Step | None:
        same = [step for step in tuple(saga.keyed.values()) if equal(step, tool, mac)]
        open_ended = [step for step in same if unsettled(step)]
        found = [*open_ended, *(step for step in same if step in self._left)]
        own = [s for s in found if calls.agents_of(s.key[-1]) == agents]
        own += [s for s in found if _retried(s, tool) or _calls_the_same(s, tool, run, agents)]
        if found and not own:
            raise _another_agents(found[0], agents)
        return next(iter(own), None)

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary did before, and has not come to."""
        return [step for step in self._left.unmet(saga) if calls.is_ours(step.key[-1])]

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        left = [] if saga.read_only else self._left.unmet(saga)
        if left:
            raise attempts.another_way(
                left,
                "An earlier attempt of this run, which ended without its answers,",
                "Begin again under another key.",
            )


def standing(saga: Saga) -> list[str]:
    """Return the ids of the steps of a saga that stand."""
    return [step.id for step in tuple(saga.keyed.values()) if step.state in attempts.STANDS]


def _retried(step: Step, tool: Tool) -> bool:
    """Say whether a step without a known outcome is of the function that is called now."""
    if not unsettled(step) or step.tool.fn != tool.fn:
        return False
    ours = str(getattr(tool.fn, "__module__", "")).partition(".")[0] == _OURS
    return step.tool is tool or not ours  # one of ours stands for many tools


def _calls_the_same(step: Step, tool: Tool, run: calls.Run, agents: calls.Path) -> bool:
    """Say whether the agent of a step has the same tool behind its name as the one that calls now.

    What is not the same may still do the same, and is left undecided.
    """
    made = calls.agents_of(step.key[-1])
    theirs = None if made is None else run.behind(made, tool.name)
    if theirs is None:
        return False
    ours = run.behind(agents, tool.name)
    return theirs is ours or bool(theirs == ours)


def _another_agents(step: Step, agents: calls.Path) -> OutcomeUnknown | ReplayConflict:
    made = calls.spoken(calls.agents_of(step.key[-1]))
    now, tool = calls.spoken(agents), step.tool.name
    what = f"and whether this call of {now} is that one cannot be told; it was not made."
    if not unsettled(step):
        return ReplayConflict(
            f"{made} called {tool} with these arguments in an earlier attempt of this run, which "
            f"ended without its answers, {what}",
            fix=f"Begin again under another key. {_FIX}",
        )
    unknown = OutcomeUnknown(
        f"{made} called {tool} with these arguments, how that ended is not known, {what}",
        fix=f"Look at the world before going on. {_FIX}",
    )
    unknown.agent_saga_step = step  # type: ignore[attr-defined]
    return unknown


_attempts: attempts.PerSaga[Attempts] = attempts.PerSaga()


def attempts_of(saga: Saga, *, anew: bool = False, kept: Container[str] = ()) -> Attempts:
    """Return which steps of a saga may return; begun anew where a run goes on with it.

    Args:
        saga: the saga.
        anew: a run begins, or goes on.
        kept: the ids of steps that the run's state knows of.
    """
    return _attempts.of(saga, lambda: Attempts(saga, kept), anew=anew)


attempts.tell_left_out(lambda saga: attempts_of(saga).left_out(saga))
