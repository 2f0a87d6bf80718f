"""The asynchronous driver: carries a protocol's requests out on the running event loop.

Rules of this part:

- Nothing blocks the loop: synchronous functions run on the pool with a copied context; barriers are
  awaited as futures that the log's thread resolves.
- A call without a timeout is awaited in the caller's own task, so that a cancellation reaches the
  tool directly. With one it runs in a task of its own, is cancelled at the end of its time, and is
  given up as running if it does not end then.
- A cancellation that meets any other request is kept (`cut`): the request is carried out, the
  protocol is answered with the cancellation, and the caller gets it in the end whatever the
  protocol says.
- When the coroutine itself is closed (GeneratorExit), nothing is awaited any more.
- A forked child carries nothing on, as with the synchronous driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, field

from agent_saga.controls.control import Use
from agent_saga.engine import calls
from agent_saga.engine.calls import UNRUN, run
from agent_saga.engine.drive_sync import used
from agent_saga.engine.quitting import kept
from agent_saga.engine.requests import (
    Call,
    Durable,
    Ending,
    HandedOver,
    Protocol,
    Sleep,
    StepEnded,
    first_of,
)
from agent_saga.errors import WALError
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.engine.ports import Engine

T = TypeVar("T")


class AsyncDriver(Struct, eq=False):
    """Carries out one protocol.

    Attributes:
        engine, loop, forks: where it runs. cut: the cancellation that came meanwhile, or None.
        closing: the coroutine is being closed; ended: how its call ended then.
    """

    engine: Engine
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    cut: BaseException | None = None
    closing: bool = False
    ended: Ending | None = None
    forks: int = 0

    async def drive(self, protocol: Protocol[T]) -> T:
        """Run a protocol to its end and return its result.

        Raises:
            SagaForked: this is a forked child, and the protocol is the parent's.
        """
        forks = self.forks = FORKS.generation
        try:
            request = next(protocol)
            while True:
                try:
                    if type(request) is Durable:
                        answer: Any = await self._durable(request.seq)
                    elif type(request) is not Call:
                        answer = await self._wait(request)
                    elif request.is_async and request.timeout is None and self.cut is None:
                        try:
                            got = await request.fn(*request.args, **request.kwargs)
                            answer = Ending(got if type(got) not in UNRUN else await run(got))
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            answer = self._raised(error)
                    else:
                        answer = await self._call(request)
                except GeneratorExit as error:
                    answer = self._closed(request, error)
                if forks != FORKS.generation:
                    raise calls.left_in_child(answer)
                request = protocol.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            protocol.close()

    def _closed(self, request: Any, error: GeneratorExit) -> Any:
        """Answer when the coroutine is closed: Python closes every level of it, the inner first."""
        self.closing, self.cut = True, first_of(self.cut, error)
        if type(request) is Call:
            return self.ended or Ending(error=error)
        return self._at_closing(request)

    def _at_closing(self, request: Any) -> Any:
        return used(request) if type(request) is Use else self._without_waiting()

    # --- waits -----------------------------------------------------------------------------------

    async def _wait(self, request: Any) -> Any:
        kind = type(request)
        if self.closing:
            return self._at_closing(request)
        if kind is HandedOver:
            return await self._handed_over(request)
        if kind is Use:
            return await self._used(request)
        if kind is Sleep:
            await self._interruptible(asyncio.sleep, request.seconds)
        elif kind is StepEnded:
            await self._interruptible(self._step_ended, request)
        return self.cut

    async def _used(self, use: Use) -> Ending:
        """Use a store; a cancellation is kept, and the use is made again, which changes nothing."""
        if self.forks != FORKS.generation:
            raise calls.left_in_child()
        if self.cut is None:
            try:
                return Ending(await use.awaiting())
            except asyncio.CancelledError as error:
                self.cut = error
            except Exception as error:
                return Ending(error=error)
        task = asyncio.ensure_future(use.awaiting())
        while not task.done():
            try:
                await _wait_shielded(task)
            except asyncio.CancelledError as error:
                self.cut = first_of(self.cut, error)
        return _ending_of(task, None)

    async def _durable(self, seq: int) -> BaseException | None:
        while not self.closing:
            try:
                future = self.engine.wal.durable_future(seq, self.loop)
                if future is None:
                    return self.cut
                if self.cut is None:
                    await future
                else:
                    await _wait_shielded(future)
                    future.result()
            except asyncio.CancelledError as error:
                self.cut = first_of(self.cut, error)
            except WALError as error:
                return error
            else:
                return self.cut
        return self._without_waiting()

    async def _handed_over(self, request: HandedOver) -> BaseException | None:
        wal = self.engine.wal
        try:
            if not request.asked and wal.hand_over(sync=request.sync):
                return self.cut
            future = wal.out_future(request.seq, self.loop)
            if future is not None:
                await future
        except asyncio.CancelledError as error:
            self.cut = first_of(self.cut, error)
            return self._without_waiting()
        except WALError as error:
            return first_of(self.cut, error)
        return self.cut

    async def _interruptible(self, wait: Callable[[Any], Any], request: Any) -> None:
        if self.cut is not None:
            return
        try:
            await wait(request)
        except asyncio.CancelledError as error:
            self.cut = error

    async def _step_ended(self, request: StepEnded) -> None:
        ended = asyncio.Event()
        loop = self.loop

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop that waited is closed
                loop.call_soon_threadsafe(ended.set)

        step = request.step
        if step.saga.call_when_settled(step, wake):
            try:
                async with asyncio.timeout(request.timeout):
                    await ended.wait()
            except TimeoutError:
                return

    def _without_waiting(self) -> BaseException | None:
        try:
            self.engine.wal.drain()
        except WALError as error:
            return first_of(self.cut, error)
        return self.cut

    # --- calls -----------------------------------------------------------------------------------

    async def _call(self, call: Call) -> Ending:
        if self.cut is not None:
            return Ending(error=self.cut, started=False)
        if not call.is_async:
            return await self._pooled(call)
        try:
            value = call.fn(*call.args, **call.kwargs)
        except BaseException as error:
            return self._raised(error)
        return await self._awaited(call, value)

    def _awaited(self, call: Call, value: Any) -> Coroutine[Any, Any, Ending]:
        """Return what finishes a value within the time that the call has, if it is bounded."""
        coroutine = value if type(value) is CoroutineType else calls.finished(value)
        if call.timeout is None:
            return self._finished(coroutine)
        return self._timed(call, coroutine, call.timeout)

    async def _finished(self, coroutine: Coroutine[Any, Any, Any]) -> Ending:
        try:
            got = await coroutine
            return Ending(got if type(got) not in UNRUN else await run(got))
        except BaseException as error:
            return self._raised(error)

    def _raised(self, error: BaseException) -> Ending:
        """Return the ending of a call in this task; what was meant for the caller is kept."""
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            self.cut = error
        return Ending(error=error)

    async def _timed(
        self, call: Call, coroutine: Coroutine[Any, Any, Any], timeout: float
    ) -> Ending:
        """Run a coroutine in a task of its own, and give it up when it does not end in time."""
        end = self.loop.time() + timeout
        task = _started(self.loop, kept(coroutine, unrun=False))
        if task.done() and not _is_cancelled():
            return _ending_of(task, None)
        try:
            reason = await self._ended_within(task, end - self.loop.time())
            if task.done():
                return _ending_of(task, None)
            error = reason or calls.timed_out(call, timeout)
            task.cancel()
            await self._ended_within(task, self.engine.timing.cancel_grace)
        except GeneratorExit as closed:
            self.ended = _left_running(call, task, closed)
            raise
        if task.done():
            return _ending_of(task, error)
        return _left_running(call, task, error)

    async def _ended_within(
        self, task: asyncio.Future[Any], timeout: float
    ) -> BaseException | None:
        """Wait for a task, at most so long; return what cut the wait short, and keep it."""
        try:
            await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError as error:
            self.cut = first_of(self.cut, error)
            return error
        return None

    async def _pooled(self, call: Call) -> Ending:
        loop = self.loop
        done: asyncio.Future[Ending] = loop.create_future()

        def finish(ending: Ending) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, done, ending)
            except RuntimeError:
                if call.late is not None:
                    call.late(ending)

        job = self.engine.pool.submit(lambda: calls.in_its_turn(call), finish)
        try:
            async with asyncio.timeout(call.timeout):
                ending = await done
        except (TimeoutError, asyncio.CancelledError) as error:
            return self._given_up(call, job.give_up(call.late), error)
        except GeneratorExit as closed:
            self.ended = self._given_up(call, job.give_up(call.late), closed)
            raise
        if ending.error is None and calls.pending(ending.value):
            return await self._awaited(call, ending.value)
        return ending

    def _given_up(self, call: Call, ending: Ending | None, error: BaseException) -> Ending:
        if isinstance(error, TimeoutError):
            error = calls.timed_out(call, call.timeout or 0.0)
        else:
            self.cut = error
        if ending is None:
            return Ending(error=error, running=True)
        if not ending.started:
            return Ending(error=error, started=False)
        if ending.error is None and calls.pending(ending.value):
            calls.discard(ending.value)  # it returned in time, but what it returned was not run
            return Ending(error=error)
        return ending


def _later(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]
) -> asyncio.Task[Any]:
    return loop.create_task(coroutine)


# Runs a coroutine in a task of its own: from now on, where Python can do that.
_started: Final[Callable[..., asyncio.Task[Any]]] = getattr(asyncio, "eager_task_factory", _later)


def _is_cancelled() -> bool:
    """Say whether somebody cancels the running task, as opposed to something inside it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _resolve(done: asyncio.Future[Ending], ending: Ending) -> None:
    if not done.done():
        done.set_result(ending)


