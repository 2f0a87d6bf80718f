"""What kind of effect a tool has: the one declaration that every tool needs.

- REVERSIBLE (or READ_ONLY, a word for reads): leaving it undone harms nobody. It needs no inverse
  to be clean and never becomes an orphan; an inverse that is given is run, but nothing waits for
  the disk.
- COMPENSABLE: somebody would miss or mind it; it has, or should have, an inverse.
- IRREVERSIBLE: nothing undoes it. A human lets it through; then it stands for ever (a pivot).
"""

from __future__ import annotations

from enum import Enum

from agent_saga.errors import ConfigurationError


class ActionSemantics(Enum):
    """How an effect can be taken back."""

    REVERSIBLE = "REVERSIBLE"
    COMPENSABLE = "COMPENSABLE"
    IRREVERSIBLE = "IRREVERSIBLE"
    READ_ONLY = "REVERSIBLE"  # noqa: PIE796 - an alias: a word for reads

    @classmethod
    def parse(cls, value: str | ActionSemantics) -> ActionSemantics:
        """Return the semantics that a user named, as a member or as a string.

        Raises:
            ConfigurationError: the value names no semantics; the message lists the names.
        """
        if isinstance(value, ActionSemantics):
            return value
        if isinstance(value, str):
            member = cls.__members__.get(value.strip().upper())
            if member is not None:
                return member
        names = ", ".join(cls.__members__)
        raise ConfigurationError(
            f"{value!r} is no action semantics.", fix=f"Use one of {names} (a string will do)."
        )
