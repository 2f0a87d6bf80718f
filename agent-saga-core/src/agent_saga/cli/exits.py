"""What the exit codes mean, and which error ends with which.

A command exits with 0 only when it has looked and found nothing wrong.
"""

from __future__ import annotations

from enum import IntEnum

from agent_saga.errors import (
    AgentSagaError,
    ApprovalError,
    ClaimRefused,
    ConfigurationError,
    RecoveryRefused,
    RefusedError,
    UndoRefused,
)

__all__ = ["Exit", "exit_of"]


class Exit(IntEnum):
    """The exit codes of every command."""

    CLEAN = 0
    NOT_CLEAN = 1
    USAGE = 2
    NOTHING_VERIFIABLE = 3
    REFUSED = 4


def exit_of(error: AgentSagaError) -> Exit:
    """Return the exit code of a command that ended with an error."""
    if isinstance(error, (ApprovalError, RefusedError, ClaimRefused, RecoveryRefused, UndoRefused)):
        return Exit.REFUSED
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    return Exit.NOTHING_VERIFIABLE
