"""`RecoveryDaemon`: recovery for programs, in a process of its own or beside the agent's.

Rules of this part:

- Handlers come from installed plugins and from the modules that this program has imported.
- It writes into its own folder of the log. Sagas of processes that live, this one included, are
  never touched, except those that they have released.
- Ctrl-C in the main thread never cuts an inverse in half: the one that runs comes to its end and is
  recorded, the rest is left for the next time, and KeyboardInterrupt is raised. A second one cuts.
- Methods follow asyncio: called on a thread whose event loop is running they return an awaitable
  (the work is done on a thread of its own), elsewhere they block and return the value.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import sweep
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.durations import seconds
from agent_saga.engine.loops import loop_is_running
from agent_saga.errors import AgentSagaError, ConfigurationError
from agent_saga.observe.logger import logger
from agent_saga.plugins.notifiers import Notifier
from agent_saga.plugins.process import process_plugins
from agent_saga.plugins.registry import process_handlers
from agent_saga.recovery.claim import Place
from agent_saga.recovery.daemon import Daemon, Result
from agent_saga.recovery.looking import Forecast, acted_on, forecast
from agent_saga.recovery.notices import Notices
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.queue import cases_in, close_case, retry_case
from agent_saga.recovery.recover import Recovered, recoverable
from agent_saga.recovery.survey import Found, survey
from agent_saga.recovery.undo import Plan, check_undo, known, plan, undo_later
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.runtime.composition import Runtime
from agent_saga.runtime.daemon_given import (
    called_after,
    flag,
    name_given,
    notifiers_given,
    text,
    told_given,
)
from agent_saga.runtime.settings import Settings
from agent_saga.state.address import open_state
from agent_saga.state.base import StateStore
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.file import FileWAL
from agent_saga.wal.takeover import dead_writers

log = logger("agent_saga.recovery")
T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[Recovered], object]


class RecoveryDaemon:
    """Undoes what dead processes left, and says what needs a human.

    Args:
        path_or_wal: the log's path or address, or an open file log.
        settings: how to run; read from the environment when not given.
        by: who recovers, for the record.
        told: called with each saga that needs a human, once for as long as this daemon lives.
        notifiers: told of each new case, by name, beside those of installed plugins; see
            `agent_saga.plugins.notifiers`.
        leave_missing: of a saga of which inverses are not registered here, undo what came after
            them, and leave them and what came before to a human; otherwise such a saga waits.

    Its methods too refuse with ConfigurationError what is of another kind than they take.

    Attributes:
        leave_missing: as given.

    Raises:
        ConfigurationError: the log is not one in files, or something else that was given cannot be
            used.
    """

    def __init__(
        self,
        path_or_wal: BaseWAL | str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        by: str = "recovery",
        told: Iterable[Told] = (),
        notifiers: Mapping[str, Notifier] | None = None,
        leave_missing: bool = True,
    ) -> None:
        told, own = told_given(told), notifiers_given(notifiers)
        by, leave_missing = name_given(by), flag("leave_missing=", leave_missing)
        given = os.fspath(path_or_wal) if isinstance(path_or_wal, os.PathLike) else path_or_wal
        self._runtime = Runtime(wal=given, settings=settings, recovers=True)
        wal = self._runtime.wal
        if not isinstance(wal, FileWAL):
            raise ConfigurationError(
                f"There is nothing to recover from {wal.address}: it ends with its process.",
                fix="Give the path of a log in files.",
            )
        self.leave_missing = leave_missing
        self._store: StateStore | None = None
        self._not_handed_back = ""
        self._proofs = Proofs(KnownSagas(self._opened))

        def everybody() -> dict[str, Notifier]:
            return {**process_plugins().notifiers.as_mapping(), **own}

        notices = Notices(self._place, everybody)
        self._daemon = Daemon(
            self._place,
            wal.path,
            by=by,
            told=told,
            notices=notices,
            proofs=self._proofs,
            leave_missing=leave_missing,
        )

    def _place(self) -> Place:
        engine = self._runtime.engine()
        wal = engine.wal
        if not isinstance(wal, FileWAL):
            raise ConfigurationError("Recovery needs a log in files.")
        bounded = replace(engine.timing, undo_bounded=True, undo_stops=True, wait_to_settle=True)
        return Place(engine.with_timing(bounded), wal, self._opened(), self._proofs)

    def _opened(self) -> StateStore:
        if self._store is None:
            self._store = open_state(self._runtime.wal.address)
        return self._store

    def recover_all(self, *, undo_held: bool = False) -> Any:
        """Make one pass over the log and recover everything that can be.

        Args:
            undo_held: undo also what is held for its program to go on with (`on_crash="hold"`).

        Crash: whatever was being undone is in the log; the next pass, of any process, goes on.
        Fails closed: a saga that cannot be read, proved dead, fenced or claimed is not acted on,
        and is in the result. Waits for calls that may still arrive. Returns a `Result`, or an
        awaitable of it.

        Raises:
            WALError: the log as a whole cannot be read.
            ConfigurationError, PluginError: a setting or a plugin cannot be used.
        """
        return _either(
            lambda: self._handed_back(self._daemon.sweep(patient=True, undo_held=undo_held))
        )

    def watch(
        self, interval: float = 5.0, *, after: Callable[[Result | None], object] | None = None
    ) -> Any:
        """Make passes until `stop`, with a pause of so many seconds between them.

        Args:
            interval: the pause.
            after: called after every pass with its result, or with None if the pass failed; it runs
                on the thread that watches.

        A pass that fails is logged, and the next one is made; it raises only what `after` raises.
        """
        interval = seconds("interval=", interval, zero=True)
        after = called_after(after)

        def then(result: Result | None) -> object:
            self._handed_back(result)
            return None if after is None else after(result)

        return _either(lambda: self._daemon.run(interval, then))

    def stop(self) -> None:
        """End `watch` for good, and a pass that is being made; safe from any thread.

        The saga that is being recovered is finished. A pass that was cut short is not clean, and
        tells how many sagas it `skipped`.
        """
        self._daemon.stop()

    def close(self) -> None:
        """Close the state store; the log is closed with its process."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def undo(
        self,
        saga: str,
        *,
        by: str,
        reason: str,
        leave_the_rest: bool = False,
        to: str | None = None,
    ) -> Any:
        """Undo a committed saga, or what came after one of its steps; returns a `Recovered`.

        Args:
            saga: the saga's id.
            by: who asks for it.
            reason: why; both are recorded.
            leave_the_rest: undo what can be undone in order, and let what cannot stand.
            to: undo only what came after this step: its id, the beginning of it, or its tool.

        Raises:
            UndoRefused: it cannot be undone as asked; nothing was run.
            RecoveryError: no name or reason is given, or records of the saga are lost.
            ClaimRefused: somebody else acts on it.
            Quarantined: a person has quarantined it.
            WALError, StateError: something could not be read, recorded or stored.

        Crash: what was announced is in the log; the same call, or recovery, goes on and repeats
        nothing. Fails closed.
        """
        saga, rest = text("saga", saga), flag("leave_the_rest=", leave_the_rest)
        to = None if to is None else text("to=", to)

        def undone() -> Recovered:
            place = self._place()
            return undo_later(place, saga, by=by, reason=reason, leave_the_rest=rest, to=to)

        return _either(undone)

    def compact(self, *, grace_seconds: float | None = None) -> Any:
        """Take settled sagas out of the log; see `BaseWAL.compact`.

        Args:
            grace_seconds: seconds for which a saga stays after its last record; the setting
                `undo_window` when None.

        Returns:
            A `Compacted`, or an awaitable of it.

        Raises:
            CompactionRefused: somebody else is at work on the log.
            WALError: something could not be read, written or attested.
        """
        return self._runtime.wal.compact(grace_seconds=grace_seconds)

    def sweep(self) -> Result:
        """Make one pass that does not wait for calls that may still arrive; blocks.

        Raises:
            WALError: the log as a whole cannot be read.
            ConfigurationError, PluginError: a setting or a plugin cannot be used.
        """
        return self._handed_back(self._daemon.sweep(patient=False))

    def _handed_back(self, result: R) -> R:
        """Hand back what dead processes held of limits and never announced."""
        try:
            place = self._place()
            sweep(place.store, place.wal, moment(SYSTEM_CLOCK))
        except AgentSagaError as error:
            if error.message != self._not_handed_back:
                log.warning("what dead processes held of limits was not handed back: %s", error)
            self._not_handed_back = error.message
        else:
            self._not_handed_back = ""
        return result

    def missing_handlers(self, *, now: bool = False, undo_held: bool = False) -> list[str]:
        """Return the names of inverses that open sagas need and that are not registered here.

        Args:
            now: only those that `recover_all` would need now; otherwise also those of sagas that
                are open in living processes, or held.
            undo_held: with `now`, as for `recover_all`.

        Raises:
            WALError: the log cannot be read.
        """
        place = self._place()
        if now:
            sagas = acted_on(place, undo_held=undo_held)
        else:
            sagas = [s for s in self._proved(recoverable) if not s.problems]
        needed = set().union(*[saga.view.handlers_needed() for saga in sagas])
        return sorted(needed - set(process_handlers().compensators))

    def forecast(self, *, undo_held: bool = False) -> Forecast:
        """Return what `recover_all` would do now; runs and writes nothing.

        Args:
            undo_held: as for `recover_all`.

        Raises:
            WALError: the log cannot be read.
        """
        return forecast(self._place(), undo_held=undo_held, leave_missing=self.leave_missing)

    def check_undo(self, saga: str, *, leave_the_rest: bool = False, to: str | None = None) -> None:
        """Refuse what `undo` would refuse; runs and writes nothing.

        Args:
            saga: the saga's id.
            leave_the_rest: as for `undo`.
            to: as for `undo`.

        Raises:
            UndoRefused: it cannot be undone as asked.
            ClaimRefused: somebody else acts on it.
            Quarantined: a person has quarantined it.
            WALError, StateError: something could not be read.
        """
        to = None if to is None else text("to=", to)
        check_undo(self._place(), text("saga", saga), leave_the_rest=leave_the_rest, to=to)

    def plan(self, saga: str, *, to: str | None = None) -> Plan:
        """Return what undoing a saga, or what came after one of its steps, would do; runs nothing.

        It tells what would become of each step, also where `undo` refuses the whole; that is what
        `check_undo` tells.

        Args:
            saga: the saga's id.
            to: as for `undo`.

        Raises:
            UndoRefused: the log has no such saga, or the saga no such step.
            WALError: the log cannot be read.
        """
        to = None if to is None else text("to=", to)
        found = known(self._daemon.path, text("saga", saga))
        found = self._proofs.proved(self._daemon.path, found)
        return plan(self._runtime.engine(), found, to)

    def _proved(self, asked: Callable[[Found], bool]) -> list[Found]:
        """Return the sagas of a kind that are not settled, as their chains tell them."""
        path = self._daemon.path
        found = [s for s in survey(path, dead=dead_writers(path)).sagas.values() if asked(s)]
        self._proofs.expect(found)
        return [self._proofs.proved(path, saga) for saga in found]

    def cases(self) -> list[Found]:
        """Return the sagas that need a human, oldest first.

        Raises:
            WALError: the log cannot be read.
        """
        return cases_in(self._daemon.path)

    def retry(self, saga: str, *, by: str) -> Recovered:
        """Undo what is left of a case, orphans included, by the rules of recovery.

        Args:
            saga: the saga's id.
            by: who asks for it; recorded.

        Raises:
            RecoveryError: no name is given, or the saga is in no state to be retried.
            ClaimRefused: somebody else acts on it.
            Quarantined: a person has quarantined it.
            WALError, StateError: something could not be read, recorded or stored.

        Crash: what was announced is in the log; recovery goes on and repeats nothing. Fails closed.
        """
        return retry_case(self._place(), text("saga", saga), by=by)

    def close_case(self, saga: str, *, by: str, reason: str) -> None:
        """Record that a person has dealt with a case; nothing is run.

        Args:
            saga: the saga's id.
            by: who says so.
            reason: what was done about it; both are recorded.

        Raises:
            RecoveryError: no name or reason is given, the saga has not ended, or it is no case.
            ClaimRefused: somebody else acts on it.
            Quarantined: a person has quarantined it.
            WALError, StateError: something could not be read, recorded or stored.

        Crash: the case is closed, or it is not. Fails closed.
        """
        close_case(self._place(), text("saga", saga), by=by, reason=reason)


def _either(work: Callable[[], T]) -> Any:
    return asyncio.to_thread(work) if loop_is_running() else work()


__all__ = ["RecoveryDaemon", "Result"]
