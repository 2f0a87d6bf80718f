"""Telling notifiers of new cases: after they are in the log, each once, and nobody can be stopped.

Rules of this part:

- Who was told of which case is kept in the state store, after the notifier has returned: a process
  that dies in between, and two daemons at once, tell a case twice; nobody misses it.
- A case that changes (another state, other steps that may stand) is a new one. What is no case any
  more is forgotten.
- A saga that nobody takes over, since nobody can tell whether its process lives, is told of too.
- A notifier runs on a thread of the pool and for a bounded time. One that raises is called again
  later and later; one that does not end is not called again by this process. A store that cannot be
  used, and whatever else goes wrong here, stops neither the pass nor the other notifiers.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from agent_saga.domain.commands import queue_command
from agent_saga.domain.identity import joined
from agent_saga.engine.requests import Ending
from agent_saga.observe.logger import logger
from agent_saga.plugins.notifiers import Case, Notifier
from agent_saga.recovery.cases import case_of
from agent_saga.recovery.claim import Place
from agent_saga.recovery.pauses import pause_after
from agent_saga.recovery.queue import cases_in, untold_in
from agent_saga.recovery.survey import Found
from agent_saga.state.base import one
from agent_saga.state.document import Doc

PREFIX: Final = "notice/"
_LONGEST: Final = 30.0

log = logger("agent_saga.recovery")


class Notices:
    """Tells the notifiers of one daemon.

    Args:
        place: where recovery works.
        notifiers: by name; asked for at every pass.
        longest: how many seconds one call may take.
    """

    def __init__(
        self,
        place: Callable[[], Place],
        notifiers: Callable[[], Mapping[str, Notifier]],
        *,
        longest: float = _LONGEST,
    ) -> None:
        self._place = place
        self._notifiers = notifiers
        self._longest = longest
        self._hanging: set[str] = set()
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._done: frozenset[object] | None = None

    def tell(self, path: str, seen: Iterable[object]) -> None:
        """Tell of the cases of a log that were not told; never raises.

        Args:
            path: the log's directory.
            seen: what the pass saw that needs a human; while it stays the same, and everything was
                told, the log is not read again.
        """
        now = frozenset(seen)
        if now == self._done or not (now or self._done is not None):
            return
        try:
            notifiers = self._notifiers()
            if not notifiers or self._told(path, notifiers):
                self._done = now
        except Exception:
            log.exception("the notifiers could not be told of the cases of %s", path)

    def _told(self, path: str, notifiers: Mapping[str, Notifier]) -> bool:
        """Tell every notifier of every case; return whether all of them know of all."""
        place = self._place()
        found = {saga.id: (saga, error.message) for saga, error in untold_in(path)}
        found |= {case.id: (case, case_of(case)) for case in cases_in(path, place.proofs)}
        store = place.store
        known = dict(store.scan(PREFIX))
        for key in known.keys() - {f"{PREFIX}{saga}" for saga in found}:
            store.transact([key], one(key, lambda _: (None, None)), durable=False)
        whole = True
        for case, reason in found.values():
            told = _told_of(known.get(f"{PREFIX}{case.id}"), case)
            for name in notifiers.keys() - told:
                done = self._call(name, notifiers[name], _case(path, case, reason))
                whole = whole and done
                if done:
                    self._note(case, name)
        return whole

    def _call(self, name: str, notifier: Notifier, case: Case) -> bool:
        now = self._place().engine.clock.monotonic()
        if name in self._hanging or now < self._not_before.get(name, 0.0):
            return False
        error = self._bounded(name, notifier, case)
        if error is None:
            self._failures.pop(name, None)
            return True
        tries = self._failures[name] = self._failures.get(name, 0) + 1
        self._not_before[name] = now + pause_after(tries)
        log.error("the notifier %r failed on saga %s: %r", name, case.saga, error)
        return False

    def _bounded(self, name: str, notifier: Notifier, case: Case) -> BaseException | None:
        ended = threading.Event()
        endings: list[Ending] = []

        def finish(ending: Ending) -> None:
            endings.append(ending)
            ended.set()

        job = self._place().engine.pool.submit(lambda: _made(notifier, case), finish)
        if ended.wait(self._longest):
            return endings[0].error
        given_up = job.give_up(None)
        if given_up is None:
            self._hanging.add(name)
            return TimeoutError(f"it did not end within {self._longest:g} s")
        return given_up.error if given_up.started else TimeoutError("no thread was free for it")

    def _note(self, case: Found, name: str) -> None:
        key, mark = f"{PREFIX}{case.id}", _mark(case)

        def noted(doc: Doc | None) -> tuple[Doc | None, None]:
            told = _told_of(doc, case) | {name}
            return {"case": mark, "told": sorted(told)}, None

        self._place().store.transact([key], one(key, noted), durable=True)


def _made(notifier: Notifier, case: Case) -> Ending:
    try:
        answer = notifier(case)
    except BaseException as error:
        return Ending(error=error)
    return Ending(error=_unawaited(answer))


def _unawaited(answer: object) -> BaseException | None:
    """Return what is wrong with an answer that somebody would have to await: nobody was told."""
    if not inspect.isawaitable(answer):
        return None
    if inspect.iscoroutine(answer):
        answer.close()
    return TypeError("it returned something to be awaited, and told nobody; give a plain function")


def _told_of(doc: Doc | None, case: Found) -> frozenset[str]:
    """Return the names of those who were told of a case as it is now."""
    told = doc.get("told") if doc is not None and doc.get("case") == _mark(case) else None
    return frozenset(map(str, told)) if isinstance(told, list) else frozenset()


def _mark(case: Found) -> str:
    """Return what tells one case of a saga from another."""
    standing = [f"{step.id}/{step.generation}/{step.state.value}" for step in case.view.standing]
    parts = (case.view.state.value, *sorted(standing), *case.problems)
    return sha256(joined(parts)).hexdigest()[:32]


def _case(path: str, found: Found, reason: str) -> Case:
    view = found.view
    command = queue_command(found.id, path)
    return Case(found.id, view.name, view.state.value, reason, view.began, view.last, path, command)
