"""Runs the same trajectories, faults and inverses through published alternatives.

    python -m bench.worlds.peers bfcl dojo-banking --runs 150 --seed 1
    python -m bench.worlds.peers --who sagaz --seed 1

Rules of this part:

- Each gets what it has a place for: actions, and an inverse where the table has one, with the look
  that was taken before. None has a place for a prober or for a call that must be refused, so none
  gets them.
- A false clean is split: where nothing would differ but for calls that nothing takes back, a guard
  before the call was missing, which none of them claims to be; the rest is the undoing: a lost
  answer, or an inverse that is not looked at. Ours runs twice: with nobody to approve, where the
  gate ends runs, and with a user who approves all, where nothing is refused and both undo the same.
- It is judged by what its result tells a user: "clean" is a failed run in which no undo is reported
  as failed. None of them claims to look at the world; the world is what the user gets.
- One that is not installed is skipped with a word. Each may have an environment of its own: a seed
  makes the runs the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.worlds import faults, judging, plans
from bench.worlds.__main__ import opened, worlds
from bench.worlds.faults import GaveUp, Struck
from bench.worlds.measures import Share
from bench.worlds.outcome import started
from bench.worlds.running import Run
from bench.worlds.standing import laid_over
from bench.worlds.traces import Trace
from bench.worlds.world import GoldCall, Task, World, WorldError

Step = tuple[str, Callable[[], Any], Callable[[Any], None] | None]
Peer = Callable[[list[Step]], bool]
"""Runs steps of which one fails; answers whether no undo is reported as failed."""

MODELS = (faults.BEFORE, faults.AFTER)


def latch(steps: list[Step]) -> bool:
    """Run with latch-idempotent."""
    from latch import Saga, SagaExecutionError  # noqa: PLC0415 - installed only for this

    saga = Saga(name="worlds")
    for name, action, undo in steps:
        saga.add_step(action, name=name, compensation=undo)
    try:
        saga.run()
    except SagaExecutionError as error:
        return not error.compensation_errors
    return True


def safeact(steps: list[Step]) -> bool:
    """Run with safeact."""
    from safeact import Saga, SagaFailed  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        try:
            with Saga("worlds", store=str(Path(folder, "store.db"))) as saga:
                for _, action, undo in steps:
                    saga.step(action, compensate=undo)
        except SagaFailed as failed:
            return not getattr(failed, "in_doubt", None)
        except Exception:
            return False  # an undo raised
    return True


def larzstate(steps: list[Step]) -> bool:
    """Run with larzstate."""
    from larzstate import Workflow, WorkflowFailed  # noqa: PLC0415 - as above

    flow = Workflow("worlds")
    for number, (name, action, undo) in enumerate(steps):
        _add(flow, f"{number}-{name}", action, undo)
    try:
        flow.run("run", {})
    except WorkflowFailed:
        return True
    except Exception:
        return False  # an undo raised
    return True


def _add(
    flow: Any, name: str, action: Callable[[], Any], undo: Callable[[Any], None] | None
) -> None:
    kept: list[Any] = []

    def forward(context: Any) -> None:
        kept.append(action())

    forward.__name__ = name
    step = flow.step()(forward)
    if undo is not None:
        step.compensate(lambda context: undo(kept[-1]))


def sagaz(steps: list[Step]) -> bool:
    """Run with sagaz."""
    from sagaz import Saga  # noqa: PLC0415 - as above
    from sagaz.core.exceptions import SagaCompensationError  # noqa: PLC0415 - as above

    saga = Saga(name="worlds")
    before: list[str] = []
    for number, (name, action, undo) in enumerate(steps):
        label = f"{number}-{name}"
        forward, back = _awaited(action, undo)
        saga.add_step(label, forward, back, depends_on=before)
        before = [label]
    try:
        asyncio.run(saga.run({}))
    except SagaCompensationError:
        return False
    except Exception:
        return True  # the step's own error, raised again after the undoing
    return True


def _awaited(action: Callable[[], Any], undo: Callable[[Any], None] | None) -> tuple[Any, Any]:
    kept: list[Any] = []

    async def forward(context: Any) -> Any:
        kept.append(action())
        return {}

    async def back(*context: Any) -> None:
        if undo is not None:
            undo(kept[-1])

    return forward, None if undo is None else back


PEERS: dict[str, Peer] = {
    "latch": latch,
    "safeact": safeact,
    "larzstate": larzstate,
    "sagaz": sagaz,
}
OURS = "agent-saga"
APPROVED = "agent-saga, all approved"
PACKAGES = {OURS: "agent-saga-core", APPROVED: "agent-saga-core", "latch": "latch-idempotent"}
"""The packages of those that are not called as they are."""


def main(arguments: list[str]) -> int:
    """Run all on the same runs, print, and return 0."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"--seed {seed}", flush=True)
    told: list[dict[str, Any]] = []
    for name in options.world or ("bfcl", "dojo-banking"):
        world = opened(name)
        runs = _drawn(world, options.runs, random.Random(f"{seed} {name}"))
        for who in options.who or (*PEERS, OURS, APPROVED):
            if who in PEERS and importlib.util.find_spec(who) is None:
                print(f"{name:16} {who:12} skipped: it is not installed")
                continue
            told.append(_tell(name, who, [_one_run(world, *one, who) for one in runs]))
    if options.json:
        kept = {"kind": "peers", "seed": seed, "each": options.runs, "peers": told}
        Path(options.json).write_text(json.dumps(kept, indent=1), "utf-8")
    return 0


