"""Real processes are killed with SIGKILL, and what they left is recovered by another process.

The four classic crash points, by name: before an effect, after an effect whose answer was lost,
between two steps, and in the middle of undoing. After each of them the world is counted from
outside: every charge that happened is refunded once, nothing else is, and the log says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SCHEMA = "create table calls (what text, customer text, key text, applied integer)"
AGENT = Path(__file__).parent / "chaos" / "agent.py"

pytestmark = pytest.mark.crash


class Chaos:
    """One log, one world, and the processes that act on them."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.world = folder / "world.sqlite"
        with contextlib.closing(sqlite3.connect(self.world)) as connection:
            connection.execute(SCHEMA)
        self.env = {
            **os.environ,
            "AGENT_SAGA_WAL": str(self.log),
            "CHAOS_WORLD": str(self.world),
            "AGENT_SAGA_SETTLE_AFTER": "0.2",
        }

    def agent(self, point: str) -> int:
        """Run the agent; return its exit status."""
        env = {**self.env, "CHAOS_POINT": point}
        words = [sys.executable, str(AGENT)]
        return subprocess.run(words, env=env, capture_output=True, check=False).returncode

    def start_recovery(self, *more: str) -> subprocess.Popen[str]:
        """Start `agent-saga recover` in a process of its own."""
        words = [sys.executable, "-m", "agent_saga.cli", "recover", "--json"]
        words += ["--import", "agent", *more]
        return subprocess.Popen(
            words, env=self.env, cwd=AGENT.parent, text=True, stdout=subprocess.PIPE
        )

    def recover(self) -> int:
        """Recover and return the exit code."""
        process = self.start_recovery()
        process.communicate()
        return process.returncode

    def listed(self) -> list[dict[str, object]]:
        """Return the sagas as `agent-saga list` tells them."""
        words = [sys.executable, "-m", "agent_saga.cli", "list", "--json"]
        done = subprocess.run(words, env=self.env, capture_output=True, check=False)
        sagas: list[dict[str, object]] = json.loads(done.stdout)["sagas"]
        return sagas

    def calls(self, question: str) -> list[tuple[Any, ...]]:
        """Ask the world."""
        with contextlib.closing(sqlite3.connect(self.world)) as connection:
            return connection.execute(question).fetchall()

    def applied(self) -> tuple[Counter[str], Counter[str]]:
        """Return how often each customer's charge and refund took effect, as the world says."""
        rows = self.calls("select what, customer from calls where applied")
        counted: dict[str, Counter[str]] = {"charge": Counter(), "refund": Counter()}
        for what, customer in rows:
            counted[what][customer] += 1
        return counted["charge"], counted["refund"]

    def inverse_keys(self) -> dict[str, set[str]]:
        """Return the idempotency keys that each customer's refund was ever tried with."""
        keys: dict[str, set[str]] = {}
        rows = self.calls("select customer, key from calls where what = 'refund'")
        for customer, key in rows:
            keys.setdefault(customer, set()).add(key)
        return keys


@pytest.fixture
def chaos(tmp_path: Path) -> Chaos:
    return Chaos(tmp_path)


def assert_undone(chaos: Chaos) -> None:
    """Every charge was refunded once, with one key, and the log says that all is well."""
    charges, refunds = chaos.applied()
    assert charges == refunds
    assert set(charges.values()) <= {1}
    assert all(len(keys) == 1 for keys in chaos.inverse_keys().values())
    assert [saga["clean"] for saga in chaos.listed()] == [True]


@pytest.mark.parametrize("customer", ["ann", "bob", "cid"])
def test_killed_before_an_effect(chaos: Chaos, customer: str) -> None:
    assert chaos.agent(f"before the effect of {customer}") == -signal.SIGKILL
    assert chaos.recover() == 0
    assert_undone(chaos)


@pytest.mark.parametrize("customer", ["ann", "bob", "cid"])
def test_killed_after_an_effect_whose_answer_is_lost(chaos: Chaos, customer: str) -> None:
    assert chaos.agent(f"after the effect of {customer}") == -signal.SIGKILL
    charged, _ = chaos.applied()
    assert customer in charged
    assert chaos.recover() == 0
    assert_undone(chaos)


@pytest.mark.parametrize("customer", ["ann", "bob", "cid"])
def test_killed_between_two_steps(chaos: Chaos, customer: str) -> None:
    assert chaos.agent(f"between {customer} and the next") == -signal.SIGKILL
    assert chaos.recover() == 0
    assert_undone(chaos)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("customer", ["ann", "bob", "cid"])
def test_killed_in_the_middle_of_undoing(chaos: Chaos, customer: str, moment: str) -> None:
    assert chaos.agent(f"{moment} the inverse of {customer}") == -signal.SIGKILL
    assert chaos.recover() == 0
    assert_undone(chaos)


def test_killed_after_the_commit_nothing_is_undone(chaos: Chaos) -> None:
    assert chaos.agent("after the commit") == -signal.SIGKILL
    assert chaos.recover() == 0
    charges, refunds = chaos.applied()
    assert charges == Counter(ann=1, bob=1, cid=1)
    assert not refunds


def test_recovering_again_does_nothing(chaos: Chaos) -> None:
    chaos.agent("after the effect of bob")
    assert [chaos.recover() for _ in range(3)] == [0, 0, 0]
    assert_undone(chaos)


def test_two_recoveries_at_once_undo_once(chaos: Chaos) -> None:
    chaos.agent("after the effect of cid")
    processes = [chaos.start_recovery() for _ in range(4)]
    for process in processes:
        process.communicate()
    chaos.recover()
    assert_undone(chaos)
    assert chaos.calls("select count(*) from calls where what = 'refund'") == [(3,)]
