"""Random stories of what can happen to a program, from a number each, and the verdict on them.

    @pytest.mark.parametrize("seed", range(200))
    def test_whatever_happens(tmp_path, server, seed):
        lab = CrashLab(tmp_path, "shop:run", server=server, argument=seed)
        play(lab, drawn(seed, points=["between charge and mail"]))
        judge(lab)

Rules of this part:

- A story follows from its seed alone, and prints as what happens in it, so that a failure can be
  told again.
- It ends when nobody interferes any more: two passes of recovery find the same.
- The verdict compares the world with the log. Never twice: no effect and no inverse took hold a
  second time, no call is repeated that is not declared idempotent, and every attempt at one inverse
  had one key. Never falsely clean: what the log calls clean is true of the world. No effect without
  its announcement. Every saga ended, or is in the queue of a human.
- Programs act on the world of the laboratory, give each step's effect a name of its own, and hand
  its idempotency key to it.
"""

# ruff: noqa: S101 - a verdict is what an assertion says

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_saga.domain import identity
from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.recovery.queue import cases_in
from agent_saga_testing.crash_kills import EXITED, KILLED, Kill

if TYPE_CHECKING:
    from agent_saga.domain.views import SagaView
    from agent_saga.wal.format import Record
    from agent_saga_testing.crash import CrashLab
    from agent_saga_testing.world import World

__all__ = ["Played", "Story", "Turn", "drawn", "judge", "play"]

_ENDED: Final = frozenset(
    {
        SagaState.COMMITTED,
        SagaState.ROLLED_BACK,
        SagaState.PARTIAL,
        SagaState.STUCK,
        SagaState.REOPENED,
        SagaState.CLOSED,
    }
)
_MOST_RUNS: Final = 8
_CLOCKS: Final = (-86_400.0, -60.0, 60.0, 7200.0, 30 * 86_400.0)


class Turn(NamedTuple):
    """One thing that happens.

    Attributes:
        what: "run" (the program runs), "beside" (it runs, and daemons beside it), "stands" (it is
            stopped, daemons run, and it is revived), "dead" (the same, and the daemons take it for
            dead), "recover" (daemons run), "retry" (an operator retries every case).
        kills: what becomes of the processes: the program's first, then of each daemon.
        clock: seconds by which the wall clock of these processes is off.
    """

    what: str
    kills: tuple[Kill | None, ...]
    clock: float = 0.0

    def __str__(self) -> str:
        told = ", ".join("lives" if kill is None else str(kill) for kill in self.kills)
        clock = f", clock off by {self.clock:.0f} s" if self.clock else ""
        return f"{self.what}: {told}{clock}"


class Story(NamedTuple):
    """What happens, in order.

    Attributes:
        seed: what it was drawn from.
        turns: what happens.
        resumes: the program resumes its saga: it is run again until that has ended.
    """

    seed: int
    turns: tuple[Turn, ...]
    resumes: bool = False

    def __str__(self) -> str:
        return "\n".join([f"story {self.seed}", *(f"  {turn}" for turn in self.turns)])


class Played(NamedTuple):
    """How a story went.

    Attributes:
        statuses: the exit status of each process, turn by turn.
        deaths: how many processes were killed, or ended themselves where they were told to.
        revived: whether a process was stopped and revived.
        presumed_dead: whether daemons took a process for dead that lived.
        needs_human: whether something is left in the queue.
    """

    statuses: list[list[int]]
    deaths: int
    revived: bool
    presumed_dead: bool
    needs_human: bool


# --- drawing --------------------------------------------------------------------------------------


def drawn(seed: int, *, points: Sequence[str] = (), resumes: bool = False) -> Story:
    """Return the story of a number.

    Args:
        seed: the number.
        points: the points that the program names, where processes may end too.
        resumes: the program resumes its saga when it is run again.
    """
    draw = random.Random(f"story {seed}")  # noqa: S311 - a seed is all that is wanted
    first = draw.choice(["run", "run", "run", "run", "beside", "stands", "dead"])
    later = ["recover", "recover", "recover", "retry", *(["run"] if resumes else [])]
    whats = [first, *(draw.choice(later) for _ in range(draw.randint(0, 3)))]
    return Story(seed, tuple(_turn(draw, what, points) for what in whats), resumes)


def _turn(draw: random.Random, what: str, points: Sequence[str]) -> Turn:
    clock = draw.choice(_CLOCKS) if draw.random() < 0.1 else 0.0
    daemons = [
        _kill(draw, points) if draw.random() < 0.5 else None for _ in range(draw.randint(1, 4))
    ]
    if what == "recover":
        return Turn(what, tuple(daemons), clock)
    if what in ("stands", "dead"):
        return Turn(what, (_kill(draw, points, by=["stop"]), *daemons), clock)
    if what == "beside":
        return Turn(what, (_kill(draw, points, by=["block", "block", "kill"]), *daemons), clock)
    kill = _kill(draw, points) if what == "run" or draw.random() < 0.5 else None
    return Turn(what, (kill,), clock)


