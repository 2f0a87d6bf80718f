"""Who may resume a saga, and under which id: races, living and dead owners, ids, lost stores."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from resume.conftest import QUICK, Shop

from agent_saga import AgentKit, ConfigurationError, FileWAL, SagaClosed
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.errors import (
    ClaimRefused,
    DuplicateSaga,
    RecoveryError,
    SagaAborted,
    SagaSuspended,
    SagaUnwinding,
)
from agent_saga.recovery.claim import claimed
from agent_saga.runtime import resuming
from agent_saga.wal.encoding import masked

pytestmark = pytest.mark.anyio


# --- one owner at a time --------------------------------------------------------------------------


@pytest.mark.guarantee("RESUME-6")
def test_a_resumed_saga_is_seen_as_running_before_anything_happens_in_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.suspend(1, deadline=600.0)
    with shop.open():
        assert shop.state() == ("RUNNING", False)
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + 700 * 10**9)
        shop.recover()
        assert shop.charge(1) == {"n": 1}
        shop.charge(2)
    assert shop.world == [("charge", 1), ("charge", 2)]
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-6")
def test_a_claim_that_has_not_said_what_for_is_respected(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.suspend(1)
    refused: list[BaseException] = []
    real = journal.resumed

    def meanwhile(saga: Any, *given: Any) -> int:
        words = [sys.executable, "-c", RESUMES, str(shop.log)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        refused.append(ClaimRefused(done.stdout))
        return real(saga, *given)

    monkeypatch.setattr(resuming.journal, "resumed", meanwhile)
    with shop.open():
        shop.charge(1)
    assert [error.message.strip() for error in refused] == ["ClaimRefused"]
    assert shop.state() == ("COMMITTED", True)


RESUMES = """
import sys
from agent_saga import AgentKit
try:
    with AgentKit("shop", wal=sys.argv[1]).transaction(saga_id="order-17", resume=True):
        print("resumed")
except Exception as error:
    print(type(error).__name__)
