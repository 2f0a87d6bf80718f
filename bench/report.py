"""The figures as people and programs read them: a table, Markdown, JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence

from bench.measure import Effort, Figure

_LEFT_OUT = "Left out: chain on/off (the log has no switch for it)."
_UNITS = (
    "The record of J is this benchmark's own: the prototype that the bars were taken from takes "
    "about 3.0 J of it and 3.4 to 3.9 J of its own, so figures in J look better here by a fifth. "
    "J: json.dumps of a 366-byte record. F: one write and fdatasync of 300 bytes in allocated "
    "space. "
    "H, Hs: a hop to a thread and back, asyncio and plain. B: one barrier of the log."
)


def text(figures: Sequence[Figure], effort: Effort) -> str:
    """Return the report for a terminal."""
    width = max((len(figure.name) for figure in figures), default=0)
    lines = [_machine(effort), ""]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            lines.append(f"[{group}]")
        told = f"   {figure.detail}" if figure.detail else ""
        mark = "ok  " if figure.ok else "OVER"
        lines.append(
            f"  {mark} {figure.name:{width}} {_value(figure):>12} bar {_bar(figure)}{told}"
        )
    return "\n".join([*lines, "", _UNITS, _LEFT_OUT, _sum(figures)])


def markdown(figures: Sequence[Figure], effort: Effort) -> str:
    """Return the report as a page."""
    head = ["figure", "measured", "bar", "", "prototype", "stretch", "behind it"]
    lines = ["# Speed, memory and size of the core", "", _machine(effort), ""]
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for figure in figures:
        verdict = "ok" if figure.ok else "**over**"
        cells = [figure.name, _value(figure), _bar(figure), verdict]
        cells += [figure.prototype, figure.stretch, figure.detail]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _UNITS, "", _LEFT_OUT, "", _sum(figures), ""])


def as_json(figures: Sequence[Figure], effort: Effort) -> str:
    """Return the report as data."""
    data = {"machine": _machine(effort), "figures": [figure.as_dict() for figure in figures]}
    return json.dumps(data, indent=2)


def _value(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "too noisy"
    digits = 3 if abs(figure.value) < 0.1 else 2
    whole = figure.value == int(figure.value)
    number = f"{int(figure.value)}" if whole else f"{figure.value:.{digits}f}"
    return f"{number} {figure.unit.split(' ')[0]}".rstrip()


def _bar(figure: Figure) -> str:
    if figure.bar is None:
        return "-"
    return f"{'>=' if figure.least else '<='} {figure.bar:g} {figure.unit}".rstrip()


def _machine(effort: Effort) -> str:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores{load}; medians of {effort.rounds} rounds."
    )


def _sum(figures: Sequence[Figure]) -> str:
    over = [figure for figure in figures if not figure.ok]
    counters = sum(figure.kind == "counter" for figure in over)
    return (
        f"{len(figures)} figures: {len(figures) - len(over)} within their bars, "
        f"{counters} counters and {len(over) - counters} ratios over."
    )
