"""Resuming a saga: which recorded step a call of the new run is.

Rules of this part:

- A call without a key of its own is an unused recorded step of the same scope and tool with equal
  arguments, the earliest one. If there are unused ones of this tool in this scope and none fits,
  the run has changed: `ReplayConflict`, never silently a second effect. If there are none, it is a
  new step.
- A call of the recorded run that was refused, or had not been announced when the run ended, left
  no step, and its number is free. A call that is none of the recorded ones takes such a number: so
  it does not matter in which order parallel calls come. There are only as many as there are free
  numbers up to the last call that the run is known to have made; one call more is a
  `ReplayConflict`. A run that suspended has told how many it made. Of one that died, what came
  after the last recorded call is not known: it is a new step only once the recorded ones are used.
- Which object a method was called on is not recorded. A call of a method is therefore the recorded
  step only if it is also as many calls of this tool into its scope as that one was; else the two
  objects cannot be told apart: `ReplayConflict`.
- A recorded call that had no effect and was made again is the call that followed: a blind retry is
  the same step. Only one that was never retried runs again.
- A tool that is declared with other semantics since is another tool: `ReplayConflict`, and the
  recorded step stays what it was. A read that it is now would leave standing what it did.
- A run that ends well has met every recorded step whose effect stands, but for those with a key of
  their own: else it has changed, and what it knows nothing of would be committed with it. Of steps
  that a framework's package named, the package says which were left out.
- A recorded step that was committed gives its recorded result and does not run. One whose result
  could not be recorded faithfully gives `ResultNotRecorded`, never a stand-in.
- A saga that has ended only reads: recorded results are given, and a new step is refused.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from agent_saga.domain.lifecycle import StepState
from agent_saga.engine.step import RECORDED
from agent_saga.errors import ReplayConflict

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step
    from agent_saga.engine.wrap import Invocation

Calls = tuple[tuple[str, ...], str]
"""The calls of one tool in one scope: the scope's path, and the tool's name."""
_UNKNOWN: Final[Mapping[Calls, int]] = MappingProxyType({})


class Replay:
    """The recorded steps of a resumed saga that no call of the new run was matched with yet.

    Args:
        steps: the recorded steps, oldest first.
        scopes: the recorded savepoints by path.
        left: the steps of ways that the run has left; no call is one of them.
        made: how many calls the recorded run made, where that is known beyond its steps.
        whole: the run makes the recorded calls again, from the first on; else whoever opened its
            boundary looks after that.

    Attributes:
        others: packages for frameworks; each returns what stands of the steps that it named, and
            that a run should have met and has not.
    """

    __slots__ = ("_calls", "_free", "_left", "_unused", "scopes", "whole")

    others: ClassVar[list[Callable[[Saga], Iterable[Step]]]] = []

    def __init__(
        self,
        steps: Iterable[Step],
        scopes: dict[tuple[str, ...], Scope],
        *,
        left: Collection[str] = (),
        made: Mapping[Calls, int] = _UNKNOWN,
        whole: bool = True,
    ) -> None:
        self.scopes = scopes
        self.whole = whole
        self._left = frozenset(left)
        self._calls: Counter[Calls] = Counter()
        self._unused: dict[Calls, list[Step]] = {place: [] for place in made}
        for step in steps:
            if not step.keyed:
                self._unused.setdefault((step.scope.path, step.tool.name), []).append(step)
        self._free: dict[Calls, list[int]] = {}
        for place, recorded in self._unused.items():
            recorded.sort(key=_ordinal)
            self._free[place] = _missing([_ordinal(step) for step in recorded], made.get(place, 0))
            self._unused[place] = [step for step in recorded if step.id not in left]

    def match(self, call: Invocation, digest: bytes) -> Step | None:
        """Return the recorded step that a call is; None when it is a new one.

        Raises:
            ReplayConflict: recorded steps of this tool are left, and none is this call.
        """
        place = (call.scope.path, call.tool.name)
        self._calls[place] += 1
        unused = self._unused.get(place)
        if not unused:
            return None
        fits = [step for step in unused if step.mac == digest]
        if call.owner is not None:
            fits = [step for step in fits if _ordinal(step) == self._calls[place]]
        if fits:
            return self._first_that_counts(fits, call)
        if self._free.get(place) and not any(step.mac == digest for step in unused):
            return None
        raise ReplayConflict(
            f"The resumed run calls {call.tool.name} otherwise than the recorded run did.",
            fix="Resume with the same inputs, give the calls keys (tool.keyed), or suspend it and "
            "let it go another way on purpose (fork_at=…, abandoned=…).",
        )

    def _first_that_counts(self, fits: list[Step], call: Invocation) -> Step:
        """Take the first of equal recorded steps; one that was retried is the retry."""
        retried = list(itertools.takewhile(_had_no_effect, fits))
        step = fits[len(retried)] if len(retried) < len(fits) else fits[0]
        for one in (*retried, step) if step is not fits[0] else (step,):
            self.take(one, call)
        return step

    def left_out(self, saga: Saga) -> list[Step]:
        """Return the recorded steps whose effect stands and that no call of the run has met."""
        if not self.whole:
            return []
        unused = [*self._unused.values(), *(named(saga) for named in self.others)]
        found = [step for steps in unused for step in steps if _stands(step)]
        return [step for step in found if step.id not in self._left]

    def free_number(self, call: Invocation) -> int | None:
        """Return and use up the number of a call that was never announced; None if there is none.

        The call's own place comes first, so that it is the same step as in the recorded run.
        """
        place = (call.scope.path, call.tool.name)
        free = self._free.get(place)
        if not free:
            return None
        nth = self._calls[place]
        return free.pop(free.index(nth) if nth in free else 0)

    def take(self, step: Step, call: Invocation) -> None:
        """Note that a recorded step was met, and give it the functions of the call's tool.

        Raises:
            ReplayConflict: the tool is declared otherwise now.
        """
        check_same_semantics(step, call)
        unused = self._unused.get((step.scope.path, step.tool.name), [])
        if step in unused:
            unused.remove(step)
        if step.owner is not RECORDED:
            return
        step.tool = call.tool
        step.owner = call.owner
        step.named = call.named
        step.arguments, step.args, step.kwargs = call.arguments, call.args, call.kwargs


def check_same_semantics(step: Step, call: Invocation) -> None:
    """Refuse a call that means another kind of effect than the step that it is.

    Whether a step is undone, left or kept goes by what its effect was when it was announced.

    Raises:
        ReplayConflict: so it is.
    """
    before, now = step.tool.semantics, call.tool.semantics
    if before is not now:
        raise ReplayConflict(
            f"{step.tool.name} was called as {before.value} and is {now.value} now.",
            fix="Give the tool another name: what it was is undone as what it was.",
        )


def _had_no_effect(step: Step) -> bool:
    return step.state is StepState.NOT_APPLIED


def _stands(step: Step) -> bool:
    inverse = step.compensation
    nothing = inverse is not None and bool(inverse.nothing)
    return step.state is StepState.COMMITTED and not (step.tool.reversible or nothing)


def _missing(ordinals: list[int], made: int) -> list[int]:
    """Return the numbers of known calls that no recorded step has; none if any was erased.

    Args:
        ordinals: the numbers of the recorded steps, in their order.
        made: how many calls were made at least.
    """
    if not all(ordinals):
        return []
    last = max(made, *ordinals[-1:], 0)
    return sorted(set(range(1, last + 1)) - set(ordinals))


def _ordinal(step: Step) -> int:
    """Return which call of its tool in its scope a step was; 0 when that was erased."""
    return int(step.key[-1]) if step.key else 0
