"""The scene of the model: an owner and daemons, all of them the real code, on one log and store.

The log is the file log on a disk, written through a port that stops before every call that others
can see; a sync is made at once. The store holds the real rules. The provider is a list of what took
hold; its answers can be lost. What runs is `AgentKit`, `Daemon` and everything below them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.scheduler import DIE, Process, Scene, ended

from agent_saga import AgentKit, Applied, FileWAL, NotApplied, Settings, tool
from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState
from agent_saga.recovery.claim import Place
from agent_saga.recovery.daemon import Daemon
from agent_saga.recovery.queue import cases
from agent_saga.recovery.survey import look
from agent_saga.runtime.composition import Runtime
from agent_saga.state.memory import MemoryStateStore
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan

LOST, FAILS = "the answer is lost", "it fails before its effect"
SETTINGS = Settings(settle=0.0, settle_after=0.0, inverse_delay=0.0, inverse_attempts=2)
ENDED = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.PARTIAL, SagaState.STUCK})


class ModelPort(OsPort):
    """Stops before every system call that others can see; a dead process makes none."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.opened: set[int] = set()
        process.at_death.append(self.let_go)

    def let_go(self) -> None:
        """Close what the process held, as the operating system does: its locks are free."""
        while self.opened:
            os.close(self.opened.pop())

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._alive()
        fd = super().open(path, flags, mode)
        self.opened.add(fd)
        return fd

    def close(self, fd: int) -> None:
        if fd in self.opened:
            self.opened.discard(fd)
            super().close(fd)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.process.stop(f"write {_events(data)}", DIE)
        return super().pwrite(fd, data, offset)

    def append(self, fd: int, data: bytes) -> int:
        self.process.stop("fence", DIE)
        return super().append(fd, data)

    def flock(self, fd: int) -> bool:
        self.process.stop("lock")
        return super().flock(fd)

    def fdatasync(self, fd: int) -> None:
        self._alive()

    def sync_directory(self, path: str) -> None:
        self._alive()

    def fallocate(self, fd: int, size: int) -> None:
        self._alive()

    def _alive(self) -> None:
        if self.process.dead:
            self.process.stop("dead")


def _events(data: bytes) -> str:
    return ",".join(line.split(b'"e":"')[1].split(b'"')[0].decode() for line in data.split(b"\n")
                    if b'"e":"' in line)  # fmt: skip


class ModelWAL(FileWAL):
    """The file log without a thread of its own: what was written is durable."""

    syncs_inline = True

    def __init__(self, path: Path, process: Process) -> None:
        super().__init__(path, ModelPort(process))
        process.at_death.append(self.forget)

    def forget(self) -> None:
        """The process is gone: nothing of this is written at the end of the tests."""
        self._cause = OSError("its process is gone")


class ModelStore(MemoryStateStore):
    """One process's way to the store: it stops before every use."""

    def __init__(self, process: Process, shared: MemoryStateStore) -> None:
        self.process = process
        self.shared = shared

    def transact(self, keys: Any, rule: Any, **options: Any) -> Any:
        self.process.stop("store", DIE)
        return self.shared.transact(keys, rule, **options)

    def get(self, key: str, **options: Any) -> Any:
        self.process.stop("look into the store")
        return self.shared.get(key, **options)

    def close(self) -> None:
        """The store is shared."""


class Stage:
    """The provider's world, and what the judge needs to know."""

    def __init__(self, folder: Path, *, fails: bool) -> None:
        self.log = folder / "log"
        self.fails = fails
        self.store = MemoryStateStore()
        self.applied: list[tuple[str, str, str]] = []
        self.calls: list[tuple[str, str, str]] = []
        self.unannounced: list[str] = []
        self.running: Process | None = None
        self.returned = False

    # --- the provider ---------------------------------------------------------------------------

    def call(self, kind: str, name: str, key: str, *, keyed: bool) -> None:
        """A request reaches the provider, whatever becomes of its answer."""
        process = current()
        action = process.stop(f"{kind} {name}", DIE, LOST, FAILS)
        self.calls.append((kind, name, key))
        if action == FAILS:
            raise ConnectionError("it did not arrive")
        if kind == "forward" and key not in self.announced():
            self.unannounced.append(name)
        if not (keyed and (kind, name, key) in self.applied):
            self.applied.append((kind, name, key))
        if action == LOST:
            raise ConnectionError("the answer is lost")
        process.stop(f"answer of {kind} {name}", DIE)

    def standing(self, name: str) -> int:
        kinds = [kind for kind, what, _ in self.applied if what == name]
        return kinds.count("forward") - kinds.count("inverse")

    def announced(self) -> set[str]:
        return {
            identity.idempotency_key(r.saga, r.step, r.generation, identity.FORWARD)
            for r in scan(self.log)
            if getattr(r, "event", "") == "STEP_INTENT"
        }

    # --- what is shared ---------------------------------------------------------------------------

    def shared(self) -> int:
        """Everything that a process could see, as one number."""
        records = [
            (r.event, r.epoch, r.step, r.writer) for r in scan(self.log) if getattr(r, "saga", "")
        ]
        writers = {writer: n for n, writer in enumerate(dict.fromkeys(r[3] for r in records))}
        log = tuple((r[0], r[1], writers[r[3]]) for r in records)
        store = tuple(sorted((doc["epoch"], doc["owner"] is None, doc["ended"])
                             for _, doc in self.store.scan("claim/")))  # fmt: skip
        world = tuple((kind, name) for kind, name, _ in self.applied)
        return hash((log, store, world))


