"""Who waits for which record: loops and plain threads, taken out when their records are durable."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from agent_saga.errors import WALPoisoned
from agent_saga.wal.turns import Turns
from agent_saga.wal.waiters import Wait, Waiters, first_came, release


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


def test_who_waits_goes_on_in_the_turn_in_which_it_is_let_go():
    async def main() -> None:
        loop, went_on = asyncio.get_running_loop(), []
        waits = [Wait(loop=loop) for _ in range(2)]

        async def one(wait: Wait) -> None:
            await wait
            went_on.append(asyncio.current_task())

        tasks = [asyncio.create_task(one(wait)) for wait in waits]
        await asyncio.sleep(0)
        waits[0].add_done_callback(went_on.append)
        for wait in (*waits, waits[0]):
            loop.call_soon(wait.go)
        loop.call_soon(lambda: went_on.append("next"))
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)
        assert went_on[:3] == [*tasks, "next"]
        assert waits[0] in went_on

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "set_exception", "set_result"])
def test_a_wait_that_ends_in_another_way_is_told_as_any_future_is(how):
    async def main() -> None:
        wait, told = Wait(loop=asyncio.get_running_loop()), []
        for number in range(3):
            wait.add_done_callback(lambda _, number=number: told.append(number))
        gone = told.append
        wait.add_done_callback(gone)
        assert wait.remove_done_callback(gone) == 1
        getattr(wait, how)(*{"set_exception": [OSError()], "set_result": [None]}.get(how, []))
        wait.go()
        assert told == []
        await asyncio.wait({wait})
        assert sorted(told) == [0, 1, 2]
        assert wait.cancelled() is (how == "cancel")
        assert how != "set_exception" or isinstance(wait.exception(), OSError)
        wait.add_done_callback(lambda _: told.append("late"))
        await asyncio.sleep(0)
        assert told[3:] == ["late"]
        assert not wait.cancel()

    asyncio.run(main())


def test_the_first_callback_of_a_wait_can_be_taken_back():
    async def main() -> None:
        wait, told = Wait(loop=asyncio.get_running_loop()), []
        first = told.append
        wait.add_done_callback(first)
        assert wait.remove_done_callback(first) == 1
        assert wait.remove_done_callback(first) == 0
        wait.go()
        await wait
        assert told == []

    asyncio.run(main())


def test_what_ends_the_program_where_one_goes_on_leaves_no_other_waiting():
    loop = asyncio.new_event_loop()
    turns, waiting = turns_of(loop), waiters()
    waits = [waiting.add_future(1, turns) for _ in range(3)]
    waits[0].add_done_callback(lambda _: sys.exit(3))
    release(waiting.take(1), None)
    with pytest.raises(SystemExit):
        loop.run_until_complete(waits[2])
    loop.run_until_complete(waits[1])
    assert all(wait.done() for wait in waits)
    loop.close()


@pytest.mark.parametrize("closed_first", [False, True])
def test_a_loop_that_was_closed_holds_no_other_up(closed_first):
    closed, turns = asyncio.new_event_loop(), []
    waiting = waiters()

    async def main() -> None:
        both = [turns_of(closed), turns_of(asyncio.get_running_loop())]
        turns.extend(both if closed_first else reversed(both))
        for one in turns:
            waiting._waiting[one] = [(1, 0.0, Wait(loop=one.loop))]
        closed.close()
        mine = waiting._waiting[both[1]][0][2]
        release(waiting.take(1), None)
        await mine

    asyncio.run(main())
