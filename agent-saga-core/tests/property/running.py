"""Running a random program on the real engine, asynchronously or synchronously."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from property.programs import (
    SETTLE_AFTER,
    Abort,
    Background,
    CallOp,
    Fail,
    Parallel,
    Pause,
    Program,
    Savepoint,
    Within,
)
from property.toolbox import Humans, tool_for, use
from property.virtual import SleepAsAdvance, VirtualClock, VirtualLoop
from property.world import ASKED, Event, World

from agent_saga import AgentKit, FileWAL, MemoryWAL, PreFlightGate, SagaAborted, Settings
from agent_saga.domain.fold import fold
from agent_saga.domain.report import RollbackReport
from agent_saga.domain.views import SagaView
from agent_saga.engine import drive_sync
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.format import Record


class ThreadedMemoryWAL(MemoryWAL):
    """A log in memory that syncs on its own thread, as one on a disk does."""

    syncs_inline = False


class Run:
    """One run of a program, and everything that was seen of it.

    Attributes:
        world: what really happened.
        error: what left the boundary, or None.
        report: the boundary's report.
        exit_view: what a reader saw when the boundary had just been left.
        quiet: nothing was running or under way at that moment.
        savepoints: reports of savepoints that failed, each with the world's tick then.
        records: the whole log in the end.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.clock = VirtualClock()
        self.folder = tempfile.TemporaryDirectory() if program.wal == "file" else None
        self.wal = self._log()
        self.world = World(self.wal, self.clock, program.plans)
        settings = Settings(
            settle=program.settle,
            settle_after=SETTLE_AFTER,
            inverse_timeout=60.0,
            inverse_delay=0.0,
            cancel_grace=0.01,
            after_stuck=program.after_stuck,
            settle_unknown=program.settle_unknown,
        )
        gate = PreFlightGate(approval_provider=Humans())
        self.kit = AgentKit("random", gate=gate, wal=self.wal, settings=settings)
        self.kit.runtime.engine().clock = self.clock
        self.scope: Any = None
        self.saga = ""
        self.error: BaseException | None = None
        self.report: RollbackReport | None = None
        self.exit_view: SagaView | None = None
        self.exit_clean = False
        self.quiet = True
        self.savepoints: list[tuple[RollbackReport, int]] = []
        self.records: list[Record] = []
        self.active = 0
        self.counting = threading.Lock()
        self.fenced = 0
        self.counted = 0
        self.cut: Callable[[], None] = lambda: None
        self.later: list[asyncio.Future[Any]] = []
        self.threads: list[threading.Thread] = []
        self.world.on_event = self._on_event
        self.clock.busy = self._busy
        use(self.world)

    def _busy(self) -> bool:
        """Whether a thread works that the event loop may be waiting for."""
        pool = self.kit.runtime.engine().pool.stats()
        return bool(pool["busy"] or pool["queued"] or self.active or self.wal._waiters)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with self.counting:
            self.active += 1
        try:
            yield
        finally:
            with self.counting:
                self.active -= 1

    def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do something on a thread of its own, which the clock then waits for."""
        with self._working():
            return work(*arguments)

    def _log(self) -> BaseWAL:
        if self.folder is not None:
            return FileWAL(Path(self.folder.name, "log"))
        return MemoryWAL() if self.program.wal == "memory" else ThreadedMemoryWAL()

    def _on_event(self, event: Event) -> None:
        self.counted += 1
        if self.counted == self.program.fence:
            self.fenced = event.tick
            self.wal.fence(self.saga, 2)
        if self.counted in self.program.cuts:
            self.cut()

    def left(self, scope: Any) -> None:
        """Look at everything as soon as the boundary has been left."""
        self.report = scope.report
        quiet = not (self.world.running or self.later or self.threads or self._told_running())
        with contextlib.suppress(Exception):
            self.exit_view = fold(self.wal.read_all()).get(self.saga)
        self.exit_clean = self.report is not None and self.report.clean
        self.quiet = quiet

    def _told_running(self) -> bool:
        """Whether a call was under way when the report was made; it may have ended since."""
        lines = () if self.report is None else self.report.standing
        return any("still running" in line.detail for line in lines)

    def end(self) -> None:
        """Let everything end, read the log and give everything back."""
        for thread in self.threads:
            thread.join()
        self.world.let_all_end()
        self.records = list(self.wal.read_all())
        self.wal.close()
        if self.folder is not None:
            self.folder.cleanup()


def run(program: Program, *, is_async: bool) -> Run:
    """Run a program to its end."""
    this = Run(program)
    before, drive_sync.time = drive_sync.time, SleepAsAdvance(this.clock)
    try:
        with _without_bystanders():
            (_run_async if is_async else _run_sync)(this)
        this.end()
    finally:
        drive_sync.time = before
    return this


@contextlib.contextmanager
def _without_bystanders() -> Iterator[None]:
    """Run as a program does whose interrupts Python itself handles."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- asynchronous --------------------------------------------------------------------------------


