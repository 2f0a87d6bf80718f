"""Gives a stage a folder in memory for its temporary files, where there is enough of it.

Rules of this part:

- A test waits for every sync of a disk, and there are tens of thousands: on a disk the tests of the
  core take twice as long as in memory, and no processor is used meanwhile.
- What a sync must never be without is told by the ports of the tests, and a killed process loses
  nothing of either kind. What only a real disk shows is shown by the stages that carry the tag
  `disk`, and by all of the full matrix.
- A folder in memory that becomes too small breaks whatever writes there: only one that is large is
  used, and only on a machine that has the memory for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("/dev/shm")
NEEDED = 4 * 2**30
_KNOWN = Path("/proc/meminfo")


@contextlib.contextmanager
def temporary(*, on_disk: bool) -> Iterator[dict[str, str]]:
    """Yield what the environment of a stage says of its temporary files; nothing for a disk.

    What the stage leaves in memory is removed when it has ended.
    """
    if on_disk or not is_large(FOLDER):
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="agent-saga-", dir=FOLDER)
    try:
        yield {"TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_large(folder: Path) -> bool:
    """Whether a folder is in memory that is large enough for every test that may run at a time."""
    try:
        free = shutil.disk_usage(folder).free
        lines = dict(line.split(":") for line in _KNOWN.read_text("ascii").splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return False
    return os.access(folder, os.W_OK | os.X_OK) and min(free, available) >= NEEDED
