"""The standard streams of a program that was started without some of them.

Rules of this part:

- A stream that was closed (`>&-`, a daemon's parent) is one that nobody reads: what is said goes
  nowhere, and the exit code stays what it is.
- Its number is taken at once, before a log or a state store is opened under it: what anybody writes
  to the error stream must not end up in their files.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

__all__ = ["complete_streams"]

_STREAMS: Final = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def complete_streams() -> None:
    """Put an empty stream in the place of every standard stream that is missing."""
    for number, name, mode in _STREAMS:
        with suppress(OSError):
            _complete(number)
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - stays open
            setattr(sys, name, stream)


def _complete(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        found = os.open(os.devnull, os.O_RDWR)
        if found != number:
            os.dup2(found, number)
            os.close(found)