"""


def test_a_claimer_that_could_not_go_on_stands_in_nobodys_way(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.suspend(1)
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "_let_replay", _fails)
        with pytest.raises(ZeroDivisionError), shop.open():
            shop.charge(1)
    with shop.open():
        assert shop.charge(1) == {"n": 1}
    assert shop.world == [("charge", 1)]


def _fails(*given: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.guarantee("RESUME-6")
def test_of_many_threads_that_resume_at_once_one_goes_on(shop: Shop) -> None:
    shop.suspend(1)
    start, leave = threading.Barrier(4), threading.Event()
    done: list[str] = []

    def run() -> None:
        start.wait()
        try:
            with shop.open():
                shop.charge(1)
                shop.charge(2)
                leave.wait(10)
                done.append("went on")
        except (ClaimRefused, DuplicateSaga):
            done.append("refused")
            if done.count("refused") == 3:
                leave.set()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == ["refused"] * 3 + ["went on"]
    assert shop.world == [("charge", 1), ("charge", 2)]
    assert shop.state() == ("COMMITTED", True)


def test_of_many_threads_that_begin_at_once_one_goes_on(shop: Shop) -> None:
    start, leave = threading.Barrier(4), threading.Event()
    done: list[str] = []

    def run() -> None:
        start.wait()
        try:
            with shop.open():
                leave.wait(10)
                shop.charge(1)
                done.append("went on")
        except (ClaimRefused, DuplicateSaga):
            done.append("refused")
            if done.count("refused") == 3:
                leave.set()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == ["refused"] * 3 + ["went on"]
    assert shop.world == [("charge", 1)]


# --- not any more ---------------------------------------------------------------------------------


@pytest.mark.guarantee("RESUME-7")
def test_after_its_deadline_it_is_not_resumed_though_nobody_has_undone_it(shop: Shop) -> None:
    shop.suspend(1, deadline=0.01)
    time.sleep(0.05)
    for _ in range(2):
        with pytest.raises(SagaClosed, match="deadline"), shop.open():
            shop.charge(2)
    assert shop.recover().clean
    with shop.open(), pytest.raises(SagaClosed):
        shop.charge(1)
    assert shop.world == [("charge", 1), ("refund", 1)]


def test_a_deadline_that_holds_lets_it_be_resumed_later(shop: Shop) -> None:
    shop.suspend(1, deadline=0.01, at_deadline="hold")
    time.sleep(0.05)
    with shop.open():
        assert shop.charge(1) == {"n": 1}
    assert shop.world == [("charge", 1)]


@pytest.mark.guarantee("RESUME-7")
def test_a_saga_that_was_released_while_it_was_undone_is_not_resumed(shop: Shop) -> None:
    shop.suspend(1)
    with claimed(shop.place(), shop.view().id, reason="resume", by="test") as claim:
        for event in (Ev.SAGA_RESUMED, Ev.SAGA_UNWINDING, Ev.SAGA_RELEASED):
            payload, _ = masked({"cause": "test", "scope": []})
            wal = shop.place().wal
            seq = wal.append(event, saga=claim.found.id, epoch=claim.epoch, payload=payload)
        wal.wait_durable(seq)
    with pytest.raises(SagaUnwinding), shop.open():
        shop.charge(1)
    assert shop.recover().clean
    assert shop.world == [("charge", 1), ("refund", 1)]


@pytest.mark.guarantee("RESUME-8")
def test_a_saga_with_a_stale_record_is_not_resumed(shop: Shop) -> None:
    shop.suspend(1)
    saga = shop.view().id
    other = FileWAL(shop.log)
    other.begin()
    payload, _ = masked({"call": {"tool": "charge", "semantics": "COMPENSABLE"}, "n": 2})
    seq = other.append(
        Ev.STEP_INTENT, saga=saga, epoch=1, step="s" * 22, generation=0, payload=payload
    )
    other.wait_durable(seq)
    other.close()
    with pytest.raises(RecoveryError, match="stale"), shop.open():
        shop.charge(1)
    assert shop.world == [("charge", 1)]


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saga_id", [5, b"x", "", " ", "\ud800", "x" * 301, ["a"], object()])
def test_an_id_that_is_none_is_refused(shop: Shop, saga_id: Any) -> None:
    with pytest.raises(ConfigurationError), shop.open(saga_id):
        shop.charge(1)
    assert shop.world == []


@pytest.mark.parametrize("saga_id", ["x" * 300, "é😀", "a\nb", "../../etc", "\0", "-1"])
def test_an_id_may_be_any_text(shop: Shop, saga_id: str) -> None:
    with pytest.raises(SagaSuspended), shop.open(saga_id) as saga:
        shop.charge(1)
        saga.suspend("waits")
    with shop.open(saga_id):
        shop.charge(1)
    assert shop.world == [("charge", 1)]


@pytest.mark.guarantee("RESUME-9")
def test_the_id_that_the_log_shows_resumes_the_saga_too(shop: Shop) -> None:
    with pytest.raises(SagaSuspended) as caught, shop.kit.transaction() as saga:
        shop.charge(1)
        saga.suspend("waits")
    assert saga.id in caught.value.fix
    with shop.open(saga.id) as again:
        assert shop.charge(1) == {"n": 1}
    assert again.id == saga.id
    with pytest.raises(DuplicateSaga), shop.open(saga.id, resume=False):
        shop.charge(2)
    assert shop.world == [("charge", 1)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_without_a_step_leaves_its_id_to_the_next(shop: Shop, fails: bool) -> None:
    if fails:
        with pytest.raises(SagaAborted), shop.open():
            raise RuntimeError
    else:
        with shop.open():
            pass
    with pytest.raises(DuplicateSaga), shop.open(resume=False):
        shop.charge(1)
    with shop.open():
        shop.charge(1)
    assert shop.world == [("charge", 1)]
    assert shop.state() == ("COMMITTED", True)


async def test_a_synchronous_boundary_in_a_loop_takes_no_id(shop: Shop) -> None:
    with pytest.raises(ConfigurationError), shop.open():
        shop.world.append("entered")
    async with shop.open():
        await shop.charge(1)
    assert shop.world == [("charge", 1)]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_caller_that_is_cancelled_while_entering_leaves_the_saga_free(
    shop: Shop, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if begun:
        with pytest.raises(SagaSuspended):
            async with shop.open() as saga:
                await shop.charge(1)
                saga.suspend("waits")
    entering, go_on, there = threading.Event(), threading.Event(), threading.Event()
    real = shop.kit.runtime.origin

    def slow(engine: Any, options: Any) -> Any:
        entering.set()
        go_on.wait(10)
        try:
            return real(engine, options)
        finally:
            there.set()

    async def run() -> None:
        async with scope:
            await shop.charge(2)

    scope = shop.open()
    scope._origin = slow
    task = asyncio.create_task(run())
    await asyncio.to_thread(entering.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.to_thread(there.wait, 60)
    async with _when_free(shop):
        await shop.charge(1)
    assert shop.world == [("charge", 1)]
    assert shop.state() == ("COMMITTED", True)


class _when_free:  # noqa: N801 - reads like a function
    """A boundary that is entered as soon as the thread has let the saga go."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    async def __aenter__(self) -> Any:
        while True:
            self._scope = self._shop.open()
            try:
                return await self._scope.__aenter__()
            except ClaimRefused:
                await asyncio.sleep(0.01)

    async def __aexit__(self, *error: object) -> None:
        await self._scope.__aexit__(*error)


# --- other processes ------------------------------------------------------------------------------