def _left_running(call: Call, task: asyncio.Future[Any], error: BaseException) -> Ending:
    """Return the ending of a call that goes on in its task; its real one is told to `late`."""
    late = call.late
    with contextlib.suppress(RuntimeError):  # its loop may be closed
        task.cancel()
        if late is not None:
            task.add_done_callback(lambda ended: late(_ending_of(ended, None)))
    return Ending(error=error, running=True)


def _ending_of(task: asyncio.Future[Any], given_up: BaseException | None) -> Ending:
    if task.cancelled():
        return Ending(error=given_up or asyncio.CancelledError())
    error = task.exception()
    if error is None:
        value = task.result()
        if type(value) is not Ending:
            return Ending(value)
        return Ending(error=value.error)  # what ends the program; see `kept`
    if given_up is not None:
        given_up.__context__ = error
        return Ending(error=given_up)
    return Ending(error=error)


async def drive_shielded(engine: Engine, protocol: Protocol[T]) -> tuple[T, BaseException | None]:
    """Run a protocol in a task of its own, which the caller's cancellation does not reach.

    Returns:
        The protocol's result, and the cancellation that came meanwhile, or None.
    """
    driver = AsyncDriver(engine)
    task = _started(driver.loop, driver.drive(protocol))
    cut: BaseException | None = None
    while not task.done():
        try:
            await _wait_shielded(task)
        except asyncio.CancelledError as error:
            cut = first_of(cut, error)
            if task.cancelled():
                raise
    return task.result(), cut


async def _wait_shielded(task: asyncio.Future[Any]) -> None:
    anyio = sys.modules.get("anyio")
    if anyio is None:
        await asyncio.wait({task})
        return
    closing: GeneratorExit | None = None
    try:
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait({task})
            except GeneratorExit as error:
                closing = error
                raise
    except RuntimeError:
        if closing is None:
            raise
        # Whoever closes a coroutine is another task, which may not leave the scope of this one.
        raise closing from None
