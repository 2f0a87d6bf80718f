"""Errors that an operator deals with: the log, the state store, recovery, approvals, names."""

from __future__ import annotations

from agent_saga.errors.root import AgentSagaError

__all__ = [
    "AlreadyDecided",
    "Ambiguous",
    "ApprovalError",
    "ClaimRefused",
    "CompactionRefused",
    "ForkRefused",
    "NotFound",
    "RecoveryError",
    "RecoveryRefused",
    "StateError",
    "StateUnavailable",
    "UndoRefused",
    "WALBackpressure",
    "WALCorrupt",
    "WALError",
    "WALFormatError",
    "WALFull",
    "WALPathError",
    "WALPoisoned",
    "WALStalled",
]


class WALError(AgentSagaError):
    """The write-ahead log cannot do what was asked."""

    code = "SAGA-500"


class WALBackpressure(WALError):
    """The log is not keeping up; the intent was refused before its effect."""

    code = "SAGA-501"


class WALStalled(WALError):
    """The disk did not confirm a write within its time."""

    code = "SAGA-502"


class WALPoisoned(WALError):
    """A write or sync failed; nothing more is promised about this segment."""

    code = "SAGA-503"


class WALCorrupt(WALError):
    """The log is damaged where it had been durable."""

    code = "SAGA-504"


class WALFormatError(WALError):
    """The log was written in a format that this version does not read."""

    code = "SAGA-505"


class WALPathError(WALError):
    """The log's path cannot be used as a log directory."""

    code = "SAGA-506"


class WALFull(WALError):
    """There is no room for a new intent; the call was refused before its effect."""

    code = "SAGA-507"


class CompactionRefused(WALError):
    """The log was not compacted: somebody else is at work on it; nothing left it."""

    code = "SAGA-508"


class RecoveryError(AgentSagaError):
    """A saga could not be taken over, undone or closed from outside its process."""

    code = "SAGA-700"


class ClaimRefused(RecoveryError):
    """Somebody else owns the saga, or its owner still lives."""

    code = "SAGA-701"


class RecoveryRefused(RecoveryError):
    """Recovery was not begun, since something that it needs is not here; nothing was run."""

    code = "SAGA-703"


class UndoRefused(RecoveryError):
    """A saga cannot be undone as asked; nothing was run."""

    code = "SAGA-702"


class ForkRefused(RecoveryError):
    """A resumed saga cannot go another way as asked; nothing was run."""

    code = "SAGA-704"


class StateError(AgentSagaError):
    """The state store cannot do what was asked."""

    code = "SAGA-600"


class StateUnavailable(StateError):
    """The state store did not answer within its time."""

    code = "SAGA-601"


class ApprovalError(AgentSagaError):
    """A request for approval cannot be told or decided as asked; nothing was changed."""

    code = "SAGA-620"


class AlreadyDecided(ApprovalError):
    """Somebody was faster: the request is decided already, and the first decision counts."""

    code = "SAGA-621"


class NotFound(AgentSagaError):
    """What was named is not there: no log, saga, step, request or limit has this name."""

    code = "SAGA-800"


class Ambiguous(AgentSagaError):
    """What was named may be one of several; nothing was done to any of them."""

    code = "SAGA-801"
