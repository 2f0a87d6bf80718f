"""Breaks runs in worlds that other people wrote, and counts what agent-saga leaves behind.

    python -m bench.worlds                           a small share of every world
    python -m bench.worlds bfcl dojo-slack --runs 150
    python -m bench.worlds --task multi_turn_base_7 --fault after --at 2 bfcl
    python -m bench.worlds --everything --json out.json

Rules of this part:

- What is run follows from the arguments and the number that is printed: `--seed` repeats it.
- The exit code is 1 after a false clean, a doubled effect, a difference that nobody declared, or a
  lost answer that nobody settled though a tool of the world shows it.
- A run that is refused before its fault says nothing about the fault: it is counted, and leaves the
  denominators.
- Runs with nobody to approve are counted apart from those whose user approves what the task wants.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from bench.worlds import faults, measures
from bench.worlds.beside import partner, run_beside
from bench.worlds.killing import run_killed
from bench.worlds.mixed import mixed
from bench.worlds.outcome import Outcome
from bench.worlds.plans import Write
from bench.worlds.running import Run
from bench.worlds.world import Task, World

_KILLED = (faults.KILLED, faults.KILLED_BEFORE)
_FEW = 4
_TRIES = 8
"""How many calls are looked at for each run beside another saga."""


def worlds() -> dict[str, Callable[[], World]]:
    """Return every world by name; each is imported when it is asked for."""
    return {
        "bfcl": lambda: _bfcl("base"),
        "bfcl-long_context": lambda: _bfcl("long_context"),
        "bfcl-miss_func": lambda: _bfcl("miss_func"),
        "bfcl-miss_param": lambda: _bfcl("miss_param"),
        "bfcl-composite": lambda: _bfcl("composite"),
        "tau2-mock": lambda: _tau2("mock"),
        "tau2-telecom": lambda: _tau2("telecom"),
        "tau2-telecom-full": lambda: _tau2("telecom", "full"),
        "tau2-airline": lambda: _tau2("airline"),
        "tau2-retail": lambda: _tau2("retail"),
        "mcp-mock": lambda: _served("mock"),
        "mcp-airline": lambda: _served("airline"),
        "mcp-retail": lambda: _served("retail"),
        "dojo-banking": lambda: _dojo("banking"),
        "dojo-slack": lambda: _dojo("slack"),
        "dojo-workspace": lambda: _dojo("workspace"),
        "dojo-travel": lambda: _dojo("travel"),
    }


def _bfcl(variant: str) -> World:
    from bench.worlds.bfcl.world import Bfcl  # noqa: PLC0415 - a world of its own packages

    return Bfcl(variant)


def _tau2(domain: str, split: str = "base") -> World:
    from bench.worlds.tau2.world import Tau2  # noqa: PLC0415 - as above

    return Tau2(domain, split)


def _served(domain: str) -> World:
    from bench.worlds.served.world import Served  # noqa: PLC0415 - as above

    return Served(domain)


def _dojo(suite: str) -> World:
    from bench.worlds.dojo.world import Dojo  # noqa: PLC0415 - as above

    return Dojo(suite)


def main(arguments: list[str]) -> int:
    """Run, print, and return the exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("agent_saga").setLevel(logging.CRITICAL)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    seed = options.seed
    print(f"--seed {seed}", flush=True)
    outcomes: list[Outcome] = []
    chosen = options.world or [*worlds()]
    tasks = {name: _tasks(opened(name), options) for name in chosen}
    _all_known(tasks, options)
    for name in chosen:
        began = time.monotonic()
        outcomes += _runs(opened(name), tasks[name], options, random.Random(f"{seed} {name}"))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(outcomes))
    if options.json:
        said = {"kind": "runs", "seed": seed, "each": options.runs, "present": options.present}
        said |= {"mixed": options.mixed} if options.mixed else {}
        keep(options.json, outcomes, said)
    wrong = [one for one in outcomes if faulty(one)]
    for one in wrong[:10]:
        print(_repeat(one, options))
    return 1 if wrong else 0


def keep(file: str, outcomes: list[Outcome], said: dict[str, Any]) -> None:
    """Write outcomes, and what they are, for `report`."""
    lines = [one.as_dict() for one in outcomes]
    Path(file).write_text(json.dumps(said | {"runs": lines}, indent=1), "utf-8")


def faulty(one: Outcome) -> bool:
    """Say whether a run shows what must never be."""
    unsettled = one.lost and not one.settled
    wrong = one.false_clean or not one.declared or bool(one.doubles + one.collateral)
    return wrong or unsettled or bool(one.broken)


def table(outcomes: list[Outcome]) -> str:
    """Return the figures as a table; shares have their intervals at 95 %."""
    lines = [_LINE.format(*_HEADS)]
    for (world, model), row in measures.grouped(outcomes).items():
        lines.append(_line(world, model, row))
    lines.append(_line("all", "all", measures.row(outcomes)))
    return "\n".join(lines)


_HEADS = (
    *("world", "fault", "runs", "met", "exact %", "declared %", "false clean", "false dirty %"),
    *("doubled", "repeats", "settled", "refused", "cost", "collateral"),
)
_LINE = "{:18} {:14} {:>5} {:>5} {:>15} {:>15} {:>11} {:>14} {:>7} {:>7} {:>9} {:>7} {:>7} {:>10}"


