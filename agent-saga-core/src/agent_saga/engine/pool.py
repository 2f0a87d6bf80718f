"""The bounded pool of threads on which synchronous tools run beside an event loop.

Rules of this part:

- Threads are daemons: a tool that never returns cannot keep the process from ending.
- A job that nobody waits for any more (its call was given up) does not count against the bound, so
  hanging tools cannot starve the others. When it ends after all, its thread ends too, so that the
  bound holds.
- A thread that waits for jobs of its own (a tool that runs an agent of its own, or has an event
  loop call other tools) does not count against the bound meanwhile: else as many such tools as
  there are threads would wait for ever. What a job asks for is known by its context, which goes
  along to a loop. Of a job that nobody waits for that is not known: with it, a thread more may run.
- Giving a job up is atomic: either it had not started and never will, or it had ended and its
  ending is used, or it is running and its ending goes to `late`.
- A forked child starts with an empty pool. A thread that forked within its job and comes back in
  the child tells nobody how the job ended, which is the parent's to tell; it ends, and the child
  with it.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from agent_saga.engine.requests import Ending
from agent_saga.wal.os_port import fork_generation

DEFAULT_THREADS: Final = 32


class NoThread(RuntimeError):
    """The system refuses a thread, as while the interpreter ends: nothing was called."""


class _State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class _Asking:
    """What a job of a pool may wait for.

    Attributes:
        pool: whose job it is.
        jobs: how many jobs that it has asked for have not ended.
        over: it has ended itself.
    """

    __slots__ = ("jobs", "over", "pool")

    def __init__(self, pool: ToolPool) -> None:
        self.pool = pool
        self.jobs = 0
        self.over = False


_within: contextvars.ContextVar[_Asking | None] = contextvars.ContextVar(
    "agent_saga_pool", default=None
)
"""The job within which something happens."""


class Job:
    """One call on a thread of the pool.

    Args:
        run: makes the call; returns its ending and never raises.
        done: told the ending, on the job's thread.
    """

    __slots__ = (
        "_callback",
        "_context",
        "_ending",
        "_lock",
        "_pool",
        "_run",
        "_state",
        "asked_by",
    )

    def __init__(
        self, pool: ToolPool, run: Callable[[], Ending], done: Callable[[Ending], None]
    ) -> None:
        self._pool = pool
        self._run = run
        self._context = contextvars.copy_context()
        self._callback: Callable[[Ending], None] = done
        self._lock = threading.Lock()
        self._state = _State.WAITING
        self._ending: Ending | None = None
        self.asked_by: _Asking | None = None

    def execute(self) -> None:
        """Make the call, unless it was given up before it started."""
        with self._lock:
            if self._state is not _State.WAITING:
                return
            self._state = _State.RUNNING
        forks = fork_generation()
        asking = _Asking(self._pool)
        ending = self._context.run(self._made, asking)
        if forks != fork_generation():
            return
        self._pool.over(asking)
        with self._lock:
            self._state = _State.DONE
            self._ending = ending
            callback = self._callback
        self._pool.ended(self)
        callback(ending)

    def _made(self, asking: _Asking) -> Ending:
        _within.set(asking)
        return self._run()

    def give_up(self, late: Callable[[Ending], None] | None) -> Ending | None:
        """Stop waiting for the call.

        Args:
            late: told the ending if the call is running now.

        Returns:
            The ending if it has one (not started, or ended just now); None while it is running.
        """
        with self._lock:
            if self._state is _State.WAITING:
                self._state = _State.CANCELLED
                self._pool.ended(self)
                return Ending(started=False)
            if self._state is _State.DONE:
                return self._ending
            self._pool.ended(self)
            self._callback = self._pool.abandoned(late)
            return None


class ToolPool:
    """Threads for synchronous tools, started when needed.

    Args:
        threads: how many calls run at the same time at most.
    """

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        self.threads = threads
        self._reset()

    def _reset(self) -> None:
        self._fork = fork_generation()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._jobs: deque[Job] = deque()
        self._started = 0
        self._idle = 0
        self._abandoned = 0
        self._asking = 0

    def submit(self, run: Callable[[], Ending], done: Callable[[Ending], None]) -> Job:
        """Have a call made on a thread, in a copy of this context; `done` is told its ending."""
        if self._fork != fork_generation():
            self._reset()
        job = Job(self, run, done)
        asking = _within.get()
        refused: RuntimeError | None = None
        with self._lock:
            self._jobs.append(job)
            if asking is not None and asking.pool is self and not asking.over:
                self._asked(job, asking)
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif self._busy() < self.threads:
                refused = self._start()
            if refused is not None and self._started == 0:
                self._jobs.remove(job)  # nobody will come for it
            else:
                refused = None
        if refused is not None:
            done(Ending(error=NoThread(str(refused)), started=False))
        return job

    def _busy(self) -> int:
        """How many threads count against the bound; the lock is held."""
        return self._started - self._abandoned - self._asking

    def _asked(self, job: Job, asking: _Asking) -> None:
        """Note that a job of this pool waits for another one; the lock is held."""
        job.asked_by = asking
        asking.jobs += 1
        self._asking += asking.jobs == 1

    def ended(self, job: Job) -> None:
        """Note that whoever asked for a job waits for it no more."""
        if job.asked_by is None:
            return
        with self._lock:
            asking, job.asked_by = job.asked_by, None
            if asking is not None and not asking.over:
                asking.jobs -= 1
                self._asking -= asking.jobs == 0

    def over(self, asking: _Asking) -> None:
        """Note that a job has ended, whatever it has asked for."""
        with self._lock:
            asking.over = True
            self._asking -= asking.jobs > 0

    def _start(self) -> RuntimeError | None:
        """Start a thread; return why the system refuses one, or None."""
        thread = threading.Thread(
            target=self._work, name=f"agent-saga-tool-{self._started + 1}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            return error
        self._started += 1
        return None

    def _work(self) -> None:
        forks = self._fork
        while forks == fork_generation():
            with self._lock:
                if self._busy() > self.threads:
                    self._started -= 1  # another thread has taken the place of this one meanwhile
                    return
                while not self._jobs:
                    self._idle += 1
                    self._wake.wait()
                    self._idle -= 1
                job = self._jobs.popleft()
            job.execute()
            del job  # what it called, and who waits for that, does not live as long as the thread

    def abandoned(self, late: Callable[[Ending], None] | None) -> Callable[[Ending], None]:
        """Let another thread take the place of one whose job nobody waits for."""

        def ended(ending: Ending) -> None:
            with self._lock:
                self._abandoned -= 1
            if late is not None:
                late(ending)

        with self._lock:
            self._abandoned += 1
            if self._jobs and self._idle == 0:
                self._start()
        return ended

    def stats(self) -> dict[str, int]:
        """Return how many threads there are, busy, idle and given up, and how many calls wait."""
        with self._lock:
            return {
                "max_threads": self.threads,
                "threads": self._started,
                "idle": self._idle,
                "busy": self._started - self._idle,
                "abandoned": self._abandoned,
                "queued": len(self._jobs),
            }
