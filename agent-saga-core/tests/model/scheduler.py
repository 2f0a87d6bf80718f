"""Runs a few programs one operation at a time, in every order that is asked for.

Rules of this part:

- Each process is a thread that stops before every operation that others could see, and goes on when
  it is its turn. Only one runs at a time, so a run follows from its decisions alone.
- A decision is a process and what becomes of its operation ("go", "die", and what the operation
  offers). A process that died does nothing any more: every later operation of it raises.
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

GO, DIE = "go", "die"
PATIENCE = 60.0


class Died(BaseException):
    """The process is no more; nothing catches this that is not its own end."""


class Decision(NamedTuple):
    """Which process goes on, and what becomes of its operation."""

    process: int
    action: str


class Process:
    """One process of a scene.

    Args:
        number: its place in the scene.
        program: what it does; it gets the process.

    Attributes:
        at, offers: where it stands, and what may become of its operation.
        history: everything that it has done and seen, as one number.
        free: it stops nowhere.
        at_death: gives back what the operating system would take back.
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
        self.at_death: list[Callable[[], object]] = []
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

    def stop(self, at: str, *offers: str) -> str:
        """Stop before an operation; return what becomes of it.

        Raises:
            Died: the process was killed here, or earlier.
        """
        if self.dead:
            raise Died
        if self.free or threading.current_thread() is not self.thread:
            return GO
        self.at, self.offers = at, (GO, *offers)
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
            self.dead = True
            for give_back in self.at_death:
                give_back()
        self._action = action
        self._go.release()
        if not self.stopped.acquire(timeout=PATIENCE):
            raise TimeoutError(f"process {self.number} hangs behind {self.at}")


class Bounds(NamedTuple):
    """How far a search goes: how often processes are interrupted, die, and lose answers."""

    switches: int = 2
    deaths: int = 2
    surprises: int = 1


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
        alive = [p for p in scene.processes if not (p.dead or p.ended)]
        order = sorted(alive, key=lambda p: p.number != last)
        spent = _spent(decisions, scene)
        may_switch = spent.switches < self._bounds.switches
        options = []
        for process in order:
            if process.number != last and last in {p.number for p in alive} and not may_switch:
                continue
            options.append(Decision(process.number, GO))
            for offer in process.offers[1:]:
                bound, used = (
                    (self._bounds.deaths, spent.deaths)
                    if offer == DIE
                    else (self._bounds.surprises, spent.surprises)
                )
                if used < bound:
                    options.append(Decision(process.number, offer))
        return options


def _spent(decisions: list[Decision], scene: Scene) -> Bounds:
    switches = 0
    for before, after in itertools.pairwise(decisions):
        ended = scene.processes[before.process].dead or scene.processes[before.process].ended
        switches += before.process != after.process and not ended
    deaths = sum(one.action == DIE for one in decisions)
    surprises = sum(one.action not in (GO, DIE) for one in decisions)
    return Bounds(switches, deaths, surprises)


class Scene(NamedTuple):
    """What a run plays in."""

    processes: list[Process]
    shared: Callable[[], int]
    stage: object


@contextlib.contextmanager
def ended(scene: Scene) -> Iterator[Scene]:
    """Make sure that no thread of a scene is left."""
    try:
        yield scene
    finally:
        for process in scene.processes:
            if process.thread.ident is not None and not process.ended:
                process.resume(DIE, 0)
            if process.thread.ident is not None:
                process.thread.join(PATIENCE)
