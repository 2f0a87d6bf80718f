"""When recovery last made a pass over a log: a small file in its directory.

Rules of this part:

- It is for people and watchers; nothing is decided by it. One that cannot be written or read counts
  as not there, and stops nothing.
- Several daemons may share a log; the file tells of the last pass of any of them. It is replaced in
  one step, and only its owner may read it. Nothing is made where there is no log.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.observe.files import open_by_name, read_by_name
from agent_saga.wal.directory import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "recovery.seen"


class Seen(Struct, frozen=True):
    """One pass.

    Attributes:
        time: when it ended, in microseconds since the epoch.
        by, pid, host: who made it.
    """

    time: int
    by: str
    pid: int
    host: str


def note_pass(path: str, by: str) -> None:
    """Note that a pass over a log has just ended."""
    from pathlib import Path  # noqa: PLC0415 - slow to load

    folder = Path(path)
    if not (folder / WRITERS).is_dir():
        return
    told = Seen(SYSTEM_CLOCK.now_us(), by, os.getpid(), platform.node())
    fresh = folder / f"{_FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        descriptor = open_by_name(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(json.dumps(asdict(told)))
            fresh.chmod(0o600)  # one that an earlier version left
            fresh.replace(folder / _FILE)
        finally:
            fresh.unlink(missing_ok=True)


def last_seen(path: Path) -> Seen | None:
    """Return the last pass over a log; None when there was none, or nobody can tell."""
    try:
        told = json.loads(read_by_name(path / _FILE))
        seen = Seen(**told)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    numbers = type(seen.time) is int and type(seen.pid) is int
    return seen if numbers and isinstance(seen.by, str) and isinstance(seen.host, str) else None
