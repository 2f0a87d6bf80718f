"""Who waits for which record: loops and plain threads, taken out when their records are durable."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_saga.errors import WALPoisoned
from agent_saga.wal.turns import Turns
from agent_saga.wal.waiters import Waiters, first_came, release


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    return Turns(loop, lambda waiting, sync: None)


def waiters() -> Waiters:
    return Waiters(threading.Lock(), 30.0)


def test_a_sync_lets_go_on_only_who_waits_for_what_it_covers():
    async def main() -> None:
        turns, waiting = turns_of(asyncio.get_running_loop()), waiters()
        early, late = waiting.add_future(1, turns), waiting.add_future(5, turns)
        thread, other = waiting.add_thread(2), waiting.add_thread(6)
        release(waiting.take(2), None)
        await early
        assert thread.done()
        assert not late.done()
        assert not other.done()
        release(waiting.take(6), None)
        await late
        assert other.done()
        assert not waiting

    asyncio.run(main())


def test_who_waits_for_a_record_that_is_far_off_holds_nobody_up():
    waiting = waiters()
    far, near = waiting.add_thread(100), waiting.add_thread(1)
    assert list(waiting.take(0)) == []
    release(waiting.take(1), None)
    assert (near.done(), far.done()) == (True, False)
    near = waiting.add_thread(2)
    release(waiting.take(2), None)
    assert (near.done(), far.done()) == (True, False)
    assert waiting


def test_the_first_that_came_is_known():
    waiting = waiters()
    waiting.add_thread(2)
    waiting.add_thread(1)
    came = [one[1] for one in waiting.take(2)[None]]
    waiting.add_thread(4)
    assert came == sorted(came)
    assert first_came(waiting.take(4)) >= came[-1]


def test_everybody_fails_with_an_error_of_their_own():
    async def main() -> None:
        turns, waiting = turns_of(asyncio.get_running_loop()), waiters()
        futures, thread = [waiting.add_future(1, turns) for _ in range(2)], waiting.add_thread(1)
        release(waiting.take(1), OSError("gone"))
        errors = await asyncio.gather(*futures, return_exceptions=True)
        assert isinstance(thread.error, WALPoisoned)
        assert all(isinstance(error, WALPoisoned) for error in errors)
        assert len({id(error) for error in (*errors, thread.error)}) == 3

    asyncio.run(main())


@pytest.mark.parametrize("closed_first", [False, True])
def test_a_loop_that_was_closed_holds_no_other_up(closed_first):
    closed, turns = asyncio.new_event_loop(), []
    waiting = waiters()

    async def main() -> None:
        both = [turns_of(closed), turns_of(asyncio.get_running_loop())]
        turns.extend(both if closed_first else reversed(both))
        for one in turns:
            waiting._waiting[one] = [(1, 0.0, one.loop.create_future())]
        closed.close()
        mine = waiting._waiting[both[1]][0][2]
        release(waiting.take(1), None)
        await mine

    asyncio.run(main())