def _drawn(world: World, count: int, rng: random.Random) -> list[tuple[Task, str, int]]:
    tasks = world.tasks()
    drawn = []
    for model in MODELS:
        for _ in range(count):
            task = rng.choice(tasks)
            drawn.append((task, model, rng.randrange(len(task.calls))))
    return drawn


@dataclass(frozen=True)
class End:
    """How one run ended.

    Attributes:
        exact: the world is what it was.
        declared: it is, but for what was declared.
        clean: what the result tells a user.
        guarded: it is, but for calls that nothing takes back.
        refused: the run was ended by a guard.
        false: clean, and not so.
    """

    exact: bool
    declared: bool
    clean: bool
    guarded: bool
    refused: bool
    false: bool


def _tell(world: str, who: str, ends: list[End]) -> dict[str, Any]:
    counted = {
        "exact": sum(one.exact for one in ends),
        "clean": sum(one.clean for one in ends),
        "false_clean": sum(one.false for one in ends),
        "guard": sum(one.false and one.guarded for one in ends),
        "undo": sum(one.false and not one.guarded for one in ends),
        "refused": sum(one.refused for one in ends),
    }
    whole = len(ends)
    exact, false = Share(counted["exact"], whole), Share(counted["false_clean"], whole)
    print(
        f"{world:16} {who:24} {whole:4} failed runs: restored exactly {exact}, "
        f"told as clean {counted['clean']}, falsely {false}: missing guard {counted['guard']}, "
        f"undo {counted['undo']}; refused {counted['refused']}",
        flush=True,
    )
    version = metadata.version(PACKAGES.get(who, who))
    return {"world": world, "who": who, "version": version, "runs": whole, **counted}


def _one_run(world: World, task: Task, model: str, at: int, who: str) -> End:
    if who in PEERS:
        return _peer_run(world, task, model, at, PEERS[who])
    one = Run(world, task, model, at, present=who == APPROVED).outcome()
    verdict = (one.exact and not one.stands, one.declared and not one.stands, one.clean)
    return End(*verdict, one.declared, bool(one.refused), one.false_clean)


def _peer_run(world: World, task: Task, model: str, at: int, run: Peer) -> End:
    place = world.open(task)
    struck = Struck(world, place, model, at)
    traces: list[Trace] = []
    steps = [_step(world, struck, call, traces) for call in task.calls[: at + 1]]
    steps.append(("end", _give_up, None))
    with contextlib.redirect_stdout(sys.stderr):
        clean = run(steps)
    start, now = started(world, task), place.snapshot()
    found = list(judging.differences(start, now))
    declared = not judging.undeclared(found, traces, start)
    changes = [change for one in struck.lasting for change in one.changes]
    beyond = judging.differences(laid_over(start, changes), now)
    guarded = bool(changes) and not judging.undeclared(beyond, traces, start)
    return End(not found, declared, clean, guarded, False, clean and not declared)


def _give_up() -> None:
    raise GaveUp


def _step(world: World, struck: Struck, call: GoldCall, traces: list[Trace]) -> Step:
    plan = world.plan(call.tool)
    seen: list[Any] = []

    def action() -> Any:
        if isinstance(plan, plans.Left):
            traces.extend(plan.trace(call.args))
        if isinstance(plan, plans.Write):
            seen.append(plan.look(struck.aside, call.args))
        with contextlib.suppress(WorldError):
            return struck.agent(call.tool, call.args)
        return None

    def undo(result: Any) -> None:
        assert isinstance(plan, plans.Write)
        traces.extend(plan.trace(call.args, seen[-1], result))
        plan.undo(struck.aside, call.args, seen[-1], result)

    return call.tool, action, undo if isinstance(plan, plans.Write) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []])
    parser.add_argument(
        "--who", action="append", choices=[*PEERS, OURS, APPROVED], help="only these"
    )
    parser.add_argument("--runs", type=int, default=150, help="runs of each fault")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
