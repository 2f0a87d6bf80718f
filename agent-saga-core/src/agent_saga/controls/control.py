"""The seam between the gate and its controls: what a control is, and how one waits.

Rules of this part:

- A control judges one call and does no I/O of its own. `check` lets the call go on (None), refuses
  it (raises `RefusedError`), or returns a `Wait`: what it must ask first, and what follows from the
  answer. Memory answers at once, so a control in memory never waits.
- The gate asks its controls in one order: kill switch and quarantine, breaker, limits, rules, then
  humans. The first refusal ends the judging. A control of which no gate makes use costs nothing.
- A call is judged anew after every wait for a human or between attempts. So `check` may be called
  again for the same call, and takes what it takes once: it is idempotent by saga, step and
  generation.
- `recheck` follows when the intent is durable, directly before the call. `release` hands back what
  was taken by a call that did not start; the log has said so before. `ended` is told how each
  attempt ended. Compensations meet no control.
- What a control needs from a store is a `Use`, which the driver carries out completely, on the
  loop or on the calling thread, even when its caller is cancelled; so it must be idempotent.
- Which way a failure goes is the control's to say: a limit refuses, a breaker lets through.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from agent_saga.domain.durations import ANSWER_WITHIN
from agent_saga.domain.semantics import ActionSemantics

if TYPE_CHECKING:
    from agent_saga.domain.clock import Clock
    from agent_saga.observe.metrics import Metrics
    from agent_saga.state.base import Rule, StateStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

T = TypeVar("T")
NOTHING: Final[frozenset[str]] = frozenset()
_NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


class CallView(Struct, eq=False):
    """One call as rules and controls see it.

    Attributes:
        tool: the tool's name.
        semantics: what kind of effect it has.
        arguments: by name, read-only.
        tags: the tool's labels.
        named: the caller named the arguments (a bare `execute` may not).
        declares: the names of the tool's parameters; None when they cannot be known.
        saga, step, generation: which step it is.
        approved: the names of what a human has approved it under.
        began: when its saga began, in microseconds since the epoch.
        opened: when its saga was opened here, on the monotonic clock; of one that was resumed, long
            ago.
        asks: what wants a human's approval, and why; filled while the call is judged.
        risky_inverse: its inverse is itself irreversible.
        repeated: it was announced before, and is carried out again with the same key.
        stamp: the breaker's generation when it was let through.
        announced: when it was durably announced at the latest, on the monotonic clock; infinite
            unless it was announced for the attempt that is judged.
        held: what controls have taken for it, by the control's name; None while there is nothing.
    """

    tool: str
    semantics: ActionSemantics
    arguments: Mapping[str, Any]
    tags: frozenset[str]
    named: bool = True
    declares: frozenset[str] | None = None
    saga: str = ""
    step: str = ""
    generation: int = 0
    approved: frozenset[str] = NOTHING
    began: int = 0
    opened: float = -math.inf
    asks: list[tuple[str, str]] | None = None
    held: dict[str, Any] | None = None
    stamp: int = 0
    risky_inverse: bool = False
    repeated: bool = False
    announced: float = math.inf

    def __post_init__(self) -> None:
        self.arguments = MappingProxyType(self.arguments)

    def ask(self, rule: str, reason: str) -> None:
        """Want a human's approval, unless it was given under this rule."""
        if rule in self.approved:
            return
        if self.asks is None:
            self.asks = []
        self.asks.append((rule, reason))

    def hold(self, control: str, what: Any) -> None:
        """Note what a control has taken for this call."""
        if self.held is None:
            self.held = {}
        self.held[control] = what


class Use(Struct, eq=False):
    """One use of a store; see `transaction` and `reading`.

    Attributes:
        blocking: carries it out on the calling thread.
        awaiting: carries it out without blocking the event loop.
    """

    blocking: Callable[[], Any]
    awaiting: Callable[[], Awaitable[Any]]


def transaction(
    store: StateStore,
    keys: Sequence[str],
    rule: Rule[Any],
    *,
    durable: bool,
    timeout: float | None = None,
) -> Use:
    """Return the use that applies a rule to documents; arguments as for `StateStore.transact`."""
    return Use(
        lambda: store.transact(keys, rule, durable=durable, timeout=timeout),
        lambda: store.async_transact(keys, rule, durable=durable, timeout=timeout),
    )


