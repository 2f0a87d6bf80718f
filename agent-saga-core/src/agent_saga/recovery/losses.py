"""Has the log lost records of a saga that the state store knows of? Then nothing of it is undone.

Rules of this part:

- The store learns of an end, and of a suspension, only after the log holds it durably, and which
  record says so. A store that knows of a later one than the log tells means that somebody acted,
  and that nobody can say how.
- Whoever raises an epoch has begun a log of its own before, and acts only once its claim is durable
  there. One whose log is gone, damaged or changed may have acted unseen; one that died before it
  recorded anything of the saga has not.
- Such a saga is a human's case: it is closed by name, and is never undone or resumed.
- Of one that the log has lost as a whole `vanished` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_saga.domain.lifecycle import SagaState
from agent_saga.recovery.survey import Found
from agent_saga.recovery.vanished import fault_of
from agent_saga.state.document import Doc
from agent_saga.wal.os_port import OsPort

__all__ = ["lost"]

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
    last = doc.get("last")
    if last is not None and doc["epoch"] == known and not _has(found, last):
        how = "ended" if doc["ended"] else "was given back"
        return _unseen(f"it {how} with record {last['seq']} of the writer {last['writer']}")
    if doc["epoch"] == known:
        return ""
    claimer = doc["owner"]
    if not claimer:
        waits = doc["deadline"] is not None
        return _unseen(f"it was suspended in epoch {doc['epoch']}") if waits else ""
    fault = fault_of(path, claimer, port, is_whole, found.damaged_writers)
    return _unseen(f"it was taken over by the writer {claimer}, whose log {fault}") if fault else ""


def _unseen(what: str) -> str:
    return f"{what}, and the log does not tell how: records are lost, and inverses may have run"


def _has(found: Found, last: Mapping[str, Any]) -> bool:
    """Say whether the log has the record by which a saga was given back."""
    record = found.writers.get(str(last.get("writer")))
    seq = last.get("seq")
    if record is None or type(seq) is not int:
        return False
    return record.seq == seq or any(
        one.seq == seq and one.writer == record.writer for one in found.records
    )