def _run_async(this: Run) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(this.clock)) as runner:
        # The runner's own handler would turn an interrupt into a cancellation.
        loop = runner.get_loop()
        try:
            loop.run_until_complete(_main(this))
        except (SystemExit, KeyboardInterrupt) as error:
            this.error = this.error or error
        loop.run_until_complete(_rest(this))


async def _main(this: Run) -> None:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    inside = True

    def cut() -> None:
        if inside:
            loop.call_soon_threadsafe(task.cancel)

    this.cut = cut
    _count_turns(this, loop, lambda: inside and task.cancel())
    scope = this.kit.transaction("random")
    try:
        async with scope as saga:
            this.saga, this.scope = saga.id, saga
            await _ops_async(this, this.program.ops)
    except BaseException as error:
        this.error = error
    inside = False
    while task.cancelling():
        task.uncancel()
    this.left(scope)


def _count_turns(this: Run, loop: asyncio.AbstractEventLoop, cut: Callable[[], object]) -> None:
    turns = set(this.program.turns)
    if not turns:
        return

    def turn(number: int) -> None:
        if number in turns:
            cut()
        if number < max(turns):
            loop.call_soon(turn, number + 1)

    loop.call_soon(turn, 1)


async def _rest(this: Run) -> None:
    await asyncio.gather(*this.later, return_exceptions=True)


async def _ops_async(this: Run, ops: tuple[object, ...]) -> None:
    for op in ops:
        await _ASYNC[type(op)](this, op)


async def _call_async(this: Run, op: CallOp) -> None:
    with _catching(op.caught):
        await _prepared_call(this, op)


async def _fail_async(this: Run, op: Fail) -> None:
    raise op.error("as planned")


async def _abort_async(this: Run, op: Abort) -> None:
    with _catching(op.caught):
        this.scope.abort("as planned")


async def _pause_async(this: Run, op: Pause) -> None:
    await asyncio.sleep(1.0 if op.long else 0)


async def _savepoint_async(this: Run, op: Savepoint) -> None:
    scope = this.kit.transaction("part")
    with _savepoint_failures(this, op):
        async with scope:
            await _ops_async(this, op.ops)


async def _within_async(this: Run, op: Within) -> None:
    with _catching(op.caught):
        async with asyncio.timeout(op.seconds):
            await _ops_async(this, op.ops)


async def _background_async(this: Run, op: Background) -> None:
    this.later.append(asyncio.ensure_future(_call_async(this, op.call)))


async def _parallel_async(this: Run, op: Parallel) -> None:
    with _catching(op.caught):
        if op.how == "group":
            async with asyncio.TaskGroup() as group:
                for branch in op.branches:
                    group.create_task(_ops_async(this, branch))
            return
        if op.how == "threads":
            work = [
                asyncio.to_thread(this.in_thread, _ops_sync, this, branch) for branch in op.branches
            ]
        else:
            work = [_ops_async(this, branch) for branch in op.branches]
        tasks = [asyncio.ensure_future(each) for each in work]
        this.later += tasks
        await asyncio.gather(*tasks, return_exceptions=op.how == "all")


