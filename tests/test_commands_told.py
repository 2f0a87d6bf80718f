"""No package writes a command of ours by itself: it would not name the log (`Recorded.command`)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from agent_saga.cli.main import program

PACKAGES = Path(__file__).parents[1] / "packages"
SOURCES = sorted(
    p for p in PACKAGES.glob("agent-saga-*/src/**/*.py") if "testing" not in p.parts[-2]
)


def told(source: str) -> list[str]:
    """Return the texts of a module, its docstrings left out, that tell a command."""
    names = "|".join(map(re.escape, sorted(program.list_commands(None))))  # type: ignore[arg-type]
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documents
        and re.search(rf"\bagent-saga ({names})\b", node.value)
    ]


def test_it_would_be_seen() -> None:
    assert told('"""See agent-saga list."""\nfix = f"See agent-saga undo {x}."') == [
        "See agent-saga undo "
    ]


@pytest.mark.parametrize("module", SOURCES, ids=lambda p: f"{p.parts[-2]}/{p.name}")
def test_a_package_tells_commands_with_their_log(module: Path) -> None:
    assert told(module.read_text("utf-8")) == []
