"""The synchronous driver: carries a protocol's requests out on the calling thread.

Rules of this part:

- Synchronous functions run on the calling thread, so that what is bound to a thread keeps working;
  on the pool, with a copied context, when they have a timeout.
- An awaitable runs on a private event loop only if its function is declared `loop_free`. A
  coroutine function is refused before it is called otherwise; an awaitable that a plain function
  returns is dropped, and its ending is unknown, since nobody knows what the function did before.
- While a saga is undone, an asynchronous function that has a timeout runs on a loop of its own on
  the pool too: one that blocks its thread for ever is given up like a synchronous one.
- Interrupts are kept while the engine works (see `interrupts`), and answered as a cut.
- A forked child in which the user's code comes back carries nothing on: what the call raised there
  leaves it, else `SagaForked`. The protocol is the parent's, which goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from agent_saga.controls.control import Use
from agent_saga.engine import calls, interrupts
from agent_saga.engine.requests import (
    Call,
    Durable,
    Ending,
    HandedOver,
    Protocol,
    Sleep,
    StepEnded,
)
from agent_saga.errors import ConfigurationError, WALError
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.engine.interrupts import Interrupts
    from agent_saga.engine.ports import Engine

T = TypeVar("T")


class SyncDriver(Struct, eq=False):
    """Carries out one protocol.

    Attributes:
        engine: the parts to run on.
        shielded: one interrupt does not cut the protocol short; a second one does.
        interrupts: those of this thread while it drives, or None.
        cut: the interrupt that cut the protocol short, or None.
    """

    engine: Engine
    shielded: bool = False
    interrupts: Interrupts | None = None
    cut: BaseException | None = None

    def drive(self, protocol: Protocol[T]) -> T:
        """Run a protocol to its end and return its result.

        Raises:
            SagaForked: this is a forked child, and the protocol is the parent's.
        """
        forks = FORKS.generation
        before = True
        held = self.interrupts = interrupts.here()
        if held is not None:
            before, held.user_code = held.user_code, False
        try:
            request = next(protocol)
            while True:
                if type(request) is Call:
                    answer: Any = self._call(request)
                    if forks != FORKS.generation:
                        raise calls.left_in_child(answer)
                elif forks == FORKS.generation:
                    answer = self._answer(request)
                else:
                    raise calls.left_in_child()
                request = protocol.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            protocol.close()
            if held is not None:
                held.user_code = before

    def _answer(self, request: Any) -> Any:
        kind, wal = type(request), self.engine.wal
        try:
            if kind is Durable:
                wal.wait_durable(request.seq)
            elif kind is HandedOver:
                if request.asked or not wal.hand_over(sync=request.sync):
                    wal.drain()
            elif kind is Sleep:
                self._sleep(request.seconds)
            elif kind is StepEnded:
                self._step_ended(request)
            elif kind is Use:
                return used(request)
        except WALError as error:
            return error
        held = self.interrupts
        return self._cut() if held is not None and held.kept else None

    def _cut(self) -> BaseException | None:
        held = self.interrupts
        if held is None or not self._interrupted():
            return None
        self.cut = held.taken()
        return self.cut

    def _sleep(self, seconds: float) -> None:
        clock = self.engine.clock
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0 and not self._interrupted():
            time.sleep(min(left, 0.1))

    def _interrupted(self) -> bool:
        held = self.interrupts
        return held is not None and len(held.kept) > (1 if self.shielded else 0)

    def _step_ended(self, request: StepEnded) -> None:
        ended = threading.Event()
        step = request.step
        if not step.saga.call_when_settled(step, ended.set):
            return
        end = time.monotonic() + request.timeout
        while not self._interrupted() and not ended.wait(min(0.1, max(end - time.monotonic(), 0))):
            if time.monotonic() >= end:
                return

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, call: Call) -> Ending:
        held = self.interrupts
        if held is not None and held.kept and (cut := self._cut()) is not None:
            return Ending(error=cut, started=False)
        if call.is_async and not call.loop_free:
            return Ending(error=_no_loop(call), started=False)
        if call.timeout is not None and call.pooled and self._may_pool(call):
            return self._pooled(call, call.timeout)
        if held is None or self.shielded:
            ending = calls.make(call)
        else:
            held.user_code = True
            try:
                ending = calls.make(call)
            finally:
                held.user_code = False
        value = ending.value  # None where it raised
        if type(value) not in calls.PLAIN and calls.pending(value):
            return self._private_loop(call, value)
        return ending

    def _may_pool(self, call: Call) -> bool:
        """Say whether a bounded call is made on the pool, where one that hangs can be given up."""
        return self.shielded or not call.is_async

    @contextlib.contextmanager
    def _user_code(self) -> Iterator[None]:
        """Let an interrupt be raised at once in the block, unless it is shielded."""
        held = self.interrupts
        if held is None or self.shielded:
            yield
            return
        held.user_code = True
        try:
            yield
        finally:
            held.user_code = False

    def _private_loop(self, call: Call, value: Any) -> Ending:
        if not call.loop_free or asyncio._get_running_loop() is not None:  # noqa: SLF001 - documented
            calls.discard(value)
            return Ending(error=_no_loop(call), started=not call.is_async)
        with self._user_code():
            return _on_a_loop(call, value)

    def _pooled(self, call: Call, timeout: float) -> Ending:
        done = threading.Event()
        endings: list[Ending] = []

        def finish(ending: Ending) -> None:
            endings.append(ending)
            done.set()

        make = _made_whole if self.shielded else calls.in_its_turn
        job = self.engine.pool.submit(lambda: make(call), finish)
        error = self._waited(call, done, timeout)
        if error is None:
            ending = endings[0]
            ending.apart = True
        else:
            given_up = job.give_up(call.late)
            if given_up is None:
                return Ending(error=error, running=True)
            ending = given_up if given_up.started else Ending(error=error, started=False)
            if error is self.cut and ending.error is not error:
                interrupts.keep(error)
        if ending.error is None and calls.pending(ending.value):
            return self._private_loop(call, ending.value)
        return ending

    def _waited(self, call: Call, done: threading.Event, timeout: float) -> BaseException | None:
        grace = self.engine.timing.cancel_grace if call.is_async else 0.0
        end = time.monotonic() + timeout + grace
        while not done.wait(min(0.1, max(end - time.monotonic(), 0))):
            if self._interrupted():
                return self._cut()
            if time.monotonic() >= end:
                return calls.timed_out(call, timeout)
        return None


def _made_whole(call: Call) -> Ending:
    """Make the call and finish what it returns, all on the current thread; never raises."""
    ending = calls.make(call)
    if ending.error is not None or not calls.pending(ending.value):
        return ending
    if not call.loop_free:
        calls.discard(ending.value)
        return Ending(error=_no_loop(call), started=not call.is_async)
    return _on_a_loop(call, ending.value)


def _on_a_loop(call: Call, value: Any) -> Ending:
    """Finish an awaitable on an event loop of its own; never raises."""
    bound = call.timeout

    @interrupts.user_code
    async def run() -> Any:
        async with asyncio.timeout(bound):
            return await calls.finished(value)

    try:
        with asyncio.Runner() as runner:
            return Ending(runner.run(run()))
    except TimeoutError as error:
        return Ending(error=error if bound is None else calls.timed_out(call, bound))
    except BaseException as error:
        return Ending(error=error)


def used(use: Use) -> Ending:
    """Carry out a use of a store on this thread; never raises."""
    try:
        return Ending(use.blocking())
    except Exception as error:
        return Ending(error=error)


def _no_loop(call: Call) -> ConfigurationError:
    return ConfigurationError(
        f"{call.what} is asynchronous and was called in a synchronous boundary; it was not run.",
        fix="Use `async with`, or declare it loop_free=True if any event loop will do.",
    )