_processes: dict[int, Process] = {}
_stage: list[Stage] = []


def current() -> Process:
    """The process whose thread this is."""
    return _processes[threading.get_ident()]


def stage() -> Stage:
    return _stage[0]


# --- the tools ------------------------------------------------------------------------------------


@tool("COMPENSABLE", name="model.charge")
def charge(name: str, *, idempotency_key: str) -> str:
    stage().call("forward", name, idempotency_key, keyed=True)
    return name


@charge.undo(idempotent=True)
def refund(result: str, *, idempotency_key: str) -> None:
    stage().call("inverse", result, idempotency_key, keyed=True)


@charge.probe
def find_charge(args: dict[str, str], *, idempotency_key: str) -> Applied | NotApplied:
    return found(args["name"], idempotency_key)


@tool("COMPENSABLE", name="model.book")
def book(name: str, *, idempotency_key: str) -> str:
    stage().call("forward", name, idempotency_key, keyed=False)
    return name


@book.undo
def cancel(result: str, *, idempotency_key: str) -> None:
    stage().call("inverse", result, idempotency_key, keyed=False)


@book.probe
def find_booking(args: dict[str, str], *, idempotency_key: str) -> Applied | NotApplied:
    return found(args["name"], idempotency_key)


def found(name: str, key: str) -> Applied | NotApplied:
    if ("forward", name, key) in stage().applied:
        return Applied(name)
    return NotApplied("there is nothing of this key")


# --- the programs ---------------------------------------------------------------------------------


class PlanFailedError(Exception):
    """The owner's plan fails after its steps."""


def owner(process: Process) -> None:
    """Charge, book, and commit or fail."""
    _here(process)
    here = stage()
    wal = ModelWAL(here.log, process)
    kit = AgentKit("model", wal=wal, settings=SETTINGS)
    with contextlib.suppress(Exception):
        with kit.transaction():
            charge("a")
            book("b")
            if here.fails:
                raise PlanFailedError
        here.returned = True


def daemon(process: Process) -> None:
    """Make passes until nothing is left to do for it."""
    _here(process)
    here = stage()
    wal = ModelWAL(here.log, process)
    runtime = Runtime(wal=wal, settings=SETTINGS)

    def place() -> Place:
        engine = runtime.engine()
        return Place(engine, wal, ModelStore(process, here.store))

    for _ in range(2):
        process.stop("pass")
        Daemon(place, str(here.log), by=f"daemon {process.number}").sweep(patient=True)


def _here(process: Process) -> None:
    _processes[process.thread.ident or 0] = process


@contextlib.contextmanager
def scene(*, daemons: int = 2, fails: bool = True) -> Iterator[Scene]:
    """A fresh scene."""
    folder = tempfile.TemporaryDirectory(dir=_memory())
    here = Stage(Path(folder.name), fails=fails)
    _stage[:] = [here]
    processes = [Process(0, owner), *(Process(n, daemon) for n in range(1, daemons + 1))]
    made = Scene(processes, here.shared, here)
    try:
        with ended(made):
            yield made
    finally:
        for process in processes:
            for give_back in process.at_death:
                give_back()
        _processes.clear()
        folder.cleanup()


def _memory() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) else None


# --- the judge ------------------------------------------------------------------------------------


def judge(scene: Scene) -> None:
    """Let a last daemon finish what is left, then compare the world with what the log says."""
    here: Any = scene.stage
    for process in scene.processes:
        assert process.failure is None, process.failure
        for give_back in process.at_death:
            give_back()
    _last(here)
    names = {name for _, name, _ in here.applied}
    for name in names:
        assert here.standing(name) in (0, 1), f"{name} was done or undone twice: {here.applied}"
    undone = [name for kind, name, _ in here.applied if kind == "inverse"]
    assert undone == sorted(undone, reverse=True), f"undone in a wrong order: {undone}"
    forward = [key for kind, _, key in here.calls if kind == "forward"]
    assert len(forward) == len(set(forward)), "a call was made again"
    inverse = {(name, key) for kind, name, key in here.calls if kind == "inverse"}
    assert len(inverse) == len({name for name, _ in inverse}), "an inverse had another key"
    assert not here.unannounced, f"not announced: {here.unannounced}"
    waiting = {case.id for case in cases(str(here.log))}
    for found_saga in _all(here):
        view = found_saga.view
        assert not view.faults, view.faults
        assert view.state in ENDED, view.state
        assert view.clean or found_saga.id in waiting, "not clean, and nobody is told"
        stands = {name for name in names if here.standing(name)}
        if view.clean:
            due = names if view.state is SagaState.COMMITTED else set()
            assert stands == due, f"clean, and these stand: {stands}"
        assert not here.returned or view.state is SagaState.COMMITTED, "told success"


def _last(here: Stage) -> None:
    process = Process(9, lambda _: None)
    process.thread = threading.current_thread()
    process.free = True
    _processes[process.thread.ident or 0] = process
    wal = ModelWAL(here.log, process)
    runtime = Runtime(wal=wal, settings=SETTINGS)
    place = Place(runtime.engine(), wal, here.store)
    Daemon(lambda: place, str(here.log), by="the last").sweep(patient=True)
    wal.close()
    process.at_death[0]()


def _all(here: Stage) -> list[Any]:
    ids = {r.saga for r in scan(here.log) if getattr(r, "saga", "")}
    return [found for saga in sorted(ids) if (found := look(here.log, saga)) is not None]