AGENT = """
import os, sys
from agent_saga import AgentKit, Settings
kit = AgentKit("shop", wal=sys.argv[1], settings=Settings(settle=0.5, settle_after=0.1))

@kit.tool("COMPENSABLE")
def charge(n):
    with open(sys.argv[2], "a") as world:
        world.write(f"charge {n} ")
    return {"n": n}

@charge.undo
def refund(result):
    with open(sys.argv[2], "a") as world:
        world.write(f"refund {result['n']} ")

def told(word):
    print(word, flush=True)
    return sys.stdin.readline()

try:
    with kit.transaction(saga_id="order-17", resume=True) as saga:
        for n in map(int, sys.argv[3].split()):
            charge(n)
        if told("entered").strip() == "die":
            os._exit(9)
        charge(7)
    print("committed", flush=True)
except BaseException as error:
    print(type(error).__name__, type(getattr(error, "cause", None)).__name__, flush=True)
"""


class Agent:
    """A process that opens the saga, and goes on when it is told to."""

    def __init__(self, folder: Path, numbers: str = "") -> None:
        script = folder / "agent.py"
        script.write_text(textwrap.dedent(AGENT))
        words = [sys.executable, str(script), str(folder / "log"), str(folder / "world"), numbers]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Any]:
    made: list[Agent] = []

    def make(numbers: str = "") -> Agent:
        made.append(Agent(tmp_path, numbers))
        return made[-1]

    yield make
    for agent in made:
        agent.end()


@pytest.mark.crash
@pytest.mark.guarantee("RESUME-6")
@pytest.mark.parametrize("numbers", ["", "1"])
def test_an_owner_that_lives_or_is_stopped_is_never_dispossessed(
    tmp_path: Path, agents: Any, numbers: str
) -> None:
    owner = agents(numbers)
    assert owner.read() == "entered"
    assert agents(numbers).read().split()[0] == "ClaimRefused"
    os.kill(owner.process.pid, signal.SIGSTOP)
    assert agents(numbers).read().split()[0] == "ClaimRefused"
    os.kill(owner.process.pid, signal.SIGCONT)
    owner.tell("go on")
    assert owner.read() == "committed"
    world = (tmp_path / "world").read_text().split("charge ")
    assert [n.strip() for n in world if n.strip()] == [*numbers.split(), "7"]


@pytest.mark.crash
@pytest.mark.parametrize("numbers", ["", "1"])
def test_an_owner_that_died_is_followed_by_one_of_two(
    tmp_path: Path, agents: Any, numbers: str
) -> None:
    owner = agents(numbers)
    assert owner.read() == "entered"
    owner.tell("die")
    owner.process.wait()
    first, second = agents(numbers), agents(numbers)
    said = [first.read(), second.read()]
    refused, entered = sorted(word.split()[0] for word in said)
    assert entered == "entered"
    assert refused in ("ClaimRefused", "DuplicateSaga")
    winner = first if said[0] == "entered" else second
    winner.tell("go on")
    assert winner.read() == "committed"
    assert (tmp_path / "world").read_text().count("charge 7") == 1
    assert (tmp_path / "world").read_text().count("charge 1") == len(numbers)


@pytest.mark.crash
@pytest.mark.guarantee("RESUME-8")
def test_an_owner_that_comes_back_after_it_was_taken_over_does_nothing_more(
    tmp_path: Path, agents: Any
) -> None:
    owner = agents("1")
    assert owner.read() == "entered"
    os.kill(owner.process.pid, signal.SIGSTOP)
    wal = FileWAL(tmp_path / "log")
    wal.begin()
    saga = Shop(tmp_path).view().id
    folders = (tmp_path / "log" / "writers").iterdir()
    [writer] = [folder.name for folder in folders if folder.name != wal.writer]
    wal.fence(saga, 2, writer=writer)
    wal.close()
    os.kill(owner.process.pid, signal.SIGCONT)
    owner.tell("go on")
    assert owner.read() == "SagaAborted SagaFenced"
    assert (tmp_path / "world").read_text() == "charge 1 "


# --- lost stores, lost logs -----------------------------------------------------------------------


def test_a_store_that_was_deleted_is_rebuilt_from_the_log(shop: Shop, tmp_path: Path) -> None:
    shop.suspend(1)
    shop.kit.runtime.store.close()
    for path in shop.log.iterdir():
        if path.name.startswith("state."):
            path.unlink()
    again = Shop(tmp_path)
    with again.open():
        assert again.charge(1) == {"n": 1}
    assert again.world == []
    assert again.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-8")
def test_an_id_whose_log_was_deleted_is_not_begun_again(tmp_path: Path, agents: Any) -> None:
    owner = agents("1")
    assert owner.read() == "entered"
    owner.tell("die")
    owner.process.wait()
    shutil.rmtree(tmp_path / "log" / "writers")
    shop = Shop(tmp_path)
    with pytest.raises(RecoveryError, match="lost"), shop.open():
        shop.charge(1)
    assert shop.world == []


def test_two_kits_over_one_log_are_one_process(shop: Shop) -> None:
    other = AgentKit("other", wal=str(shop.log), settings=QUICK)
    with shop.open():
        shop.charge(1)
        with (
            pytest.raises(ClaimRefused),
            other.transaction(saga_id="order-17", resume=True, detached=True),
        ):
            shop.world.append("entered")
    assert shop.world == [("charge", 1)]
