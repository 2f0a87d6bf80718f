"""Runs the blocks of a page in order, as a reader would, in the working directory.

Rules of this part:

- Blocks fenced as `python` run in one module, each with what the earlier ones defined. A block may
  await at its top level, as a notebook's may. A block whose first line is `# NAME.py` is saved
  under that name instead.
- In a block fenced as `console`, every line that begins with `$ ` is a command and is run; other
  lines are what the commands before them print. `$ agent-saga …`, `$ python …` and
  `$ python3 run.py demo` use this Python. `pip install` and `run.py test` are not run here: the
  session `wheels` does the one, and the other runs this.
- A block fenced as `output` is what the python block before it prints.
- In expected output `...` stands for anything; runs of white space are equal.
- A block's lines keep their numbers: a traceback names the line of the page.
- Nothing is skipped: a block that cannot run is fenced as `text`.

Called as `python -m tools.pages PAGE` in an empty folder; `tests/docs` and `tests/frameworks` do so
for every page.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tools import places, tree

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)[^\n`]*$")
_RUN = {"python", "output", "console"}
_FILE = re.compile(r"# (?P<name>\w+\.py)\n")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PIP = "pip install "


class NotAsTold(Exception):
    """A page says something else than what happened."""


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
            inside = _until(lines, opened["indent"], opened["fence"], number)
            found.append(Block(opened["language"], number + 1, inside))
    return found


def _until(lines: Any, indent: str, fence: str, opened: int) -> str:
    inside: list[str] = []
    for _, line in lines:
        if line.rstrip() == indent + fence:
            return "\n".join(inside) + "\n"
        inside.append(line.removeprefix(indent))
    raise ValueError(f"the block of line {opened} is not closed")


def commands(page: str) -> list[str]:
    """Return every command that a page tells its readers to give."""
    consoles = [block for block in blocks(page) if block.language == "console"]
    return [line[2:] for block in consoles for line in block.text.splitlines() if line[:2] == "$ "]


def running(place: str) -> list[Path]:
    """Return the pages of a place that have something to run; see `tools.places`."""
    found = [
        path for path in tree.files() if path.suffix == ".md" and places.home_of(path) == place
    ]
    return [
        path for path in found if any(b.language in _RUN for b in blocks(path.read_text("utf-8")))
    ]


def installs() -> list[tuple[str, ...]]:
    """Return what the pages of this repository tell their readers to install, line by line."""
    texts = [path.read_text("utf-8") for path in tree.files() if path.suffix == ".md"]
    lines = {line for text in texts for line in commands(text) if line.startswith(PIP)}
    return sorted(tuple(line.removeprefix(PIP).split()) for line in lines)


def run(path: Path) -> int:
    """Run the blocks of a page and return how many there are.

    Args:
        path: the page; what its blocks raise is raised.

    Raises:
        NotAsTold: something else was printed than the page says, or a command failed.
    """
    with asyncio.Runner() as runner:
        reader = _Reader(path, runner)
        for block in blocks(path.read_text("utf-8")):
            reader.take(block)
    return reader.taken


class _Reader:
    """Carries a page out, block after block."""

    def __init__(self, path: Path, runner: asyncio.Runner) -> None:
        self.taken = 0
        self._path = path
        self._runner = runner
        self._printed = ""
        self._module = ModuleType("page")
        self._module.__file__ = str(path)
        sys.modules["page"] = self._module

    def take(self, block: Block) -> None:
        """Carry out one block."""
        take = {"python": self._python, "output": self._output, "console": _console}
        if block.language in take:
            take[block.language](block)
            self.taken += 1

    def _python(self, block: Block) -> None:
        saved = _FILE.match(block.text)
        if saved:
            Path(saved["name"]).write_text(block.text, "utf-8")
            return
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self._execute(block)
        self._printed = printed.getvalue()
        sys.stdout.write(self._printed)

    def _output(self, block: Block) -> None:
        _compare(block.text, self._printed, block.line)

    def _execute(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + block.text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(self._path), "exec", flags=flags, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(eval(code, vars(self._module)))
        else:
            exec(code, vars(self._module))


def _console(block: Block) -> None:
    for line, command, told in _told(block):
        if command.startswith(PIP) or command == "python3 run.py test":
            continue
        done = subprocess.run(
            _as_run(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode and "Traceback" in done.stderr:
            raise NotAsTold(f"line {line}: `{command}` failed:\n{done.stdout}{done.stderr}")
        if told:
            _compare(told, done.stdout + done.stderr, line)
        elif done.returncode:
            raise NotAsTold(
                f"line {line}: `{command}` ended with {done.returncode}:\n{done.stderr}"
            )


def _told(block: Block) -> Iterator[tuple[int, str, str]]:
    """Yield every command with its line and with what the page says that it prints."""
    for part in re.split(r"(?m)^(?=\$ )", block.text):
        if part.startswith("$ "):
            command, _, printed = part[2:].partition("\n")
            yield block.line + block.text[: block.text.index(part)].count("\n"), command, printed


def _as_run(command: str) -> list[str]:
    words = shlex.split(command)
    if words == ["python3", "run.py", "demo"]:
        return [sys.executable, str(tree.ROOT / "examples" / "demo.py")]
    if words[0] in ("python", "python3"):
        return [sys.executable, *words[1:]]
    return words


def _compare(told: str, printed: str, line: int) -> None:
    if not doctest.OutputChecker().check_output(told.strip(), printed.strip(), _FLAGS):
        raise NotAsTold(f"line {line}: the page says\n{told}\nand what was printed is\n{printed}")


if __name__ == "__main__":
    if Path.cwd() == tree.ROOT:
        sys.exit("What a page makes would stay among the sources: run this in an empty folder.")
    sys.path.insert(0, str(Path.cwd()))
    # Programs are those of this environment, whether or not it was activated.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    print(f"{run(Path(sys.argv[1]).resolve())} blocks ran")
