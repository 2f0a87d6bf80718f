"""The state kit's cases about contention and bounded waits, among threads and tasks."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import pytest

from agent_saga.errors import StateUnavailable
from agent_saga.state.base import Capabilities, Change, Docs, StateStore
from agent_saga_testing.kits.conformance import Conformance
from agent_saga_testing.kits.state_rules import claim_in_turn, count_up, move, put
from agent_saga_testing.kits.threads import in_threads

__all__ = ["StateWaits"]


class _Held:
    """A rule that a test keeps from ending, to have a store that is busy."""

    def __init__(self, store: StateStore) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self.answers: list[int] = []
        self._thread = threading.Thread(target=self._hold, args=(store,))
        self._thread.start()
        assert self.reached.wait(30)

    def _hold(self, store: StateStore) -> None:
        self.answers.append(store.transact(["counter"], self._rule, timeout=60))

    def _rule(self, docs: Docs) -> Change[int]:
        self.reached.set()
        self.let_go.wait(30)
        return count_up(docs)

    def end(self) -> None:
        self.let_go.set()
        self._thread.join(30)


@contextlib.contextmanager
def _held(store: StateStore) -> Iterator[_Held]:
    held = _Held(store)
    try:
        yield held
    finally:
        held.end()


class StateWaits(Conformance):
    """What holds while several callers of one process use a store."""

    capabilities: ClassVar[Capabilities]

    def test_no_update_is_lost_among_threads(self, store: StateStore) -> None:
        answers: list[int] = []

        def work() -> None:
            answers.extend(store.transact(["counter"], count_up, durable=False) for _ in range(25))

        in_threads([work] * 6)
        assert sorted(answers) == list(range(1, 151))

    def test_no_update_is_lost_among_tasks(self, store: StateStore) -> None:
        async def work() -> list[int]:
            calls = (store.async_transact(["counter"], count_up) for _ in range(100))
            return await asyncio.gather(*calls)

        assert sorted(asyncio.run(work())) == list(range(1, 101))
        assert asyncio.run(store.async_get("counter")) == {"n": 100}

    def test_a_scan_sees_one_moment(self, store: StateStore) -> None:
        store.transact(["left", "right"], partial(put, left={"n": 60}, right={"n": 0}))
        sums: set[int] = set()

        def work() -> None:
            while store.transact(["left", "right"], move, durable=False):
                sums.add(sum(doc["n"] for _, doc in store.scan()))

        in_threads([work] * 3)
        assert sums == {60}
        assert store.get("right") == {"n": 60}

    def test_an_epoch_is_granted_once_among_threads(self, store: StateStore) -> None:
        won: list[int] = []

        def work(owner: str) -> None:
            seen = 1
            while seen < 40:
                claim = claim_in_turn(store, owner, seen)
                seen = claim.epoch
                if claim.granted:
                    won.append(claim.epoch)

        in_threads([partial(work, f"thread-{n}") for n in range(4)])
        assert sorted(won) == sorted(set(won))
        assert set(range(2, 41)) <= set(won)

    def test_a_busy_store_is_unavailable_and_nothing_was_changed(self, store: StateStore) -> None:
        with _held(store) as held:
            with pytest.raises(StateUnavailable, match="nothing was changed"):
                store.transact(["counter"], count_up, timeout=0.02)
            with pytest.raises(StateUnavailable):
                asyncio.run(store.async_transact(["counter"], count_up, timeout=0.02))
        assert held.answers == [1]
        assert store.transact(["counter"], count_up) == 2

    def test_waiting_does_not_block_the_event_loop(self, store: StateStore) -> None:
        async def work(held: _Held) -> int:
            waiting = asyncio.ensure_future(store.async_transact(["counter"], count_up))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
            held.let_go.set()
            return await waiting

        with _held(store) as held:
            assert asyncio.run(work(held)) == 2

    def test_a_cancelled_wait_changes_nothing(self, store: StateStore) -> None:
        async def work() -> None:
            waiting = asyncio.ensure_future(store.async_transact(["counter"], count_up))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        with _held(store):
            asyncio.run(work())
        assert store.transact(["counter"], count_up) == 2

    def test_a_loop_that_closed_harms_nobody(self, store: StateStore) -> None:
        async def leave() -> None:
            asyncio.ensure_future(store.async_transact(["counter"], count_up))  # noqa: RUF006
            await asyncio.sleep(0)

        with _held(store):
            asyncio.run(leave())
        assert store.transact(["counter"], count_up) >= 2
