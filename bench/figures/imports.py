"""What importing costs, beside importing parts of the standard library; in fresh interpreters.

Every case has its bytecode ready, as after the first start of a program: where the environment
forbids Python to keep it, compiling would be measured, for our modules and not for the floor.
"""

from __future__ import annotations

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


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    with place() as bytecode:
        cases: dict[str, Callable[[], float]] = {
            name: lambda code=code: _cost(code, bytecode)  # type: ignore[misc]
            for name, code in CASES.items()
        }
        for first in cases.values():
            first()
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
    ]


def _cost(code: str, bytecode: str) -> float:
    """Return the nanoseconds that some code takes in an interpreter of its own.

    Args:
        code: what is timed.
        bytecode: the folder in which the interpreter keeps its bytecode.
    """
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", _TIMED.format(code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return float(done.stdout)
