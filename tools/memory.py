"""Gives a stage a folder in memory for its temporary files, where there is enough of it.

Rules of this part:

- A test waits for every sync of a disk, and there are tens of thousands: on a disk the tests of the
  core take twice as long as in memory, and no processor is used meanwhile.
- What a sync must never be without is told by the ports of the tests, and a killed process loses
  nothing of either kind. What only a real disk shows is shown by the stages that carry the tag
  `disk`, and by all of the full matrix.
- A folder in memory that becomes too small breaks whatever writes there: only one that is large
  enough for all stages at once is used, and only where the machine, and the bounds of the groups
  that this process is in, have the memory for it.
- What a process left that was killed is removed by the next one of the same user.
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
NEEDED = 2 * 2**30
"""For one stage: as much as a whole session of tests leaves that removes nothing."""

_KNOWN = Path("/proc/meminfo")
_GROUPS = Path("/sys/fs/cgroup")
_MEMBER = Path("/proc/self/cgroup")
_PROCESSES = Path("/proc/self/ns/pid")
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""Of a control group, by version: its bound, what it uses, and what of that can be had back."""


@contextlib.contextmanager
def temporary(*, on_disk: bool, stages: int = 1) -> Iterator[dict[str, str]]:
    """Yield what the environment of a stage says of its temporary files; nothing for a disk.

    What the stage leaves in memory is removed when it has ended.

    Args:
        on_disk: it needs a disk.
        stages: how many may run at a time.
    """
    if not on_disk:
        _remove_left()
    if on_disk or not is_large(FOLDER, stages):
        yield {}
        return
    folder = tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir=FOLDER)
    try:
        yield {"TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_large(folder: Path, stages: int) -> bool:
    """Whether a folder is in memory that is large enough for so many stages at a time."""
    try:
        free = shutil.disk_usage(folder).free
        lines = dict(line.split(":") for line in _KNOWN.read_text("ascii").splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
        enough = min(free, available, *_left_in_groups()) >= NEEDED * stages
        programs_start = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    except (OSError, KeyError, ValueError):
        return False
    return enough and programs_start and os.access(folder, os.W_OK | os.X_OK)


def _left_in_groups() -> Iterator[int]:
    """Yield what each bound on this process's memory leaves, as of a container."""
    try:
        lines = _MEMBER.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Version 2 lies deeper where the memory is still with version 1.
            for root in (_GROUPS, _GROUPS / "unified"):
                yield from _left_in(root, path, *_FILES[2])
        elif "memory" in controllers.split(","):
            yield from _left_in(_GROUPS / "memory", path, *_FILES[1])


def _left_in(root: Path, path: str, bound: str, used: str, idle: str) -> Iterator[int]:
    """Yield what the group of this path and those above it leave; a container may see the root."""
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts) + 1):
        group = root.joinpath(*parts[:depth])
        try:
            said = (group / bound).read_text("ascii").strip()
        except OSError:
            continue  # this one has no bound, or is outside of what this container sees
        if said != "max":
            counts = (line.split() for line in (group / "memory.stat").read_text().splitlines())
            cached = int(dict(counts).get(idle, 0))
            yield int(said) - int((group / used).read_text("ascii")) + cached


def _prefix() -> str:
    """Return how the folders begin that are of processes whose numbers mean something here."""
    try:
        space = _PROCESSES.stat().st_ino
    except OSError:
        space = 0
    return f"agent-saga-{space:x}-"


def _remove_left() -> None:
    """Remove the folders of processes of this user that are no more."""
    for folder in FOLDER.glob(f"{_prefix()}*-*"):
        number = folder.name.removeprefix(_prefix()).partition("-")[0]
        with contextlib.suppress(OSError):
            if number.isdecimal() and _is_ours(folder) and not _lives(int(number)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    return folder.lstat().st_uid == os.getuid()


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and there
    return True