def _to_thread(this: Run, ops: tuple[object, ...]) -> Any:
    return asyncio.to_thread(this.in_thread, _ops_sync, this, ops)


# --- synchronous ---------------------------------------------------------------------------------


def _run_sync(this: Run) -> None:
    this.cut = _interrupt
    scope = this.kit.transaction("random")
    try:
        with scope as saga:
            this.saga, this.scope = saga.id, saga
            _ops_sync(this, this.program.ops)
    except BaseException as error:
        this.error = error
    this.cut = lambda: None
    this.left(scope)


def _interrupt() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGINT)


def _ops_sync(this: Run, ops: tuple[object, ...]) -> None:
    for op in ops:
        _SYNC[type(op)](this, op)


def _call_sync(this: Run, op: CallOp) -> None:
    with _catching(op.caught):
        _prepared_call(this, op)


def _fail_sync(this: Run, op: Fail) -> None:
    raise op.error("as planned")


def _abort_sync(this: Run, op: Abort) -> None:
    with _catching(op.caught):
        this.scope.abort("as planned")


def _pause_sync(this: Run, op: Pause) -> None:
    this.clock.advance(1.0 if op.long else 0.0)


def _savepoint_sync(this: Run, op: Savepoint) -> None:
    scope = this.kit.transaction("part")
    with _savepoint_failures(this, op), scope:
        _ops_sync(this, op.ops)


def _within_sync(this: Run, op: Within) -> None:
    with _catching(op.caught):
        _ops_sync(this, op.ops)


def _background_sync(this: Run, op: Background) -> None:
    call = this.scope.bind(_call_quietly)
    thread = threading.Thread(target=this.in_thread, args=(call, this, op.call))
    this.threads.append(thread)
    thread.start()


def _call_quietly(this: Run, op: CallOp) -> None:
    with contextlib.suppress(Exception):
        _prepared_call(this, op)


def _parallel_sync(this: Run, op: Parallel) -> None:
    errors: list[BaseException] = []

    def branch(ops: tuple[object, ...]) -> None:
        try:
            _ops_sync(this, ops)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=_bound(this, branch), args=(b,)) for b in op.branches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with _catching(op.caught):
        if errors and op.how != "all":
            raise errors[0]


def _bound(this: Run, fn: Callable[..., Any]) -> Callable[..., Any]:
    from agent_saga import current_saga

    saga = current_saga()
    assert saga is not None
    return saga.bind(fn)


# --- both ----------------------------------------------------------------------------------------


def _prepared_call(this: Run, op: CallOp) -> Any:
    tool = tool_for(this.program.plans[op.label].spec)
    called = tool.keyed(op.key) if op.key else tool
    ASKED.set(this.wal.seq)
    return called(op.label, 1, 2, 3) if op.bad_arguments else called(op.label)


@contextlib.contextmanager
def _catching(caught: bool) -> Iterator[None]:
    try:
        yield
    except Exception:
        if not caught:
            raise


@contextlib.contextmanager
def _savepoint_failures(this: Run, op: Savepoint) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        report = getattr(error, "report", None) or getattr(error, "saga_report", None)
        if isinstance(report, RollbackReport):
            this.savepoints.append((report, len(this.world.events)))
        if not (op.caught and isinstance(error, SagaAborted)):
            raise


_ASYNC: dict[type, Any] = {
    CallOp: _call_async,
    Fail: _fail_async,
    Abort: _abort_async,
    Pause: _pause_async,
    Savepoint: _savepoint_async,
    Within: _within_async,
    Background: _background_async,
    Parallel: _parallel_async,
}
_SYNC: dict[type, Any] = {
    CallOp: _call_sync,
    Fail: _fail_sync,
    Abort: _abort_sync,
    Pause: _pause_sync,
    Savepoint: _savepoint_sync,
    Within: _within_sync,
    Background: _background_sync,
    Parallel: _parallel_sync,
}
