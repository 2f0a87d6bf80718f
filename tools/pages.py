"""Runs the Python blocks of a page as one program.

Rules of this part:

- All blocks fenced as `python` run in order in one module, each with what the earlier ones defined.
  A block may await at its top level, as a notebook's may.
- A block's lines keep their numbers: a traceback names the line of the page.
- Nothing is skipped: a block that cannot run is fenced as `text`.

Called as `python -m tools.pages PAGE`; `tests/test_docs.py` does so for every page.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)[^\n`]*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its first line's number in the page, and its text."""

    language: str
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order.

    Raises:
        ValueError: when a block is not closed.
    """
    found: list[Block] = []
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        opened = _FENCE.match(line)
        if opened:
            inside = _until(lines, opened["indent"] + opened["fence"], number)
            found.append(Block(opened["language"], number + 1, textwrap.dedent(inside)))
    return found


def _until(lines: Any, fence: str, opened: int) -> str:
    inside: list[str] = []
    for _, line in lines:
        if line.rstrip() == fence:
            return "\n".join(inside) + "\n"
        inside.append(line)
    raise ValueError(f"the block of line {opened} is not closed")


def run(path: Path) -> int:
    """Run the Python blocks of a page and return how many there are.

    Args:
        path: the page; what its blocks raise is raised.
    """
    module = ModuleType("page")
    module.__file__ = str(path)
    sys.modules["page"] = module
    programs = [b for b in blocks(path.read_text("utf-8")) if b.language == "python"]
    with asyncio.Runner() as runner:
        for block in programs:
            _run(block, path, module, runner)
    return len(programs)


def _run(block: Block, path: Path, module: ModuleType, runner: asyncio.Runner) -> None:
    source = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, str(path), "exec", flags=flags, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, vars(module)))
    else:
        exec(code, vars(module))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    print(f"{run(Path(sys.argv[1]).resolve())} blocks ran")
