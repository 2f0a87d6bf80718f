"""`CircuitBreaker`: the breaker's place in the gate, and what it tells the log.

Rules of this part:

- Each process counts for itself while a circuit is closed, which costs no store. What opens, tries
  and closes a circuit is shared: the store says it to the others within `REFRESH` seconds, and
  probes are counted there, so that all processes together make no more than the policy allows.
- A refusal is no failure: a call that did not start is never counted. Nor does a cancellation say
  anything about a tool, nor an ending without effect that is no connection error or timeout.
- A store that cannot be read or written lets calls through: a breaker protects a provider, it does
  not guard money. Compensations neither feed nor meet it.
- Trips, probes and recoveries are records of the log.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from agent_saga.controls.breaker.circuit import CLOSED, KEY, OPEN, Admission, Circuits
from agent_saga.controls.breaker.counts import Counts
from agent_saga.controls.breaker.policy import BreakerPolicy
from agent_saga.controls.control import CallView, Control, Surroundings, Use, Wait, reading
from agent_saga.controls.control import transaction as transaction_of
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.limits.moments import moment
from agent_saga.domain.clock import SYSTEM_CLOCK, Clock
from agent_saga.domain.commands import quoted, told_command
from agent_saga.domain.records import Ev
from agent_saga.errors import AgentSagaError, CircuitOpen, ConfigurationError, one_line
from agent_saga.observe.logger import logger
from agent_saga.state.base import Change, Docs, StateStore
from agent_saga.state.memory import MemoryStateStore
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.encoding import masked
from agent_saga.wal.os_port import restart_after_fork

__all__ = ["BREAKER", "CircuitBreaker", "set_breaker"]

log = logger("agent_saga.controls")

BREAKER: Final = "breaker"
REFRESH: Final = 1.0
"""Seconds between two looks at what other processes did."""

_FAILED: Final = (ConnectionError, TimeoutError)
_EVENTS: Final = {OPEN: Ev.CIRCUIT_OPENED, CLOSED: Ev.CIRCUIT_CLOSED}


class CircuitBreaker(Control):
    """Leaves a tool alone that keeps failing, and tries it with care after a while.

    Args:
        policy: when it opens and closes; the defaults of `BreakerPolicy` when not given.
        wal: the log that is told of trips, probes and recoveries; that of the boundaries in use
            when not given.
        store: the state store that shares circuits between processes; that of the log in use when
            not given, if it survives the process.
        clock: where time is read; the machine's clocks when not given.

    Crash: a circuit stays as it was stored; counts of a closed one begin anew. Fails open: without
    its store a breaker lets calls through.
    """

    name = BREAKER

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        wal: BaseWAL | None = None,
        store: StateStore | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        if policy is not None and not isinstance(policy, BreakerPolicy):
            raise ConfigurationError(
                f"A CircuitBreaker takes a BreakerPolicy, not {type(policy).__name__}."
            )
        if wal is not None and not isinstance(wal, BaseWAL):
            raise ConfigurationError(f"The breaker's wal= is no log: {type(wal).__name__}.")
        self.policy = policy or BreakerPolicy()
        self._wal = wal
        self._store = store
        self._clock = clock or SYSTEM_CLOCK
        self._bound: WeakKeyDictionary[BaseWAL, Breaker] = WeakKeyDictionary()

    def bound(self, surroundings: Surroundings) -> Breaker:
        """Return the breaker for the gates of one log; its counts are kept for that log."""
        found = self._bound.get(surroundings.wal)
        if found is None:
            found = Breaker(self.policy, self._wal, self._store, self._clock, surroundings)
            self._bound[surroundings.wal] = found
        return found

    def check(self, call: CallView) -> NoReturn:
        """Never called: what judges is `bound` to a log first."""
        raise ConfigurationError("This breaker belongs to no log yet.", fix="Use set_breaker(…).")


class Breaker(Control):
    """A `CircuitBreaker` for the gates of one log."""

    name = BREAKER

    def __init__(
        self,
        policy: BreakerPolicy,
        wal: BaseWAL | None,
        store: StateStore | None,
        clock: Clock,
        around: Surroundings,
    ) -> None:
        self.policy = policy
        shared = store is not None or around.wal.capabilities.survives_kill
        self._store = store or (around.store() if shared else MemoryStateStore())
        self._wal = wal if wal is not None else around.wal
        own = around.wal.address
        self._log = own if store is None and own.startswith("file:") else ""
        self._clock = clock
        self._tools: dict[str, Counts] = {}
        if policy.failure_rate is None:  # a success only ends a row of failures
            self.hears = self._tools
        self._due = -math.inf if shared else math.inf  # when to look what others did
        self.restart_in_child()
        restart_after_fork(self)

    def restart_in_child(self) -> None:
        """In a forked child: the lock's holder does not exist here."""
        self._lock = threading.Lock()

    # --- the place in the gate -------------------------------------------------------------------

    def check(self, call: CallView) -> Wait | None:
        """Let a call through while its tool's circuit is closed, or as a probe.

        Raises:
            CircuitOpen: the tool failed too often.
        """
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + REFRESH
            return Wait(reading(self._store, KEY), partial(self._learnt, call))
        counts = self._tools.get(call.tool)
        return None if counts is None else self._judged(call, counts)

    def release(self, call: CallView) -> Use | None:
        """Give a probe's place back; its call did not start, which says nothing about the tool."""
        return self._probe_ended(call, None) if _is_probe(call) else None

    def ended(self, call: CallView, ending: str, error: BaseException | None = None) -> Use | None:
        """Count how an attempt ended."""
        counts = self._tools.get(call.tool)
        if counts is None and ending == "applied" and self.policy.failure_rate is None:
            return None  # nothing ever failed, so it was no probe either
        good = self._says(ending, error)
        if call.held is not None and _is_probe(call):
            return self._probe_ended(call, good)
        if good is None:
            return None
        if counts is None:
            counts = self._tools.setdefault(call.tool, Counts())
        if counts.generation != call.stamp or not counts.closed:
            return None
        if good and not counts.row and self.policy.failure_rate is None:
            return None
        with self._lock:
            why = counts.note(self.policy, self._clock.monotonic(), good=good)
        return self._tripping(call, why) if why else None

    # --- inside ----------------------------------------------------------------------------------

    def _says(self, ending: str, error: BaseException | None) -> bool | None:
        """Return whether an ending is a success, a failure, or says nothing about the tool."""
        if ending == "applied":
            return True
        if not isinstance(error, Exception) or isinstance(error, self.policy.ignore):
            return None
        if ending == "not applied" and not isinstance(error, _FAILED):
            return None
        return False

    def _learnt(self, call: CallView, doc: Any, error: Exception | None) -> Wait | None:
        if error is not None:
            _goes_on(error)
        elif doc is not None:
            circuits = Circuits(doc, moment(self._clock))
            if circuits.damaged:
                log.warning("the breaker's document cannot be understood; it begins anew")
            for tool, found in circuits.tools.items():
                self._move(tool, found)
        counts = self._tools.get(call.tool)
        return None if counts is None else self._judged(call, counts)

    def _judged(self, call: CallView, counts: Counts) -> Wait | None:
        if counts.closed:
            call.stamp = counts.generation
            return None
        return self._asking(call)

    def _move(self, tool: str, found: dict[str, Any]) -> None:
        counts = self._tools.setdefault(tool, Counts())
        with self._lock:
            if found["generation"] >= counts.generation:
                counts.moved(found["generation"], closed=found["state"] == CLOSED)

    def _asking(self, call: CallView) -> Wait:
        """Have the store say whether a call may go on although the circuit was not closed."""

        def rule(circuits: Circuits) -> Admission:
            return circuits.admit(call.tool, _name(call), self.policy)

        def then(answer: Any, error: Exception | None) -> None:
            if error is not None and _goes_on(error):
                return
            admission: Admission = answer[0]
            self._move(call.tool, answer[1])
            if not admission.admitted:
                raise _refusal(call, admission, self._log)
            call.stamp = admission.generation
            if admission.probe:
                call.hold(BREAKER, admission.generation)
            if admission.began:
                self._tell(Ev.CIRCUIT_PROBED, call.tool, admission.why)

        return Wait(self._transaction(call.tool, rule), then)

    def _tripping(self, call: CallView, why: str) -> Use:
        generation = call.stamp

        def rule(circuits: Circuits) -> bool:
            return circuits.trip(call.tool, generation, why)

        def tripped(answer: Any) -> None:
            self._move(call.tool, answer[1])
            if answer[0]:
                self._tell(Ev.CIRCUIT_OPENED, call.tool, why)

        with self._lock:  # this process stops at once, whatever its store does
            self._tools[call.tool].closed = False
        return _after(self._transaction(call.tool, rule), tripped)

    def _probe_ended(self, call: CallView, good: bool | None) -> Use:
        generation = (call.held or {}).pop(BREAKER, -1)

        def rule(circuits: Circuits) -> str:
            return circuits.ended(call.tool, _name(call), generation, good, self.policy)

        def told(answer: Any) -> None:
            self._move(call.tool, answer[1])
            if answer[0]:
                self._tell(_EVENTS[answer[0]], call.tool, "a probe " + _HOW[answer[0]])

        return _after(self._transaction(call.tool, rule), told)

    def _transaction(self, tool: str, rule: Any) -> Use:
        def over_docs(docs: Docs) -> Change[Any]:
            circuits = Circuits(docs[KEY], moment(self._clock))
            answer = rule(circuits)
            return Change((answer, circuits.of(tool)), {KEY: circuits.document()})

        return transaction_of(self._store, [KEY], over_docs, durable=False)

    def _tell(self, event: str, tool: str, why: str) -> None:
        try:
            self._wal.append(event, payload=masked({"tool": tool, "why": why})[0])
        except AgentSagaError as error:
            log.warning("what the breaker of %s did could not be recorded: %s", tool, error)