def _line(world: str, model: str, row: measures.Row) -> str:
    counts = (f"{one.part}/{one.whole}" for one in (row.settled, row.cost, row.collateral))
    settled, cost, collateral = counts
    shares = (row.exact.short, row.declared.short)
    clean = (row.false_clean.part, row.false_dirty.short, row.doubles, row.repeats, settled)
    cells = (world, model, row.runs, row.met, *shares, *clean, row.refused.part, cost, collateral)
    return _LINE.format(*cells)


@cache
def opened(name: str) -> World:
    """Return a world, the same one each time; say what to do where its package is not there."""
    try:
        return worlds()[name]()
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{name}: {error.name} is not installed here.\n"
            f"  To do: run `nox -s all_worlds -- {name}`, which installs what the worlds need."
        ) from error


def _tasks(world: World, options: argparse.Namespace) -> list[Task]:
    known = mixed(world, options.mixed, options.seed) if options.mixed else world.tasks()
    tasks = [one for one in known if not options.task or one.name in options.task]
    return [one for one in tasks if options.at is None or options.at < len(one.calls)]


def _all_known(tasks: dict[str, list[Task]], options: argparse.Namespace) -> None:
    """End this where a task that was asked for is in none of the worlds, or nothing is left."""
    found = {task.name for some in tasks.values() for task in some}
    unknown = [name for name in options.task if name not in found]
    if not unknown and found:
        return
    number = "" if options.at is None else f" with a call number {options.at}"
    example = next((task.name for name in tasks for task in opened(name).tasks()), "")
    print(
        f"No task {', '.join(unknown) or 'at all'}{number} in {', '.join(tasks)}.\n"
        f"  To do: name tasks as their package does, for example {example}.",
        file=sys.stderr,
    )
    raise SystemExit(2)


def _runs(
    world: World, tasks: list[Task], options: argparse.Namespace, rng: random.Random
) -> Iterator[Outcome]:
    for model in options.fault or faults.MEANING if tasks else ():
        for task, at in _chosen(world, tasks, model, options, rng):
            yield one_run(world, task, model, at, present=options.present)


def _chosen(
    world: World, tasks: list[Task], model: str, options: argparse.Namespace, rng: random.Random
) -> Iterator[tuple[Task, int]]:
    if model == faults.NEIGHBOUR:
        tasks = [task for task in tasks if _undoable(world, task, options.at)]
    if options.everything:
        drawn = [(task, at) for task in tasks for at in range(len(task.calls))]
    else:
        many = options.runs * (_TRIES if model == faults.NEIGHBOUR else 1) if tasks else 0
        drawn = [_draw(world, tasks, model, options.at, rng) for _ in range(many)]
    if model != faults.NEIGHBOUR:
        yield from drawn
        return
    fit = ((task, at) for task, at in drawn if partner(world, task, at) is not None)
    yield from fit if options.everything else islice(fit, options.runs)


def _draw(
    world: World, tasks: list[Task], model: str, at: int | None, rng: random.Random
) -> tuple[Task, int]:
    task = rng.choice(tasks)
    struck = range(len(task.calls)) if model != faults.NEIGHBOUR else _undoable(world, task, at)
    return task, rng.choice(struck) if at is None else at


def _undoable(world: World, task: Task, at: int | None) -> list[int]:
    """Return which calls of a task have an inverse: only such can be undone beside another saga."""
    numbers = range(len(task.calls)) if at is None else [at]
    rows = [(number, world.plan(task.calls[number].tool)) for number in numbers]
    return [number for number, row in rows if isinstance(row, Write)]


def one_run(world: World, task: Task, model: str, at: int, *, present: bool) -> Outcome:
    """Run one task with one fault."""
    if model == faults.NEIGHBOUR:
        return run_beside(world, task, at)
    if model in _KILLED:
        return run_killed(world, task, model, at, present=present)
    return Run(world, task, model, at, present=present).outcome()


def _repeat(one: Outcome, options: argparse.Namespace) -> str:
    command = f"--task {one.task} --fault {one.model} --at {one.at} --runs 1 {one.world}"
    approved = "--present " if options.present else ""
    approved += f"--mixed {options.mixed} --seed {options.seed} " if options.mixed else ""
    found = [*one.residue[:5], *(f"a row is broken: {error}" for error in one.broken)]
    return f"python -m bench.worlds {approved}{command}\n  {found}\n{one.told}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.worlds", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []], help="only these worlds")
    parser.add_argument("--runs", type=_some, default=_FEW, help="runs of each world and fault")
    parser.add_argument("--everything", action="store_true", help="every call of every task")
    parser.add_argument(
        "--mixed", type=_some, help="so many tasks that nobody recorded; see `mixed`"
    )
    parser.add_argument("--task", action="append", default=[], help="only these tasks")
    parser.add_argument("--fault", action="append", choices=[*faults.MEANING])
    parser.add_argument("--at", type=_number, help="the call that is struck, from 0")
    parser.add_argument("--present", action="store_true", help="the user approves what is wanted")
    parser.add_argument("--seed", type=int, help="repeats a run by its number")
    parser.add_argument("--json", metavar="FILE", type=_writable, help="write every outcome")
    return parser


def _some(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number of runs or tasks, from 1")
    return int(text)


def _writable(text: str) -> str:
    """Look before hours of runs, and not after them, whether their file can be written."""
    if not Path(text).resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).resolve().parent}")
    return text


def _number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number of a call; they count from 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
