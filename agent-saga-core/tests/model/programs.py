"""What runs in the scenes of the model: tools, an owner, daemons, an operator, and a network.

What runs is `AgentKit`, `Daemon`, `retry_case` and everything below them, unchanged.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import NamedTuple

from model.scheduler import DIE, POWER, Process, Scene, ended
from model.stage import BLIND, ModelStore, ModelWAL, Stage, stage, use

from agent_saga import AgentKit, Applied, NotApplied, Observation, SagaAborted, Settings, tool
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.switch.kill_switch import KillSwitch
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.errors import AgentSagaError
from agent_saga.recovery.claim import Place
from agent_saga.recovery.daemon import Daemon
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.queue import cases_in, retry_case
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.runtime.composition import Runtime

SETTINGS = Settings(
    settle=0.0, settle_after=5.0, inverse_delay=0.0, inverse_attempts=2, on_unsettled="warn"
)


MOMENT = 3600.0
"""A window that is open to one process only: between two looks at the wall clock lie days."""


class Plan(NamedTuple):
    """Who is in a scene, and what the owner does.

    Attributes:
        daemons: how many daemons there are.
        fails: the owner's plan fails after its steps.
        operator: somebody retries what is in the queue.
        together: the second step is made by a thread of its own, which nobody waits for.
        network: requests may be on their way for a while.
        blind: daemons may take the owner for dead although it lives.
        assumes: no call takes hold after `settle_after`.
        stops: somebody halts everything ("halt"), or quarantines the saga ("quarantine").
    """

    daemons: int = 2
    fails: bool = True
    operator: bool = False
    together: bool = False
    network: bool = False
    blind: bool = False
    assumes: bool = True
    stops: str = ""


# --- the tools ------------------------------------------------------------------------------------


@tool("COMPENSABLE", name="model.charge")
def charge(name: str, *, idempotency_key: str) -> str:
    """Its provider knows keys, for effects and inverses."""
    stage().call("forward", name, idempotency_key, keyed=True)
    return name


@charge.undo(idempotent=True)
def refund(result: str, *, idempotency_key: str) -> None:
    stage().call("inverse", result, idempotency_key, keyed=True)


@charge.probe
def find_charge(args: dict[str, str], *, idempotency_key: str) -> Applied | NotApplied:
    return _found(args["name"], idempotency_key)


@tool("COMPENSABLE", name="model.book")
def book(name: str, *, idempotency_key: str) -> str:
    """Its provider does again what it is told to do again; it can be asked what holds."""
    stage().call("forward", name, idempotency_key, keyed=False)
    return name


@book.undo
def cancel(result: str, *, idempotency_key: str) -> None:
    stage().call("inverse", result, idempotency_key, keyed=False)


@book.probe
def find_booking(args: dict[str, str], *, idempotency_key: str) -> Applied | NotApplied:
    return _found(args["name"], idempotency_key)


@book.observe
def look_for_booking(result: str) -> Observation:
    stands = stage().standing(result) > 0
    return Observation(reversed_=not stands, exists=stands)


@tool("COMPENSABLE", name="model.post")
def post(name: str, *, idempotency_key: str) -> str:
    """Nobody can be asked about it."""
    stage().call("forward", name, idempotency_key, keyed=False)
    return name


@post.undo
def unpost(result: str, *, idempotency_key: str) -> None:
    stage().call("inverse", result, idempotency_key, keyed=False)


@tool("COMPENSABLE", name="model.pay")
def pay(name: str, *, idempotency_key: str) -> str:
    """Its provider knows the key of an inverse for a moment, and nobody can be asked."""
    stage().call("forward", name, idempotency_key, keyed=False)
    return name


@pay.undo(idempotent=True, window=MOMENT)
def pay_back(result: str, *, idempotency_key: str) -> None:
    here = stage()
    first = here.first_caller.setdefault(idempotency_key, here.current().number)
    keyed = first == here.current().number  # to others the moment has passed, or is yet to come
    here.call("inverse", result, idempotency_key, keyed=keyed)


def _found(name: str, key: str) -> Applied | NotApplied:
    if ("forward", name, key) in stage().applied:
        return Applied(name)
    return NotApplied("there is nothing of this key")


# --- the programs ---------------------------------------------------------------------------------


class PlanFailedError(Exception):
    """The owner's plan fails after its steps."""


class Owner:
    """Makes two steps, and commits or fails."""

    def __init__(self, plan: Plan, second: Callable[[str], object]) -> None:
        self.plan = plan
        self.second = second
        self.spawned: list[Callable[[], object]] = []

    def run(self, process: Process) -> None:
        here = stage()
        here.here(process)
        kit = AgentKit("model", wal=ModelWAL(here.log, process), settings=SETTINGS)
        kit.runtime.store = ModelStore(process)
        try:
            with kit.transaction():
                charge("a")
                if self.plan.together:
                    context = copy_context()
                    self.spawned.append(lambda: context.run(self.second, "b"))
                    process.stop("goes on", DIE)
                else:
                    self.second("b")
                if self.plan.fails:
                    raise PlanFailedError
            here.returned = True
            process.stop("was told success", POWER)
        except SagaAborted as aborted:
            here.told_undone = aborted.report.clean
        except Exception as error:
            here.failures.append(error)

    def run_beside(self, process: Process) -> None:
        """Be the thread of the second step."""
        stage().here(process)
        with contextlib.suppress(Exception):
            self.spawned.pop()()


