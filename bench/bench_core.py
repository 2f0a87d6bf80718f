"""Measures the core against its bars.

    python bench/bench_core.py                 everything; counters and ratios are judged
    python bench/bench_core.py --quick         fewer and shorter rounds
    python bench/bench_core.py --counters      quick, and only counters are judged
    python bench/bench_core.py step barrier    only these groups

Rules of this part:

- Every figure is printed beside its bar; the exit code is 1 if one that is judged is over.
- Counters are exact and judged everywhere. Ratios of times say something on a quiet machine only: a
  group with a ratio over its bar is measured again before it counts, at most twice, and a figure
  that kept its bar once has kept it; `--counters` measures once and shows what came.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import report
from bench.figures import (
    barriers,
    counts,
    crowds,
    imports,
    limits,
    long_logs,
    memory,
    processes,
    steps,
    store,
)
from bench.measure import FULL, QUICK, Effort, Figure

Measure = Callable[[Effort], list[Figure]]

GROUPS: dict[str, Measure] = {
    module.GROUP: module.figures
    for module in (
        *(counts, steps, barriers, limits, crowds, processes),
        *(imports, memory, store, long_logs),
    )
}
ATTEMPTS = 3


def main(arguments: list[str]) -> int:
    """Measure, print, and return the exit code."""
    options = _parser().parse_args(arguments)
    effort = QUICK if options.quick or options.counters else FULL
    attempts = 1 if options.counters else ATTEMPTS
    figures: list[Figure] = []
    for group in options.group or GROUPS:
        print(f"measuring {group} …", file=sys.stderr, flush=True)
        figures += _measured(GROUPS[group], effort, attempts)
    print(report.as_json(figures, effort) if options.json else report.text(figures, effort))
    if options.out:
        Path(options.out).write_text(report.markdown(figures, effort), encoding="utf-8")
    judged = [f for f in figures if f.kind == "counter" or not options.counters]
    return 0 if all(figure.ok for figure in judged) else 1


def _measured(measure: Measure, effort: Effort, attempts: int) -> list[Figure]:
    """Measure a group; again while a figure of it is over, keeping each figure's best run."""
    best = measure(effort)
    for _ in range(attempts - 1):
        if all(figure.ok for figure in best):
            break
        again = measure(effort)
        best = [new if new.ok and not old.ok else old for old, new in zip(best, again, strict=True)]
    return best


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measures the core against its bars.")
    parser.add_argument("group", nargs="*", choices=[*GROUPS, []], help="only these groups")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--counters", action="store_true", help="quick; judge only counters")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", metavar="FILE", help="write the report as Markdown, too")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
