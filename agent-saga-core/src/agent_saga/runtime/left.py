"""What dead processes left on a log, said once to whoever begins to use it.

Rules of this part:

- It is said once for each path in a process, as one warning with the command to run. Sagas that are
  suspended or held wait for their program, and are not counted.
- Looking is done on a thread of its own and only where others have written before: no boundary
  waits for it, and a log that is new costs one look at a directory. What goes wrong in it is
  nobody's trouble.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from agent_saga.domain.commands import recover_command, told_command
from agent_saga.observe.logger import logger
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from agent_saga.wal.base import BaseWAL

log = logger("agent_saga.recovery")

_lock = threading.Lock()
_looked: set[str] = set()


def say_what_is_left(wal: BaseWAL) -> threading.Thread | None:
    """Look, once for each path, for what dead processes left; return the thread that looks."""
    if not isinstance(wal, FileWAL):
        return None
    with _lock:
        if wal.path in _looked:
            return None
        _looked.add(wal.path)
    try:
        writers = os.listdir(os.path.join(wal.path, WRITERS))  # noqa: PTH118, PTH208 - pathlib is slow to load
    except OSError:
        return None
    if all(name == wal.writer for name in writers):
        return None
    thread = threading.Thread(
        target=_look, args=(wal.path,), name="agent-saga-what-is-left", daemon=True
    )
    thread.start()
    return thread


def _look(path: str) -> None:
    try:
        text = what_is_left(path)
    except Exception:
        log.debug("what was left on the log %s cannot be told", path, exc_info=True)
        return
    if text:
        log.warning("%s", text)


def what_is_left(path: str) -> str:
    """Return in words what dead processes left on a log, with the commands; empty if nothing.

    Raises:
        WALError: the log cannot be read.
    """
    from agent_saga.recovery.cases import is_case  # noqa: PLC0415 - only here, not at each start
    from agent_saga.recovery.recover import recoverable  # noqa: PLC0415
    from agent_saga.recovery.survey import survey  # noqa: PLC0415
    from agent_saga.recovery.suspended import overdue  # noqa: PLC0415
    from agent_saga.wal.takeover import dead_writers  # noqa: PLC0415

    dead = dead_writers(path)
    found = survey(path, dead=dead).sagas.values()
    gone = [saga for saga in found if saga.effective.owner in dead]
    human = [saga for saga in gone if is_case(saga)]
    left = [s for s in gone if s not in human and recoverable(s) and s.view.held_for is None]
    late = [saga for saga in left if overdue(saga)]
    left = [saga for saga in left if saga not in late]
    parts = []
    if late:
        parts.append(f"{_sagas(len(late))} suspended beyond a deadline: {recover_command(path)}")
    if left:
        parts.append(
            f"{_sagas(len(left))} left unfinished by processes that died: {recover_command(path)}"
        )
    if human:
        queue = told_command("queue list", path)
        parts.append(f"{_sagas(len(human))} waiting for a human: {queue}")
    return f"The log {path} has {'; '.join(parts)}" if parts else ""


def _sagas(count: int) -> str:
    return "1 saga" if count == 1 else f"{count} sagas"
