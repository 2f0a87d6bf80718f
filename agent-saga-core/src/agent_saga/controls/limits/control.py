"""Limits in their place in the gate: what a call wants of each, taken together or not at all.

Rules of this part:

- Every limit that polices a call is asked in one step: over one of them, the call takes of none. A
  refused call leaves no trace in any count.
- A limit with `escalate_to_human` has a human asked instead. Nothing is taken while the human
  thinks; after a yes everything is judged again, and what was approved counts like all else.
- One step is authorised once: a call that was announced before and is repeated with the same key
  takes nothing.
- What was taken is handed back only if the call did not start. A failed call, and one that was
  undone, has been authorised all the same.
- A store that cannot be read or written refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from agent_saga.controls.amounts import SMALL, Number
from agent_saga.controls.control import CallView, Control, Judge, Use, Wait
from agent_saga.controls.limits.asked import told
from agent_saga.controls.limits.limit import LIMITS, Limit
from agent_saga.controls.limits.memory import MemoryLimitStore, Place, Taken
from agent_saga.controls.limits.scopes import arguments_of, by_tool
from agent_saga.controls.limits.shared import LimitStore
from agent_saga.controls.limits.usage import Over, refusal
from agent_saga.errors import RefusedError, one_line

__all__ = ["MemoryLimits", "SharedLimits", "Want", "limits_control"]

_TELLING: Final = frozenset({str, int, type(None)})
"""Types of values by which calls are told apart as the values themselves are; None is no value."""

_MOST_KNOWN: Final = 1024

S = TypeVar("S", MemoryLimitStore, LimitStore)
Want: TypeAlias = tuple[Limit, str, Number]
Reading: TypeAlias = tuple[int, Limit, str | None]
"""A limit that reads an argument: its place, itself, and its scope if the tool decides that."""


class Wanted(NamedTuple):
    """What the calls of a tool want of the limits that police it, as far as the tool decides it.

    Attributes:
        fixed: what is wanted of each limit; None where that depends on the call.
        read: the arguments that are read, each with the limits that read it; None as an argument
            where only the scope depends on the call.
    """

    fixed: tuple[Want | None, ...]
    read: tuple[tuple[str | None, tuple[Reading, ...]], ...]


class Known(Struct, eq=False):
    """What the calls of a tool want, and where those are counted in memory that came before.

    Attributes:
        wanted: what they want.
        quick: how much and where is told by one argument each, at most.
        arg: the one that is added up, if any. by: the one by which calls are counted apart, if any.
        places: where calls are counted, by the value of the latter.
    """

    wanted: Wanted
    quick: bool
    arg: str | None
    by: str | None
    places: dict[object, tuple[Place, ...]]


def limits_control(limits: Sequence[Limit], store: MemoryLimitStore | LimitStore) -> Control:
    """Return the control of a gate's limits, on the store that keeps their counts."""
    if isinstance(store, MemoryLimitStore):
        return MemoryLimits(limits, store)
    return SharedLimits(limits, store)


def wanted_of(limits: Sequence[Limit], call: CallView) -> Wanted:
    """Lay out what the calls of a call's tool want of these limits."""
    fixed: list[Want | None] = []
    read: dict[str | None, list[Reading]] = {}
    for limit in limits:
        if limit.polices(call):
            scope = _scope_of_tool(limit, call)
            if limit.arg is None and scope is not None:
                fixed.append((limit, scope, 1))
            else:
                read.setdefault(limit.arg, []).append((len(fixed), limit, scope))
                fixed.append(None)
    return Wanted(tuple(fixed), tuple([(arg, tuple(of)) for arg, of in read.items()]))


def known_of(limits: Sequence[Limit], call: CallView) -> Known:
    """Lay out what the calls of a call's tool want, and what tells where they are counted."""
    policing = [limit for limit in limits if limit.polices(call)]
    added = {limit.arg for limit in policing if limit.arg is not None}
    reads = [arguments_of(limit.scope) for limit in policing]
    apart = {arg for read in reads for arg in read or ()}
    quick = None not in reads and len(added) <= 1 and len(apart) <= 1
    arg, by = next(iter(added), None), next(iter(apart), None)
    return Known(wanted_of(limits, call), quick, arg, by, {})


def _scope_of_tool(limit: Limit, call: CallView) -> str | None:
    decided = limit.scope is None or limit.scope is by_tool
    return limit.scope_of(call) if decided else None


def wants(wanted: Wanted, call: CallView) -> Sequence[Want]:
    """Return what a call wants of each limit that polices its tool.

    Raises:
        RefusedError: it cannot be told.
    """
    found: list[Any] = list(wanted.fixed)
    arguments: Mapping[str | None, Any] = call.arguments  # type: ignore[assignment]
    for arg, limits in wanted.read:
        amount = arguments.get(arg)  # nothing has the name None
        if type(amount) is not int or not 0 <= amount < SMALL:
            _read_closely(found, limits, call)
            continue
        for at, limit, scope in limits:  # most amounts are whole and small
            found[at] = limit, limit.scope_of(call) if scope is None else scope, amount
    return [one for one in found if one is not None] if None in found else found


