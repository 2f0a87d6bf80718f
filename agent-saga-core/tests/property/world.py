"""The world that random sagas act on: it counts what really happened, in the order of time.

The tools tell the world themselves; nothing here reads the log. An event carries how far the log
was appended and how far it was durable then, so that a judge can compare the two afterwards.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple

from property.programs import LATE, NOW, Mode, Plan
from property.virtual import VirtualClock, VirtualLoop

from agent_saga.domain.outcomes import Applied, CannotTell, Observation
from agent_saga.errors import NotApplied
from agent_saga.wal.base import BaseWAL

LONG_REAL = 0.04
LONG_VIRTUAL = 5.0

Pauses = Generator[str, None, Any]


class Event(NamedTuple):
    """Something that happened in the world.

    `call` numbers the call that it belongs to; `effect` the effect. `appended` and `durable` are
    the log's sequence numbers then, `asked` what was appended when the program made the call.
    """

    tick: int
    what: str
    label: int
    key: str
    call: int
    effect: int
    error: str
    appended: int
    durable: int
    asked: int


ASKED: ContextVar[int] = ContextVar("asked", default=0)


class World:
    """Effects, in memory, counted."""

    def __init__(self, wal: BaseWAL, clock: VirtualClock, plans: dict[int, Plan]) -> None:
        self.wal = wal
        self.clock = clock
        self.plans = plans
        self.events: list[Event] = []
        self.running = 0
        self.on_event: Callable[[Event], None] = lambda event: None
        self._numbers = itertools.count(1).__next__
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._taken: dict[tuple[str, int], int] = {}
        self._applied: dict[str, int] = {}
        self._undone: dict[str, int] = {}
        self._spent: set[str] = set()
        self._gone: set[int] = set()
        self._effects: dict[int, list[int]] = {}
        self._mixed: set[int] = set()

    def note(
        self, what: str, label: int, key: str, *, call: int = 0, effect: int = 0, error: str = ""
    ) -> Event:
        """Write an event down."""
        with self._lock:
            event = Event(
                len(self.events) + 1, what, label, key, call, effect, error,
                self.wal.seq, self.wal.synced, ASKED.get(),
            )  # fmt: skip
            self.events.append(event)
        if what in ("call", "applied", "undo-call", "undone", "probe"):
            self.on_event(event)
        return event

    def _mode(self, kind: str, label: int) -> Mode:
        modes: list[Mode] = getattr(self.plans[label], kind)
        with self._lock:
            at = self._taken.get((kind, label), 0)
            self._taken[kind, label] = at + 1
        return modes[at] if at < len(modes) else Mode()

    # --- calls -----------------------------------------------------------------------------------

    def forward(self, kind: str, label: int, key: str) -> Pauses:
        """Run a forward call; `kind` is forward or fallback."""
        mode = self._mode(kind, label)
        call = self._numbers()
        idempotent = self.plans[label].spec.idempotent

        def apply() -> int:
            return self._apply(label, key, call, idempotent=idempotent)

        effect = yield from self._called("call", mode, label, key, call, apply)
        return {"label": label, "effect": effect}

    def undo(self, label: int, effect: int, key: str, *, idempotent: bool) -> Pauses:
        """Run an inverse; `effect` is 0 when it is not known."""
        mode = self._mode("undo", label)
        call = self._numbers()

        def apply() -> int:
            return self._undo(label, effect, key, call, idempotent=idempotent)

        yield from self._called("undo-call", mode, label, key, call, apply)
        return None

    def _called(
        self, what: str, mode: Mode, label: int, key: str, call: int, apply: Callable[[], int]
    ) -> Pauses:
        with self._lock:
            self.running += 1
        error: BaseException | None = None
        try:
            self.note(what, label, key, call=call)
            yield mode.before
            effect = 0
            if mode.effect == NOW:
                effect = apply()
            elif mode.effect == LATE:
                self.clock.later(mode.delay, lambda: _quietly(apply))
            yield mode.after
            if mode.error is not None:
                raise mode.error("as planned")
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.note(f"{what}-end", label, key, call=call, error=type(error).__name__)
            with self._lock:
                self.running -= 1
                self._idle.notify_all()
        return effect

    def _apply(self, label: int, key: str, call: int, *, idempotent: bool) -> int:
        with self._lock:
            if key in self._spent:
                raise NotApplied("the key was spent")
            if idempotent and key in self._applied:
                return self._applied[key]
            effect = self._numbers()
            self._applied[key] = effect
            self._effects.setdefault(label, []).append(effect)
            self.note("applied", label, key, call=call, effect=effect)
            return effect

    def _undo(self, label: int, effect: int, key: str, call: int, *, idempotent: bool) -> int:
        with self._lock:
            if idempotent and key in self._undone:
                return self._undone[key]
            effect = effect or self._meant(label)
            self._undone[key] = effect
            self._gone.add(effect)
            self.note("undone", label, key, call=call, effect=effect)
            return effect

    def _meant(self, label: int) -> int:
        """The effect that an inverse means which was only given the arguments; 0 when unclear."""
        left = [effect for effect in self._effects.get(label, ()) if effect not in self._gone]
        if len(left) == 1:
            return left[0]
        self._mixed.add(label)
        return 0

    # --- observers -------------------------------------------------------------------------------

    def probe(self, kind: str, label: int, key: str) -> object:
        """Answer as a prober; what it says is true at this moment."""
        self.note("probe", label, key)
        if kind == "raises":
            raise RuntimeError("the prober failed")
        if kind == "cannot":
            return CannotTell("no such interface")
        if kind == "nonsense":
            return {"applied": False}
        with self._lock:
            if key in self._applied:
                return Applied({"label": label, "effect": self._applied[key]})
            if kind == "final":
                self._spent.add(key)
                return NotApplied("its key was spent", final=True)
            return NotApplied("not there")

    def observe(self, kind: str, label: int, effect: int) -> object:
        """Answer as a reconciler; what it says is true at this moment."""
        if kind == "raises":
            raise RuntimeError("the reconciler failed")
        with self._lock:
            if kind == "cannot" or not effect or label in self._mixed:
                return Observation()
            return Observation(effect in self._gone)

    # --- the end ---------------------------------------------------------------------------------

    def let_all_end(self) -> None:
        """Wait for calls that still run, and let everything arrive that is on its way."""
        with self._lock:
            assert self._idle.wait_for(lambda: not self.running, 30.0), "a call never ended"
        self.clock.let_all_arrive()


def _quietly(apply: Callable[[], int]) -> None:
    try:
        apply()
    except NotApplied:
        return


def run_pauses(pauses: Pauses) -> Any:
    """Run a call of the world on this thread."""
    try:
        while True:
            pause = next(pauses)
            if pause:
                threading.Event().wait(LONG_REAL if pause == "long" else 0.001)
    except StopIteration as end:
        return end.value


async def await_pauses(pauses: Pauses, *, stubborn: bool = False) -> Any:
    """Run a call of the world on the event loop; a stubborn one ignores one cancellation."""
    try:
        pause = next(pauses)
        while True:
            try:
                if pause:
                    await _pause(long=pause == "long")
            except asyncio.CancelledError as error:
                if not stubborn:
                    pauses.throw(error)
                stubborn = False
            except BaseException as error:
                pauses.throw(error)
                raise
            pause = next(pauses)
    except StopIteration as end:
        return end.value


async def _pause(*, long: bool) -> None:
    virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    if not long:
        await asyncio.sleep(0)
    else:
        await asyncio.sleep(LONG_VIRTUAL if virtual else LONG_REAL)