def daemon(process: Process) -> None:
    """Make passes until nothing is left to do for it."""
    here = stage()
    here.here(process)
    place = _place(process)
    for _ in range(2):
        if process.stop("pass", BLIND) == BLIND:
            here.taken_for_dead |= {path.stat().st_ino for path in _locks_of_owner(here)}
        Daemon(lambda: place, str(here.log), by=f"daemon {process.number}").sweep(patient=True)


def operator(process: Process) -> None:
    """Retry what is in the queue, twice."""
    here = stage()
    here.here(process)
    place = _place(process)
    for _ in range(2):
        process.stop("looks into the queue")
        for case in cases_in(str(here.log)):
            with contextlib.suppress(AgentSagaError):
                retry_case(place, case.id, by="the operator")


def halts(process: Process) -> None:
    """Halt everything; from now on it is told that it is halted."""
    here = stage()
    here.here(process)
    process.stop("halts")
    switch = KillSwitch(SwitchStore(ModelStore(process)), clock=here.clock)
    switch.halt(reason="the model says so", by="the watch")
    here.halted_at = len(here.order)


def quarantines(process: Process) -> None:
    """Quarantine the only saga; from now on it is told that it is quarantined."""
    here = stage()
    here.here(process)
    process.stop("quarantines")
    switch = KillSwitch(SwitchStore(ModelStore(process)), clock=here.clock)
    saga = next(r.saga for r in here.written.values() if r.saga)
    switch.quarantine(saga, reason="the model says so", by="the watch")
    here.halted_at = here.quarantined_at = len(here.order)


def network(process: Process) -> None:
    """Bring requests to the provider, one by one."""
    here = stage()
    here.here(process)
    while True:
        process.stop("a request arrives")
        if here.on_its_way:
            kind, name, key, keyed = here.on_its_way.pop(0)
            here.takes_hold(kind, name, key, keyed=keyed)


def _place(process: Process) -> Place:
    wal = ModelWAL(stage().log, process)
    runtime = Runtime(wal=wal, settings=SETTINGS)
    runtime.store = ModelStore(process)
    proofs = Proofs(KnownSagas(lambda: runtime.store))
    return Place(runtime.engine(), wal, runtime.store, proofs)


def _locks_of_owner(here: Stage) -> list[Path]:
    first = next((w for w, _ in here.written), None)
    lock = here.log / "writers" / str(first) / "lock"
    return [lock] if lock.exists() else []


# --- the scene ------------------------------------------------------------------------------------


@contextlib.contextmanager
def scene(plan: Plan, second: Callable[[str], object] = book) -> Iterator[Scene]:
    """Make a fresh scene."""
    folder = tempfile.TemporaryDirectory(dir=_memory())
    here = Stage(Path(folder.name))
    here.waits_for_calls = plan.assumes
    use(here)
    made = Scene(_processes(plan, second), here.shared, here.power_fails, here)
    INSTALLED.put("switch", KillSwitch() if plan.stops else None)
    try:
        with ended(made):
            yield made
    finally:
        for process in made.processes:
            for give_back in process.at_death:
                give_back()
        INSTALLED.put("switch", None)
        folder.cleanup()


def _processes(plan: Plan, second: Callable[[str], object]) -> list[Process]:
    owner = Owner(plan, second)
    first = Process(0, owner.run)
    processes = [first, *(Process(n, daemon) for n in range(1, plan.daemons + 1))]
    if plan.together:
        beside = Process(len(processes), owner.run_beside)
        beside.idle = lambda: not owner.spawned and beside.at == "start"
        first.group = beside.group = [first, beside]
        processes.append(beside)
    if plan.operator:
        processes.append(Process(len(processes), operator))
    if plan.stops:
        watch = Process(len(processes), halts if plan.stops == "halt" else quarantines)
        watch.idle = lambda: not any(r.saga for r in stage().written.values())
        processes.append(watch)
    if plan.network:
        bringing = Process(len(processes), network)
        bringing.idle = lambda: not stage().on_its_way
        processes.append(bringing)
    for process in processes:
        stage().group.append(process)
    return processes


def _memory() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) else None


def finish(here: Stage) -> None:
    """Let a last daemon, whom nobody interrupts, do what is left."""
    process = Process(99, lambda _: None)
    process.thread = threading.current_thread()
    process.free = True
    here.here(process)
    here.arrive()
    place = _place(process)
    if here.quarantined_at is not None:
        for saga in {r.saga for r in here.written.values() if r.saga}:
            KillSwitch(SwitchStore(place.store)).release_saga(saga, by="the watch")
    here.released_at = len(here.order)
    Daemon(lambda: place, str(here.log), by="the last").sweep(patient=True)
    place.wal.barrier_sync()
    place.wal.close()
    process.at_death[0]()
