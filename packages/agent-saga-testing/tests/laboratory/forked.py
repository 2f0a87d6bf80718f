"""What the processes of `test_forks` do; loading it counts."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

LOADED = [os.getpid()]
CALLS: list[str] = []


def told(what):
    """Return what this process is, and how often it was called."""
    CALLS.append(what)
    return {
        "what": what,
        "calls": CALLS,
        "loaded by": LOADED[0],
        "process": os.getpid(),
        "folder": str(Path.cwd()),
        "colour": os.environ.get("COLOUR"),
        "read": sys.stdin.read(),
    }


def refuses():
    """Raise."""
    raise LookupError("not here")


def dies():
    """Die as a machine does."""
    os.kill(os.getpid(), signal.SIGKILL)


def starts_a_thread():
    """Leave a thread to whoever loads this."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
