"""The scene of the model: real code on one log and store, before a provider that loses answers.

The log is the file log on a disk, written through a port that stops before every call that others
can see; a sync is made at once. The store holds the real rules. The provider is a list of what took
hold; its answers can be lost, and its requests can be on their way for a while. Time stands still,
except where somebody sleeps: then what is on its way arrives first. The wall clock jumps at every
look.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from model.scheduler import DIE, POWER, TORN, Process

from agent_saga import FileWAL, NotApplied
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.state.memory import MemoryStateStore
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.os_port import OsPort

LOST, FAILS = "the answer is lost", "it fails before its effect"
HELD = "no answer comes, and the request is on its way"
DENIED = "its provider says that it did not happen"
BLIND = "it is taken for dead"


class Event(NamedTuple):
    """Something that the provider saw: a call that took hold, or what its caller learnt."""

    what: str
    kind: str
    name: str
    key: str
    at: int


class Written(NamedTuple):
    """A record in the order in which the operating system got it."""

    writer: str
    record: Record


class Clock:
    """Stands still until somebody sleeps; its wall clock is never the same day twice."""

    def __init__(self, before: Callable[[], object]) -> None:
        self.now = 0.0
        self._looks = 0
        self._before = before

    def now_us(self) -> int:
        self._looks += 1
        days = -self._looks if self._looks % 2 else self._looks
        return 1_700_000_000_000_000 + days * 86_400_000_000

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass: whatever can arrive late has arrived before."""
        self._before()
        self.now += seconds


