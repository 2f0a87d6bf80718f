"""Processes that begin at once on an empty folder: none of them fails, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent_saga import FileApprovalStore, FileSwitchStore, KillSwitch
from agent_saga.controls.breaker.circuit import KEY, Circuits
from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import Asked
from agent_saga.controls.limits.moments import Moment
from agent_saga.evidence.verify import verify_chain
from agent_saga.state.base import Change, one
from agent_saga.state.sqlite import FILE_NAME, SQLiteStateStore

WORKER = Path(__file__).with_name("start_worker.py")
ROUNDS = 30 if "AGENT_SAGA_FULL" in os.environ else 4
MANY = 8
WORK = ["charge", "approval", "halt", "look", "saga"]


@pytest.fixture
def workers():
    """Start processes for some work; they wait for the folders to do it in."""
    started = []

    def start(works):
        for work in works:
            process = subprocess.Popen(
                [sys.executable, str(WORKER), work],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.append(process)
        for process in started:
            assert process.stdout.readline() == "ready\n"
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


def done_in(folder, processes):
    """Have all of them do their work in one folder; return how each ended."""
    folder.mkdir(exist_ok=True)
    for process in processes:
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
    return [process.stdout.readline().strip() for process in processes]


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("works", [*[[work] * MANY for work in WORK], [*WORK, *WORK][:MANY]])
def test_many_begin_at_once_on_an_empty_folder(tmp_path, workers, works):
    processes = workers(works)
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        ends = Counter(zip(works, done_in(folder, processes), strict=True))
        charges = works.count("charge")
        expected = Counter({(work, "done"): works.count(work) for work in works})
        if charges > 3:
            expected[("charge", "done")] = 3
            expected[("charge", "refused")] = charges - 3
        assert ends == expected
        effects = min(charges, 3) + works.count("approval") + works.count("saga")
        world = folder / "world"
        assert (world.stat().st_size if effects else 0) == effects
        halts = KillSwitch(FileSwitchStore(folder / "log")).switches().halts
        assert len(halts) == works.count("halt")
        if effects:
            assert verify_chain(folder / "log").intact


# --- races for one thing --------------------------------------------------------------------------


def ask(log, *, granted_by="", glass=False):
    """Put a request, and decide it if somebody is named."""
    store = FileApprovalStore(log)
    now = store.clock.now_us()
    texts = ("id", "saga", "step", "tool", "rule", "reason", "arguments")
    about = {**dict.fromkeys(texts, "x"), "id": "a" * 32, "gen": 0, "requesters": ["agent"]}
    asked = Asked(about, now + 600_000_000, 60_000_000)
    key = document.key_of(about["id"])
    store.state.transact([key], one(key, lambda doc: document.put(doc, asked, now=now)))
    if granted_by:
        store.approve(about["id"], approver=granted_by, break_glass=glass)


def to_decide(log):
    ask(log)


def to_review(log):
    ask(log, granted_by="eve", glass=True)


def to_lift(log):
    KillSwitch(FileSwitchStore(log)).halt("*", reason="r", by="b")


def to_grant(log):
    FileApprovalStore(log).grant("act", approver="ann", seconds=600, uses=3)


def to_probe(log):
    """Leave a breaker that opened long enough ago."""
    circuits = Circuits(None, Moment(0, 0.0, ""))
    circuits.trip("act", 0, "it failed")
    with SQLiteStateStore(log / FILE_NAME) as state:
        state.transact([KEY], lambda docs: Change(None, {KEY: circuits.document()}))


RACES = {
    "decide": (to_decide, 1),
    "review": (to_review, 1),
    "lift": (to_lift, 1),
    "granted": (to_grant, 3),
    "probe": (to_probe, 2),
}


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "work",
    [
        pytest.param("decide", marks=pytest.mark.guarantee("APPROVE-3")),
        "review",
        "lift",
        pytest.param("granted", marks=pytest.mark.guarantee("APPROVE-6")),
        pytest.param("probe", marks=pytest.mark.guarantee("BREAKER-1")),
    ],
)
def test_of_many_who_want_one_thing_at_once_only_so_many_have_it(tmp_path, workers, work):
    prepare, most = RACES[work]
    processes = workers([work] * MANY)
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder / "log")
        ends = Counter(done_in(folder, processes))
        assert ends == {"won": most, "lost": MANY - most}
        if work in ("granted", "probe"):
            assert (folder / "world").stat().st_size == most
