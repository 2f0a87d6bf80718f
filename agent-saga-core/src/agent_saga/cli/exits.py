"""What the exit codes mean, and which error ends with which: one table for every command.

A command exits with 0 only when it has looked and found nothing wrong, or has done what was asked.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from agent_saga.errors import (
    AgentSagaError,
    Ambiguous,
    ApprovalError,
    ConfigurationError,
    NotFound,
    RecoveryError,
    RefusedError,
)

__all__ = ["MEANINGS", "Exit", "exit_of"]


class Exit(IntEnum):
    """The exit codes of every command."""

    CLEAN = 0
    NOT_CLEAN = 1
    USAGE = 2
    NOTHING_VERIFIABLE = 3
    REFUSED = 4
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final[dict[Exit, tuple[str, str]]] = {
    Exit.CLEAN: ("clean", "It looked and found nothing wrong, or did what was asked."),
    Exit.NOT_CLEAN: (
        "not clean",
        "Something stands, waits, needs a human or is broken; the output says what.",
    ),
    Exit.USAGE: (
        "usage",
        "A blank or wrong option, a name of several things, or a module that cannot be loaded.",
    ),
    Exit.NOTHING_VERIFIABLE: (
        "nothing could be verified",
        "There is no log, nothing in it has this name, or it cannot be read or written.",
    ),
    Exit.REFUSED: (
        "refused",
        "It was understood and refused; nothing was run, and nothing was changed.",
    ),
    Exit.HUNG_UP: (
        "hung up",
        "The terminal went away. What was begun is in the log; the same command goes on with it.",
    ),
    Exit.INTERRUPTED: (
        "interrupted",
        "Somebody pressed Ctrl-C. What was begun is in the log; the same command goes on with it.",
    ),
    Exit.TERMINATED: (
        "terminated",
        "SIGTERM came. What was begun is in the log; the same command goes on with it.",
    ),
}
"""Each exit code in a few words, and in full."""

_EXITS: Final[tuple[tuple[type[AgentSagaError], Exit], ...]] = (
    (ConfigurationError, Exit.USAGE),
    (Ambiguous, Exit.USAGE),
    (RefusedError, Exit.REFUSED),
    (RecoveryError, Exit.REFUSED),
    (ApprovalError, Exit.REFUSED),
    (NotFound, Exit.NOTHING_VERIFIABLE),
    (AgentSagaError, Exit.NOTHING_VERIFIABLE),
)


def exit_of(error: AgentSagaError) -> Exit:
    """Return the exit code of a command that ended with an error."""
    return next(code for kind, code in _EXITS if isinstance(error, kind))