_HOW: Final = {OPEN: "failed", CLOSED: "succeeded"}


def set_breaker(breaker: CircuitBreaker | None) -> None:
    """Set the breaker of every gate of this process; None takes it away.

    It reaches the boundaries that open later.

    Raises:
        ConfigurationError: it is no `CircuitBreaker`.
    """
    if breaker is not None and not isinstance(breaker, CircuitBreaker):
        raise ConfigurationError(
            f"set_breaker takes a CircuitBreaker, not {type(breaker).__name__}."
        )
    INSTALLED.put(BREAKER, breaker)


def _goes_on(error: Exception) -> bool:
    """Say that the breaker goes on without its store: what it cannot know stops nobody."""
    log.warning("the breaker cannot use its store, and goes on: %s", one_line(error))
    return True


def _is_probe(call: CallView) -> bool:
    return call.held is not None and BREAKER in call.held


def _name(call: CallView) -> str:
    return f"{call.saga}:{call.step}:{call.generation}"


def _after(use: Use, then: Any) -> Use:
    """Return a use that has something done with its answer."""

    def blocking() -> None:
        then(use.blocking())

    async def awaiting() -> None:
        then(await use.awaiting())

    return Use(blocking, awaiting)


def _refusal(call: CallView, admission: Admission, log: str) -> CircuitOpen:
    return CircuitOpen(
        f"{call.tool} was refused by its breaker: {admission.why}.",
        rule=BREAKER,
        reason=admission.why,
        fix=f"Wait {max(1, round(admission.wait))} s, or mend the tool and close it by hand: "
        f"{told_command(f'breaker reset {quoted(call.tool)} --by NAME', log)}",
        control=BREAKER,
        facts={"tool": call.tool, "tries_again_after": round(admission.wait, 3)},
    )
