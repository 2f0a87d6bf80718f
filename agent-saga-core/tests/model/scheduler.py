"""Runs a few programs one operation at a time, in every order that is asked for.

Rules of this part:

- Each process is a thread that stops before every operation that others could see, and goes on when
  it is its turn. Only one runs at a time, so a run follows from its decisions alone.
- A decision is a process and what becomes of its operation ("go", "die", and what the operation
  offers). A process that died does nothing any more: every later operation of it raises. Threads of
  one process are each scheduled by themselves, and die together.
- A process that has nothing to do yet is idle: it is not chosen.
- When the power fails everybody dies, and the disk forgets what was not synced.
- A run is repeated from the start for every branch. What was reached before is known by its state:
  where each process stands and what it has seen, and everything that is shared.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

GO, DIE, TORN, POWER = "go", "die", "dies within its write", "the power fails"
_DEATHS = (DIE, TORN, POWER)
PATIENCE = 300.0


class Died(BaseException):
    """The process is no more; nothing catches this that is not its own end."""


class Decision(NamedTuple):
    """Which process goes on, what becomes of its operation, and which that is."""

    process: int
    action: str
    at: str = ""

    def __str__(self) -> str:
        return f"process {self.process}, {self.at}: {self.action}"


class Process:
    """One process of a scene.

    Args:
        number: its place in the scene.
        program: what it does; it gets the process.

    Attributes:
        at, offers: where it stands, and what may become of its operation.
        history: everything that it has done and seen, as one number.
        free: it stops nowhere.
        idle: it waits for something; it is not chosen meanwhile.
        locks: it stands where it may hold locks that other threads of its process want.
        at_death: gives back what the operating system would take back.
        group: the threads that are one process with it, itself included.
    """

    def __init__(self, number: int, program: Callable[[Process], object]) -> None:
        self.number = number
        self.at = "start"
        self.offers: tuple[str, ...] = (GO,)
        self.dead = False
        self.ended = False
        self.free = False
        self.history = 0
        self.failure: BaseException | None = None
        self.locks = False
        self.idle: Callable[[], bool] = lambda: False
        self.at_death: list[Callable[[], object]] = []
        self.group: list[Process] = [self]
        self._action = GO
        self._go = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)
        self._program = program
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._wait()
        try:
            if not self.dead:
                self._program(self)
        except Died:
            pass
        except BaseException as error:
            if not self.dead:
                self.failure = error
        self.ended = True
        self.stopped.release()

    def stop(self, at: str, *offers: str, locks: bool = False) -> str:
        """Stop before an operation; return what becomes of it.

        Args:
            at: the operation.
            offers: what may become of it, beside going on.
            locks: other threads of the process must not go on meanwhile.

        Raises:
            Died: the process was killed here, or earlier.
        """
        if self.dead:
            raise Died
        if self.free or threading.current_thread() is not self.thread:
            return GO
        self.at, self.offers, self.locks = at, (GO, *offers), locks
        self.stopped.release()
        self._wait()
        if self.dead:
            raise Died
        return self._action

    def _wait(self) -> None:
        if not self._go.acquire(timeout=PATIENCE):
            self.dead = True

    def resume(self, action: str, shared: int) -> None:
        """Let it go on to its next operation, or to its end."""
        self.history = hash((self.history, self.at, action, shared))
        if action == DIE:
            self.die()
        self._action = action
        self._go.release()
        if not self.stopped.acquire(timeout=PATIENCE):
            raise TimeoutError(f"process {self.number} hangs behind {self.at}")

    def may_go(self) -> bool:
        """Say whether it can be chosen."""
        kept = any(one.locks and one is not self and not one.ended for one in self.group)
        return not (self.dead or self.ended or kept or self.idle())

    def calls(self) -> bool:
        """Say whether it stands directly before a call."""
        stands = self.at.startswith(("forward ", "inverse "))
        return stands and not (self.dead or self.ended)

    def die(self) -> None:
        """Be no more, with every thread of this process."""
        for one in self.group:
            one.dead = True
        for one in self.group:
            for give_back in one.at_death:
                give_back()

    def close(self) -> None:
        """End the thread, if it was started and stands somewhere."""
        if self.thread.ident is not None and not self.ended:
            self.resume(DIE, 0)
        if self.thread.ident is not None:
            self.thread.join(PATIENCE)


class Bounds(NamedTuple):
    """How far a search goes.

    Attributes:
        switches: how often a process is interrupted by another one.
        deaths: how many die.
        surprises: how many operations end in another unusual way.
        offers: what may become of operations, beside going on.
    """

    switches: int = 2
    deaths: int = 2
    surprises: int = 1
    offers: frozenset[str] = frozenset({DIE})


class Run(NamedTuple):
    """One run: its decisions, and the other decisions that were open at each of them."""

    decisions: list[Decision]
    branches: list[tuple[int, Decision]]


class Search:
    """Visits the states of a scene, within bounds.

    Args:
        scene: makes a fresh scene: its processes, and a function that tells the shared state.
        bounds: how far to go.
        states: stop after so many.
        seed: in which order branches are taken, when not all of them can be.
    """

    def __init__(
        self,
        scene: Callable[[], contextlib.AbstractContextManager[Scene]],
        bounds: Bounds,
        states: int,
        seed: int = 1,
    ) -> None:
        self._seed = seed
        self._scene = scene
        self._bounds = bounds
        self._most = states
        self.seen: set[int] = set()
        self.runs = 0
        self.whole = False

    def visit(self, judge: Callable[[Scene, Sequence[Decision]], object]) -> None:
        """Run everything within the bounds; `judge` is called at the end of every run."""
        todo: list[list[Decision]] = [[]]
        draw = random.Random(self._seed)
        while todo and len(self.seen) < self._most:
            at = draw.randrange(len(todo))
            todo[at], todo[-1] = todo[-1], todo[at]
            prefix = todo.pop()
            with self._scene() as scene:
                run = self._follow(scene, prefix)
                judge(scene, run.decisions)
            self.runs += 1
            for depth, branch in run.branches:
                todo.append([*run.decisions[:depth], branch])
        self.whole = not todo

    def _follow(self, scene: Scene, prefix: list[Decision]) -> Run:
        decisions: list[Decision] = []
        branches: list[tuple[int, Decision]] = []
        last = -1
        for process in scene.processes:
            process.thread.start()
        while options := self._options(scene, decisions, last):
            depth = len(decisions)
            if depth < len(prefix):
                chosen = prefix[depth]
            else:
                chosen, *others = options
                if self._is_new(scene, last):
                    branches += [(depth, other) for other in others]
            decisions.append(chosen)
            if chosen.action == POWER:
                scene.power_fails()
                continue
            scene.processes[chosen.process].resume(chosen.action, scene.shared())
            last = chosen.process
        return Run(decisions, branches)

    def _is_new(self, scene: Scene, last: int) -> bool:
        state = hash(
            (last, scene.shared(), *((p.at, p.history, p.dead, p.ended) for p in scene.processes))
        )
        new = state not in self.seen
        self.seen.add(state)
        return new

    def _options(self, scene: Scene, decisions: list[Decision], last: int) -> list[Decision]:
        alive = [p for p in scene.processes if p.may_go()]
        order = sorted(alive, key=lambda p: p.number != last)
        spent = _spent(decisions, scene)
        may_switch = spent.switches < self._bounds.switches
        options = []
        for process in order:
            if process.number != last and last in {p.number for p in alive} and not may_switch:
                continue
            options.append(Decision(process.number, GO, process.at))
            for offer in [one for one in process.offers[1:] if one in self._bounds.offers]:
                bound, used = (
                    (self._bounds.deaths, spent.deaths)
                    if offer in _DEATHS
                    else (self._bounds.surprises, spent.surprises)
                )
                if used < bound:
                    options.append(Decision(process.number, offer, process.at))
        return options


def _spent(decisions: list[Decision], scene: Scene) -> Bounds:
    switches = 0
    for before, after in itertools.pairwise(decisions):
        ended = scene.processes[before.process].dead or scene.processes[before.process].ended
        switches += before.process != after.process and not ended
    deaths = sum(one.action in _DEATHS for one in decisions)
    surprises = sum(one.action != GO for one in decisions) - deaths
    return Bounds(switches, deaths, surprises)


class Scene(NamedTuple):
    """What a run plays in."""

    processes: list[Process]
    shared: Callable[[], int]
    power_fails: Callable[[], object]
    stage: object


@contextlib.contextmanager
def ended(scene: Scene) -> Iterator[Scene]:
    """Make sure that no thread of a scene is left."""
    try:
        yield scene
    finally:
        for process in scene.processes:
            process.close()
