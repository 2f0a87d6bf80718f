"""The log's thread: kicks of many threads, put off or not, lose no work and raise nothing."""

from __future__ import annotations

import threading
import time

import pytest

from agent_saga.wal.worker import Worker


class Slow:
    """A lock whose waits with a timeout end late: what comes in between is seen by a test."""

    def __init__(self, between):
        self.lock = threading.Lock()
        self.between = between

    def acquire(self, blocking=True, timeout=-1):
        done = self.lock.acquire(blocking, timeout)
        if timeout != -1 and not done:
            self.between()
        return done

    def release(self):
        self.lock.release()


def test_a_kick_at_the_end_of_a_rest_is_taken_along_with_what_was_put_off():
    count, kicked, trouble = [], [], []
    thrice = threading.Event()

    def work():
        count.append(1)
        if len(count) == 2:
            try:
                worker.kick()  # raised, where the wake of the kick before was never taken
            except RuntimeError as error:
                trouble.append(error)
                thrice.set()
        if len(count) == 3:
            thrice.set()
        return 5.0  # something is left to note: the thread rests

    def between():
        """The rest is over and what was put off is about to be done, when somebody else kicks."""
        if not kicked:
            kicked.append(1)
            worker.kick_soon()
            worker.kick()

    worker = Worker("test", work)
    worker._wake = Slow(between)
    worker._wake.acquire()
    worker.kick()
    assert thrice.wait(60)
    assert not trouble
    assert worker.stop(10)


@pytest.mark.timeout(120)
def test_many_threads_kick_and_lose_no_work():
    asked, done, trouble = [0], [0], []
    lock = threading.Lock()

    def work():
        seen = asked[0]
        done[0] = max(done[0], seen)
        return 0.0005

    worker = Worker("test", work)

    def kicks(soon):
        try:
            for _ in range(3000):
                with lock:
                    asked[0] += 1
                worker.kick_soon() if soon else worker.kick()
        except RuntimeError as error:
            trouble.append(error)

    threads = [threading.Thread(target=kicks, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until = time.monotonic() + 20
    while done[0] < asked[0] and time.monotonic() < until:
        time.sleep(0.001)
    assert not trouble
    assert done[0] == asked[0]
    assert worker.stop(10)