def _read_closely(found: list[Want | None], limits: Sequence[Reading], call: CallView) -> None:
    """Add what a call wants of limits whose argument is no small whole number, or not there."""
    for at, limit, scope in limits:
        amount = limit.asked_of(call)
        if amount is not None:
            found[at] = limit, limit.scope_of(call) if scope is None else scope, amount


def refuse_or_ask(call: CallView, overs: Sequence[Over]) -> None:
    """Refuse a call that is over a limit, or have a human asked where all of them say so.

    Raises:
        LimitExceeded: one of the limits does not escalate.
    """
    hard = [one for one in overs if not one.limit.escalate_to_human]
    if hard:
        raise refusal(call, hard)
    for one in overs:
        call.ask(one.limit.name, one.reason)


class _Limits(Control, Generic[S]):
    """Limits of one gate, wherever they are counted.

    Args:
        limits: of one gate.
        store: where they are counted.
    """

    name = LIMITS
    reads_arguments = True

    def __init__(self, limits: Sequence[Limit], store: S) -> None:
        self.limits = tuple(limits)
        self.store: S = store

    def check(self, call: CallView) -> Wait | None:
        """Take what the call wants, all of it or nothing."""
        judge = self.planned(call)
        return None if judge is None else judge(call)


class MemoryLimits(_Limits[MemoryLimitStore]):
    """Limits whose counts live in this process."""

    def planned(self, call: CallView) -> Judge | None:
        """Leave out the limits that do not police this tool."""
        known = known_of(self.limits, call)
        return partial(self._judged, known) if known.wanted.fixed else None

    def _judged(self, known: Known, call: CallView) -> None:
        if call.repeated or (call.held is not None and LIMITS in call.held):
            return
        arguments: Mapping[str | None, Any] = call.arguments  # type: ignore[assignment]
        amount = 0 if known.arg is None else arguments.get(known.arg)
        value = arguments.get(known.by)  # nothing has the name None
        places = known.places.get(value) if type(value) in _TELLING else None
        if places is not None and type(amount) is int and 0 <= amount < SMALL:
            taken, overs = self.store.take_at(places, amount, call.approved)
        else:
            taken, overs = self._taken(known, call, value)
        if overs:
            refuse_or_ask(call, overs)
        elif call.held is None:
            call.held = {LIMITS: taken}
        else:
            call.hold(LIMITS, taken)

    def _taken(self, known: Known, call: CallView, value: object) -> tuple[list[Taken], list[Over]]:
        """Take what a call wants after a closer look, and remember where its like is counted."""
        asked = wants(known.wanted, call)
        whole = len(asked) == len(known.wanted.fixed)
        if known.quick and whole and type(value) in _TELLING and value not in known.places:
            if len(known.places) >= _MOST_KNOWN:
                known.places.clear()
            places = [(limit, scope, 1 if limit.arg is None else None) for limit, scope, _ in asked]
            known.places[value] = self.store.places(places)
        return self.store.take(asked, call.approved)

    def release(self, call: CallView) -> None:
        """Hand back what the call took; it did not start."""
        taken = (call.held or {}).pop(LIMITS, None)
        if taken:
            self.store.give_back(taken)


class SharedLimits(_Limits[LimitStore]):
    """Limits whose counts lie in a state store."""

    def planned(self, call: CallView) -> Judge | None:
        """Leave out the limits that do not police this tool."""
        wanted = wanted_of(self.limits, call)
        return partial(self._judged, wanted) if wanted.fixed else None

    def _judged(self, wanted: Wanted, call: CallView) -> Wait | None:
        if call.repeated or (call.held is not None and LIMITS in call.held):
            return None
        asked = wants(wanted, call)
        if not asked:
            return None
        leased = self.store.from_leases(call, asked)
        if leased:
            call.hold(LIMITS, leased)
            return None

        def then(found: Any, error: Exception | None) -> None:
            if error is not None:
                raise _unreadable(call, asked[0][0], error) from error
            taken, overs = found
            call.hold(LIMITS, taken)
            if overs:
                (call.held or {}).pop(LIMITS)
                refuse_or_ask(call, overs)

        return Wait(self.store.taking(call, asked), then)

    def release(self, call: CallView) -> Use | None:
        """Hand back what the call took; it did not start."""
        taken = (call.held or {}).pop(LIMITS, None)
        return self.store.giving_back(call, taken) if taken else None

    def ended(self, call: CallView, ending: str, error: BaseException | None = None) -> None:
        """Let the call be counted without its name; its announcement is out."""
        taken = (call.held or {}).get(LIMITS)
        if taken:
            self.store.settle(call, taken)

    def recorded(self, call: CallView) -> Mapping[str, Any]:
        """Return what was taken, from which a lost store is made anew."""
        taken = (call.held or {}).get(LIMITS)
        return {"taken": told(tuple(taken))} if taken else {}


def _unreadable(call: CallView, limit: Limit, error: Exception) -> RefusedError:
    return RefusedError(
        f"{call.tool} was refused: its limits could not be counted ({one_line(error)}).",
        rule=limit.name,
        reason="the store of the limits did not answer",
        fix="Make the state store usable again; this looks at it: agent-saga doctor",
        control=LIMITS,
    )
