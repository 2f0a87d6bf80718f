"""A private thread that serves jobs in batches, with a bound on every wait.

Rules of this part:

- Callers never touch the resource; they leave a job and wait, bounded. What waits together is
  served together, so that one sync serves many callers.
- A caller that stops waiting before its job began takes the job back: it certainly does not run.
  One that stops waiting after that learns that the ending is unknown.
- Nothing a job raises ends the thread. An event loop that closed meanwhile ends nobody else's wait.
- The thread starts at the first job, but never while the process forks: the child would inherit
  what it opens. It does not keep its store alive, nor the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state import forking

__all__ = ["Job", "Service", "Worker"]

T = TypeVar("T")

MAX_BATCH: Final = 64


class Job(Struct, Generic[T], eq=False):
    """One request with its bound; it ends with a result or an error, once.

    It begins or is taken back, whichever is asked first; each is asked once.
    """

    request: T
    deadline: float
    result: Any = None
    error: BaseException | None = None
    ended: bool = False
    notify: Callable[[], None] = lambda: None
    _turn: threading.Lock = field(default_factory=threading.Lock)  # who gets it has the say

    def begin(self) -> bool:
        """Say that the job runs now; False if its caller has taken it back."""
        return self._turn.acquire(blocking=False)

    def take_back(self) -> bool:
        """Say that nobody waits any more; False if the job has begun."""
        return self._turn.acquire(blocking=False)

    def finish(self, result: object) -> None:
        """End the job with its result."""
        self.result = result
        self.end()

    def fail(self, error: BaseException) -> None:
        """End the job with an error."""
        self.error = error
        self.end()

    def end(self) -> None:
        """End the job with the result or the error that it has."""
        if not self.ended:
            self.ended = True
            self.notify()

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


class Service(Protocol):
    """What a worker's thread serves; every method runs on that thread only."""

    name: str

    def serve(self, jobs: list[Job[Any]]) -> None:
        """Begin and end every job that is still wanted; must not raise."""

    def release(self) -> None:
        """Close what is open; it is opened again when needed. Must not raise."""

    def abandon(self) -> None:
        """Drop what is open without closing it: it belongs to the parent process."""


class Worker:
    """The private thread of one service.

    Args:
        service: what serves the jobs.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed = False
        self._reset()
        forking.watch(self)

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[Job[Any] | _Order] = queue.SimpleQueue()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._pauses: dict[int, _Order | None] = {}

    def call(self, request: object, timeout: float) -> Any:
        """Have a request served and return its result.

        Raises:
            StateUnavailable: not served within `timeout` seconds.
            StateError: the worker is closed, or the request came from the served code itself.
        """
        job: Job[Any] = Job(request, time.monotonic() + timeout)
        done = threading.Lock()
        done.acquire()
        job.notify = done.release
        try:
            self._submit(job)
            in_time = done.acquire(timeout=timeout)
        except BaseException:
            job.take_back()
            raise
        if not in_time:
            raise self._too_late(job, timeout)
        return job.outcome()

    async def async_call(self, request: object, timeout: float) -> Any:
        """Do what `call` does without blocking the event loop."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        job: Job[Any] = Job(request, time.monotonic() + timeout)
        job.notify = lambda: _wake_from_thread(loop, woken)
        self._submit(job)
        timer = loop.call_later(timeout, self._give_up, job, woken, timeout)
        try:
            await woken
        except asyncio.CancelledError:
            job.take_back()
            raise
        finally:
            timer.cancel()
        return job.outcome()

    def stop(self, patience: float = 5.0) -> None:
        """Serve what was left, close the service and end the thread; wait at most `patience`.

        A thread that is held while the caller forks ends after the fork, and is not waited for: the
        store may be dropped, as garbage, in the middle of one.
        """
        with self._starting:
            already, self._closed = self._closed, True
        if already or self._thread is None:
            return
        order = _Order(stop=True)
        self._jobs.put(order)
        is_held = threading.get_ident() in self._pauses
        if self._thread is not threading.current_thread() and not is_held:
            order.obeyed.wait(patience)

    def before_fork(self) -> None:
        """Have the service closed and the thread held while the process forks; none starts."""
        self._pauses[threading.get_ident()] = None  # first: whoever is interrupted gives it back
        self._starting.acquire()
        thread = self._thread
        if thread is None:
            return
        self.after_fork_in_parent()
        if not thread.is_alive() or thread is threading.current_thread():
            return
        order = _Order(stop=False)
        self._pauses[threading.get_ident()] = order
        self._jobs.put(order)
        order.obeyed.wait(forking.PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Let the thread go on, or be started."""
        me = threading.get_ident()
        if me not in self._pauses:
            return
        order = self._pauses.pop(me)
        if order is not None:
            order.go_on.set()
            return
        with contextlib.suppress(RuntimeError):  # interrupted before it was taken
            self._starting.release()

    def after_fork_in_child(self) -> None:
        """Start anew: no thread, no jobs, nothing open."""
        self._service.abandon()
        self._reset()

    def _submit(self, job: Job[Any]) -> None:
        with self._starting:
            if self._closed:
                raise StateError(f"{self._service.name} is closed.")
            if self._thread_id == threading.get_ident():
                raise StateError("A rule used the state store; rules are pure functions.")
            if self._thread is None:
                self._thread = self._start()
                self._thread_id = self._thread.ident
            self._jobs.put(job)

    def _start(self) -> threading.Thread:
        thread = threading.Thread(
            target=_run, args=(self._service, self._jobs), name="agent-saga-state", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise StateUnavailable(
                f"{self._service.name} cannot start its thread: {error}; nothing was changed."
            ) from error
        return thread

    def _give_up(self, job: Job[Any], woken: asyncio.Future[None], timeout: float) -> None:
        if not job.ended and not woken.done():
            woken.set_exception(self._too_late(job, timeout))

    def _too_late(self, job: Job[Any], timeout: float) -> StateUnavailable:
        known = "nothing was changed" if job.take_back() else "whether it was changed is unknown"
        return StateUnavailable(
            f"{self._service.name} did not answer within {timeout:g} s; {known}."
        )


class _Order:
    """A message to the thread: close the service; then end, or wait until told to go on."""

    def __init__(self, *, stop: bool) -> None:
        self.stop = stop
        self.obeyed = threading.Event()
        self.go_on = threading.Event()


def _run(service: Service, jobs: queue.SimpleQueue[Job[Any] | _Order]) -> None:
    """Serve until told to stop; the body of the private thread."""
    while True:
        batch, order = _next_batch(jobs)
        if batch:
            _serve(service, batch)
        if order is not None:
            service.release()
            order.obeyed.set()
            if order.stop:
                return
            order.go_on.wait()


def _next_batch(
    jobs: queue.SimpleQueue[Job[Any] | _Order],
) -> tuple[list[Job[Any]], _Order | None]:
    """Wait for one job, then take what else is there, up to an order or `MAX_BATCH`."""
    batch: list[Job[Any]] = []
    item = jobs.get()
    while isinstance(item, Job):
        batch.append(item)
        if jobs.empty() or len(batch) == MAX_BATCH:  # nobody else takes of it
            return batch, None
        item = jobs.get()
    return batch, item


def _serve(service: Service, batch: list[Job[Any]]) -> None:
    try:
        service.serve(batch)
    except BaseException as error:
        for job in batch:
            if not job.ended:
                job.fail(error)


def _wake_from_thread(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(_wake, woken)
    except RuntimeError:
        # The loop closed while the job ran; nobody waits for it any more.
        return


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
