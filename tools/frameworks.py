"""Describes which cases of the kit for agent frameworks each package passes, and in which ways.

Rules of this part:

- It reads the packages' tests and runs none: the session `packages` does that. The kit's guard
  fails a test class that leaves out a case without a reason.
- No framework needs to be installed.

`tools.reference` writes what this tells.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.questions import QuestionCases
from agent_saga_testing.integration.resumes import ResumeCases
from agent_saga_testing.integration.runs import RunCases
from tools import places

PARTS: dict[str, type] = {
    "A run": RunCases,
    "A run that waits or dies, and is gone on with": ResumeCases,
    "A run that asks a human": QuestionCases,
}
WAYS = {
    "AgentWorkflow": "an `AgentWorkflow` whose tools are wrapped",
    "Assistant": "`saga_agent` with an `AssistantAgent`",
    "Crew": "`saga_agent` with a crew",
    "CrewByText": "a crew whose model calls tools by text",
    "CrewInAThread": "a crew that is started without an event loop",
    "Flow": "a flow",
    "FunctionAgent": "`saga_agent` with a `FunctionAgent`",
    "HandMade": "a graph of one's own, with `SagaToolNode`",
    "Middleware": "`create_agent` with `SagaMiddleware`",
    "OneLine": "`saga_agent`",
    "OwnTools": "wrapped tools in an agent of one's own, run by `saga_run`",
    "ReActAgent": "`saga_agent` with a `ReActAgent`, which calls tools by text",
    "Team": "`saga_agent` with a team",
    "TeamInARuntimeOfOthers": "a team in a runtime that somebody else has started",
    "Workbench": "`SagaWorkbench`, for example round an MCP server",
    "Workflow": "a workflow of one's own, whose steps call wrapped tools",
}
"""What each way is, for readers: it is named after its test class."""

_KITS = {kit.__name__: kit for kit in (IntegrationConformance, *PARTS.values())}


class Way(NamedTuple):
    """One way to use a package, as a test class proves it.

    Attributes:
        name: what the class is called.
        cases: the kit's cases that it passes, or passes in a form of its own.
        deviations: why it has a form of its own, by case.
    """

    name: str
    cases: frozenset[str]
    deviations: dict[str, str]


def page() -> Iterator[str]:
    """Give the page's parts."""
    packages = {package: ways(package) for package in places.frameworks()}
    yield "# Frameworks"
    yield (
        "Every framework's package passes the same cases, with a real framework and a scripted "
        "model, at the oldest and at the latest version that it is tested with. Effects are "
        "counted in a world outside the process; nothing that a framework reports is believed. "
        "Where the framework makes a case impossible, or its package has no such runs, a note says "
        "what holds instead."
    )
    yield (
        "How to read it: a **row** is a case of the kit in `agent_saga_testing.integration`, its "
        "name without underscores; `test_a_run_can_wait_twice` is one. A **way to use it** is a "
        "test class in the package's `tests/test_conformance.py`; `OneLine` is `TestOneLine`. A "
        "plain yes means that every way that has such runs passes the case; yes with a note, that "
        "all others do."
    )
    yield "\n".join(_versions(package) for package in packages)
    yield "The ways:"
    shown = sorted({way.name for found in packages.values() for way in found})
    yield "\n".join(f"- `{name}`: {WAYS[name]}." for name in shown)
    notes: list[str] = []
    for title, kit in PARTS.items():
        yield f"## {title}"
        yield _table(cases_of(kit), packages, notes)
    yield "## Notes"
    yield "\n".join(f"{number}. {note}" for number, note in enumerate(notes, start=1))


def ways(package: str) -> list[Way]:
    """Return the ways to use a package that its tests prove.

    Args:
        package: its folder.
    """
    path = places.ROOT / package / "tests" / "test_conformance.py"
    classes = [n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.ClassDef)]
    known: dict[str, Way] = {}
    shown = []
    for node in classes:
        known[node.name] = way = _way(node, known)
        if way.cases and _value(node, "__test__") is not False:
            shown.append(way)
    return shown


def _way(node: ast.ClassDef, known: dict[str, Way]) -> Way:
    cases: set[str] = set()
    deviations: dict[str, str] = {}
    for base in map(ast.unparse, node.bases):
        if base in _KITS:
            cases |= set(cases_of(_KITS[base]))
        elif base in known:
            cases |= known[base].cases
            deviations |= known[base].deviations
    given = _value(node, "deviations")
    deviations |= given if isinstance(given, dict) else {}
    return Way(node.name.removeprefix("Test"), frozenset(cases), deviations)


def _value(node: ast.ClassDef, name: str) -> object:
    """Return the literal that a class gives a name, or None."""
    for line in node.body:
        targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
        if [ast.unparse(target) for target in targets] == [name]:
            return ast.literal_eval(line.value)  # type: ignore[attr-defined]
    return None


def cases_of(kit: type) -> list[str]:
    """Return the names of a kit's cases, in the order in which they are written."""
    parts = [part for part in kit.__mro__ if part in PARTS.values()]
    return [name for part in parts for name in vars(part) if name.startswith("test_")]


def _table(cases: list[str], packages: dict[str, list[Way]], notes: list[str]) -> str:
    heads = ["the case", *[_short(package) for package in packages]]
    rows = [
        [_sentence(case), *[_cell(case, w, notes) for w in packages.values()]] for case in cases
    ]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(case: str, ways: list[Way], notes: list[str]) -> str:
    passing = [way for way in ways if case in way.cases]
    by_reason: dict[str, list[str]] = {}
    for way in passing:
        if case in way.deviations:
            by_reason.setdefault(way.deviations[case], []).append(way.name)
    said = []
    for reason, names in by_reason.items():
        whom = "" if len(names) == len(passing) else f"{', '.join(names)}: "
        note = f"{whom}{reason}."
        if note not in notes:
            notes.append(note)
        said.append(f"note {notes.index(note) + 1}")
    plain = len(passing) > sum(map(len, by_reason.values()))
    return ", ".join([*(["yes"] if plain else []), *said]) or "no"


def _sentence(case: str) -> str:
    return case.removeprefix("test_").replace("_", " ")


def _short(package: str) -> str:
    return Path(package).name.removeprefix("agent-saga-")


def _versions(package: str) -> str:
    described = tomllib.loads((places.ROOT / package / "pyproject.toml").read_text("utf-8"))
    needed = described["project"]["dependencies"]
    names = [re.split(r"[^\w-]", line)[0] for line in needed if not line.startswith("agent-saga")]
    name = next((n for n in names if _short(package) == n), names[0])
    oldest, latest = _pinned(package, name, lowest=True), _pinned(package, name, lowest=False)
    used = ", ".join(way.name for way in ways(package))
    link = f"[{Path(package).name}](../../{package}/README.md)"
    return f"- {link}: {name} {oldest} and {latest}; ways to use it: {used}."


def _pinned(package: str, name: str, *, lowest: bool) -> str:
    text = places.constraints(package, lowest=lowest).read_text("utf-8")
    found = re.search(rf"(?m)^{re.escape(name)}==([\w.]+)", text)
    return found.group(1) if found else "?"
