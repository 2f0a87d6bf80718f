"""The recovery daemon: looks at the whole log, again and again, and recovers what died.

Rules of this part:

- A pass surveys the log, leaves what lives alone, and recovers the rest one by one. What needs no
  waiting comes first.
- A call that may still arrive is waited for: `watch` comes back to its saga in a later pass; a
  single pass (`recover_all`) waits by itself, after everything else.
- A saga that its program may go on with is held for its time, and undone after it.
- A writer is proved dead by its lock, once, before anything of the pass is waited for; from then
  on `settle_after` counts. For a released saga it counts from the pass that saw it first.
- What could not be finished is tried again later and later, also by a daemon that was started
  again: the log tells how often one died over a saga. A person is told once.
- What an earlier pass of this process could neither finish nor hand back, as on a disk that failed
  for a while, is handed back by the next one; until then no pass is clean.
- Nothing is kept of sagas that are settled.
- Where it is asked not to act without them, a saga of which inverses are not registered here waits,
  told by name and reason, until a daemon has them; the others go on.
- What is acted on is proved first: a saga whose records are not as they were written is a human's
  case.
- Failing closed: what cannot be read, proved, fenced or stored is not acted on, and is reported.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.engine import interrupts
from agent_saga.engine.releasing import hand_back_left
from agent_saga.errors import AgentSagaError
from agent_saga.observe.logger import logger
from agent_saga.recovery.calls import (
    longest_arrival,
    missing_inverses,
    missing_text,
    takeovers,
)
from agent_saga.recovery.cases import case_of, is_case
from agent_saga.recovery.claim import OWNED, Place, gave_up
from agent_saga.recovery.hold import forget, held, hold_text
from agent_saga.recovery.notices import Notices
from agent_saga.recovery.pauses import pause_after
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.recover import (
    ELSEWHERE,
    FAILED,
    HELD,
    LIVE,
    NEEDS_HUMAN,
    WAITING,
    Recovered,
    may_still_arrive,
    recover_one,
    recoverable,
    unsettled,
)
from agent_saga.recovery.seen import note_pass
from agent_saga.recovery.survey import Found, Survey, survey
from agent_saga.wal.takeover import dead_writer, dead_writers

log = logger("agent_saga.recovery")

LEFT_BEHIND: Final = (
    "this process could neither finish it nor hand it back before; the next pass tries again"
)


class Result(Struct, frozen=True):
    """What one pass did.

    Attributes:
        sagas: what became of each saga that was not settled.
        damages: how many places of the log cannot be read.
        missing: the names of inverses that are not registered here, and that sagas wait for.
        untold: why nobody can tell which sagas the log has lost as a whole; empty if that is known.
        skipped: how many sagas it did not come to, since it was told to stop.
    """

    sagas: list[Recovered]
    damages: int
    missing: tuple[str, ...] = ()
    untold: str = ""
    skipped: int = 0

    @property
    def needs_human(self) -> list[Recovered]:
        """The sagas that a person has to look at."""
        return [one for one in self.sagas if one.needs_human]

    @property
    def clean(self) -> bool:
        """Whether it came to all, nothing waits, needs a person, or stands of what was undone."""
        stands = any(one.needs_human or one.stands for one in self.sagas)
        return not (stands or self.damages or self.waiting or self.untold or self.skipped)

    @property
    def waiting(self) -> list[Recovered]:
        """The sagas that a later pass has to come back to."""
        return [one for one in self.sagas if one.outcome in (WAITING, ELSEWHERE, HELD)]


class _Again:
    """When a saga that could not be finished is tried again: later every time."""

    __slots__ = ("last", "not_before", "tries")

    def __init__(self) -> None:
        self.tries = 0
        self.not_before = 0.0
        self.last: Recovered | None = None

    def took(self, done: Recovered, now: float) -> None:
        """Note how a try ended."""
        self.last = done
        self.tries += 1
        self.not_before = now + pause_after(self.tries)


class Daemon:
    """Recovers the sagas of one log.

    Args:
        place: opened at the first pass.
        by: who recovers, for the record.
        told: called with each saga that needs a human, once for as long as it does.
        notices: tells the notifiers of plugins of new cases.
        proofs: what is known of the writers' chains; its own when not given.
        leave_missing: of a saga of which inverses are not registered here, undo what came after
            them, and leave them and what came before to a human; otherwise it waits for them.
    """

    def __init__(
        self,
        place: Callable[[], Place],
        path: str,
        *,
        by: str = "recovery",
        told: Iterable[Callable[[Recovered], object]] = (),
        notices: Notices | None = None,
        proofs: Proofs | None = None,
        leave_missing: bool = True,
    ) -> None:
        self.leave_missing = leave_missing
        self._missing: dict[str, set[str]] = {}
        self._proofs = Proofs() if proofs is None else proofs
        self._notices = notices
        self._place = place
        self.path = path
        self._by = by
        self._told = list(told)
        self._known: set[str] = set()
        self._dead_since: dict[tuple[str, str, int], float] = {}
        self._dead: frozenset[str] = frozenset()
        self._again: dict[str, _Again] = {}
        self._undo_held = False
        self._stop = threading.Event()
        self._stops = 0
        self._untold = ""

    def sweep(
        self,
        *,
        patient: bool,
        undo_held: bool = False,
        stopped: Callable[[], bool] | None = None,
    ) -> Result:
        """Make one pass.

        Args:
            patient: wait for calls that may still arrive; otherwise they are left for a later pass.
            undo_held: undo also what is held for its program to go on with.
            stopped: says whether to end it early; when not given, whether `stop` is called while it
                is made.

        Raises:
            WALError: the directory as a whole is no log that can be read.
        """
        before = self._stops
        hand_back_left(self._place().wal)
        self._dead = dead_writers(self.path, known=self._dead)
        found = survey(self.path, dead=self._dead, keep=True)
        untold = self._proofs.add_vanished(self.path, found)
        if untold and untold != self._untold:
            log.error("%s", untold)
        self._untold = untold
        self._proofs.expect(found.sagas.values())
        self._forget_all_but(found)
        for saga in found.sagas.values():
            with contextlib.suppress(Exception):  # it is told when the saga's turn comes
                self._owner_dead_since(saga)
        self._undo_held = undo_held
        known, self._missing = self._missing, {}
        done, left = [], _in_order(found)
        stopped = stopped or (lambda: self._stops != before)
        while left and not (stopped() or interrupts.asked_to_stop()):
            done.append(self._recovered(left.pop(0), patient=patient))
        result = Result(
            [one for one in done if one is not None],
            len([damage for damage in found.damages if damage.kind != "torn-tail"]),
            tuple(sorted(set().union(*self._missing.values()))),
            untold,
            len(left),
        )
        self._tell(result)
        self._tell_missing(result, known)
        if self._notices is not None:
            seen = [(one.saga, one.outcome, one.reason) for one in result.needs_human]
            self._notices.tell(self.path, seen)
        if not result.skipped:
            note_pass(self.path, self._by)
        return result

    def run(self, interval: float, after: Callable[[Result | None], object] | None = None) -> None:
        """Make passes until `stop`, with a pause of so many seconds between them.

        Args:
            interval: the pause, in seconds.
            after: called after every pass with its result, or with None if it failed.
        """
        while not self._stop.is_set():
            result: Result | None = None
            try:
                result = self.sweep(patient=False, stopped=self._stop.is_set)
            except Exception:  # whatever it is, the next pass may go well
                log.exception("a pass over the log %s failed; trying again", self.path)
            if after is not None:
                after(result)
            self._stop.wait(interval)

    def stop(self) -> None:
        """End `run` for good, and a pass that is being made; the saga in hand is finished."""
        self._stops += 1
        self._stop.set()

    def _forget_all_but(self, found: Survey) -> None:
        self._again = {saga: one for saga, one in self._again.items() if saga in found.sagas}
        self._dead_since = {
            key: since for key, since in self._dead_since.items() if key[0] in found.sagas
        }

    def _recovered(self, found: Found, *, patient: bool) -> Recovered | None:
        name = found.view.name
        try:
            if recoverable(found) or unsettled(found):
                return self._tried(found, patient=patient)
            if is_case(found) and not self._owner_lives(found):
                found = self._proofs.proved(self.path, found)
                if is_case(found):
                    return Recovered(found.id, name, NEEDS_HUMAN, case_of(found))
        except AgentSagaError as error:
            return Recovered(found.id, name, FAILED, error.message)
        except Exception as error:
            log.exception("saga %s could not be recovered", found.id)
            return Recovered(found.id, name, FAILED, f"{type(error).__name__}: {error}")
        return None

    def _owner_lives(self, found: Found) -> bool:
        return found.view.state in OWNED and self._owner_dead_since(found) is None

    def _tried(self, found: Found, *, patient: bool) -> Recovered:
        name = found.view.name
        since = self._owner_dead_since(found)
        if since is None:
            return self._living(found)
        found = self._proofs.proved(self.path, found)
        left_alone = self._left_alone(found)
        if left_alone is not None:
            return left_alone
        place = self._place()
        now = place.engine.clock.monotonic()
        again = self._again.get(found.id) or self._begun_before(found, now)
        if not patient and again.not_before > now:
            return again.last or Recovered(found.id, name, WAITING, "it is tried again later")
        left = since + longest_arrival(found, place.engine.timing.settle_after) - now
        if not patient and left > 0 and may_still_arrive(found):
            return Recovered(found.id, name, WAITING, f"a call may arrive for another {left:.0f} s")
        done = recover_one(place, found, by=self._by, dead_since=since)
        again.took(done, place.engine.clock.monotonic())
        if found.view.held_for is not None and done.outcome != ELSEWHERE:
            forget(place.store, found.id)
        return done

    def _living(self, found: Found) -> Recovered:
        """Say what becomes of a saga whose owner lives; give up what this process left behind."""
        if gave_up(self._place(), found):
            return Recovered(found.id, found.view.name, FAILED, LEFT_BEHIND)
        return Recovered(found.id, found.view.name, LIVE, "its process lives")

    def _left_alone(self, found: Found) -> Recovered | None:
        """Say why nothing is tried at a saga whose owner is dead; None if something is."""
        name = found.view.name
        if found.problems:
            return Recovered(found.id, name, NEEDS_HUMAN, case_of(found))
        place = self._place()
        hold = held(place.store, found.view)
        if hold is not None and not (hold.over or self._undo_held):
            return Recovered(found.id, name, HELD, hold_text(hold))
        missing = {} if self.leave_missing else missing_inverses(place.engine, found)
        if missing:
            self._missing[found.id] = set(missing)
            return Recovered(found.id, name, WAITING, missing_text(missing))
        return None

    def _begun_before(self, found: Found, now: float) -> _Again:
        """Begin to count the tries at a saga, those of daemons that died over it included."""
        again = self._again[found.id] = _Again()
        tries = takeovers(found)
        if tries:
            again.tries = len(tries)
            wait = pause_after(again.tries) - max(SYSTEM_CLOCK.now_us() - tries[-1], 0) / 1e6
            again.not_before = now + wait
        return again

    def _owner_dead_since(self, found: Found) -> float | None:
        """Return since when the owner is known not to act any more; None while it does."""
        key = (found.id, found.effective.owner, found.effective.epoch)
        known = self._dead_since.get(key)
        if known is not None:
            return known
        if found.view.state in OWNED:
            dead = dead_writer(self.path, found.effective.owner)
            if dead is None:
                return None
            dead.close()
        return self._dead_since.setdefault(key, self._place().engine.clock.monotonic())

    def _tell(self, result: Result) -> None:
        for one in result.needs_human:
            if one.saga not in self._known:
                log.error("saga %s needs a human: %s", one.saga, one.reason)
                self._notify(one)
        self._known = {one.saga for one in result.needs_human}

    def _tell_missing(self, result: Result, known: Mapping[str, set[str]]) -> None:
        for one in result.sagas:
            if self._missing.get(one.saga, set()) - known.get(one.saga, set()):
                log.error("saga %s waits: %s", one.saga, one.reason)

    def _notify(self, one: Recovered) -> None:
        for tell in self._told:
            try:
                tell(one)
            except Exception:
                log.exception("a notifier failed on saga %s", one.saga)


def _in_order(found: Survey) -> list[Found]:
    """What needs no waiting first, then the rest; otherwise oldest first."""
    return sorted(found.sagas.values(), key=lambda saga: (may_still_arrive(saga), saga.view.began))
