"""Breaks runs in worlds that other people wrote, and counts what agent-saga leaves behind.

    python -m bench.worlds                           a small share of every world
    python -m bench.worlds bfcl dojo-slack --runs 150
    python -m bench.worlds --task multi_turn_base_7 --fault after --at 2 bfcl
    python -m bench.worlds --everything --json out.json

Rules of this part:

- What is run follows from the arguments and the number that is printed: `--seed` repeats it.
- The exit code is 1 after a false clean, a doubled effect, or a lost answer that nobody settled
  though a tool of the world shows it.
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
from pathlib import Path

from bench.worlds import faults, measures
from bench.worlds.killing import run_killed
from bench.worlds.outcome import Outcome
from bench.worlds.running import Run
from bench.worlds.world import Task, World

_KILLED = (faults.KILLED, faults.KILLED_BEFORE)
_FEW = 4


def worlds() -> dict[str, Callable[[], World]]:
    """Return every world by name; each is imported when it is asked for."""
    return {
        "bfcl": lambda: _bfcl("base"),
        "bfcl-long_context": lambda: _bfcl("long_context"),
        "bfcl-miss_func": lambda: _bfcl("miss_func"),
        "bfcl-miss_param": lambda: _bfcl("miss_param"),
        "tau2-telecom": lambda: _tau2("telecom"),
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


def _tau2(domain: str) -> World:
    from bench.worlds.tau2.world import Tau2  # noqa: PLC0415 - as above

    return Tau2(domain)


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
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"--seed {seed}", flush=True)
    outcomes: list[Outcome] = []
    for name in options.world or worlds():
        began = time.monotonic()
        world = worlds()[name]()
        outcomes += _runs(world, options, random.Random(f"{seed} {name}"))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(outcomes))
    if options.json:
        lines = [one.as_dict() for one in outcomes]
        kept = {"seed": seed, "present": options.present, "runs": lines}
        Path(options.json).write_text(json.dumps(kept, indent=1), "utf-8")
    wrong = [one for one in outcomes if faulty(one)]
    for one in wrong[:10]:
        print(_repeat(one, present=options.present))
    return 1 if wrong else 0


def faulty(one: Outcome) -> bool:
    """Say whether a run shows what must never be."""
    return one.false_clean or bool(one.doubles) or (one.lost and not one.settled)


def table(outcomes: list[Outcome]) -> str:
    """Return the figures as a table."""
    head = (
        f"{'world':18} {'fault':14} {'runs':>5} {'exact %':>8} {'declared %':>11} "
        f"{'false clean':>12} {'doubled':>8} {'settled':>9} {'refused':>8}"
    )
    lines = [head]
    for (world, model), row in measures.grouped(outcomes).items():
        settled = f"{row.settled.part}/{row.settled.whole}"
        lines.append(
            f"{world:18} {model:14} {row.runs:5} {row.exact.percent:8.1f} "
            f"{row.declared.percent:11.1f} {row.false_clean.part:12} {row.doubles:8} "
            f"{settled:>9} {row.refused.part:8}"
        )
    whole = measures.row(outcomes)
    lines.append(
        f"{whole.runs} runs: exact {whole.exact}, within what was declared {whole.declared}, "
        f"false clean {whole.false_clean}, doubled {whole.doubles}"
    )
    return "\n".join(lines)


def _runs(world: World, options: argparse.Namespace, rng: random.Random) -> Iterator[Outcome]:
    tasks = [one for one in world.tasks() if not options.task or one.name in options.task]
    if not tasks:
        raise SystemExit(f"{world.name} has none of these tasks: {', '.join(options.task)}")
    for model in options.fault or faults.MEANING:
        for task, at in _chosen(tasks, options, rng):
            yield one_run(world, task, model, at, present=options.present)


def _chosen(
    tasks: list[Task], options: argparse.Namespace, rng: random.Random
) -> Iterator[tuple[Task, int]]:
    if options.everything:
        yield from ((task, at) for task in tasks for at in range(len(task.calls)))
        return
    for _ in range(options.runs):
        task = rng.choice(tasks)
        drawn = rng.randrange(len(task.calls))
        yield task, drawn if options.at is None else min(options.at, len(task.calls) - 1)


def one_run(world: World, task: Task, model: str, at: int, *, present: bool) -> Outcome:
    """Run one task with one fault."""
    if model in _KILLED:
        return run_killed(world, task, model, at, present=present)
    return Run(world, task, model, at, present=present).outcome()


def _repeat(one: Outcome, *, present: bool) -> str:
    command = f"--task {one.task} --fault {one.model} --at {one.at} --runs 1 {one.world}"
    approved = "--present " if present else ""
    return f"python -m bench.worlds {approved}{command}\n  {one.residue[:5]}\n{one.told}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.worlds", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []], help="only these worlds")
    parser.add_argument("--runs", type=int, default=_FEW, help="runs of each world and fault")
    parser.add_argument("--everything", action="store_true", help="every call of every task")
    parser.add_argument("--task", action="append", default=[], help="only these tasks")
    parser.add_argument("--fault", action="append", choices=[*faults.MEANING])
    parser.add_argument("--at", type=int, help="the call that is struck, from 0")
    parser.add_argument("--present", action="store_true", help="the user approves what is wanted")
    parser.add_argument("--seed", type=int, help="repeats a run by its number")
    parser.add_argument("--json", metavar="FILE", help="write every outcome")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
