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


def dies(number=signal.SIGKILL):
    """Die as a machine does."""
    os.kill(os.getpid(), number)


def starts_a_thread():
    """Leave a thread to whoever loads this."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


class Unportable(Exception):
    """An error that can be sent, and cannot be made again where it arrives."""

    def __init__(self, what, why):
        super().__init__(what)
        self.why = why


def raises(kind):
    """Raise what cannot travel, or return it."""

    class Local(Exception):
        pass

    if kind == "answer":
        return Local("not to be had")
    raise Local("not to be had") if kind == "local" else Unportable("not to be had", "no reason")


def prints():
    """Print, as some modules do while they are loaded."""
    sys.stdout.write("printed, with no harm")
    os.write(1, b"written, with no harm")


def ends(status):
    """End at once, as a framework may."""
    os._exit(status)