def _kill(draw: random.Random, points: Sequence[str], by: Sequence[str] = ("kill", "exit")) -> Kill:
    chosen = draw.choice(by)
    after = draw.random() < 0.5
    where = draw.choice(["record", "record", "call", "time", *(["point"] if points else [])])
    if where == "record":
        kill = Kill.at_record(nth=draw.randint(1, 16), after=after, by=chosen)
    elif where == "call":
        kill = Kill.at_call(nth=draw.randint(1, 40), after=after, by=chosen)
    elif where == "point":
        kill = Kill.at_point(draw.choice(points), draw.randint(1, 4), by=chosen)
    else:
        kill = Kill.after_seconds(draw.uniform(0.0, 0.02), by=chosen)
    return kill._replace(blocks=draw.uniform(0.01, 0.1))


# --- playing --------------------------------------------------------------------------------------


def play(lab: CrashLab, story: Story) -> Played:
    """Let a story happen, and then let recovery finish what is left.

    Raises:
        AssertionError: two passes of recovery in a row found different things to do.
        TimeoutError: a process did not end.
    """
    statuses = []
    for turn in story.turns:
        lab.clock = turn.clock
        statuses.append(_happens(lab, turn))
    lab.clock, lab.presumed_dead = 0.0, ()
    last = lab.recover()
    for _ in range(_MOST_RUNS if story.resumes else 0):
        if all(view.state in _ENDED for view in lab.views().values()):
            break
        statuses.append([lab.run()])
        last = lab.recover()
    again = lab.recover()
    assert last == again, f"a second pass found something else: {last}, {again}"
    deaths = sum(status in (KILLED, EXITED) for turn in statuses for status in turn)
    whats = {turn.what for turn in story.turns}
    revived = bool(whats & {"stands", "dead"})
    return Played(statuses, deaths, revived, "dead" in whats, needs_human=last != [0])


def _happens(lab: CrashLab, turn: Turn) -> list[int]:
    program, *daemons = turn.kills
    if turn.what == "run":
        return [lab.run(program)]
    if turn.what == "retry":
        return [lab.retry(program)]
    if turn.what == "recover":
        return lab.recover(len(turn.kills), turn.kills)
    process = lab.start(program)
    stopped = turn.what in ("stands", "dead") and lab.stopped(process)
    if stopped and turn.what == "dead":
        lab.presume_dead(process)
    statuses = lab.recover(len(daemons), daemons)
    if stopped:
        lab.revive(process)
    return [lab.wait(process), *statuses]


# --- the verdict ----------------------------------------------------------------------------------


def judge(lab: CrashLab) -> None:
    """Compare the world with the log, once nothing happens any more.

    Raises:
        AssertionError: something happened twice or unannounced, something false is told, or a saga
            neither ended nor is in the queue.
    """
    views, steps = lab.views(), _announced(lab.records())
    _never_twice(lab.world, steps)
    waiting = {case.id for case in cases_in(str(lab.log))}
    for saga, view in views.items():
        _told_truly(lab.world, view, steps, waits=saga in waiting)


class _Announced(NamedTuple):
    """An effect as the log announces it."""

    saga: str
    step: str
    idempotent: bool


def _announced(records: Sequence[Record]) -> dict[str | None, _Announced]:
    return {
        identity.idempotency_key(r.saga, r.step, r.generation, identity.FORWARD): _Announced(
            r.saga, r.step, "idempotent" in facts_of(r)
        )
        for r in records
        if r.event == Ev.STEP_INTENT
    }


def _never_twice(world: World, steps: dict[str | None, _Announced]) -> None:
    world.assert_never_twice()
    reached: Counter[str | None] = Counter()
    for call in world.calls("forward"):
        assert call.key in steps, f"{call.name} was not announced"
        repeated = reached[call.key] and not steps[call.key].idempotent
        assert not repeated, f"{call.name} was called again, and is not idempotent"
        reached[call.key] += call.outcome != "failed"
    keys: dict[int | None, set[str | None]] = {}
    for call in world.calls("inverse"):
        keys.setdefault(call.target, set()).add(call.key)
    varied = [effect for effect, used in keys.items() if len(used) > 1]
    assert not varied, f"the inverse of {varied} was tried with another key"


def _told_truly(
    world: World, view: SagaView, steps: dict[str | None, _Announced], *, waits: bool
) -> None:
    told = f"saga {view.id} is {view.state.value}"
    assert view.state in _ENDED or waits, f"{told}: it neither ended nor is in the queue"
    assert view.clean or waits, f"{told}: it is not clean, and nobody is told"
    if not view.clean:
        return
    stands = {
        steps[call.key].step: call.name
        for call in world.standing()
        if call.key in steps and steps[call.key].saga == view.id
    }
    committed = view.state is SagaState.COMMITTED
    due = {
        step.id
        for step in view.steps.values()
        if (committed or step.state is StepState.KEPT)
        and step.state in (StepState.COMMITTED, StepState.KEPT)
    }
    made = {one.step for key, one in steps.items() if any(c.key == key for c in world.calls())}
    assert set(stands) == due & made, f"{told} and clean, and this stands: {stands}"
