"""The power fails while an agent works, and again while recovery does: the world is told truly.

The disk is a model of unsynced pages that are lost in any order (`agent_saga_testing.power`); what
a loss leaves is drawn. The state store survives a loss, or is gone with it. After a loss the
machine has started anew. A few hundred cases run usually; AGENT_SAGA_POWER_CASES asks for more,
AGENT_SAGA_POWER_SEED for others.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.small_saga import ALL, SETTINGS, Happened, QuickPort, SmallSaga, World, use

from agent_saga import FileWAL, RecoveryDaemon
from agent_saga.domain.fold import fold, resolve
from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import WALError
from agent_saga.recovery.queue import cases_in
from agent_saga.wal.damage import Damage
from agent_saga.wal.format import Record
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import FaultyPort, SimulatedCrash
from agent_saga_testing.power import PowerLossPort, keep_everything, lose_everything

CASES = int(os.environ.get("AGENT_SAGA_POWER_CASES", "250"))
SEED = int(os.environ.get("AGENT_SAGA_POWER_SEED", "1"))
PARTS = 5

pytestmark = [
    pytest.mark.property,
    pytest.mark.timeout(max(600, CASES)),
    # Who died cannot close what it has open; the collector tells of it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ENDED = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.PARTIAL, SagaState.STUCK})
STORE = "state.sqlite*"


boot = ["boot 0"]


@pytest.fixture(autouse=True)
def boots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsPort, "boot_id", lambda port: boot[0])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the model alone says what is durable."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def totals(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What was counted in all cases; printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    told = ", ".join(f"{what} {times}" for what, times in counted.items())
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\nseed {SEED}: {told}\n")


class Case:
    """One agent, one or more losses of power, and what the world saw of it all."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.draw = random.Random(number)
        self.losses = 0
        self.told: list[tuple[str, Happened]] = []
        self.clean_report: bool | None = None
        self.committed = False
        self.dead: list[tuple[FaultyPort, FileWAL]] = []

    def play(self) -> Path:
        """Let everything happen; return the log that is left."""
        root = self.folder / "0"
        root.mkdir()
        boot[:] = [f"{self.number}, boot 0"]
        disk = PowerLossPort(root, page=self.draw.choice([512, 4096]))
        self._agent(root, disk)
        root = self._fails(root, disk)
        for _ in range(self.draw.randint(0, 2)):
            disk = PowerLossPort(root, page=self.draw.choice([512, 4096]))
            self._recovery(root, disk, crash_at=self.draw.randint(1, 60))
            root = self._fails(root, disk)
        self._recovery(root, QuickPort())
        return root / "log"

    def _agent(self, root: Path, disk: PowerLossPort) -> None:
        port = FaultyPort(disk)
        port.crash(nth=self.draw.randint(1, 75), after=self.draw.random() < 0.5)
        saga = SmallSaga(root / "log", port, fails=self.draw.random() < 0.6)
        self._listen(saga.world)
        saga.run(is_async=self.draw.random() < 0.5)
        self.dead.append((port, saga.wal))
        report = saga.report
        self.committed = saga.error is None
        if report is not None and report.outcome == "ROLLED_BACK":
            self.clean_report = report.clean

    def _recovery(self, root: Path, disk: Any, *, crash_at: int = 0) -> None:
        port = FaultyPort(disk)
        if crash_at:
            port.crash(nth=crash_at, after=self.draw.random() < 0.5)
        wal = FileWAL(root / "log", port, mark_after=0.01)
        world = World(wal)
        world.events = self.events
        self._listen(world)
        use(world)
        daemon = RecoveryDaemon(wal, settings=SETTINGS)
        with contextlib.suppress(SimulatedCrash):
            daemon.recover_all()
        daemon.close()
        self.dead.append((port, wal))
        if not crash_at:
            self.bury()

    def bury(self) -> None:
        """Let the logs of all who are gone be closed, where nobody looks any more."""
        while self.dead:
            port, wal = self.dead.pop()
            port.heal()
            port.crashed = False
            # A thread that was on its way into the fault may still meet it.
            with contextlib.suppress(WALError, OSError, SimulatedCrash):
                wal.close(1.0)

    def _listen(self, world: World) -> None:
        self.events = world.events
        world.on_event = lambda event: self.told.append((world.wal.writer, event))

    def _fails(self, root: Path, disk: PowerLossPort) -> Path:
        """Cut the power: what may be left of the disk is drawn."""
        self.losses += 1
        boot[:] = [f"{self.number}, boot {self.losses}"]
        left = self.folder / str(self.losses)
        choose = self.draw.choice([lose_everything, keep_everything, *[self.draw.randrange] * 4])
        disk.materialise(left, choose)
        if self.draw.random() < 0.5:
            for file in (root / "log").glob(STORE):
                if (left / "log").exists():
                    shutil.copy(file, left / "log" / file.name)
        self.bury()
        return left


