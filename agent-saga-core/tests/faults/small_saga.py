"""A saga of three steps on a file log, and a world that counts what it does.

The first step is asynchronous, the second synchronous, the third is made in a savepoint. Every tool
and inverse writes down how far the log was durable when it ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings

from agent_saga import AgentKit, FileWAL, SagaTool, Settings, tool
from agent_saga.domain.fold import fold
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.report import RollbackReport
from agent_saga.domain.views import SagaView
from agent_saga.errors import WALError
from agent_saga.wal.damage import Damage
from agent_saga.wal.format import Record
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import records, scan_log

FULL = settings.default.max_examples > 1000
"""Whether everything is tried, as with the profiles `deep` and `full`."""

WAYS = [(True, True), (False, False), *([(True, False), (False, True)] if FULL else [])]
WAY_NAMES = [
    f"{'unwinding' if fails else 'committing'}-{'async' if is_async else 'sync'}"
    for fails, is_async in WAYS
]
STEPS = (1, 2, 3)
ALL = frozenset(STEPS)
SETTINGS = Settings(
    settle=0.2,
    settle_after=0.05,
    inverse_timeout=5.0,
    inverse_delay=0.0,
    cancel_grace=0.1,
)


class QuickPort(OsPort):
    """System calls without waits for a disk: no test here cuts its power."""

    def fsync(self, fd: int) -> None:
        os.fstat(fd)

    fdatasync = fsync


class ProgramError(Exception):
    """The program fails after its three steps."""


class Happened(NamedTuple):
    """Something that a tool did; `durable` is how far the log was durable then."""

    what: str
    step: int
    durable: int


class World:
    """What the tools did."""

    def __init__(self, wal: FileWAL) -> None:
        self.wal = wal
        self.events: list[Happened] = []
        self.on_event: Callable[[Happened], None] = lambda event: None

    def note(self, what: str, step: int) -> None:
        event = Happened(what, step, self.wal.synced)
        self.events.append(event)
        self.on_event(event)

    def counted(self, what: str) -> Counter[int]:
        return Counter(event.step for event in self.events if event.what == what)

    @property
    def standing(self) -> frozenset[int]:
        """The steps whose effect stands."""
        return frozenset(self.counted("applied") - self.counted("undone"))


_world: list[World] = []


def use(world: World) -> None:
    """Let the tools act on this world."""
    _world[:] = [world]


@tool("COMPENSABLE", name="pay_async", loop_free=True)
async def pay_async(step: int) -> dict[str, int]:
    _world[0].note("applied", step)
    await asyncio.sleep(0)
    return {"step": step}


@pay_async.undo
async def _refund_async(result: Any) -> None:
    _world[0].note("undone", result["step"])
    await asyncio.sleep(0)


@tool("COMPENSABLE", name="pay_sync")
def pay_sync(step: int) -> dict[str, int]:
    _world[0].note("applied", step)
    return {"step": step}


@pay_sync.undo
def _refund_sync(result: Any) -> None:
    _world[0].note("undone", result["step"])


PAY: tuple[SagaTool[Any, Any], ...] = (pay_async, pay_sync, pay_sync)


class SmallSaga:
    """One run of the saga on a log.

    Args:
        path: the log.
        port: its system calls, or the log itself.
        fails: whether the program fails in the end.
        stall_after: seconds after which a disk that does not answer is an error.
    """

    def __init__(
        self, path: Path, port: OsPort | FileWAL, *, fails: bool, stall_after: float = 2.0
    ) -> None:
        self.path = path
        self.fails = fails
        if isinstance(port, FileWAL):
            self.wal = port
        else:
            self.wal = FileWAL(path, port, stall_after=stall_after, mark_after=0.01)
        self.world = World(self.wal)
        self.kit = AgentKit("small", wal=self.wal, settings=SETTINGS)
        self.scope = self.kit.transaction("small")
        self.error: BaseException | None = None
        self.records: list[Record] = []
        self.damages: list[Damage] = []
        use(self.world)

    # --- running -------------------------------------------------------------------------------

    def run(self, *, is_async: bool) -> SmallSaga:
        """Run the saga; whatever it raises is kept."""
        try:
            if is_async:
                asyncio.run(self.body_async())
            else:
                self.body()
        except BaseException as error:
            self.error = error
        return self

    async def body_async(self) -> None:
        async with self.scope:
            await pay_async(1)
            await pay_sync(2)
            async with self.kit.transaction("part"):
                await pay_sync(3)
            if self.fails:
                raise ProgramError

    def body(self) -> None:
        with self.scope:
            pay_async(1)
            pay_sync(2)
            with self.kit.transaction("part"):
                pay_sync(3)
            if self.fails:
                raise ProgramError

    def close(self) -> None:
        """Close the log; one that is broken cannot be closed well."""
        with contextlib.suppress(WALError, OSError):
            self.wal.close(1.0)

    # --- judging -------------------------------------------------------------------------------

    @property
    def report(self) -> RollbackReport | None:
        """The report of the boundary."""
        return self.scope.report

    def view(self) -> SagaView | None:
        """What a reader of the log knows of the saga."""
        found = list(fold(self.records).values())
        assert len(found) <= 1
        return found[0] if found else None

    def read(self, path: Path | None = None) -> None:
        """Read the log with a port of its own."""
        found = list(scan_log(path or self.path))
        self.records = [one for one in found if isinstance(one, Record)]
        self.damages = [one for one in found if isinstance(one, Damage)]

    def judge(self, path: Path | None = None) -> None:
        """Check that nothing happened twice or unannounced, and that nothing false is told."""
        self.read(path)
        unexplained = [damage for damage in self.damages if damage.kind != "torn-tail"]
        assert not unexplained, unexplained
        self.never_twice()
        self.announced_first()
        view = self.view()
        if view is not None:
            assert not view.faults, view.faults
            self.not_falsely_clean(view.clean, view.state is SagaState.COMMITTED)
        report = self.report
        if report is not None:
            self.not_falsely_clean(report.clean, report.outcome == "COMMITTED")
        if self.error is None:
            assert report is not None
            assert report.clean
            assert self.world.standing == ALL
            assert view is not None
            assert view.state is SagaState.COMMITTED
            assert view.clean

    def never_twice(self) -> None:
        for what in ("applied", "undone"):
            assert all(n == 1 for n in self.world.counted(what).values()), self.world.events

    def announced_first(self) -> None:
        """Every effect has an intent that was durable before, every inverse an announcement."""
        steps = {
            record.data["args"]["step"]: record
            for record in self.records
            if record.event == "STEP_INTENT"
        }
        undoing = {r.step: r for r in self.records if r.event == "STEP_COMPENSATING"}
        for event in self.world.events:
            intent = steps.get(event.step)
            assert intent is not None, f"{event} has no intent in the log"
            assert intent.seq <= event.durable, f"{event} before its intent was durable"
            if event.what == "undone":
                announced = undoing.get(intent.step)
                assert announced is not None, f"{event} was not announced"
                assert announced.seq <= event.durable, f"{event} before it was durable"

    def not_falsely_clean(self, clean: bool, committed: bool) -> None:
        if clean:
            wanted = ALL if committed else frozenset()
            assert self.world.standing == wanted, f"clean, and {self.world.standing} stand"


def goes_on(path: Path) -> None:
    """A following saga on the same path works, and the whole log is readable."""
    following = SmallSaga(path, QuickPort(), fails=False).run(is_async=False)
    following.close()
    assert following.error is None, following.error
    assert following.report is not None
    assert following.report.clean
    views = fold(records(path))
    assert views[following.report.saga_id].clean


def judged(saga: SmallSaga, what: str, path: Path | None = None) -> None:
    """Judge a run and what follows on its log; tell everything when it is not well."""
    try:
        saga.judge(path)
        goes_on(path or saga.path)
    except BaseException as error:
        error.add_note(f"{what}: {saga.error!r}; {saga.world.events}")
        error.add_note(saga.report.summary() if saga.report is not None else "no report")
        error.add_note("\n".join(f"{r.seq} {r.event} {r.step[:6]} {r.data}" for r in saga.records))
        raise
