"""What importing costs, beside importing parts of the standard library; in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys

from bench.measure import Effort, Figure, interleaved

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
    samples = interleaved(
        {name: lambda code=code: _cost(code) for name, code in CASES.items()},  # type: ignore[misc]
        effort.rounds,
        ("standard",),
    )
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


def _cost(code: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(code)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
