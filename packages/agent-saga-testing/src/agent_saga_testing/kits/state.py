"""The conformance kit for state stores.

A backend's test is a class of a few lines:

    class TestMyStore(StateConformance):
        capabilities = Capabilities("disk", True, True, False)

        @pytest.fixture
        def opener(self, tmp_path):
            return partial(MyStore, str(tmp_path / "my.db"))

`opener` takes no arguments and opens the store under test. Stores that it opens share their
documents; for a backend that other processes can open it is picklable.
"""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state.base import StateStore
from agent_saga_testing.kits.conformance import needs
from agent_saga_testing.kits.processes import Process, run_all
from agent_saga_testing.kits.state_documents import StateDocuments
from agent_saga_testing.kits.state_rules import (
    EXACT,
    Opener,
    count_up,
    count_up_often,
    hold_a_rule,
    put,
    raise_often,
    store_then_wait,
)
from agent_saga_testing.kits.state_waits import StateWaits
from agent_saga_testing.waiting import until

__all__ = ["StateConformance"]


class StateConformance(StateDocuments, StateWaits):
    """What every state store must pass; see the module for what a backend gives."""

    @pytest.fixture
    def opener(self) -> Opener:
        """Open the store under test; a backend's class must give this."""
        raise NotImplementedError("a backend's test class gives the fixture `opener`")

    @pytest.fixture
    def store(self, opener: Opener) -> Iterator[StateStore]:
        """The store under test, closed at the end."""
        with opener() as store:
            yield store

    def test_a_closed_store_says_so(self, opener: Opener) -> None:
        store = opener()
        store.transact(["counter"], count_up)
        store.close()
        store.close()
        for use in (
            lambda: store.transact(["counter"], count_up),
            lambda: store.get("counter"),
            store.scan,
            lambda: asyncio.run(store.async_transact(["counter"], count_up)),
        ):
            with pytest.raises(StateError, match="closed"):
                use()

    @needs(durability="disk")
    def test_documents_outlive_the_store(self, opener: Opener) -> None:
        with opener() as first:
            first.transact(["kept"], partial(put, kept=EXACT))
        with opener() as second:
            assert second.get("kept") == EXACT

    @needs(survives_kill=True)
    @pytest.mark.crash
    @pytest.mark.parametrize("durable", [True, False])
    def test_what_was_answered_survives_a_kill(
        self, opener: Opener, tmp_path: Path, durable: bool
    ) -> None:
        marker = tmp_path / "answered"
        with Process(store_then_wait, opener, str(marker), durable) as process:
            until(marker.exists)
            process.kill()
        with opener() as store:
            assert store.get("kept") is not None

    @needs(multi_process=True)
    @pytest.mark.crash
    def test_a_kill_inside_a_transaction_changes_nothing(
        self, opener: Opener, tmp_path: Path
    ) -> None:
        marker = tmp_path / "inside"
        with opener() as store:
            store.transact(["counter"], count_up)
            with Process(hold_a_rule, opener, str(marker)) as process:
                until(marker.exists)
                process.kill()
            assert store.transact(["counter"], count_up) == 2

    @needs(multi_process=True)
    def test_another_process_that_holds_the_store_is_waited_for_within_a_bound(
        self, opener: Opener, tmp_path: Path
    ) -> None:
        marker = tmp_path / "inside"
        with opener() as store:
            store.transact(["counter"], count_up)
            with Process(hold_a_rule, opener, str(marker)) as process:
                until(marker.exists)
                with pytest.raises(StateUnavailable):
                    store.transact(["counter"], count_up, timeout=0.05)
                process.kill()
            assert store.transact(["counter"], count_up) == 2

    @needs(multi_process=True)
    @pytest.mark.parametrize("durable", [True, False])
    def test_no_update_is_lost_among_processes(self, opener: Opener, durable: bool) -> None:
        answers = run_all(count_up_often, [(opener, 50, durable)] * 4)
        assert sorted(itertools.chain(*answers)) == list(range(1, 201))

    @needs(multi_process=True)
    def test_an_epoch_is_granted_once_among_processes(self, opener: Opener) -> None:
        won = run_all(raise_often, [(opener, f"process-{n}", 100) for n in range(4)])
        granted = sorted(itertools.chain(*won))
        assert granted == sorted(set(granted))
        assert set(range(2, 101)) <= set(granted)

    @needs(multi_process=True)
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_starts_anew(self, store: StateStore) -> None:
        store.transact(["counter"], count_up)
        child = os.fork()
        if child == 0:
            _end_child(store)
        answer = store.transact(["counter"], count_up)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert answer in (2, 3)
        assert store.transact(["counter"], count_up) == 4


def _end_child(store: StateStore) -> None:
    """Use the store in a forked child, then end it without the parent's clean-up."""
    try:
        ended_well = store.transact(["counter"], count_up) in (2, 3)
        store.close()
    except BaseException:
        ended_well = False
    os._exit(0 if ended_well else 1)
