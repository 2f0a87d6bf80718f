"""What a program says yes or no to, checked where it is given.

A promise that loosens something, as `idempotent` does, never comes of a text: "no" counts as true.
"""

from __future__ import annotations

from agent_saga.domain.durations import shown
from agent_saga.errors import ConfigurationError

__all__ = ["flag"]


def flag(what: str, value: object) -> bool:
    """Return True or False.

    Raises:
        ConfigurationError: it is something else, such as the text "false".
    """
    if value is True or value is False:
        return value
    raise ConfigurationError(f"{what} is True or False, not {shown(value)}.")
