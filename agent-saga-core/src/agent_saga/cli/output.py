"""Printing what stands in a log, safely.

Rules of this part:

- Names and texts of a log were chosen by models and web pages. What does not print is written as an
  escape, so that no text can steer a terminal or forge a line.
- A terminal that cannot show a character gets an escape, never a traceback.
- With `--json` the standard output is exactly one JSON document; all else goes to the error stream.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga.domain.printing import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["counted", "note", "printable", "say", "say_json", "table"]

_LONGEST: Final = 4000


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural where there is not just one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(*lines: str) -> None:
    """Print lines of our own making; every foreign part of them went through `printable`."""
    for line in lines:
        click.echo(_encodable(line, sys.stdout.encoding))


def note(line: str) -> None:
    """Print a line to the error stream, where it does not disturb a document; no endless one."""
    short = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… (cut)"
    click.echo(_encodable(short, sys.stderr.encoding), err=True)


def say_json(value: Any) -> None:
    """Print a value as one JSON document, in ASCII."""
    click.echo(json.dumps(value, indent=2, default=str))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as lines with aligned columns, the head first."""
    cells = [list(head), *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _encodable(text: str, encoding: str | None) -> str:
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)