class Stage:
    """The provider's world, the disk, and what the judge needs to know."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.store = MemoryStateStore()
        self.clock = Clock(self.before_time_passes)
        self.processes: dict[int, Process] = {}
        self.applied: list[tuple[str, str, str]] = []
        self.calls: list[tuple[str, str, str]] = []
        self.events: list[Event] = []
        self.on_its_way: list[tuple[str, str, str, bool]] = []
        self.unannounced: list[str] = []
        self.written: dict[tuple[str, int], Record] = {}
        self.order: list[Written] = []
        self.synced: set[tuple[str, int]] = set()
        self.durable: dict[str, bytes] = {}
        self.stored: dict[str, bytes] = {}
        self.taken_for_dead: set[int] = set()
        self.first_caller: dict[str, int] = {}
        self.returned = False
        self.told_undone = False
        self.failures: list[Exception] = []
        self.halted_at: int | None = None
        self.quarantined_at: int | None = None
        self.released_at = 0
        self.waits_for_calls = True
        self.group: list[Process] = []

    def current(self) -> Process:
        """The process whose thread this is."""
        return self.processes[threading.get_ident()]

    def here(self, process: Process) -> None:
        """Say that the current thread is of a process."""
        self.processes[threading.get_ident()] = process

    # --- the provider ---------------------------------------------------------------------------

    def call(self, kind: str, name: str, key: str, *, keyed: bool) -> None:
        """A request reaches the provider, whatever becomes of its answer."""
        process = self.current()
        action = process.stop(f"{kind} {name}", DIE, LOST, FAILS, HELD, DENIED)
        self.calls.append((kind, name, key))
        self.note("called", kind, name, key)
        if action == DENIED:
            raise NotApplied("the provider is busy")
        if action == FAILS:
            raise ConnectionError("it did not arrive")
        if kind == "forward" and key not in self.announced():
            self.unannounced.append(name)
        if action == HELD:
            self.on_its_way.append((kind, name, key, keyed))
            raise ConnectionError("nobody answers")
        self.takes_hold(kind, name, key, keyed=keyed)
        if action == LOST:
            raise ConnectionError("the answer is lost")
        process.stop(f"answer of {kind} {name}", DIE)
        self.note("answered", kind, name, key)

    def takes_hold(self, kind: str, name: str, key: str, *, keyed: bool) -> None:
        if not (keyed and (kind, name, key) in self.applied):
            self.applied.append((kind, name, key))
            self.note("took hold", kind, name, key)

    def note(self, what: str, kind: str, name: str, key: str) -> None:
        """Remember something that the provider saw, and how many records there were then."""
        self.events.append(Event(what, kind, name, key, len(self.order)))

    def before_time_passes(self) -> None:
        """Wait until nobody is about to call, as `settle_after` assumes; then let all arrive."""
        here = self.current()
        if not self.waits_for_calls:
            return
        here.idle = lambda: any(one.calls() for one in self.group if one is not here)
        if here.idle():
            here.stop("waits for calls that come late")
        here.idle = lambda: False
        self.arrive()

    def arrive(self) -> None:
        """Let everything arrive that is on its way."""
        while self.on_its_way:
            kind, name, key, keyed = self.on_its_way.pop(0)
            self.takes_hold(kind, name, key, keyed=keyed)

    def standing(self, name: str) -> int:
        kinds = [kind for kind, what, _ in self.applied if what == name]
        return kinds.count("forward") - kinds.count("inverse")

    # --- the disk -------------------------------------------------------------------------------

    def wrote(self, path: str, data: bytes) -> None:
        """Remember the records of a write."""
        writer = Path(path).parent.name
        for line in data.split(b"\n"):
            record = parsed(line, writer) if line else None
            if record is not None and (writer, record.seq) not in self.written:
                self.written[writer, record.seq] = record
                self.order.append(Written(writer, record))

    def sync(self, path: str) -> None:
        """Make durable what a file holds."""
        writer = Path(path).parent.name
        self.synced |= {place for place in self.written if place[0] == writer}
        self.durable[path] = Path(path).read_bytes()

    def announced(self) -> set[str]:
        """The keys of the effects whose announcement is durable."""
        return {
            identity.idempotency_key(r.saga, r.step, r.generation, identity.FORWARD)
            for place, r in self.written.items()
            if r.event == Ev.STEP_INTENT and place in self.synced
        }

    def power_fails(self) -> None:
        """Everybody dies, and what was not synced is gone."""
        for process in self.group:
            process.die()
        for path in self.log.rglob("seg-*.jsonl"):
            path.write_bytes(self.durable.get(str(path), b""))
        self.written = {place: r for place, r in self.written.items() if place in self.synced}
        self.order = [one for one in self.order if (one.writer, one.record.seq) in self.synced]
        self.store._stored.clear()
        self.store._stored.update(self.stored)

    # --- what is shared -------------------------------------------------------------------------

    def shared(self) -> int:
        """Everything that a process could see, as one number."""
        writers = {writer: n for n, writer in enumerate(dict.fromkeys(w for w, _ in self.written))}
        log = tuple(
            (writers[w], r.event, r.epoch, r.step) for (w, _), r in self.written.items() if r.saga
        )
        store = tuple(
            sorted(
                (doc["epoch"], doc["owner"] is None, doc["ended"])
                for _, doc in self.store.scan("claim/")
            )
        )
        world = tuple((kind, name) for kind, name, _ in self.applied)
        rest = (len(self.synced), len(self.on_its_way), len(self.taken_for_dead), self.halted_at)
        return hash((log, store, world, rest))


_stage: list[Stage] = []


def use(made: Stage) -> None:
    _stage[:] = [made]


def stage() -> Stage:
    return _stage[0]


class ModelPort(OsPort):
    """Stops before every system call that others can see; a dead process makes none."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.stage = stage()
        self.opened: dict[int, str] = {}
        process.at_death.append(self.let_go)

    def let_go(self) -> None:
        """Close what the process held, as the operating system does: its locks are free."""
        while self.opened:
            os.close(self.opened.popitem()[0])

    def here(self) -> Process:
        """The thread of the process that makes a call."""
        return self.stage.processes.get(threading.get_ident(), self.process)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._alive()
        fd = super().open(path, flags, mode)
        self.opened[fd] = str(Path(path).absolute())
        return fd

    def close(self, fd: int) -> None:
        if self.opened.pop(fd, None) is not None:
            super().close(fd)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        here = self.here()
        action = here.stop(f"write {_events(data)}", DIE, TORN, POWER, locks=True)
        if action == TORN:
            data = data[: -len(data.rstrip(b"\n").rsplit(b"\n", 1)[-1]) // 2]
        done = super().pwrite(fd, data, offset)
        self.stage.wrote(self.opened[fd], data)
        if action == TORN:
            here.die()
            here.stop("dead")
        return done

    def append(self, fd: int, data: bytes) -> int:
        self.here().stop("fence", DIE, locks=True)
        return super().append(fd, data)

    def stat(self, path: str) -> os.stat_result:
        if path.endswith("lock"):
            self.here().stop("look at the fence", DIE, locks=True)
        return super().stat(path)

    def flock(self, fd: int) -> bool:
        self.here().stop("lock", locks=True)
        return super().flock(fd)

    def fdatasync(self, fd: int) -> None:
        self._alive()
        self.stage.sync(self.opened[fd])

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
    """The file log without a thread of its own: it is synced where somebody waits for it."""

    syncs_inline = True

    def __init__(self, path: Path, process: Process) -> None:
        self.own_port = ModelPort(process)
        super().__init__(path, self.own_port)
        process.at_death.append(self.forget)

    def forget(self) -> None:
        """The process is gone: nothing of this is written any more, and no thread of it is left."""
        self._cause = OSError("its process is gone")
        if self._segments is not None:
            self._segments._preparer.stop(0.0)

    def _after_drain(self) -> None:
        """What was written may be lost until somebody waits for it."""

    def wait_durable(self, seq: int, timeout: float | None = None) -> None:
        self.drain()
        if self.synced < seq:
            self.own_port.here().stop("sync", DIE, POWER)
            for path in list(self.own_port.opened.values()):
                if "seg-" in path:
                    self.own_port.stage.sync(path)
            super()._after_drain()
        super().wait_durable(seq, timeout)


class ModelStore(MemoryStateStore):
    """One process's way to the store: it stops before every use."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process
        self.stage = stage()

    def transact(self, keys: Any, rule: Any, **options: Any) -> Any:
        self.process.stop("store", DIE)
        answer = self.stage.store.transact(keys, rule, **options)
        if options.get("durable"):
            self.stage.stored = dict(self.stage.store._stored)
        return answer

    def get(self, key: str, **options: Any) -> Any:
        self.process.stop("look into the store")
        return self.stage.store.get(key, **options)

    def scan(self, prefix: str = "", **options: Any) -> Any:
        """Look for marks: no moment of its own, as the log is looked at after it."""
        return self.stage.store.scan(prefix)

    def close(self) -> None:
        """The store is shared."""
