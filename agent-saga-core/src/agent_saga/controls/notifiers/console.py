"""Telling people on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from agent_saga.domain.printing import printable

if TYPE_CHECKING:
    from agent_saga.controls.humans.notice import Notice

__all__ = ["ConsoleNotifier"]


class ConsoleNotifier:
    """Prints a request with the commands that decide it.

    Args:
        stream: where to print; the error stream of the process when not given.

    Texts were chosen by models: what does not print is written as an escape.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def notify(self, notice: Notice) -> None:
        """Print the request."""
        stream = self._stream or sys.stderr
        asked = ", ".join(notice.requesters)
        lines = [
            f"Approval needed: {notice.tool}",
            f"  why: {notice.reason}",
            f"  asked by: {asked}, in saga {notice.saga}",
            f"  arguments: {notice.arguments}",
            f"  until: {notice.until}",
            f"  yes: {notice.command('approve')}",
            f"  no:  {notice.command('deny')}",
        ]
        stream.write("\n".join(["", *map(printable, lines), ""]))
        stream.flush()
