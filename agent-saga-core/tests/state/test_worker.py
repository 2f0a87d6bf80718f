"""The private thread: bounded waits, taken-back jobs, and nothing that ends it."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state import forking
from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.worker import MAX_BATCH, Worker


class Echo:
    """A service that answers with what it was asked, when it is let."""

    name = "The echo"

    def __init__(self):
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.batches = []
        self.released = 0
        self.fails = False

    def serve(self, jobs):
        begun = [job for job in jobs if job.begin()]
        self.batches.append(len(begun))
        self.inside.set()
        self.go_on.wait(30)
        if self.fails:
            raise LookupError("the service is broken")
        for job in begun:
            job.finish(job.request)

    def release(self):
        self.released += 1

    def abandon(self):
        pass


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def worker(echo):
    worker = Worker(echo)
    yield worker
    echo.go_on.set()
    worker.stop()


def test_a_service_that_raises_ends_its_jobs_and_not_the_thread(worker, echo):
    echo.fails = True
    with pytest.raises(LookupError):
        worker.call("a", 30)
    echo.fails = False
    assert worker.call("b", 30) == "b"


def test_a_job_that_has_begun_may_have_been_done(worker, echo):
    echo.go_on.clear()
    with pytest.raises(StateUnavailable, match="unknown"):
        worker.call("a", 0.05)
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        worker.call("b", 0.05)
    echo.go_on.set()
    assert worker.call("c", 30) == "c"
    assert sum(echo.batches) == 2


def test_an_async_job_that_has_begun_may_have_been_done(worker, echo):
    echo.go_on.clear()
    with pytest.raises(StateUnavailable, match="unknown"):
        asyncio.run(worker.async_call("a", 0.05))


def test_a_loop_that_closed_while_its_job_ran_harms_nobody(worker, echo):
    async def leave():
        waiting = asyncio.ensure_future(worker.async_call("a", 30))
        while not echo.inside.is_set():
            await asyncio.sleep(0.001)
        waiting.cancel()

    echo.go_on.clear()
    asyncio.run(leave())
    echo.go_on.set()
    assert worker.call("b", 30) == "b"


def test_an_interrupted_wait_takes_its_job_back(worker, echo, monkeypatch):
    class Interrupted:
        def __init__(self):
            self.taken = False

        def acquire(self, timeout=None):
            if self.taken:
                raise KeyboardInterrupt
            self.taken = True
            return True

        def release(self):
            pass

    echo.go_on.clear()
    blocking = threading.Thread(target=worker.call, args=("a", 30))
    blocking.start()
    assert echo.inside.wait(30)
    monkeypatch.setattr("agent_saga.state.worker.threading.Lock", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.call("b", 30)
    monkeypatch.undo()
    echo.go_on.set()
    blocking.join()
    assert worker.call("c", 30) == "c"
    assert sum(echo.batches) == 2


def test_batches_are_bounded(worker, echo):
    async def many():
        first = asyncio.ensure_future(worker.async_call(0, 30))
        while not echo.inside.is_set():
            await asyncio.sleep(0.001)
        rest = [asyncio.ensure_future(worker.async_call(n, 30)) for n in range(1, 200)]
        await asyncio.sleep(0)
        echo.go_on.set()
        return await asyncio.gather(first, *rest)

    echo.go_on.clear()
    assert asyncio.run(many()) == list(range(200))
    assert max(echo.batches) == MAX_BATCH


def test_a_thread_that_cannot_start_changes_nothing(worker, monkeypatch):
    def no_thread(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        worker.call("a", 30)
    monkeypatch.undo()
    assert worker.call("b", 30) == "b"


def test_stopping_serves_what_was_left_and_refuses_the_rest(echo):
    worker = Worker(echo)
    echo.go_on.clear()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(worker.call("a", 30)))]
    threads[0].start()
    assert echo.inside.wait(30)
    threads.append(threading.Thread(target=worker.stop))
    threads[1].start()
    echo.go_on.set()
    for thread in threads:
        thread.join()
    worker.stop()
    assert (answers, echo.released) == (["a"], 1)
    with pytest.raises(StateError, match="closed"):
        worker.call("b", 30)


def test_a_worker_that_was_never_used_has_no_thread(echo):
    before = threading.active_count()
    Worker(echo).stop()
    assert (threading.active_count(), echo.released) == (before, 0)


# --- a fork in the middle


@pytest.mark.timeout(120)
def test_a_store_that_is_dropped_while_its_process_forks_is_not_waited_for(worker, echo):
    """As garbage it may be: its thread is held until the fork is over."""
    assert worker.call("a", 30) == "a"
    thread = worker._thread
    worker.before_fork()
    worker.stop(patience=1000)
    worker.after_fork_in_parent()
    thread.join(30)
    assert not thread.is_alive()
    assert echo.released == 2


def test_a_thread_goes_on_after_a_fork_also_when_its_worker_was_dropped(echo):
    worker = Worker(echo)
    assert worker.call("a", 30) == "a"
    thread = worker._thread
    forking._before()
    worker.stop()
    del worker
    gc.collect()
    forking._after_in_parent()
    thread.join(30)
    assert not thread.is_alive()


def test_two_threads_fork_one_after_the_other_and_leave_no_store_locked():
    store = MemoryStateStore()
    forking._before()
    second = threading.Thread(target=lambda: (forking._before(), forking._after_in_parent()))
    second.start()
    second.join(2 * forking.PATIENCE)
    forking._after_in_parent()
    second.join(30)
    assert store.transact(["a"], lambda docs: Change(docs["a"])) is None


def used_while_forking(use):
    """What a thread does that comes while another one forks: it goes on when that is over."""
    done = []
    other = threading.Thread(target=lambda: done.append(use()))
    forking._before()
    try:
        other.start()
        other.join(0.2)
        assert not done
    finally:
        forking._after_in_parent()
    other.join(30)
    return done


def test_no_thread_starts_while_the_process_forks(worker):
    """The child would inherit the connection that it opens, and the locks that it holds."""
    assert used_while_forking(lambda: worker.call("a", 30)) == ["a"]
    assert worker.call("b", 30) == "b"


def test_no_store_is_made_while_the_process_forks(echo):
    assert used_while_forking(lambda: Worker(echo).call("a", 30)) == ["a"]


def test_who_forks_may_drop_a_store_that_was_never_used(echo):
    worker = Worker(echo)
    forking._before()
    worker.stop()
    forking._after_in_parent()
    with pytest.raises(StateError, match="closed"):
        worker.call("a", 30)
