"""Counts in a state store: one for all processes, and still there after a crash.

Rules of this part:

- A call takes what it wants in one transaction over all of its counts, before its announcement
  (the store first, then the log); it is handed back only after the log said that the call did not
  start. A crash in between leaves too little allowance, never too much.
- What was taken is held under the call's name. That its announcement is out is told to the store
  with the next call that uses the same count, so that a call costs one transaction. A busy process
  takes more than a call wants and spends it in memory: see `leases`. A call that is over a limit of
  which others have leased is judged again when their leases have ended.
- The log is the truth: what stands in announcements is counted, even where the store has lost it.
  Before a process counts for the first time, `upkeep` looks whether the store is behind. A store
  that was emptied meanwhile has no counts: before one begins anew, the store has to say that it was
  not emptied. Else it is counted anew first.
- Transactions survive the death of the process, not necessarily a power loss: see `upkeep`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from agent_saga.controls.amounts import Number
from agent_saga.controls.control import CallView, Surroundings, Use
from agent_saga.controls.limits.asked import SharedTaken, asking, name_of
from agent_saga.controls.limits.count import Count
from agent_saga.controls.limits.leases import Borrowing, Leases
from agent_saga.controls.limits.limit import Limit
from agent_saga.controls.limits.moments import Moment, moment
from agent_saga.controls.limits.taking import Answer, take
from agent_saga.controls.limits.upkeep import META, is_kept_up, sweep, upkeep, usage_of
from agent_saga.controls.limits.usage import Over, Usage
from agent_saga.domain.clock import SYSTEM_CLOCK, Clock
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, StateError
from agent_saga.state.base import Change, Docs, StateStore
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.file import FileWAL
from agent_saga.wal.os_port import restart_after_fork

__all__ = ["FileLimitStore", "LimitStore"]

_REVERSIBLE: Final = ActionSemantics.REVERSIBLE
_REMEMBERED: Final = 4096
_UNSURE: Final = object()
"""Answers that a count is not there: nobody has used it, or the store was emptied."""

_BEHIND: Final = object()
"""Answers that the store does not count what the log announced."""

_PAUSE: Final = 0.05
_PAUSES: Final = 100
"""How often a call that is over a limit looks whether the leases of others have ended."""

_NONE: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


class LimitStore:
    """Counts of limits in a state store, shared by all who use that store.

    Args:
        state: the state store; that of the log in use when not given.
        clock: where time is read; the machine's clocks when not given.

    Crash: an answered transaction survives the process; after a power loss the counts are made
    anew from the log. Fails closed: a store that does not answer refuses the call.
    """

    def __init__(self, state: StateStore | None = None, *, clock: Clock | None = None) -> None:
        if state is not None and not isinstance(state, StateStore):
            raise ConfigurationError(f"A LimitStore needs a state store, not {state!r}.")
        self._state = state
        self._clock = clock or SYSTEM_CLOCK
        self._pauses = _PAUSES
        self._wal: BaseWAL | None = None
        self._settled: dict[str, list[str]] = {}
        self.restart_in_child()
        restart_after_fork(self)

    def bound(self, around: Surroundings) -> LimitStore:
        """Return this store for the gates of one log."""
        store = LimitStore(self._state or around.store(), clock=self._clock)
        store._wal = around.wal
        return store

    def restart_in_child(self) -> None:
        """In a forked child: the locks' holders do not exist here, and its writer is another."""
        self._ready = False
        self._opening = threading.Lock()
        self._noting = threading.Lock()
        self._leases = Leases(self._end_leases, self._clock.monotonic)

    @property
    def state(self) -> StateStore:
        """The state store.

        Raises:
            ConfigurationError: it belongs to no log and was given none.
        """
        if self._state is None:
            raise ConfigurationError(
                "This LimitStore belongs to no log yet.", fix="Give it a state store."
            )
        return self._state

    # --- what the control uses -------------------------------------------------------------------

    def from_leases(
        self, call: CallView, wants: Sequence[tuple[Limit, str, Number]]
    ) -> list[SharedTaken]:
        """Take what a call wants of what this process has leased; return it, or nothing."""
        name = name_of(call.saga, call.step, call.generation)
        return self._leases.take(name, wants, stays=call.semantics is _REVERSIBLE)

    def taking(self, call: CallView, wants: Sequence[tuple[Limit, str, Number]]) -> Use:
        """Return the use that takes what a call wants, all of it or nothing.

        It answers with what was taken, and with the limits that the call is over. Should it fail,
        the call holds what it may have taken, so that it is handed back.
        """
        asked = [asking(*want) for want in wants]
        keys = [one.key for one in asked]
        call.hold("limits", [SharedTaken(key, None, 0.0, "") for key in keys])
        with self._noting:
            settled = {key: tuple(self._settled.get(key, ())) for key in keys}

        def begun() -> tuple[Borrowing, Use]:
            # Anew when it is used again: what an answer that nobody heard says is not known.
            borrowing = self._leases.borrowing(keys)
            rule = functools.partial(take, call, asked, settled, borrowing, self._now, self._writer)
            return borrowing, self._when_ready(keys, rule, settled)

        def blocking() -> Any:
            borrowing, use = begun()
            with borrowing.heard():
                answer = use.blocking()
                for number in range(self._pauses):
                    if not answer.lent:
                        break
                    time.sleep(_PAUSE)
                    if number == 0:
                        self._end_those_of_the_dead()
                    answer = use.blocking()
                return self._stored(borrowing, answer)

        async def awaiting() -> Any:
            borrowing, use = begun()
            with borrowing.heard():
                answer = await use.awaiting()
                for number in range(self._pauses):
                    if not answer.lent:
                        break
                    await asyncio.sleep(_PAUSE)
                    if number == 0:
                        await asyncio.to_thread(self._end_those_of_the_dead)
                    answer = await use.awaiting()
                return self._stored(borrowing, answer)

        return Use(blocking, awaiting)

    def _stored(
        self, borrowing: Borrowing, answer: Answer
    ) -> tuple[Sequence[SharedTaken], Sequence[Over]]:
        borrowing.stored(answer.begun)
        self._leases.outlived |= answer.lent
        return answer.taken, answer.overs

    def giving_back(self, call: CallView, taken: Sequence[SharedTaken]) -> Use | None:
        """Hand back what a call took; return the use that does so where the store has it."""
        name = name_of(call.saga, call.step, call.generation)
        keys = self._leases.give_back(name, taken)

        def rule(docs: Docs) -> Change[None]:
            put: dict[str, Any] = {}
            for key, doc in docs.items():
                if doc is not None and name in doc["held"]:
                    count = Count(doc, self._now())
                    count.give_back(name)
                    put[key] = count.document()
            return Change(None, put)

        return self._when_ready(keys, rule) if keys else None

    def settle(self, call: CallView, taken: Sequence[SharedTaken]) -> None:
        """Note that a call's announcement is out; the store learns it with the next use."""
        name = name_of(call.saga, call.step, call.generation)
        keys = self._leases.settle(name, taken)
        if not keys:
            return
        with self._noting:
            if len(self._settled) >= _REMEMBERED:
                self._settled.clear()  # a name that stays held costs room, nothing else
            for key in keys:
                self._settled.setdefault(key, []).append(name)

    def usage(self) -> list[Usage]:
        """Return what is counted now, by limit and scope; ends this process's leases; blocks."""
        self._leases.end()
        return usage_of(self.state, self._now())

    # --- inside ----------------------------------------------------------------------------------

    def _end_those_of_the_dead(self) -> None:
        """Let leases of processes that are proved dead count as used; nobody waits for them."""
        if isinstance(self._wal, FileWAL):
            sweep(self.state, self._wal, self._now())

    def _end_leases(self, borrowing: Borrowing) -> None:
        """Have the store count leases as ended; blocks."""

        def rule(docs: Docs) -> Change[None]:
            put: dict[str, Any] = {}
            for key, doc in docs.items():
                if doc is not None:
                    count = Count(doc, self._now())
                    borrowing.hand_back(key, count)
                    put[key] = count.document()
            return Change(None, put)

        self.state.transact(list(borrowing.ended), rule, durable=False)
        borrowing.stored({})

    def _when_ready(
        self,
        keys: Sequence[str],
        rule: Callable[[Docs], Change[Any]],
        settled: Mapping[str, Sequence[str]] = _NONE,
    ) -> Use:
        every = [*keys, META]

        def quick(docs: Docs) -> Change[Any]:
            return Change(_UNSURE) if None in docs.values() else rule(docs)

        def checked(docs: Docs) -> Change[Any]:
            if not is_kept_up(docs[META], self._wal, self._now()):
                return Change(_BEHIND)
            return rule({key: docs[key] for key in keys})

        def blocking() -> Any:
            self._make_ready()
            answer = self.state.transact(keys, quick, durable=False)
            if answer is _UNSURE:
                answer = self.state.transact(every, checked, durable=False)
            if answer is _BEHIND:
                self._make_ready(again=True)
                answer = self.state.transact(every, checked, durable=False)
            return self._answered(answer, settled)

        async def awaiting() -> Any:
            if not self._ready:
                await asyncio.to_thread(self._make_ready)
            answer = await self.state.async_transact(keys, quick, durable=False)
            if answer is _UNSURE:
                answer = await self.state.async_transact(every, checked, durable=False)
            if answer is _BEHIND:
                await asyncio.to_thread(self._make_ready, again=True)
                answer = await self.state.async_transact(every, checked, durable=False)
            return self._answered(answer, settled)

        return Use(blocking, awaiting)

    def _answered(self, answer: Any, settled: Mapping[str, Sequence[str]]) -> Any:
        if answer is _BEHIND:
            raise StateError(
                "The counts of the limits were emptied, and again while they were counted anew.",
                fix="Look who empties the state store; the call was refused.",
            )
        self._forget(settled)
        return answer

    def _make_ready(self, *, again: bool = False) -> None:
        """Before the first use: begin this process's writer, and mend what a crash left.

        Args:
            again: the store was found emptied since.
        """
        if self._ready and not again:
            return
        with self._opening:
            if again or not self._ready:
                if isinstance(self._wal, FileWAL):
                    self._wal.begin()
                upkeep(self.state, self._wal, self._now())
                self._ready = True

    def _forget(self, settled: Mapping[str, Sequence[str]]) -> None:
        """Forget the names that the store has learnt of."""
        if not settled:
            return
        with self._noting:
            for key, told in settled.items():
                left = [name for name in self._settled.get(key, ()) if name not in told]
                if left:
                    self._settled[key] = left
                else:
                    self._settled.pop(key, None)

    def _now(self) -> Moment:
        return moment(self._clock)

    def _writer(self) -> str:
        return self._wal.writer if isinstance(self._wal, FileWAL) else ""


class FileLimitStore(LimitStore):
    """Counts of limits in a file of their own, shared by every process of the host.

    Args:
        path: the file; that of the log in use when not given, which is the default of every log in
            files. Several logs may share one.

    Crash: as for `LimitStore`. After a power loss, a file of its own learns again from a log only
    what that log announced.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(None if path is None else _file(path))


def _file(path: str | os.PathLike[str]) -> StateStore:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigurationError(f"A FileLimitStore takes the path of a file, not {path!r:.60}.")
    from agent_saga.state.sqlite import SQLiteStateStore  # noqa: PLC0415 - loads sqlite3

    return SQLiteStateStore(path)