def reading(store: StateStore, key: str, *, timeout: float | None = None) -> Use:
    """Return the use that reads one document; arguments as for `StateStore.get`."""
    return Use(
        lambda: store.get(key, timeout=timeout), lambda: store.async_get(key, timeout=timeout)
    )


def looking(store: StateStore, key: str, judge: Callable[[Doc | None], T]) -> Use:
    """Return the use that reads one document and answers with what a function says of it."""

    async def awaiting() -> T:
        return judge(await store.async_get(key))

    return Use(lambda: judge(store.get(key)), awaiting)


class Evaluate(Struct, eq=False):
    """Run a function of the user, such as the predicate of a rule.

    Attributes:
        fn, args: the call.
        is_async: calling it returns an awaitable.
        timeout: seconds until it is given up, or None.
        what: how messages name it.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    is_async: bool
    timeout: float | None
    what: str


class Wait(Struct, eq=False):
    """What a control must ask before it can judge, and how it goes on.

    Attributes:
        request: a use of a store, or a function to run.
        then: told the answer and the error (one of them is None); returns None to let the call go
            on or a further `Wait`, and raises `RefusedError` to refuse it.
        at: the control's place in the plan for the call; the gate sets it.
    """

    request: Use | Evaluate
    then: Callable[[Any, Exception | None], Wait | None]
    at: int = 0


Judge = Callable[[CallView], "Wait | None"]
"""Judges a call: lets it go on, refuses it by raising, or says what it must ask first."""


class Surroundings(Struct, eq=False):
    """What a control finds where its gate is put together.

    Attributes:
        wal: the log of the boundaries that the gate judges for.
        store: returns the state store that belongs to that log; nothing is made before it is used.
        clock: where time is read.
        metrics: counters.
        answer_within: seconds that a human has to answer, where the provider does not say so.
    """

    wal: BaseWAL
    store: Callable[[], StateStore]
    clock: Clock
    metrics: Metrics
    answer_within: float = ANSWER_WITHIN


class Control:
    """One control; a class overrides `check` and whatever else it needs.

    Attributes:
        name: how verdicts name the control.
        reads_arguments: its verdict counts for the arguments that it saw, and for no others.
        hears: the names of the tools whose successes `ended` has to hear of, as they are at the
            moment; None for all. Of what is no success it hears in any case.
    """

    name: str = ""
    reads_arguments: bool = False
    hears: Container[str] | None = None

    def bound(self, surroundings: Surroundings) -> Control:
        """Return the control to use with a log; itself where nothing depends on the log."""
        return self

    def check(self, call: CallView) -> Wait | None:
        """Judge a call.

        Raises:
            RefusedError: the call is refused.
        """
        raise NotImplementedError

    def planned(self, call: CallView) -> Judge | None:
        """Return what judges the calls of this call's tool and tags; None if nothing has to.

        Asked once for each tool, so what the tool alone decides is not decided at every call.
        """
        return self.check

    def recheck(self, call: CallView) -> Wait | None:
        """Judge once more, directly before the call.

        Raises:
            RefusedError: the call is not started.
        """
        return None

    def release(self, call: CallView) -> Use | None:
        """Hand back what the call took; it did not start. Errors are logged, never raised on."""
        return None

    def ended(self, call: CallView, ending: str, error: BaseException | None = None) -> Use | None:
        """Note how an attempt ended: "applied", "not applied" or "unknown", and with what error."""
        return None

    def calm(self, *, look: bool) -> bool:
        """Say, without a wait, whether every step would be let go on; False where that is not sure.

        A gate whose controls are all calm does not judge.

        Args:
            look: see whether anything changed since; without it, what was seen last will do, since
                the call is judged once more.
        """
        return False

    def stopping(self, call: CallView) -> Wait | None:
        """Judge a call that waited for a thread, on that thread, directly before it is made."""
        return None

    def undoing(self, saga: str) -> Wait | None:
        """Judge, before each inverse, whether a saga may be undone.

        Raises:
            RefusedError: nothing more of it may be undone now.
        """
        return None

    def recorded(self, call: CallView) -> Mapping[str, Any]:
        """Return what the step's announcement carries for this control: plain or encoded values."""
        return _NO_FACTS
