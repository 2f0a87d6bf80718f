"""A small saga is cancelled, closed or interrupted at every place where that can happen."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from faults.small_saga import FULL, QuickPort, SmallSaga, judged

pytestmark = pytest.mark.timeout(600)
EVERY = pytest.mark.parametrize("fails", [True, False], ids=["unwinding", "committing"])


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that tells when it was suspended, and how often before.

    Args:
        coroutine: the real one.
        suspended: called with the number of the suspension, counted from 1.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], suspended: Callable[[int], None]
    ) -> None:
        self._coroutine = coroutine
        self._suspended = suspended
        self.count = 0

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._step(lambda: self._coroutine.throw(*error))

    def _step(self, step: Callable[[], Any]) -> Any:
        waited_for = step()
        self.count += 1
        self._suspended(self.count)
        return waited_for

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


def _cancelled(saga: SmallSaga, cuts: Callable[[int], bool], *, everybody: bool) -> int:
    """Run a saga and cancel it at some suspensions; return how many there were."""

    async def main() -> int:
        def suspended(number: int) -> None:
            if cuts(number):
                loop.call_soon(cancel)

        def cancel() -> None:
            for one in asyncio.all_tasks() if everybody else [task]:
                if one is not asyncio.current_task() and one is not outer:
                    one.cancel()

        loop = asyncio.get_running_loop()
        outer = asyncio.current_task()
        stepped = Stepped(saga.body_async(), suspended)
        task = loop.create_task(stepped)
        await asyncio.wait({task})
        saga.error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return stepped.count

    with asyncio.Runner() as runner:
        return runner.run(main())


CUTS = {
    "once": (lambda at: lambda number: number == at, False),
    "twice": (lambda at: lambda number: number in (at, at + 1), False),
    "again and again": (lambda at: lambda number: number >= at, False),
    "with everything": (lambda at: lambda number: number == at, True),
}


@pytest.mark.property
@EVERY
@pytest.mark.parametrize("how", CUTS)
def test_a_cancellation_at_every_suspension(tmp_path, how, fails):
    cuts, everybody = CUTS[how]
    at, seen = 1, 1
    while seen >= at:
        saga = SmallSaga(tmp_path / f"{at}", QuickPort(), fails=fails)
        seen = _cancelled(saga, cuts(at), everybody=everybody)
        saga.close()
        judged(saga, f"cancelled {how} at suspension {at}")
        if isinstance(saga.error, asyncio.CancelledError):
            assert saga.report is not None
        at += 1
    assert at > 5


@pytest.mark.property
@EVERY
def test_a_coroutine_that_is_closed_at_every_suspension(tmp_path, fails):
    """As at the end of a program that drops it: nothing can be awaited any more."""
    at, closed = 1, True
    while closed:
        saga = SmallSaga(tmp_path / f"{at}", QuickPort(), fails=fails)
        closed = _closed(saga, at)
        saga.error = saga.error or GeneratorExit()
        saga.close()
        judged(saga, f"closed at suspension {at}")
        at += 1
    assert at > 5


def _closed(saga: SmallSaga, at: int) -> bool:
    async def main() -> bool:
        reached = asyncio.Event()
        coroutine = saga.body_async()
        stepped = Stepped(coroutine, lambda number: reached.set() if number == at else None)
        task = asyncio.get_running_loop().create_task(stepped)
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            saga.error = task.exception()
            return False
        coroutine.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, RuntimeError):
            await task
        return True

    with asyncio.Runner() as runner:
        return runner.run(main())


class InterruptingPort(QuickPort):
    """Ctrl-C at some calls of the main thread, counted from 1."""

    def __init__(self, cuts: Callable[[int], bool]) -> None:
        self.cuts = cuts
        self.count = 0

    def _called(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.count += 1
            if self.cuts(self.count):
                signal.raise_signal(signal.SIGINT)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._called()
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._called()
        return super().pwrite(fd, data, offset)

    def stat(self, path: str) -> Any:
        self._called()
        return super().stat(path)

    def fsync(self, fd: int) -> None:
        self._called()
        super().fsync(fd)


@pytest.fixture
def own_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.property
@pytest.mark.usefixtures("own_interrupts")
@EVERY
@pytest.mark.parametrize("times", [1, 2, 3] if FULL else [1, 2])
def test_an_interrupt_at_every_call_of_the_log(tmp_path, times, fails):
    at, seen = 1, 1
    while seen >= at:
        port = InterruptingPort(lambda number, at=at: at <= number < at + times)
        saga = SmallSaga(tmp_path / f"{at}", port, fails=fails)
        saga.run(is_async=False)
        seen = port.count
        port.cuts = lambda number: False
        saga.close()
        judged(saga, f"{times} interrupts at call {at}")
        at += 1
    assert at > 10


@pytest.mark.property
@pytest.mark.usefixtures("own_interrupts")
@EVERY
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_an_interrupt_in_every_tool_and_inverse(tmp_path, is_async, fails):
    for at in range(1, 7 if fails else 4):
        saga = SmallSaga(tmp_path / f"{at}", QuickPort(), fails=fails)

        def interrupt(event, at=at, saga=saga) -> None:
            if len(saga.world.events) == at:
                signal.raise_signal(signal.SIGINT)

        saga.world.on_event = interrupt
        saga.run(is_async=is_async)
        saga.close()
        judged(saga, f"an interrupt at event {at}")


@pytest.mark.property
@EVERY
def test_a_takeover_at_every_call_of_the_log(tmp_path, fails):
    """From the moment at which another process took everything over, nothing more is done."""
    at, seen = 1, 1
    while seen >= at:
        after: list[int] = []
        port = InterruptingPort(lambda number: False)
        saga = SmallSaga(tmp_path / f"{at}", port, fails=fails)

        def take_over(number, at=at, saga=saga, port=port, after=after) -> bool:
            lives = saga.report is None and list(saga.path.glob("writers/*/lock"))
            if number == at and lives:
                port.cuts = lambda number: False
                saga.wal.fence("*")
                after.append(len(saga.world.events))
            return False

        port.cuts = take_over
        saga.run(is_async=False)
        seen = max(port.count, at) if after else port.count
        saga.close()
        judged(saga, f"taken over at call {at}")
        if after:
            assert len(saga.world.events) == after[0], f"taken over at call {at}"
            assert saga.error is not None
        at += 1
    assert at > 10
