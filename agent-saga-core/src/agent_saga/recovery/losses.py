"""Has the log lost records of a saga that the state store knows of? Then nothing of it is undone.

Rules of this part:

- The store learns of an end, and of a suspension, only after the log holds it durably. A store that
  knows of a later one than the log tells means that somebody acted, and that nobody can say how.
- Whoever raises an epoch has begun a log of its own before, and acts only once its claim is durable
  there. One whose log is gone, damaged or changed may have acted unseen; one that died before it
  recorded anything of the saga has not.
- Such a saga is a human's case: it is closed by name, and is never undone or resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from agent_saga.domain.lifecycle import SagaState
from agent_saga.errors import WALError
from agent_saga.recovery.survey import Found
from agent_saga.state.document import Doc
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.takeover import dead_writer, has_left, opening_of

__all__ = ["is_gone", "lost"]

_OPEN: Final = frozenset({SagaState.RUNNING, SagaState.UNWINDING, SagaState.RELEASED})


def lost(
    path: str, found: Found, doc: Doc | None, port: OsPort, is_whole: Callable[[str], bool]
) -> str:
    """Return in words what the log has lost of a saga; empty if nothing is known to be lost.

    Args:
        path: the log's directory.
        found: the saga, as the log tells it.
        doc: its claim, as the store tells it; read before the log was.
        port: the system calls.
        is_whole: whether the log of a writer is as it was written.
    """
    known = found.effective.highest
    if doc is None or doc["epoch"] < known:
        return ""
    if doc["ended"] and (doc["epoch"] > known or found.view.state in _OPEN):
        return _unseen(f"it had ended in epoch {doc['epoch']}")
    if doc["epoch"] == known:
        return ""
    claimer = doc["owner"]
    if not claimer:
        waits = doc["deadline"] is not None
        return _unseen(f"it was suspended in epoch {doc['epoch']}") if waits else ""
    fault = _fault(path, claimer, found, port, is_whole)
    return _unseen(f"it was taken over by the writer {claimer}, whose log {fault}") if fault else ""


def is_gone(path: str, writer: str, port: OsPort) -> bool:
    """Say whether the log of a writer is not there although it did not leave by compaction."""
    try:
        port.stat(os.path.join(path, WRITERS, writer))  # noqa: PTH118 - as the log names it
    except FileNotFoundError:
        return not has_left(path, writer, port)
    except OSError:
        return False
    return False


def _unseen(what: str) -> str:
    return f"{what}, and the log does not tell how: records are lost, and inverses may have run"


def _fault(
    path: str, claimer: str, found: Found, port: OsPort, is_whole: Callable[[str], bool]
) -> str:
    """Return what is wrong with the log of whoever raised the epoch; empty while that one lives."""
    if claimer in found.damaged_writers:
        return "is damaged"
    if is_gone(path, claimer, port):
        return "is gone"
    try:
        dead = dead_writer(path, claimer, port)
    except WALError:
        return ""  # whoever claims the saga finds the same, and does nothing
    if dead is None:
        return ""
    dead.close()
    if not opening_of(path, claimer):
        return "has lost its beginning"
    return "" if is_whole(claimer) else "was changed"
