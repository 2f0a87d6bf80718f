"""What importing costs, beside importing parts of the standard library; in fresh interpreters.

What makes it slow is counted, too, once its floors and what it depends on are loaded: the modules
that come in, the pieces of source that Python compiles (a dataclass needs about ten and a
NamedTuple one for itself and one for each field), and the regular expressions. Counts are exact.

Every case has its bytecode ready, as after the first start of a program: where the environment
forbids Python to keep it, compiling would be measured, for our modules and not for the floor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from bench.measure import Effort, Figure, interleaved
from bench.workload import place

GROUP = "import"
_TIMED = "import time; b = time.perf_counter_ns(); {}; print(time.perf_counter_ns() - b)"
_WHOLE = "import agent_saga; [getattr(agent_saga, name) for name in agent_saga.__all__]"
CASES = {
    "standard": "import asyncio, sqlite3, json",
    "leaves": "import pluggy, msgspec",
    "door": "import agent_saga",
    "whole": _WHOLE,
}
_COUNTED = """
import asyncio, json, pluggy, re, sqlite3, sys
import msgspec.inspect, msgspec.structs
floor, compiled, expressions, compile_one = set(sys.modules), [], [], re._compiler.compile
def counted(*given):
    expressions.append(given)
    return compile_one(*given)
re._compiler.compile = counted
sys.addaudithook(lambda event, given: compiled.append(given) if event == "compile" else None)
{}
ours = {{name for name in sys.modules if name.partition(".")[0] == "agent_saga"}}
counts = len(ours), len(set(sys.modules) - floor - ours), len(compiled), len(expressions)
print(json.dumps(counts))
"""
_COUNTS = (
    ("modules of ours", 280),
    ("further modules", 16),
    ("pieces of source compiled", 90),
    ("regular expressions compiled", 24),
)


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    with place() as bytecode:
        cases: dict[str, Callable[[], float]] = {
            name: lambda code=code: _cost(code, bytecode)  # type: ignore[misc]
            for name, code in CASES.items()
        }
        for first in cases.values():
            first()
        counts = json.loads(_told(_COUNTED.format(_WHOLE), bytecode))
        samples = interleaved(cases, effort.rounds, ("standard",))
    told = ", ".join(f"{name} {samples.median(name) / 1e6:.1f} ms" for name in CASES)
    unit = "x importing asyncio, sqlite3, json"
    return [
        Figure(
            GROUP,
            "import agent_saga (the lazy door)",
            samples.ratio("door", "standard"),
            unit,
            2.5,
            prototype="1.7 ms",
        ),
        Figure(
            GROUP,
            "import agent_saga and every name of it",
            samples.ratio("whole", "standard"),
            unit,
            2.5,
            detail=told,
        ),
        *(
            Figure(GROUP, f"every name: {what}", count, "", bar, kind="counter")
            for (what, bar), count in zip(_COUNTS, counts, strict=True)
        ),
    ]


def _cost(code: str, bytecode: str) -> float:
    """Return the nanoseconds that some code takes in an interpreter of its own.

    Args:
        code: what is timed.
        bytecode: the folder in which the interpreter keeps its bytecode.
    """
    return float(_told(_TIMED.format(code), bytecode))


def _told(code: str, bytecode: str) -> str:
    """Return what some code prints in an interpreter of its own."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return done.stdout