def judge(case: Case, log: Path) -> None:
    """Nothing happened twice or unannounced, nothing false is told, nobody is forgotten."""
    found = list(scan_log(log))
    damages = [one for one in found if isinstance(one, Damage) and one.kind != "torn-tail"]
    assert not damages, damages
    records = [one for one in found if isinstance(one, Record)]
    done = Counter((event.what, event.step) for event in case.events)
    assert all(times == 1 for times in done.values()), case.events
    announced(case, records)
    stands = frozenset(s for w, s in done if w == "applied") - {s for w, s in done if w == "undone"}
    waiting = {one.id for one in cases_in(str(log))}
    views = fold(records)
    for saga, view in views.items():
        told = resolve(saga, [r for r in records if r.saga == saga]) if view.contested else view
        assert not told.faults, told.faults
        assert told.state in ENDED or saga in waiting, f"left {told.state.value}"
        assert told.clean or saga in waiting, "not clean, and nobody is told"
        if told.clean:
            due = ALL if told.state is SagaState.COMMITTED else frozenset()
            assert stands == due, f"clean, and these stand: {stands}"
    if not views:
        assert not stands, "something stands that the log has never heard of"
    if case.committed:
        assert [view.state for view in views.values()] == [SagaState.COMMITTED]
    if case.clean_report:
        assert not stands, "the agent was told that all is undone"


def announced(case: Case, records: list[Record]) -> None:
    """Every effect and every inverse has its announcement, which was durable before it."""
    steps = {r.data["args"]["step"]: r.step for r in records if r.event == "STEP_INTENT"}
    for writer, event in case.told:
        kind = "STEP_INTENT" if event.what == "applied" else "STEP_COMPENSATING"
        before = [
            r
            for r in records
            if (r.writer, r.event, r.step) == (writer, kind, steps.get(event.step))
            and r.seq <= event.durable
        ]
        assert before, f"{event} was not durably announced by {writer}"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_fails_anywhere(folder: Path, part: int, totals: Counter[str]) -> None:
    for number in range(SEED * 1_000_000 + part, SEED * 1_000_000 + CASES, PARTS):
        place = folder / str(number)
        place.mkdir()
        case = Case(place, number)
        log = place
        try:
            log = case.play()
            judge(case, log)
        except BaseException as error:
            error.add_note(f"case {number}: {case.events}")
            error.add_note("\n".join(f"{r.writer[-4:]} {r.seq} {r.event} {r.step[:6]}"
                                     for r in scan_log(log) if isinstance(r, Record)))  # fmt: skip
            raise
        totals.update(
            {
                "cases": 1,
                "losses": case.losses,
                "effects": sum(event.what == "applied" for event in case.events),
                "inverses": sum(event.what == "undone" for event in case.events),
                "left to a human": bool(cases_in(str(log))),
            }
        )
        shutil.rmtree(place)
